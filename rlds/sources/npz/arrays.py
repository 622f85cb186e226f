"""The arrays of an `.npz` file that is an episode: their names, and how many rows they have."""

from __future__ import annotations

import contextlib
import zipfile
from collections.abc import Iterator
from typing import IO, Any, NamedTuple

import numpy as np
from etils import epath

import rlds
from envlogger.converters.fields import Field
from rlds.sources.nests import excludes, root_of
from rlds.sources.source import SourceError
from rlds.sources.untrusted import Budget, check_is_file, source_errors, trusted_bytes

__all__ = ["OF_TRANSITIONS", "EpisodeFile", "has_actions", "open_episode"]

OF_TRANSITIONS = (rlds.ACTION, rlds.REWARD, rlds.DISCOUNT)

_PLURALS = {f"{name}s": name for name in (rlds.OBSERVATION, *OF_TRANSITIONS)}
_TERMINAL, _DONE, _TRUNCATED = "terminal", "done", "truncated"
_FLAGS = {
    **dict.fromkeys(("terminal", "terminals", "terminated", "terminations"), _TERMINAL),
    **dict.fromkeys(("done", "dones"), _DONE),
    **dict.fromkeys(("truncated", "truncations", "timeout", "timeouts"), _TRUNCATED),
}
_METHODS = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)
# What reads the headers of arrays of numbers and of text, by the version of the format.
_HEADERS = {
    (1, 0): np.lib.format.read_array_header_1_0,
    (2, 0): np.lib.format.read_array_header_2_0,
}


class _Array(NamedTuple):
    """An array of a file, of which the header has been read."""

    member: zipfile.ZipInfo
    shape: tuple[int, ...]
    dtype: np.dtype

    @property
    def num_rows(self) -> int | None:
        return self.shape[0] if self.shape else None

    @property
    def num_bytes(self) -> int:
        size = self.dtype.itemsize
        for length in self.shape:
            size *= length
        return size


class EpisodeFile:
    """An open file with an episode; arrays are read when they are asked for.

    Attributes:
      file: The file.
      paths: The paths of its arrays in an episode, without the flags.
      num_transitions: How many rows there are of actions.
      num_steps: How many rows there are of observations.
    """

    def __init__(self, file: epath.Path, archive: zipfile.ZipFile) -> None:
        self.file, self._archive = file, archive
        self._arrays: dict[str, _Array] = {}
        self._flags: dict[str, _Array] = {}
        size = file.stat().length
        budget = Budget(file, size, max_bytes=trusted_bytes(size))
        for member in archive.infolist():
            name = member.filename.removesuffix(".npy")
            budget.enter(name.count("/"), name)
            array = self._described(member, name)
            budget.take(array.num_bytes, name)
            arrays = self._flags if name in _FLAGS else self._arrays
            path = _FLAGS.get(name) or _path_of(name)
            if path in arrays or excludes(arrays, path):
                raise self.error(f"beside {', '.join(arrays)}: two arrays for one thing", name)
            arrays[path] = array
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
        return self._arrays[path].num_rows

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
        array = self._arrays[path]
        text: dict[str, Any] = {"U": str, "S": bytes}
        shape = array.shape[1:] if of_steps else array.shape
        return Field(text.get(array.dtype.kind, array.dtype), shape)

    def read(self, path: str) -> np.ndarray:
        """Reads an array; text as objects."""
        array = self._values(self._arrays[path], path)
        if array.dtype.kind in "US":
            return array.astype(object)
        return array.astype(array.dtype.newbyteorder("="), copy=False)

    def ending(self) -> tuple[bool, bool]:
        """Returns whether the episode ended in a terminal state, and whether all of it is there."""
        ends = {name: self._is_set(name) for name in self._flags}
        is_cut = ends.get(_TRUNCATED, False)
        terminal = ends.get(_TERMINAL, ends.get(_DONE, False) and not is_cut)
        return terminal, not ends or any(ends.values())

    def _is_set(self, name: str) -> bool:
        values = self._values(self._flags[name], name).reshape(-1)
        if values.dtype.kind not in "biuf":
            raise self.error(f"{values.dtype}, expected bools", name)
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

    def _described(self, member: zipfile.ZipInfo, name: str) -> _Array:
        if not member.filename.endswith(".npy"):
            raise self.error("no array, but something else in the zip file", name)
        with self._opened(member, name) as stream:
            version = np.lib.format.read_magic(stream)
            if version not in _HEADERS:
                raise self.error(f"in version {version} of .npy, expected 1.0 or 2.0", name)
            try:
                shape, _, dtype = _HEADERS[version](stream)
            except MemoryError as error:  # Python's parser has no room for it.
                raise self.error("the header is damaged", name) from error
        if dtype.hasobject:
            what = "pickled objects, which are not read, as they can run any code; save numbers, or"
            raise self.error(f"{what} text as np.array(..., dtype=str)", name)
        if dtype.kind not in "biufcUS" or dtype.char in "gG":
            raise self.error(f"{dtype}, expected numbers, bools or text", name)
        if any(type(length) is not int or length < 0 for length in shape):
            raise self.error(f"of shape {shape}", name)
        return _Array(member, tuple(shape), dtype)

    def _values(self, array: _Array, name: str) -> np.ndarray:
        with self._opened(array.member, name) as stream:
            values = np.lib.format.read_array(stream, allow_pickle=False)
            if stream.read(1):  # Looking for the end also compares the checksum.
                raise self.error(f"more bytes than those of shape {array.shape}", name)
        return values

    @contextlib.contextmanager
    def _opened(self, member: zipfile.ZipInfo, name: str) -> Iterator[IO[bytes]]:
        if member.compress_type not in _METHODS:
            what = f"compressed by method {member.compress_type} of zip, expected none or deflate"
            raise self.error(what, name)
        with source_errors(self.file, field=name), self._archive.open(member) as stream:
            yield stream


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
    check_is_file(file)
    with source_errors(file), file.open("rb") as stream, zipfile.ZipFile(stream) as archive:
        yield EpisodeFile(file, archive)


def _path_of(name: str) -> str:
    root, slash, rest = name.partition("/")
    if "" in name.split("/"):
        raise ValueError(f"an array called {name!r}")
    return f"{_PLURALS.get(root, root)}{slash}{rest}"
