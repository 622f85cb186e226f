"""Writes the HDF5 files of D4RL and d4rl-pybullet again, from episodes that came from them.

All arrays equal the original ones in every bit, and so do dtypes, shapes, attributes, and how they
are compressed. The file as a whole may differ in bytes: how HDF5 lays it out depends on who writes
it. Signalling NaNs of float32 come back as quiet ones, as TFDS stores them.
"""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, TypeAlias

import numpy as np

import rlds
from rlds.formats.d4rl.hdf5 import make_file
from rlds.formats.d4rl.layout import FIELDS, NEXT_OBSERVATIONS
from rlds.formats.d4rl.pybullet import FIRST_REWARD, LAST_ACTION
from rlds.sources.episodes import Episodes
from rlds.sources.exporting import Export, Placement, as_it_was
from rlds.sources.source import SourceEpisode, files_of
from rlds_ecosystem.nests import at

__all__ = ["D4rlExport", "D4rlPybulletExport", "description_of"]

# Returns what an episode has for the rows of an array of the file.
_RowsOf: TypeAlias = Callable[[SourceEpisode, str, int], np.ndarray]


class D4rlExport(Export):
    """Writes the file of D4RL again that episodes came from.

    The episodes may be in any order. What is not in memory is kept beside the file in the meantime:
    as much as all arrays have without compression.

    Args:
      episodes: All episodes of the file.

    Raises:
      ValueError: They were not read by `D4rlSource`.
    """

    format: ClassVar[str] = "d4rl"
    suffixes = (".hdf5", ".h5")
    is_exact = False  # The keys of episodes have the name of the file.

    def __init__(self, episodes: Episodes) -> None:
        super().__init__(episodes)
        self._description = description_of(
            episodes.metadata, files_of(episodes.source), self.format
        )

    def placements(self) -> Sequence[Placement]:
        """All fields are what the file had."""
        return as_it_was(self.episodes)

    def write(self, path: Path) -> None:
        """See `Export`."""
        with (
            tempfile.TemporaryDirectory(dir=path.parent) as directory,
            contextlib.ExitStack() as files,
        ):
            rows = _Rows(Path(directory), self._description, files)
            for episode in self.each():
                rows.put(episode, self._rows_of)
            rows.check_all_there(files_of(self.episodes.source))
            make_file(path, self._description, rows.read)

    @staticmethod
    def _rows_of(episode: SourceEpisode, name: str, num_rows: int) -> np.ndarray:
        """The rows of an array of the file that belong to an episode."""
        steps = episode.steps
        if name == NEXT_OBSERVATIONS and FIELDS[name] not in steps:  # They are in the next steps.
            return np.asarray(steps[rlds.OBSERVATION][1 : num_rows + 1])
        return np.asarray(at(steps, FIELDS.get(name, name))[:num_rows])


class D4rlPybulletExport(D4rlExport):
    """Writes the file of d4rl-pybullet again that episodes came from; see `D4rlExport`."""

    format = "d4rl_pybullet"

    @staticmethod
    def _rows_of(episode: SourceEpisode, name: str, num_rows: int) -> np.ndarray:
        del num_rows
        steps = episode.steps
        if name == "actions":
            last = np.asarray(episode.metadata[LAST_ACTION])
            return np.concatenate([steps[rlds.ACTION][:-1], last[np.newaxis]])
        if name == "rewards":
            first = np.asarray(episode.metadata[FIRST_REWARD])
            return np.concatenate([first[np.newaxis], steps[rlds.REWARD][:-1]])
        return np.asarray(steps[rlds.OBSERVATION if name == "observations" else name])


class _Rows:
    """The rows of all arrays, which arrive in any order, in a file for each array."""

    def __init__(
        self, directory: Path, description: Mapping[str, Any], files: contextlib.ExitStack
    ) -> None:
        self._is_there = np.zeros(description["rows"], bool)
        self._dtypes = {
            name: np.dtype((facts["dtype"], tuple(facts["shape"][1:])))
            for name, facts in description["arrays"].items()
        }
        self._files = {
            name: files.enter_context((directory / f"{index}.rows").open("w+b"))
            for index, name in enumerate(self._dtypes)
        }

    def put(self, episode: SourceEpisode, rows_of: _RowsOf) -> None:
        """Takes the rows of an episode."""
        begin, end = episode.origin.begin, episode.origin.end
        if self._is_there[begin:end].any():
            raise ValueError(f"rows {begin} to {end}: there are several episodes for one of them")
        self._is_there[begin:end] = True
        for name, row in self._dtypes.items():
            content = rows_of(episode, name, end - begin).astype(row.base).tobytes()
            if len(content) != (end - begin) * row.itemsize:
                raise ValueError(
                    f"rows {begin} to {end}: their episode has {len(content)} bytes of {name}, "
                    f"expected {(end - begin) * row.itemsize}"
                )
            self._files[name].seek(begin * row.itemsize)
            self._files[name].write(content)

    def check_all_there(self, where: str) -> None:
        """Raises an error if rows are missing."""
        missing = np.flatnonzero(~self._is_there)
        if len(missing):
            raise ValueError(
                f"{where}: {len(missing)} of {len(self._is_there)} rows are missing, "
                f"beginning with row {missing[0]}: episodes were left out, or removed"
            )

    def read(self, name: str, begin: int, end: int) -> np.ndarray:
        """Returns rows of an array."""
        row, file = self._dtypes[name], self._files[name]
        file.seek(begin * row.itemsize)
        content = file.read((end - begin) * row.itemsize)
        return np.frombuffer(content, row.base).reshape(end - begin, *row.shape)


def description_of(
    metadata: Mapping[str, Any], where: str, kind: str | None = None
) -> Mapping[str, Any]:
    """Returns what is said of the file that a dataset was made of.

    Args:
      metadata: The metadata of the dataset.
      where: What to call the dataset in an error.
      kind: "d4rl" or "d4rl_pybullet"; either if None.

    Raises:
      ValueError: It was made of something else.
    """
    if "hdf5" not in metadata or (kind is not None and kind not in metadata):
        raise ValueError(
            f"{where}: its metadata does not say that it was made of a file of "
            f"{kind or 'd4rl or d4rl_pybullet'}; it has {sorted(metadata)}. Nothing else can be "
            "written so: choose another format"
        )
    description: Mapping[str, Any] = metadata["hdf5"]
    return description
