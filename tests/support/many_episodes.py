"""Episodes of npz files, enough for several parts; what reads them can be told to fail."""

import dataclasses
import os
from collections.abc import Collection
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from typing_extensions import override

from rlds.conversion import parts
from rlds.formats.npz.source import NpzSource
from rlds.sources.source import ALL_ROWS, Can, SourceEpisode

NUMBER = 70
# So that few episodes are several parts, in each process that imports this.
parts._MAX_EPISODES = 32


def write(folder: Path, number: int = NUMBER) -> Path:
    """Writes episodes of two to four steps."""
    folder.mkdir(parents=True)
    rng = np.random.default_rng(0)
    for index in range(number):
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
    """Files whose lengths are known when they are read only, if they are said to be.

    Attributes:
      knows_lengths: Whether they are known before.
      reads: The episodes that this process has read whole.
      stop: That at which it is interrupted.
      deadly: That of which the process dies that reads it.
    """

    knows_lengths: ClassVar[bool] = False
    reads: ClassVar[list[int]] = []
    stop: ClassVar[int | None] = None

    def __init__(self, path: Any, *, deadly: int | None = None) -> None:
        super().__init__(path)
        self.deadly = deadly

    @property
    @override
    def can(self) -> Can:
        can = super().can
        return can if self.knows_lengths else dataclasses.replace(can, lengths=None)

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
