"""Reading of files of demonstrations.

    data/<demo>/actions              T rows
    data/<demo>/obs/<name>           T rows
    data/<demo>/<any other path>     arrays
    mask/<name>                      names of demonstrations

All groups and arrays may have attributes.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import os
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from rlds.raw_files.hdf5_access import Hdf5File, is_array
from rlds.raw_files.hdf5_arrays import ArrayReader, StoredArray
from rlds.raw_files.hdf5_values import SIDECAR_GROUP, encode_value, read_attributes, text_or_bytes
from rlds.raw_files.input_files import natural_order
from rlds.raw_files.untrusted import SourceError
from rlds.sources.texts import as_text
from rlds_ecosystem import import_extra
from rlds_ecosystem.model.nests import is_below

__all__ = ["Demo", "DemoFile", "OpenDemo"]

_DATA_GROUP, _MASK_GROUP, _ACTIONS = "data", "mask", "actions"
_NUM_SAMPLES = "num_samples"


@dataclasses.dataclass
class Demo:
    """A demonstration.

    Attributes:
      file: The file of the demonstration.
      name: The name in the file.
      arrays: The arrays, by path.
      attributes: The attributes, by name; attributes of arrays and groups, by `<path>/<name>`.
      damage: The fault of a damaged demonstration.
      num_steps: The number of steps.
    """

    file: DemoFile
    name: str
    arrays: Mapping[str, StoredArray] = dataclasses.field(default_factory=dict)
    attributes: Mapping[str, StoredArray] = dataclasses.field(default_factory=dict)
    damage: SourceError | None = None
    num_steps: int = 0

    @functools.cached_property
    def rows(self) -> Mapping[str, int]:
        """The number of rows of arrays, by path; without single values."""
        return {path: array.shape[0] for path, array in self.arrays.items() if array.shape}

    @functools.cached_property
    def length(self) -> int:
        """The number of actions."""
        return next(rows for path, rows in self.rows.items() if is_below(path, _ACTIONS))

    def error(self, problem: str, field: str) -> SourceError:
        """Returns an error about an array or an attribute."""
        return SourceError(problem, file=self.file.hdf5.path, episode=self.name, field=field)

    @contextlib.contextmanager
    def open(self) -> Iterator[OpenDemo]:
        """Opens the demonstration for reading.

        Raises:
          SourceError: The demonstration is damaged.
        """
        if self.damage is not None:
            raise self.damage
        with self.file.hdf5.read(self.name) as h5_file:
            yield OpenDemo(self, h5_file)


class DemoFile:
    """A file of demonstrations; can be pickled.

    Args:
      path: The file.
      follow_links: See `Hdf5File`.

    Attributes:
      hdf5: The file.
      reader: The reader of the arrays.
      name: The name of the file.
      demos: The demonstrations, in the order of their numbers.
      attributes: The text attributes of the group `data`, with replacements for invalid UTF-8.
      outside_demos: All attributes and arrays outside of demonstrations, in the types of JSON.
      masks: The names of demonstrations, by mask.
      is_exported: True if an export of RLDS wrote the file.

    Raises:
      SourceError: The file is no HDF5 file, is truncated, or has no group `data`.
    """

    def __init__(self, path: str | os.PathLike[str], *, follow_links: bool = False) -> None:
        self.hdf5 = Hdf5File(path, follow_links=follow_links, whole_arrays=True)
        self.name = os.path.basename(os.fspath(path))
        self.reader = ArrayReader(self.hdf5)
        self.masks: dict[str, list[str]] = {}
        with self.hdf5.read() as file:
            self.is_exported = self.hdf5.has(file, SIDECAR_GROUP)
            data = self.hdf5.member(file, _DATA_GROUP, _DATA_GROUP)
            self.attributes = {
                name: _replace_invalid(value)
                for name, value in data.attrs.items()
                if isinstance(value, str | bytes)
            }
            self.outside_demos = self._read_outside(file, data)
            names = [n for n in data if f"{_DATA_GROUP}/{n}" not in self.outside_demos["arrays"]]
            self.demos = [self._scan(data, name) for name in sorted(names, key=natural_order)]

    def _read_outside(self, file: Any, data: Any) -> dict[str, Any]:
        """Reads the arrays and attributes outside demonstrations."""
        hdf5 = self.hdf5
        items: list[tuple[str, Any]] = [("/", file), (_DATA_GROUP, data)]
        for name in file:
            if name not in (_DATA_GROUP, SIDECAR_GROUP):
                item = hdf5.member(file, name, name)
                items.append((name, item))
                items += [] if is_array(item) else hdf5.items(item, name)
        for name in data:
            item = hdf5.member(data, name, f"{_DATA_GROUP}/{name}")
            items += [(f"{_DATA_GROUP}/{name}", item)] if is_array(item) else []
        attributes, arrays = {}, {}
        for path, item in items:
            if array_attributes := read_attributes(hdf5, item, path):
                attributes[path] = array_attributes
            if is_array(item):
                values = item[()]
                try:
                    arrays[path] = encode_value(values)
                except ValueError as error:
                    raise hdf5.error(str(error), path) from error
                if path.startswith(f"{_MASK_GROUP}/") and item.dtype.kind in "SO":
                    names = [as_text(name) for name in values.reshape(-1).tolist()]
                    self.masks[path.removeprefix(f"{_MASK_GROUP}/")] = names
        return {"attributes": attributes, "arrays": arrays}

    def _scan(self, data: Any, name: str) -> Demo:
        demo = Demo(self, name)
        try:
            self._describe(demo, self.hdf5.member(data, name, f"{_DATA_GROUP}/{name}"))
        except SourceError as error:
            error.locate(episode=name)
            demo.damage = error
        return demo

    def _describe(self, demo: Demo, group: Any) -> None:
        """Sets the arrays and the attributes of a demonstration."""
        h5py = import_extra("h5py")
        attributes = self.reader.attributes(group.id)
        arrays: dict[str, StoredArray] = {}
        for path, item, array in self.reader.describe(group.id):
            if h5py.h5a.get_num_attrs(item):
                items = self.reader.attributes(item, path).items()
                attributes |= {f"{path}/{name}": attribute for name, attribute in items}
            if array is not None and array.kind == "ragged":
                raise self.hdf5.error("rows of different lengths are not supported", path)
            if array is not None:
                arrays[path] = array
        demo.arrays, demo.attributes = arrays, attributes
        lengths = {rows for path, rows in demo.rows.items() if is_below(path, _ACTIONS)}
        if len(lengths) != 1:
            problem = "the arrays have different numbers of rows" if lengths else "missing"
            raise self.hdf5.error(problem, _ACTIONS)
        if not demo.length:
            raise self.hdf5.error("no rows", _ACTIONS)
        num_samples = group.attrs.get(_NUM_SAMPLES, demo.length)
        if not np.array_equal(num_samples, demo.length):
            problem = f"{num_samples}, but there are {demo.length} actions"
            raise self.hdf5.error(problem, _NUM_SAMPLES)


def _replace_invalid(text: str | bytes) -> str:
    encoded = text.encode(errors="surrogateescape") if isinstance(text, str) else text
    return encoded.decode(errors="replace")


class OpenDemo:
    """A demonstration in an open file.

    Args:
      demo: The demonstration.
      h5_file: The file from `hdf5.read()`.
    """

    def __init__(self, demo: Demo, h5_file: Any) -> None:
        h5py = import_extra("h5py")
        self.demo = demo
        name = f"{_DATA_GROUP}/{demo.name}".encode(errors="surrogateescape")
        self._group = h5py.h5g.open(h5_file.id, name)
        self._arrays: dict[str, np.ndarray] = {}

    def array(self, path: str, rows: slice = slice(None)) -> np.ndarray:
        """Reads rows of an array; caches arrays that are read completely.

        Args:
          path: The path of the array in the demonstration.
          rows: The rows to read.

        Raises:
          SourceError: The rows are damaged.
        """
        array, read = self.demo.arrays[path], self.demo.file.reader.read
        if path in self._arrays:
            return self._arrays[path][rows]
        if array.shape and rows.indices(array.shape[0]) != (0, array.shape[0], 1):
            return read(self._group, path, array, rows)
        self._arrays[path] = read(self._group, path, array)
        return self._arrays[path]

    def attribute(self, path: str) -> Any:
        """Reads the attribute at a path of `Demo.attributes`: text, bytes, or an array."""
        item, name = import_extra("h5py").Group(self._group), path
        while name not in item.attrs:
            group_name, _, name = name.partition("/")
            item = item[group_name]
        value = text_or_bytes(item.attrs[name])
        if not isinstance(value, bytes) or self.demo.attributes[path].kind != "text":
            return value
        try:
            return value.decode()
        except UnicodeDecodeError:
            problem = f"{value[:50]!r}, expected UTF-8, as its type says"
            raise self.demo.error(problem, path) from None
