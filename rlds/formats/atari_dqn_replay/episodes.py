"""Episodes from the rows of a run of Dopamine: steps, terminals and boundaries.

Before each episode, the buffer has `stack_size - 1` rows of zeros (frame, action, reward and flag),
for stacks of frames. These padding rows are no steps. A frame may also be black in the game. Rules:

- At the beginning of an episode (of the recording, or after a terminal state), the first
  `stack_size - 1` rows of zeros are padding, and more rows are black frames. If there are fewer,
  all are black frames.
- Elsewhere, exactly `stack_size - 1` rows of zeros are also padding: a time limit leaves no other
  mark. A longer run is black frames, except after `max_episode_steps` (the time limit).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
from etils import epath

from rlds.alignment import from_sars
from rlds.formats.atari_dqn_replay.checkpoints import ARRAYS, Checkpoint, read_blocks
from rlds.sources.source import DamagedEpisode, Origin, SourceEpisode, SourceError
from rlds_ecosystem.model.columns import objects
from tfds_files.png import encode_png

__all__ = ["Run", "RunReader"]


@dataclasses.dataclass(frozen=True)
class Run:
    """The recording of one agent."""

    game: str
    run: str
    checkpoints: Sequence[Checkpoint]
    files: Sequence[epath.Path]

    @property
    def part(self) -> str:
        """The name of the part in the dataset."""
        return f"{self.game}/{self.run}"


class _Row(NamedTuple):
    """A transition without its frame, and its location."""

    checkpoint: int
    row: int
    num_recorded: int  # The number of rows recorded before this row.
    action: np.generic
    reward: np.generic
    is_terminal: bool


@dataclasses.dataclass
class _EpisodeDraft:
    """An unfinished episode.

    Attributes:
      begins_whole: Whether the recording has its first row.
      may_have_padding: Whether rows of zeros at its beginning may be padding.
    """

    begins_whole: bool
    may_have_padding: bool = True
    padding_rows: int = 0
    blank_rows: int = 0
    rows: list[_Row] = dataclasses.field(default_factory=list)
    frames: list[bytes] = dataclasses.field(default_factory=list)


class RunReader:
    """Divides the rows of a run into episodes, in a single pass.

    Args:
      run: The run.
      padding: The number of rows of zeros before an episode.
      max_episode_steps: The time limit.
    """

    def __init__(self, run: Run, padding: int, max_episode_steps: int) -> None:
        self._run, self._padding, self._limit = run, padding, max_episode_steps
        self._sizes = [c.arrays["observation"].file.stat().length for c in run.checkpoints]
        self._draft = _EpisodeDraft(begins_whole=True)
        self._blank: list[_Row] = []  # Zero rows that may be padding or steps.
        self._fraction = 0.0
        self._encodes = True
        _, *frame_shape = run.checkpoints[0].arrays["observation"].shape
        self._black = encode_png(np.zeros((*frame_shape, 1), np.uint8))

    def episodes(self) -> Iterator[SourceEpisode | DamagedEpisode]:
        """Yields all episodes."""
        return self._read(0, None)

    def episodes_after(self, key: str) -> Iterator[SourceEpisode | DamagedEpisode]:
        """Yields the episodes after the episode with a key, without reading earlier episodes."""
        checkpoint_index, row = map(int, key.split(":")[-2:])
        index = [checkpoint.index for checkpoint in self._run.checkpoints].index(checkpoint_index)
        self._draft.may_have_padding = False  # The key is the row after the episode.
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
                yield self._make_damaged(checkpoint.index, error, ends_part=is_last)
            start = None
        yield from self._cut()

    def _rows(self, index: int, start: int | None) -> Iterator[tuple[_Row, np.ndarray | None]]:
        """Yields the transitions of a checkpoint with their frames; None for a row of zeros."""
        checkpoint = self._run.checkpoints[index]
        offset, size = sum(self._sizes[:index]), self._sizes[index]
        for block in read_blocks(checkpoint, list(ARRAYS), start):
            self._fraction = (offset + block.fraction * size) / sum(self._sizes)
            frames, actions, rewards, terminals = block.columns
            if terminals.max() > 1:
                invalid = int(np.argmax(terminals > 1))
                problem = f"the flag is {terminals[invalid]}, expected 0 or 1"
                label = checkpoint.arrays["terminal"].label
                raise SourceError(problem, file=label, row=block.row + invalid)
            is_blank = ~(
                frames.any(axis=(1, 2)) | (actions != 0) | (rewards != 0) | (terminals != 0)
            )
            for i, frame in enumerate(frames):
                row = _Row(
                    checkpoint=checkpoint.index,
                    row=block.row + i,
                    num_recorded=block.num_recorded + i,
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
        """Decides whether the last rows of zeros are padding; see the module."""
        blank, self._blank = self._blank, []
        if not blank:
            return
        is_first = not self._draft.rows
        if is_first:
            # If the recording is cut, the rest of the padding may be missing.
            is_padding = len(blank) >= self._padding or at_cut
            is_padding &= self._draft.may_have_padding
        else:
            is_padding = len(blank) == self._padding or (
                len(blank) > self._padding and len(self._draft.rows) >= self._limit
            )
        if is_padding and self._padding:
            if not is_first:
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
                self._black if frame is None else encode_png(frame[..., np.newaxis], filters=False)
            )

    def _cut(self) -> Iterator[SourceEpisode]:
        """Ends the episode where the recording is cut."""
        yield from self._settle_blank_rows(at_cut=True)
        if self._draft.rows:
            yield self._finish(is_complete=False)
        self._draft = _EpisodeDraft(begins_whole=False)

    def _make_damaged(self, index: int, error: SourceError, *, ends_part: bool) -> DamagedEpisode:
        """Discards the episode, and the rest of its checkpoint."""
        rows = self._draft.rows
        checkpoint, row = (rows[0].checkpoint, rows[0].row) if rows else (index, error.row)
        self._draft, self._blank = _EpisodeDraft(begins_whole=False), []
        self._encodes = True
        return DamagedEpisode(f"{self._run.part}:{checkpoint}:{row}", error, ends_part)

    def _finish(self, *, is_complete: bool) -> SourceEpisode:
        draft, self._draft = self._draft, _EpisodeDraft(begins_whole=True)
        self._encodes, was_read = True, self._encodes
        first_row, last_row = draft.rows[0], draft.rows[-1]
        frames = objects(draft.frames if was_read else [self._black] * len(draft.rows))
        rewards = np.array([row.reward for row in draft.rows])
        return SourceEpisode(
            key=f"{self._run.part}:{first_row.checkpoint}:{first_row.row}",
            steps=from_sars(
                observation=frames,
                action=np.array([row.action for row in draft.rows]),
                reward=rewards,
                terminal=last_row.is_terminal,
            ),
            origin=Origin(self._run.part, first_row.num_recorded, last_row.num_recorded + 1),
            truncated=not last_row.is_terminal,
            final_observation_known=False,
            complete=is_complete and draft.begins_whole,
            metadata={
                "game": self._run.game,
                "run": self._run.run,
                "checkpoint": np.int64(first_row.checkpoint),
                "row": np.int64(first_row.row),
                "padding_rows": np.int64(draft.padding_rows),
                "blank_rows": np.int64(draft.blank_rows),
                "spans_checkpoints": np.bool_(first_row.checkpoint != last_row.checkpoint),
            },
            counts={
                "terminal_rows": int(last_row.is_terminal),
                "reward_rows": int(np.count_nonzero(rewards)),
            },
            fraction=self._fraction,
        )
