"""Rebuilds the index of a shard from its steps, for crash recovery."""

from __future__ import annotations

import array
import dataclasses
import math
import os
from collections.abc import Callable

import numpy as np

import riegeli
from envlogger.backends.riegeli_files import layout
from envlogger.backends.riegeli_files.episode_rule import StepKind, parse_kind
from envlogger.backends.riegeli_files.shard_reader import Shard, scan_records
from envlogger.damage import Damage
from envlogger.errors import StorageError
from envlogger.proto.storage_pb2 import Data

__all__ = ["RebuiltShard", "ShardEpisode", "find_damage", "rebuild"]

_ADVICE = "envlogger.recover makes episodes from them"


@dataclasses.dataclass
class ShardEpisode:
    """An episode of a shard.

    Attributes:
      start: The index of the first step.
      metadata: The position of the metadata in the metadata file; the serialized `Data` of metadata
        outside of the file; or -1 without metadata.
      is_from_index: Whether only the index marks the begin of the episode, not its first step.
    """

    start: int
    metadata: int | bytes = layout.NO_METADATA
    is_from_index: bool = False


class RebuiltShard:
    """The episodes of a shard, rebuilt from its file of steps for crash recovery.

    The index takes precedence: steps that it skips were discarded. Later, unindexed steps follow
    `episode_rule`. Steps after a damaged region, up to the begin of the next episode, become a
    separate episode.

    Attributes:
      positions: The record positions of the steps, int64 [num_steps].
      episodes: The episodes.
      regions: The damaged regions of the file.
      num_lost_steps: The number of indexed steps that are missing in the file.
    """

    def __init__(self, shard: Shard, first_step: int = 0) -> None:
        self.positions = array.array("q")
        self.episodes: list[ShardEpisode] = []
        self.regions: list[riegeli.SkippedRegion] = []
        self.num_lost_steps = 0
        self._offsets = shard.step_offsets
        self._rows = shard.all_rows
        self._covers_episodes = shard.covers_episodes
        # The first step whose episode may be missing in the index.
        self._uncertain_from: float = 0
        if shard.covers_episodes:
            self._uncertain_from = math.inf
        elif len(self._rows):
            self._uncertain_from = int(self._rows[-1, 0])
        self._step_index = first_step  # The index of the next step.
        self._row = -1  # The row of the current episode in the episode index.
        self._has_valid_index = True  # False if a gap may make the index wrong.
        self._in_episode = False
        self._is_after_last = False
        self._has_gap = False  # True after damage behind the last step.

    def add(self, position: int, record: bytes) -> None:
        """Adds the next record of the file."""
        if len(self._offsets) and position <= self._offsets[-1]:
            self._add_indexed(position, record)
            return
        if self._step_index < len(self._offsets):
            self.end()
            self._has_gap = True
        if self._step_index == len(self._offsets) and self._covers_episodes:
            self._in_episode = False
        if self._has_gap:
            self._has_valid_index = False
        kind = parse_kind(record)
        if kind.is_step:
            self._add_unindexed(position, kind)
        elif kind.mark == Data.DISCARDED:
            self._discard()
        elif self._in_episode:
            self._add_metadata(record)

    def add_damage(self, region: riegeli.SkippedRegion) -> None:
        """Adds the next damaged region of the file."""
        self.regions.append(region)
        self._has_gap = True

    def end(self) -> None:
        """Counts the missing indexed steps; call it after the last indexed step."""
        num_missing = max(0, len(self._offsets) - self._step_index)
        self.num_lost_steps += num_missing
        self._step_index += num_missing

    def _add_indexed(self, position: int, record: bytes) -> None:
        step_index = self._step_index
        while self._offsets[step_index] < position:
            step_index += 1
        if self._offsets[step_index] > position:
            return  # Discarded steps have no episode.
        self._has_gap = step_index > self._step_index
        self.num_lost_steps += step_index - self._step_index
        self._step_index = step_index
        kind = parse_kind(record)
        if self._advance_row():
            self._begin_episode(int(self._rows[self._row, 1]))
        elif (
            self._has_gap
            or not self._in_episode
            or (step_index >= self._uncertain_from and kind.begins_episode(self._is_after_last))
        ):
            self._begin_episode(layout.NO_METADATA)
        self._add_step(position, kind)

    def _advance_row(self) -> bool:
        """Advances to the index row of the current step; returns whether the row changed."""
        old_row = self._row
        while self._row + 1 < len(self._rows) and self._rows[self._row + 1, 0] <= self._step_index:
            self._row += 1
        return self._row != old_row

    def _add_unindexed(self, position: int, kind: StepKind) -> None:
        # The episode index may be longer than the step index.
        is_new_row = self._has_valid_index and self._advance_row()
        is_new_episode = kind.begins_episode(self._is_after_last)
        is_new_episode |= self._has_gap or not self._in_episode
        if is_new_episode or (is_new_row and not self._covers_episodes):
            metadata = layout.NO_METADATA
            if self._has_valid_index and self._row >= 0:
                start, offset = self._rows[self._row]
                metadata = int(offset) if start == self._step_index else metadata
            self._begin_episode(metadata, is_from_index=not is_new_episode)
        self._add_step(position, kind)

    def _begin_episode(self, metadata: int, *, is_from_index: bool = False) -> None:
        self.episodes.append(ShardEpisode(len(self.positions), metadata, is_from_index))
        self._in_episode = True

    def _add_step(self, position: int, kind: StepKind) -> None:
        self.positions.append(position)
        self._step_index += 1
        self._is_after_last = kind.is_last
        self._has_gap = False

    def _discard(self) -> None:
        if self._in_episode and not self._has_gap:
            # The index refers to later steps, which replaced the discarded steps.
            while (episode := self.episodes.pop()).is_from_index:
                pass
            self._step_index -= len(self.positions) - episode.start
            del self.positions[episode.start :]
            self._row = int(np.searchsorted(self._rows[:, 0], self._step_index)) - 1
        self._in_episode = self._is_after_last = False

    def _add_metadata(self, record: bytes) -> None:
        episode = self.episodes[-1]
        if isinstance(episode.metadata, bytes) or episode.metadata == layout.NO_METADATA:
            data = Data.FromString(record)
            data.ClearField("episode_mark")
            episode.metadata = data.SerializeToString()


