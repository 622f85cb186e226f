"""Rows of pixels that are decoded out of clips; all other fields are read as they would be."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from typing_extensions import override

from rlds.feeds import arrays
from rlds.feeds.images import for_all_rows
from rlds.feeds.storage import Rows, Storage, WrappedStorage, hash_of
from rlds.sources.episodes import Episodes
from rlds.sources.video_frames import FramesSource
from rlds_ecosystem.model.fields import Field

__all__ = ["VideoStorage"]


class VideoStorage(WrappedStorage):
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
        super().__init__(others)
        self.episodes, self.fields = episodes, fields

    @override
    def made_of(self, path: str) -> Sequence[str]:
        return [] if path in self.source.cameras or path in self.source.marks else [path]

    @override
    def rows(self, episodes: np.ndarray, steps: np.ndarray, paths: Sequence[str]) -> Rows:
        others = self.storage.rows(episodes, steps, self.needed(paths))
        return _VideoRows(self, episodes, steps, others, paths)

    @override
    def is_image(self, path: str) -> bool:
        return path in self.source.cameras or super().is_image(path)

    @override
    def fingerprint(self) -> str:
        cameras = self.source.cameras.items()
        units = [f"{path} {field.unit}" if field.unit else path for path, field in cameras]
        return hash_of(self.storage.fingerprint(), *units)


class _VideoRows(Rows):
    def __init__(
        self,
        storage: VideoStorage,
        episodes: np.ndarray,
        steps: np.ndarray,
        others: Rows,
        paths: Sequence[str],
    ) -> None:
        self._storage, self._episodes = storage, episodes
        self._steps, self._others, self._paths = steps, others, paths

    def at(self, steps: np.ndarray) -> Rows:
        return _VideoRows(self._storage, self._episodes, steps, self._others.at(steps), self._paths)

    def take(self, path: str) -> np.ndarray:
        source = self._storage.source
        if path not in source.cameras and path not in source.marks:
            return self._others.take(path)
        field = self._storage.fields[path]
        images = arrays.empty((len(self._steps), *map(int, field.shape)), field.dtype)  # type: ignore[arg-type]
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
                if path in source.marks:
                    camera = source.marks[path]
                    images[order[rows]] = source.have_frames(split, index, camera, steps[rows])
                    continue
                targets = [images[row] for row in order[rows].tolist()]
                source.read_frames(split, index, path, steps[rows], targets, self._paths)

        for_all_rows(decode, len(groups), self._storage.threads)
        if len(firsts) < len(order):
            kept = order[firsts[np.cumsum(is_new) - 1]]
            for row, first in zip(order[~is_new].tolist(), kept[~is_new].tolist(), strict=True):
                images[row] = images[first]
        return images
