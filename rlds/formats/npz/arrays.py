"""The arrays of an `.npz` file that is an episode: their names, and how many rows they have."""

from __future__ import annotations

import contextlib
import zipfile
from collections.abc import Iterator
from typing import Any

import numpy as np
from etils import epath

import rlds
from rlds.raw_files.npz_files import NpzFile, open_npz
from rlds.raw_files.untrusted import check_is_file
from rlds.sources.source import OF_TRANSITIONS, SourceError
from rlds_ecosystem.fields import Field
from rlds_ecosystem.nests import Paths, conflicts, root_of

__all__ = ["EpisodeFile", "has_actions", "open_episode"]

_PLURALS = {f"{name}s": name for name in (rlds.OBSERVATION, *OF_TRANSITIONS)}
_TERMINAL, _DONE, _TRUNCATED = "terminal", "done", "truncated"
_FLAGS = {
    **dict.fromkeys(("terminal", "terminals", "terminated", "terminations"), _TERMINAL),
    **dict.fromkeys(("done", "dones"), _DONE),
    **dict.fromkeys(("truncated", "truncations", "timeout", "timeouts"), _TRUNCATED),
}


class EpisodeFile:
    """An open file with an episode; arrays are read when they are requested.

    Attributes:
      file: The file.
      paths: The paths of its arrays in an episode, without the flags.
      num_transitions: How many rows there are of actions.
      num_steps: How many rows there are of observations.
    """

    def __init__(self, arrays: NpzFile) -> None:
        self.file, self._file = arrays.file, arrays
        self._arrays: Paths[str] = Paths()  # The names of arrays by path.
        self._flags: Paths[str] = Paths()
        for name in arrays.arrays:
            found = self._flags if name in _FLAGS else self._arrays
            path = _FLAGS.get(name) or _path_of(name)
            if path in found or conflicts(found, path):
                raise self.error(f"there is another array for {path!r}", name)
            found[path] = name
        self.paths = list(self._arrays)
        self.num_transitions = self._rows_of_all(rlds.ACTION)
        self.num_steps = self._rows_of_all(rlds.OBSERVATION)
        for path in OF_TRANSITIONS:
            if path in self.paths:
                self.check_rows(path)
        if self.num_steps not in (self.num_transitions, self.num_transitions + 1):
            expected = f"{self.num_transitions}, as many as actions, or one more"
            raise self.error(f"{self.num_steps} rows, expected {expected}", rlds.OBSERVATION)

    def error(self, what: str, path: str) -> SourceError:
        """Returns an error about an array."""
        return SourceError(what, file=self.file, field=path)

    def rows(self, path: str) -> int | None:
        """Returns the number of rows of an array; None for a scalar."""
        shape = self._file.arrays[self._arrays[path]].shape
        return shape[0] if shape else None

    def check_rows(self, path: str) -> None:
        """Checks that an array of the steps has a row for each.

        Raises:
          SourceError: It has not.
        """
        expected = {self.num_transitions, self.num_steps}
        if root_of(path) in OF_TRANSITIONS:
            expected = {self.num_transitions}
        rows = self.rows(path)
        if rows not in expected:
            found = "a scalar" if rows is None else f"{rows} rows"
            wanted = " or ".join(map(str, sorted(expected)))
            raise self.error(f"{found}, expected {wanted} rows: those of the steps", path)

    def field(self, path: str, *, of_steps: bool) -> Field:
        """Returns what an array holds for each step, or for the episode."""
        array = self._file.arrays[self._arrays[path]]
        dtype, shape = array.dtype, array.shape
        text: dict[str, Any] = {"U": str, "S": bytes}
        return Field(text.get(dtype.kind, dtype), shape[1:] if of_steps else shape)

    def read(self, path: str) -> np.ndarray:
        """Reads an array; text as objects."""
        return self._file.read(self._arrays[path])

    def ending(self) -> tuple[bool, bool]:
        """Returns whether the episode ended in a terminal state, and whether all of it is there."""
        ends = {name: self._is_set(name) for name in self._flags}
        is_cut = ends.get(_TRUNCATED, False)
        terminal = ends.get(_TERMINAL, ends.get(_DONE, False) and not is_cut)
        return terminal, not ends or any(ends.values())

    def _is_set(self, name: str) -> bool:
        stored = self._flags[name]
        if (dtype := self._file.arrays[stored].dtype).kind not in "biuf":
            raise self.error(f"{dtype}, expected bools", name)
        values = self._file.read(stored).reshape(-1)
        if len(values) not in (1, self.num_transitions, self.num_steps):
            expected = f"1 or {self.num_transitions}"
            raise self.error(f"{len(values)} values, expected {expected}", name)
        rows = np.flatnonzero(values)
        if len(rows) and rows[0] != len(values) - 1:
            what = f"set in row {rows[0]} of {len(values)}, expected in the last one only: a file"
            raise self.error(f"{what} is one episode", name)
        return bool(len(rows))

    def _rows_of_all(self, root: str) -> int:
        """The number of rows that all arrays of an observation or an action have."""
        paths = [path for path in self.paths if root_of(path) == root]
        if not paths:
            what = f"no such array; there are {', '.join(self.paths) or 'none'}"
            raise self.error(what, root)
        rows = [self.rows(path) for path in paths]
        for path, found in zip(paths, rows):
            if found is None or found != rows[0]:
                expected = "rows" if rows[0] is None else f"{rows[0]}, as {paths[0]} has"
                raise self.error(f"of {found} rows, expected {expected}", path)
        assert rows[0] is not None
        return rows[0]


def has_actions(file: epath.Path) -> bool:
    """Whether a file has an array of actions, by the names in it alone."""
    check_is_file(file)
    with file.open("rb") as stream, zipfile.ZipFile(stream) as archive:
        names = [root_of(name.removesuffix(".npy")) for name in archive.namelist()]
    return any(_PLURALS.get(name, name) == rlds.ACTION for name in names)


@contextlib.contextmanager
def open_episode(file: epath.Path) -> Iterator[EpisodeFile]:
    """Opens a file.

    Raises:
      FileNotFoundError: There is no such file.
      SourceError: It is damaged, or no episode.
    """
    with open_npz(file) as arrays:
        yield EpisodeFile(arrays)


def _path_of(name: str) -> str:
    root, slash, rest = name.partition("/")
    if "" in name.split("/"):
        raise ValueError(f"an array called {name!r}")
    return f"{_PLURALS.get(root, root)}{slash}{rest}"
