"""Google's Atari DQN Replay: the replay buffers of DQN agents, checkpoint by checkpoint.

    observation        the frame, a PNG image of shape (84, 84, 1), or as the arrays are
    action, reward     as they are; rewards are not clipped
    discount           1, and 0 for the transition into a terminal state
    game, run          of the episode: the names of its folders
    checkpoint, row    where its first row is: the number of the checkpoint, the index in its arrays
    padding_rows       how many rows of zeros were left out before it
    blank_rows         how many rows of zeros were kept
    spans_checkpoints  whether it goes on in another checkpoint

A run is a folder of checkpoints (`tfds_builders.atari_dqn_replay.checkpoints`). Their rows are
transitions, read in blocks; no more than the PNG files of one episode are held. The frame after the
last transition is not there: an episode of T transitions has T steps, and `final_observation_known`
is false. An episode may begin in one checkpoint and end in the next. At a gap between them, or
where the recording begins or ends in the middle of an episode, what there is of it is an episode
with `complete=False`.

Before each episode the buffer has `stack_size - 1` rows in which frame, action, reward and flag are
zero, so that frames can be stacked. They are no steps. But a frame may be black in the game, too,
so this is the rule:

- Where an episode begins (where reading begins, and after a terminal state), the first
  `stack_size - 1` rows of zeros are padding, and further ones are black frames. If there are fewer,
  all are black frames.
- Elsewhere, exactly `stack_size - 1` rows of zeros are padding, too: an end by the time limit
  leaves no other mark. More of them are black frames, unless the episode has reached its time limit
  (`max_episode_steps`).

What was taken for what is told by `padding_rows` and `blank_rows`.
"""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, ClassVar, NamedTuple

import numpy as np
import tensorflow_datasets as tfds
from dm_env import specs
from etils import epath

import rlds
from tfds_builders.alignment import from_sars
from tfds_builders.atari_dqn_replay.checkpoints import (
    ARRAYS,
    Checkpoint,
    find_directories,
    read_blocks,
    read_checkpoints,
)
from tfds_builders.builder import SourceBuilder
from tfds_builders.png_images import encode_png
from tfds_builders.rlu import atari as rlu_atari
from tfds_builders.source import DamagedEpisode, Origin, Source, SourceEpisode, SourceError
from tfds_builders.spec_features import feature_from_spec

__all__ = ["GAMES", "AtariDqnReplayConfig", "AtariDqnReplaySource", "RldsAtariDqnReplay"]

BUCKET = "gs://atari-replay-datasets/dqn"
GAMES = tuple(
    sorted(
        (
            *rlu_atari.GAMES,
            *("AirRaid", "Asteroids", "Berzerk", "Bowling", "ElevatorAction", "JourneyEscape"),
            *("MontezumaRevenge", "Pitfall", "PrivateEye", "Skiing", "Solaris", "Tennis"),
            *("Tutankham", "Venture"),
        )
    )
)
_REPLAY_LOGS = "replay_logs"


@dataclasses.dataclass(frozen=True)
class _Run:
    """The recording of one agent."""

    game: str
    run: str
    checkpoints: Sequence[Checkpoint]
    files: Sequence[epath.Path]

    @property
    def part(self) -> str:
        return f"{self.game}/{self.run}"


