"""Google's Atari DQN Replay: the replay buffers of DQN agents, checkpoint by checkpoint.

    observation        the frame, a PNG image of the shape of the arrays, usually (84, 84, 1)
    action, reward     unchanged; rewards are not clipped
    discount           1, and 0 for the transition into a terminal state
    game, run          the names of the folders of the episode
    checkpoint, row    the checkpoint of its first row, and the index of this row in the arrays
    padding_rows       the number of rows of zeros left out before it
    blank_rows         the number of rows of zeros in it
    spans_checkpoints  whether it continues in another checkpoint

A run is a folder of checkpoints (`rlds.formats.atari_dqn_replay.checkpoints`). Rows are
transitions, read in blocks; memory holds the PNG files of one episode. The frame after the last
transition is not stored: an episode of T transitions has T steps, and `final_observation_known` is
false. An episode may begin in one checkpoint and end in the next. A gap between them, and the begin
or end of the recording, may cut an episode: it then has `complete=False`.

Rows of zeros may be padding, which is not a step, or black frames.
`rlds.formats.atari_dqn_replay.episodes` has the rules. The counts are stored in `padding_rows` and
`blank_rows`.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Iterator, Mapping, Sequence

import numpy as np
from etils import epath
from typing_extensions import override

import rlds
from rlds.formats.atari_dqn_replay.checkpoints import (
    Checkpoint,
    find_directories,
    read_blocks,
    read_checkpoints,
)
from rlds.formats.atari_dqn_replay.episodes import Run, RunReader
from rlds.formats.atari_games import DQN_REPLAY_GAMES as GAMES
from rlds.raw_files.untrusted import source_errors
from rlds.sources.source import (
    DERIVED_DISCOUNT,
    Capabilities,
    DamagedEpisode,
    Fields,
    SourceEpisode,
    SourceError,
    SourceInfo,
    Stream,
)
from rlds_ecosystem.files import stores
from rlds_ecosystem.model.fields import Field

__all__ = ["BUCKET", "GAMES", "REPLAY_LOGS", "AtariDqnReplaySource"]

_CITATION = """@inproceedings{agarwal2020optimistic,
  title = {An Optimistic Perspective on Offline Reinforcement Learning},
  author = {Agarwal, Rishabh and Schuurmans, Dale and Norouzi, Mohammad},
  booktitle = {International Conference on Machine Learning},
  year = {2020}
}"""
BUCKET = "gs://atari-replay-datasets/dqn"
REPLAY_LOGS = "replay_logs"


class AtariDqnReplaySource(Stream):
    """Episodes of Google's Atari DQN Replay dataset.

    A part is a run, `<game>/<run>`; the key of an episode is `<game>/<run>:<checkpoint>:<row>`. The
    `begin` and `end` of its origin count the rows of the whole run.

    If a file is damaged, the rest of its checkpoint is lost, and reported as one damaged episode.
    Reading continues with the next checkpoint.

    Pickled files, such as `episode_end_indices` of later versions of the recorder, are not read.

    Args:
      path: A folder with the files of a run, or with several such folders, at most three levels
        below: `<Game>/<run>/replay_logs/`.
      stack_size: The number of frames in an observation of the agent: one more than the rows of
        zeros before an episode.
      max_episode_steps: The time limit.
      use_add_count: Whether to trust `add_count`. If False, or if such files are missing, the rows
        of a checkpoint are in order, and checkpoints with consecutive indices follow each other.

    Raises:
      FileNotFoundError: There are no such files.
      SourceError: A file is missing; the arrays of a checkpoint differ in length, or have other
        dtypes or ranks; checkpoints contradict each other.
      ValueError: An argument is not positive; two folders have the same game and run.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        stack_size: int = 4,
        max_episode_steps: int = 27_000,
        use_add_count: bool = True,
    ) -> None:
        for name, value in (("stack_size", stack_size), ("max_episode_steps", max_episode_steps)):
            if value < 1:
                raise ValueError(f"{name}: got {value}, expected a positive number")
        self._stack_size, self._max_episode_steps = stack_size, max_episode_steps
        self._use_add_count = use_add_count
        self._runs: dict[str, Run] = {}
        for directory in find_directories(stores.as_path(path)):
            with source_errors(directory):
                run = _read_run(directory, use_add_count)
            if run.part in self._runs:
                folder = os.fspath(directory)
                raise ValueError(f"{folder!r} is a second folder of the run {run.part!r}; pass one")
            self._runs[run.part] = run
        _check_same_kind(self._checkpoints())

    @functools.cached_property
    @override
    def fields(self) -> Fields:
        arrays = self._checkpoints()[0].arrays
        steps = {
            rlds.OBSERVATION: Field(
                np.uint8, (*arrays["observation"].shape[1:], 1), encoding="png"
            ),
            rlds.ACTION: Field(arrays["action"].dtype),
            rlds.REWARD: Field(arrays["reward"].dtype),
            rlds.DISCOUNT: DERIVED_DISCOUNT,
        }
        episode = {
            "game": Field(str),
            "run": Field(str),
            "checkpoint": np.int64,
            "row": np.int64,
            "padding_rows": np.int64,
            "blank_rows": np.int64,
            "spans_checkpoints": np.bool_,
        }
        return Fields(steps, episode)

    @functools.cached_property
    @override
    def source_info(self) -> SourceInfo:
        checkpoints = {
            part: [checkpoint.index for checkpoint in run.checkpoints]
            for part, run in self._runs.items()
        }
        return SourceInfo(
            description="The experience of DQN agents that learned to play Atari games, from their "
            "replay buffers.",
            homepage="https://research.google/resources/datasets/dqn-replay/",
            citation=_CITATION,
            metadata={"checkpoints": checkpoints},
            options={
                "stack_size": self._stack_size,
                "max_episode_steps": self._max_episode_steps,
                "use_add_count": self._use_add_count,
            },
            finite_fields=(rlds.REWARD,),
        )

    @property
    @override
    def capabilities(self) -> Capabilities:
        return Capabilities(totals=self._totals)

    def inputs(self) -> Sequence[epath.Path]:
        """Returns the files."""
        return [file for run in self._runs.values() for file in run.files]

    def parts(self, split: str) -> Sequence[str]:
        """Returns the runs."""
        del split
        return list(self._runs)

    def _totals(self, split: str) -> Mapping[str, int]:
        """Counts terminal rows, and rows with a reward, without reading frames."""
        del split
        totals = {"terminal": 0, "reward": 0}
        for name in totals:
            for checkpoint in self._checkpoints():
                for block in read_blocks(checkpoint, [name]):
                    totals[name] += int(np.count_nonzero(block.columns[0]))
        return {f"{name}_rows": total for name, total in totals.items()}

    def episodes(
        self, split: str, part: str, after: str | None = None
    ) -> Iterator[SourceEpisode | DamagedEpisode]:
        """Yields the episodes of a run; see `Stream.episodes`."""
        del split
        reader = RunReader(self._runs[part], self._stack_size - 1, self._max_episode_steps)
        return reader.episodes() if after is None else reader.episodes_after(after)

    def _checkpoints(self) -> list[Checkpoint]:
        return [checkpoint for run in self._runs.values() for checkpoint in run.checkpoints]


def _read_run(directory: epath.Path, use_add_count: bool) -> Run:
    folder = directory.resolve()
    if folder.name == REPLAY_LOGS:
        folder = folder.parent
    game, run = folder.parent.name, folder.name
    checkpoints, files = read_checkpoints(directory, f"{game}/{run}", use_add_count=use_add_count)
    return Run(game, run, checkpoints, files)


def _check_same_kind(checkpoints: Sequence[Checkpoint]) -> None:
    for name, first in checkpoints[0].arrays.items():
        expected = (first.dtype, first.shape[1:])
        for array in (checkpoint.arrays[name] for checkpoint in checkpoints):
            if (array.dtype, array.shape[1:]) != expected:
                raise SourceError(
                    f"rows of {array.dtype} and shape {array.shape[1:]}, but of {first.dtype} and "
                    f"shape {first.shape[1:]} in {first.label}",
                    file=array.label,
                )
