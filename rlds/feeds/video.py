"""Rows of pixels that are decoded out of clips; all other fields are read as they would be."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from typing_extensions import override

from rlds.feeds import arrays
from rlds.feeds.images import for_all_rows
from rlds.feeds.storage import Rows, Storage, hash_of
from rlds.sources.episodes import Episodes
from rlds.sources.video_frames import FramesSource
from rlds_ecosystem.fields import Field

__all__ = ["VideoStorage"]


class VideoStorage(Storage):
    """The steps of episodes with clips.

    Args:
      episodes: The episodes, of a `FramesSource`.
      fields: The fields of a step that are wanted, by their paths.
      others: Reads those that are not decoded.
      threads: How many threads decode; 0 for the one that asks, None for one of each processor.
    """

    def __init__(
        self, episodes: Episodes, fields: Mapping[str, Field], others: Storage, threads: int | None
    ) -> None:
        assert isinstance(episodes.source, FramesSource)
        self.source, self.threads = episodes.source, threads
        self.episodes, self.fields, self._others = episodes, fields, others
        self.outlines, self.why_cached = others.outlines, others.why_cached
        self.num_files, self.is_remote = others.num_files, others.is_remote

    @override
    def rows(self, episodes: np.ndarray, steps: np.ndarray, paths: Sequence[str]) -> Rows:
        stored = [path for path in paths if path not in self.source.cameras]
        return _VideoRows(self, episodes, steps, self._others.rows(episodes, steps, stored))

    @override
    def read_ahead(
        self, episodes: np.ndarray, firsts: np.ndarray, lasts: np.ndarray, paths: Sequence[str]
    ) -> None:
        stored = [path for path in paths if path not in self.source.cameras]
        self._others.read_ahead(episodes, firsts, lasts, stored)

    @override
    def check(self, episodes: np.ndarray) -> None:
        self._others.check(episodes)

    @override
    def metadata_column(self, name: str) -> np.ndarray | None:
        return self._others.metadata_column(name)

    def is_random(self, path: str) -> bool:
        """A frame costs no more than those from its keyframe on, wherever it is."""
        return path in self.source.cameras or self._others.is_random(path)

    @override
    def is_image(self, path: str) -> bool:
        return path in self.source.cameras or self._others.is_image(path)

    @override
    def fingerprint(self) -> str:
        return hash_of(self._others.fingerprint(), *self.source.cameras)

    @override
    def bytes_of_step(self, path: str) -> float:
        return self._others.bytes_of_step(path)


class _VideoRows(Rows):
    def __init__(
        self, storage: VideoStorage, episodes: np.ndarray, steps: np.ndarray, others: Rows
    ) -> None:
        self._storage, self._episodes = storage, episodes
        self._steps, self._others = steps, others

    def at(self, steps: np.ndarray) -> Rows:
        return _VideoRows(self._storage, self._episodes, steps, self._others.at(steps))

    def take(self, path: str) -> np.ndarray:
        source = self._storage.source
        info = source.cameras.get(path)
        if info is None:
            return self._others.take(path)
        images = arrays.empty((len(self._steps), *info.shape), info.dtype)
        # The frames of an episode, in their order; those that are wanted twice are decoded once.
        order = np.lexsort((self._steps, self._episodes))
        episodes, steps = self._episodes[order], self._steps[order]
        is_new = np.ones(len(order), bool)
        is_new[1:] = (np.diff(episodes) != 0) | (np.diff(steps) != 0)
        firsts = np.flatnonzero(is_new)
        begins = np.flatnonzero(np.diff(episodes[firsts], prepend=-1))
        groups = [rows for rows in np.split(firsts, begins[1:]) if len(rows)]

        def decode(chunk: range) -> None:
            for group in chunk:
                rows = groups[group]
                split, index = self._storage.episodes.place(int(episodes[rows[0]]))
                targets = [images[row] for row in order[rows].tolist()]
                source.read_frames(split, index, path, steps[rows], targets)

        for_all_rows(decode, len(groups), self._storage.threads)
        if len(firsts) < len(order):
            kept = order[firsts[np.cumsum(is_new) - 1]]
            for row, first in zip(order[~is_new].tolist(), kept[~is_new].tolist(), strict=True):
                images[row] = images[first]
        return images