class AtariDqnReplaySource(Source):
    """Episodes of Google's Atari DQN Replay; see the module.

    A part is a run, `<game>/<run>`; the key of an episode is `<game>/<run>:<checkpoint>:<row>`. The
    `begin` and `end` of its origin count the rows of the whole run.

    Damage to a file costs the rest of its checkpoint, and is told as one damaged episode; reading
    goes on with the next checkpoint.

    Pickled files, such as `episode_end_indices` of later versions of the recorder, are not read.

    Args:
      path: A folder with the files of a run, or with several such folders, at most three levels
        below: `<Game>/<run>/replay_logs/`.
      stack_size: How many frames the agent saw at a time: one more than there are rows of zeros
        before an episode.
      max_episode_steps: The time limit.
      use_add_count: Whether `add_count` is believed. Otherwise the rows of a checkpoint are taken
        to be in order, and those of checkpoints with consecutive numbers to follow each other; as
        they are if there are no such files.

    Raises:
      FileNotFoundError: There are no such files.
      SourceError: A file is missing; the arrays of a checkpoint differ in length, or are not of the
        right kind; checkpoints contradict each other.
      ValueError: A number is not positive; two folders are of the same game and run.
    """

    description = (
        "The experience of DQN agents that learned to play Atari games, from their replay buffers."
    )
    homepage = "https://research.google/resources/datasets/dqn-replay/"
    citation = """@inproceedings{agarwal2020optimistic,
  title = {An Optimistic Perspective on Offline Reinforcement Learning},
  author = {Agarwal, Rishabh and Schuurmans, Dale and Norouzi, Mohammad},
  booktitle = {International Conference on Machine Learning},
  year = {2020}
}"""
    finite_fields = (rlds.REWARD,)

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        stack_size: int = 4,
        max_episode_steps: int = 27_000,
        use_add_count: bool = True,
    ) -> None:
        for name, number in (("stack_size", stack_size), ("max_episode_steps", max_episode_steps)):
            if number < 1:
                raise ValueError(f"{name}: got {number}, expected a positive number")
        self._stack_size, self._max_episode_steps = stack_size, max_episode_steps
        self._use_add_count = use_add_count
        self._runs: dict[str, _Run] = {}
        for directory in find_directories(epath.Path(path)):
            run = _read_run(directory, use_add_count)
            if run.part in self._runs:
                raise ValueError(f"two folders are of {run.part!r}: {os.fspath(directory)!r} too")
            self._runs[run.part] = run
        _check_same_kind(self._checkpoints())

    def step_features(self) -> Mapping[str, Any]:
        """Returns the features of a step; see `Source`."""
        arrays = self._checkpoints()[0].arrays
        return {
            rlds.OBSERVATION: tfds.features.Image(
                shape=(*arrays["observation"].shape[1:], 1), encoding_format="png"
            ),
            rlds.ACTION: feature_from_spec(specs.Array((), arrays["action"].dtype)),
            rlds.REWARD: feature_from_spec(specs.Array((), arrays["reward"].dtype)),
            rlds.DISCOUNT: np.float32,
        }

    def episode_features(self) -> Mapping[str, Any]:
        """Returns the features of an episode; see the module."""
        return {
            "game": tfds.features.Text(),
            "run": tfds.features.Text(),
            "checkpoint": np.int64,
            "row": np.int64,
            "padding_rows": np.int64,
            "blank_rows": np.int64,
            "spans_checkpoints": np.bool_,
        }

    def metadata(self) -> Mapping[str, Any]:
        """Returns which checkpoints of which runs there are."""
        checkpoints = {
            part: [checkpoint.number for checkpoint in run.checkpoints]
            for part, run in self._runs.items()
        }
        return {"checkpoints": checkpoints}

    def inputs(self) -> Sequence[epath.Path]:
        """Returns the files."""
        return [file for run in self._runs.values() for file in run.files]

    def options(self) -> Mapping[str, Any]:
        """Returns the arguments."""
        return {
            "stack_size": self._stack_size,
            "max_episode_steps": self._max_episode_steps,
            "use_add_count": self._use_add_count,
        }

    def parts(self, split: str) -> Sequence[str]:
        """Returns the runs."""
        del split
        return list(self._runs)

    def totals(self, split: str) -> Mapping[str, int]:
        """Returns how many rows are terminal, and how many have a reward, by these arrays alone."""
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
        """Yields the episodes of a run; see `Source.episodes`."""
        del split
        reader = _RunReader(self._runs[part], self._stack_size - 1, self._max_episode_steps)
        return reader.episodes() if after is None else reader.episodes_after(after)

    def _checkpoints(self) -> list[Checkpoint]:
        return [checkpoint for run in self._runs.values() for checkpoint in run.checkpoints]


def _read_run(directory: epath.Path, use_add_count: bool) -> _Run:
    folder = directory.resolve()
    if folder.name == _REPLAY_LOGS:
        folder = folder.parent
    game, run = folder.parent.name, folder.name
    checkpoints, files = read_checkpoints(directory, f"{game}/{run}", use_add_count=use_add_count)
    return _Run(game, run, checkpoints, files)


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


# --- From rows to episodes -----------------------------------------------------------------------


class _Row(NamedTuple):
    """A transition, but for its frame, and where it is."""

    checkpoint: int
    row: int
    recorded: int  # How many rows were recorded before.
    action: np.generic
    reward: np.generic
    is_terminal: bool


@dataclasses.dataclass
class _Draft:
    """An episode that is being read.

    Attributes:
      begins_whole: Whether nothing is missing before its first row.
      may_have_padding: Whether rows of zeros that come first may be padding.
    """

    begins_whole: bool
    may_have_padding: bool = True
    padding_rows: int = 0
    blank_rows: int = 0
    rows: list[_Row] = dataclasses.field(default_factory=list)
    frames: list[bytes] = dataclasses.field(default_factory=list)


