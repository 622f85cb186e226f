"""Episodes of npz files in several parts of a conversion, and a source that can fail."""

import dataclasses
import os
from collections.abc import Collection
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from typing_extensions import override

from rlds.conversion import parts
from rlds.formats.npz.source import NpzSource
from rlds.sources.source import ALL_ROWS, Capabilities, SourceEpisode

NUM_EPISODES = 70
# So that few episodes have several parts, in each process with this module.
parts._MAX_EPISODES = 32


def write(folder: Path, count: int = NUM_EPISODES) -> Path:
    """Writes episodes of two to four steps."""
    folder.mkdir(parents=True)
    rng = np.random.default_rng(0)
    for index in range(count):
        length = 2 + index % 3
        arrays = {
            "observation/state": rng.random((length + 1, 3)).astype(np.float32),
            "observation/camera": rng.integers(0, 256, (length + 1, 60, 60, 3), np.uint8),
            "action": rng.random((length, 2)).astype(np.float32),
            "reward": rng.random(length),
            "note": np.array([f"ü{index}"] * (length + 1)),
            "terminal": np.array(True),
        }
        np.savez(folder / f"episode_{index:03d}.npz", **arrays)
    return folder


class Interrupted(BaseException):
    """Stands for Ctrl-C."""


class ManyEpisodes(NpzSource):
    """Files whose lengths may be unknown until they are read.

    Attributes:
      knows_lengths: Whether the source tells lengths without a read.
      reads: The episodes that this process has read with all fields.
      stop: The episode at which a read raises `Interrupted`.
      deadly: The episode at which the reading process dies.
    """

    knows_lengths: ClassVar[bool] = False
    reads: ClassVar[list[int]] = []
    stop: ClassVar[int | None] = None

    def __init__(self, path: Any, *, deadly: int | None = None) -> None:
        super().__init__(path)
        self.deadly = deadly

    @property
    @override
    def capabilities(self) -> Capabilities:
        every = super().capabilities
        return every if self.knows_lengths else dataclasses.replace(every, lengths=None)

    @override
    def read(
        self,
        split: str,
        index: int,
        fields: Collection[str] | None = None,
        rows: slice = ALL_ROWS,
    ) -> SourceEpisode:
        if fields is None:
            if index == self.stop:
                raise Interrupted
            if index == self.deadly:
                os._exit(3)
            self.reads.append(index)
        return super().read(split, index, fields, rows)
