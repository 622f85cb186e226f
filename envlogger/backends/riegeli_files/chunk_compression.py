"""Adaptive compression of chunks of steps: Brotli if it is smaller and the writer is idle."""

from __future__ import annotations

import io
from collections.abc import Callable, Sequence

import riegeli

__all__ = ["FAST", "SMALL", "ChunkCompression"]

FAST = "zstd:3"
"""The fast compression: several times as fast as SMALL in both directions."""

SMALL = "brotli:6"
"""The compression of the published EnvLogger. Halves frames of games, but not noise."""

# The minimum ratio of sizes at which SMALL pays, because reading it takes longer.
_MIN_SIZE_RATIO = 1.05

# Chunks are similar, so only one of this many chunks is compressed in both ways for comparison.
_TRIAL_PERIOD = 16

# The minimum size of a chunk to compare: smaller chunks are not representative, and gain little.
_MIN_CHUNK_SIZE = 1 << 15


class ChunkCompression:
    """Chooses the compression of chunks, for `riegeli.RecordWriter.set_compression`.

    Attributes:
      is_idle: A function that returns whether the writer has time for a slow compression.
    """

    def __init__(self) -> None:
        self.is_idle: Callable[[], bool] = lambda: False
        self._preferred = FAST
        self._num_chunks_to_trial = 0

    def __call__(self, records: Sequence[bytes]) -> str:
        """Returns the compression of a chunk of records."""
        if not self.is_idle() or sum(map(len, records)) < _MIN_CHUNK_SIZE:
            return FAST
        if self._num_chunks_to_trial == 0:
            self._num_chunks_to_trial = _TRIAL_PERIOD
            is_small_better = _measure(records, FAST) > _MIN_SIZE_RATIO * _measure(records, SMALL)
            self._preferred = SMALL if is_small_better else FAST
        self._num_chunks_to_trial -= 1
        return self._preferred


def _measure(records: Sequence[bytes], options: str) -> int:
    file = io.BytesIO()
    with riegeli.RecordWriter(file, owns_dest=False, options=options) as writer:
        writer.write_records(records)
    return len(file.getbuffer())