class _RunReader:
    """Divides the rows of a run into episodes, once.

    Args:
      run: The run.
      padding: How many rows of zeros are before an episode.
      max_episode_steps: The time limit.
    """

    def __init__(self, run: _Run, padding: int, max_episode_steps: int) -> None:
        self._run, self._padding, self._limit = run, padding, max_episode_steps
        self._draft = _Draft(begins_whole=True)
        self._blank: list[_Row] = []  # Rows of zeros that may be padding or not.
        self._fraction = 0.0
        self._encodes = True
        _, *frame_shape = run.checkpoints[0].arrays["observation"].shape
        self._black = encode_png(np.zeros((*frame_shape, 1), np.uint8))

    def episodes(self) -> Iterator[SourceEpisode | DamagedEpisode]:
        """Yields all episodes."""
        return self._read(0, None)

    def episodes_after(self, key: str) -> Iterator[SourceEpisode | DamagedEpisode]:
        """Yields the episodes after that with a key. It is passed over, those before not read."""
        number, row = map(int, key.split(":")[-2:])
        index = [checkpoint.number for checkpoint in self._run.checkpoints].index(number)
        self._draft.may_have_padding = False  # The key names the row after it.
        self._encodes = False
        episodes = self._read(index, row)
        next(episodes)
        yield from episodes

    def _read(self, first: int, start: int | None) -> Iterator[SourceEpisode | DamagedEpisode]:
        for index, checkpoint in enumerate(self._run.checkpoints[first:], first):
            if start is None and not checkpoint.is_joined:
                yield from self._cut()
            try:
                for row, frame in self._rows(index, start):
                    yield from self._add(row, frame)
            except SourceError as error:
                is_last = index == len(self._run.checkpoints) - 1
                yield self._damaged(checkpoint.number, error, ends_part=is_last)
            start = None
        yield from self._cut()

    def _rows(self, index: int, start: int | None) -> Iterator[tuple[_Row, np.ndarray | None]]:
        """Yields the transitions of a checkpoint with their frames, None for a row of zeros."""
        checkpoint = self._run.checkpoints[index]
        sizes = [c.arrays["observation"].file.stat().length for c in self._run.checkpoints]
        for block in read_blocks(checkpoint, list(ARRAYS), start):
            self._fraction = (sum(sizes[:index]) + block.fraction * sizes[index]) / sum(sizes)
            frames, actions, rewards, terminals = block.columns
            if terminals.max() > 1:
                wrong = int(np.argmax(terminals > 1))
                what = f"the flag is {terminals[wrong]}, expected 0 or 1"
                label = checkpoint.arrays["terminal"].label
                raise SourceError(what, file=label, row=block.row + wrong)
            is_blank = ~(
                frames.any(axis=(1, 2)) | (actions != 0) | (rewards != 0) | (terminals != 0)
            )
            for i, frame in enumerate(frames):
                row = _Row(
                    checkpoint=checkpoint.number,
                    row=block.row + i,
                    recorded=block.recorded + i,
                    action=actions[i],
                    reward=rewards[i],
                    is_terminal=bool(terminals[i]),
                )
                yield row, None if is_blank[i] else frame

    def _add(self, row: _Row, frame: np.ndarray | None) -> Iterator[SourceEpisode]:
        if frame is None:
            self._blank.append(row)
            return
        yield from self._settle_blank_rows()
        self._append(row, frame)
        if row.is_terminal:
            yield self._finish(is_complete=True)

    def _settle_blank_rows(self, *, at_cut: bool = False) -> Iterator[SourceEpisode]:
        """Decides what the rows of zeros are that were read last; see the module."""
        blank, self._blank = self._blank, []
        if not blank:
            return
        begins = not self._draft.rows
        if begins:
            # Where the recording is cut, the rest of the padding may be missing.
            is_padding = len(blank) >= self._padding or at_cut
            is_padding &= self._draft.may_have_padding
        else:
            is_padding = len(blank) == self._padding or (
                len(blank) > self._padding and len(self._draft.rows) >= self._limit
            )
        if is_padding and self._padding:
            if not begins:
                yield self._finish(is_complete=True)
            self._draft.begins_whole = True
            self._draft.padding_rows = self._padding
            blank = blank[self._padding :]
        for row in blank:
            self._draft.blank_rows += 1
            self._append(row, None)

    def _append(self, row: _Row, frame: np.ndarray | None) -> None:
        self._draft.rows.append(row)
        if self._encodes:
            self._draft.frames.append(
                self._black if frame is None else encode_png(frame[..., np.newaxis])
            )

    def _cut(self) -> Iterator[SourceEpisode]:
        """Ends the episode where the recording does; another begins somewhere."""
        yield from self._settle_blank_rows(at_cut=True)
        if self._draft.rows:
            yield self._finish(is_complete=False)
        self._draft = _Draft(begins_whole=False)

    def _damaged(self, number: int, error: SourceError, *, ends_part: bool) -> DamagedEpisode:
        """Gives up the episode, and the rest of its checkpoint."""
        rows = self._draft.rows
        checkpoint, row = (rows[0].checkpoint, rows[0].row) if rows else (number, error.row)
        self._draft, self._blank = _Draft(begins_whole=False), []
        self._encodes = True
        return DamagedEpisode(f"{self._run.part}:{checkpoint}:{row}", error, ends_part)

    def _finish(self, *, is_complete: bool) -> SourceEpisode:
        draft, self._draft = self._draft, _Draft(begins_whole=True)
        self._encodes, was_read = True, self._encodes
        first, last = draft.rows[0], draft.rows[-1]
        frames = np.empty(len(draft.rows), object)
        frames[:] = draft.frames if was_read else self._black
        rewards = np.array([row.reward for row in draft.rows])
        return SourceEpisode(
            key=f"{self._run.part}:{first.checkpoint}:{first.row}",
            steps=from_sars(
                observation=frames,
                action=np.array([row.action for row in draft.rows]),
                reward=rewards,
                terminal=last.is_terminal,
            ),
            origin=Origin(self._run.part, first.recorded, last.recorded + 1),
            truncated=not last.is_terminal,
            final_observation_known=False,
            complete=is_complete and draft.begins_whole,
            metadata={
                "game": self._run.game,
                "run": self._run.run,
                "checkpoint": np.int64(first.checkpoint),
                "row": np.int64(first.row),
                "padding_rows": np.int64(draft.padding_rows),
                "blank_rows": np.int64(draft.blank_rows),
                "spans_checkpoints": np.bool_(first.checkpoint != last.checkpoint),
            },
            counts={
                "terminal_rows": int(last.is_terminal),
                "reward_rows": int(np.count_nonzero(rewards)),
            },
            fraction=self._fraction,
        )