def rebuild(
    shard: Shard, first_step: int = 0, on_progress: Callable[[int], None] = lambda _: None
) -> RebuiltShard:
    """Reads the steps of a shard, from an indexed step or from the begin of the file.

    Args:
      shard: The shard.
      first_step: The index of the first step to read.
      on_progress: Called regularly with the position in the file.

    Raises:
      StorageError: The file cannot be read.
    """
    rebuilt = RebuiltShard(shard, first_step)
    path = shard.directory / layout.STEPS_FILE
    begin = int(shard.step_offsets[first_step]) if first_step else 0
    try:
        for i, item in enumerate(scan_records(path, begin)):
            if isinstance(item, riegeli.SkippedRegion):
                rebuilt.add_damage(item)
            else:
                rebuilt.add(*item)
                if i % 1000 == 0:
                    on_progress(item[0])
    except FileNotFoundError:
        pass
    except OSError as e:
        raise StorageError(f"cannot read {path}: {e}") from e
    rebuilt.end()
    return rebuilt


def find_damage(shard: Shard) -> list[Damage]:
    """Returns the damage of a shard; reads only the unindexed steps."""
    path = os.fspath(shard.directory / layout.STEPS_FILE)
    damages = list(shard.damage)
    num_steps = len(shard.step_offsets)
    num_early = int(shard.episode_starts[0]) if len(shard.episode_starts) else num_steps
    num_late = 0 if num_early == num_steps else num_steps - shard.episodes_end
    for num_unindexed, position in ((num_early, "before the first"), (num_late, "after the last")):
        if num_unindexed:
            problem = f"has steps {position} episode of the index"
            damages.append(Damage(path, problem, num_unindexed, advice=_ADVICE))
    rebuilt = rebuild(shard, max(0, num_steps - 1))
    last_offset = shard.step_offsets[-1] if num_steps else -1
    unindexed = [position for position in rebuilt.positions if position > last_offset]
    if unindexed:
        num_bytes = shard.steps_size - unindexed[0]
        damages.append(Damage(path, "has steps without index", len(unindexed), num_bytes, _ADVICE))
    for region in rebuilt.regions:
        problem = f"is damaged or cut off at byte {region.begin}"
        damages.append(Damage(path, problem, None, region.length, region.message))
    return damages
