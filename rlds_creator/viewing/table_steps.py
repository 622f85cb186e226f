"""The steps of a dataset of TFDS in TFRecord files, each read where it is; see `rlds.feeds`."""

from __future__ import annotations

import bisect
import itertools
import threading
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
from typing_extensions import override

from rlds import feeds
from rlds.sources.episodes import Episodes
from rlds.sources.source import AnySource
from rlds_creator.viewing.cache import Cache
from rlds_creator.viewing.source_steps import SourceSteps
from rlds_ecosystem.files.stores import is_local

__all__ = ["TableSteps", "Tables"]

_MOST_OPEN = 8
# To compare the checksum of a larger episode takes too long, and to read it too much memory.
_MOST_CHECKED = 32 << 20


class Tables:
    """The files of a dataset, each a table that is opened when one of its episodes is looked at.

    Args:
      source: The dataset.
    """

    def __init__(self, source: AnySource) -> None:
        assert source.can.shards is not None
        self._source, self._lengths = source, source.can.shards
        self._lock = threading.Lock()
        self._open: dict[str, feeds.Table] = {}

    @classmethod
    def of(cls, source: Any) -> Tables | None:
        """Returns those of a dataset; None if it cannot be read that way."""
        stored = source.can.examples
        is_here = stored is not None and is_local(stored.directory)
        return cls(source) if is_here and stored.folder.file_format == "tfrecord" else None

    def find(self, split: str, index: int) -> tuple[feeds.Table, int]:
        """Returns the table that an episode is in, and its number there.

        Raises:
          SourceError: The file is damaged, or was changed.
        """
        ends = list(itertools.accumulate(self._lengths(split)))
        shard = bisect.bisect_right(ends, index)
        name = f"{split}[{shard}shard]"
        with self._lock:
            if name not in self._open:
                episodes = Episodes(self._source, name)
                self._open[name] = feeds.open(episodes, decode_images=False, progress=False)
                while len(self._open) > _MOST_OPEN:
                    del self._open[next(iter(self._open))]
            return self._open[name], index - (ends[shard - 1] if shard else 0)

    def num_steps(self, split: str, index: int) -> int:
        """Returns how many steps an episode has."""
        table, row = self.find(split, index)
        return int(table.outlines.num_steps[row])


class TableSteps(SourceSteps):
    """The steps of an episode in a TFRecord file.

    Args:
      table: The table of the file.
      row: The number of the episode there.
      episodes: The episodes.
      index: Which of them.
      cache: Keeps columns of what has to be decoded.
      name: Names the episodes in the cache.

    Raises:
      SourceError: The episode is damaged.
    """

    def __init__(
        self,
        table: feeds.Table,
        row: int,
        episodes: Episodes,
        index: int,
        cache: Cache,
        name: str = "",
    ) -> None:
        self._table, self._row = table, row
        super().__init__(episodes, index, cache, name)
        self._small = [path for path in self._small if not self._is_direct(path)]

    @override
    def _read_about(self) -> None:
        storage, outlines = self._table.storage, self._table.outlines
        num_steps = int(outlines.num_steps[self._row])
        if sum(map(storage.bytes_of_step, storage.fields)) * num_steps <= _MOST_CHECKED:
            super()._read_about()
        else:
            fields = self._episodes.source.fields.episode
            columns = {name: storage.metadata_column(name) for name in fields}
            self.metadata = {name: c[self._row] for name, c in columns.items() if c is not None}
            self.has_last_action = not outlines.final_observation_known[self._row]
        self.num_steps = num_steps

    def _is_direct(self, path: str) -> bool:
        return path in self._table.fields and self._table.storage.is_random(path)

    def _take(self, steps: Sequence[int], paths: Sequence[str]) -> dict[str, np.ndarray]:
        episodes = np.full(len(steps), self._row, np.int64)
        return self._table.take(episodes, np.asarray(steps, np.int64), paths)

    @override
    def step(self, step: int, paths: Iterable[str]) -> dict[str, Any]:
        paths = [path for path in paths if path in self.fields]
        direct = [path for path in paths if self._is_direct(path)]
        others = [path for path in paths if path not in direct]
        values = super().step(step, others) if others else {}
        return values | {path: rows[0] for path, rows in self._take([step], direct).items()}

    @override
    def curves(self, path: str, steps: Sequence[int]) -> np.ndarray:
        if not self._is_direct(path):
            return super().curves(path, steps)
        return self._take(steps, [path])[path].astype(np.float64).reshape(len(steps), -1)