# --- The builder ---------------------------------------------------------------------------------


@dataclasses.dataclass
class AtariDqnReplayConfig(tfds.core.BuilderConfig):  # type: ignore[misc]
    """Which run is converted, and how; see `AtariDqnReplaySource`.

    Attributes:
      directory: Its folder, below the one that all is published in.
      stack_size: See the source.
      max_episode_steps: See the source.
      use_add_count: See the source.
    """

    directory: str = ""
    stack_size: int = 4
    max_episode_steps: int = 27_000
    use_add_count: bool = True


class RldsAtariDqnReplay(SourceBuilder):
    """Episodes of Google's Atari DQN Replay; see `tfds_builders.atari_dqn_replay.source`.

    There is a config for each run, such as `Pong_run_1`. The default, `files`, is for any other
    folders, and needs a `path`.
    """

    VERSION = tfds.core.Version("1.0.0")
    RELEASE_NOTES: ClassVar[dict[str, str]] = {"1.0.0": "Initial release."}
    BUILDER_CONFIGS: ClassVar[list[AtariDqnReplayConfig]] = [
        AtariDqnReplayConfig(name="files", description="Runs that are given by their path."),
        *(
            AtariDqnReplayConfig(
                name=f"{game}_run_{run}",
                description=f"Run {run} of {game}, from {BUCKET}/{game}/{run}/{_REPLAY_LOGS}.",
                directory=f"{game}/{run}",
            )
            for game in GAMES
            for run in range(1, 6)
        ),
    ]

    def make_source(self, path: epath.Path) -> AtariDqnReplaySource:
        """Returns the source for the folders of runs, see `SourceBuilder`."""
        config = self.builder_config
        return AtariDqnReplaySource(
            path,
            stack_size=config.stack_size,
            max_episode_steps=config.max_episode_steps,
            use_add_count=config.use_add_count,
        )

    def raw_name(self) -> str:
        """Returns the folder of the run below the `manual_dir`, as it is published."""
        return str(self.builder_config.directory)

    def url(self) -> str | None:
        """Returns where the run is published."""
        directory = self.builder_config.directory
        return f"{BUCKET}/{directory}" if directory else None
