"""Files of demonstrations: what is in each, and the values of it.

    data/<demo>/actions              T rows
    data/<demo>/obs/<name>           T rows
    data/<demo>/<any other path>     arrays
    mask/<name>                      the names of some demonstrations

Everything may have attributes.
"""

from __future__ import annotations

import dataclasses
import functools
import os
from collections.abc import Mapping
from typing import Any, Literal, NamedTuple, TypeAlias

import numpy as np

from rlds.formats.hdf5_sidecar import SIDECAR_GROUP
from rlds.formats.robomimic.dialects import FirstLook
from rlds.raw_files.hdf5_access import Hdf5File, is_array
from rlds.raw_files.hdf5_values import encode_value, read_attributes
from rlds.raw_files.input_files import natural_order
from rlds.raw_files.untrusted import SourceChangedError, SourceError
from rlds.sources.texts import as_text
from rlds_ecosystem import import_extra

__all__ = ["Array", "Demo", "DemoFile", "OpenDemo", "actions_in"]

_DATA, _MASK, _ACTIONS = "data", "mask", "actions"
_SAMPLES = "num_samples"


_Kind: TypeAlias = Literal["numbers", "text", "bytes"]


class Array(NamedTuple):
    """What an array or an attribute of a demonstration holds.

    Attributes:
      dtype: What it holds, in the byte order of this machine: that of objects for strings.
      kind: "text" for strings of UTF-8 of any length; "bytes" for other strings.
      shape: The shape of a row, or of an attribute; None for a single value.
    """

    dtype: np.dtype
    kind: _Kind
    shape: tuple[int, ...] | None

    @property
    def empty(self) -> Any:
        """What stands in the place of a value."""
        return {"numbers": 0, "text": "", "bytes": b""}[self.kind]

    def values(self, raw: Any) -> np.ndarray:
        """Returns what h5py reads, in the byte order of this machine, text as `str`."""
        values = np.asarray(raw, None if self.kind == "numbers" else object)
        if self.kind == "numbers":
            return values.astype(self.dtype, copy=False)
        strings = [bytes(item) for item in values.reshape(-1)]
        texts = [item.decode() for item in strings] if self.kind == "text" else strings
        return np.array([*texts, None], object)[:-1].reshape(values.shape)


@dataclasses.dataclass
class Demo:
    """A demonstration.

    Attributes:
      file: In which of several files it is.
      name: Its name in the file.
      arrays: Its arrays, by path; shared with demonstrations that have the same ones.
      rows: How many rows they have, by path; none for single values.
      attributes: Its attributes, by name; those of its arrays and groups by `<path>/<name>`.
      damage: What is wrong with it.
      num_steps: How many steps it makes.
    """

    file: int
    name: str
    arrays: Mapping[str, Array] = dataclasses.field(default_factory=dict)
    rows: Mapping[str, int] = dataclasses.field(default_factory=dict)
    attributes: Mapping[str, Array] = dataclasses.field(default_factory=dict)
    damage: SourceError | None = None
    num_steps: int = 0

    @functools.cached_property
    def length(self) -> int:
        """How many actions there are."""
        return next(rows for path, rows in self.rows.items() if is_action(path))


def is_action(path: str) -> bool:
    """Whether the rows of an array are actions."""
    return path == _ACTIONS or path.startswith(f"{_ACTIONS}/")


def actions_in(path: str | os.PathLike[str]) -> bool:
    """Whether a file has demonstrations.

    Raises:
      OSError: There is no such file.
      SourceError: It is no HDF5 file.
    """
    hdf5 = Hdf5File(path)
    with hdf5.read() as file:
        if not hdf5.has(file, _DATA):
            return False
        data = hdf5.member(file, _DATA, _DATA)
        first = next(iter(data), None) if hasattr(data, "keys") else None
        if first is None:
            return False
        demo = hdf5.member(data, first, f"{_DATA}/{first}")
        return hasattr(demo, "keys") and hdf5.has(demo, _ACTIONS)


class DemoFile:
    """A file of demonstrations; can be pickled.

    Args:
      path: The file.
      number: Which of several files it is.
      follow_links: See `Hdf5File`.

    Attributes:
      hdf5: The file.
      name: Its name.
      demos: The demonstrations, in the order of their numbers.
      attributes: The attributes of the group `data` that are text.
      others: All attributes and arrays that are in no demonstration, in the types of JSON.
      masks: The demonstrations that each of the masks names.
      first_look: What shows in which dialect it is.
      is_exported: Whether an export wrote it.

    Raises:
      SourceError: It is no HDF5 file, or cut short; it has no group `data`.
    """

    def __init__(
        self, path: str | os.PathLike[str], number: int = 0, *, follow_links: bool = False
    ) -> None:
        self.hdf5 = Hdf5File(path, follow_links=follow_links, whole_arrays=True)
        self.name = os.path.basename(os.fspath(path))
        self._number = number
        self._types: dict[bytes, tuple[np.dtype, _Kind]] = {}
        self._structures: dict[tuple[Any, ...], dict[str, Array]] = {}
        with self.hdf5.read() as file:
            self.is_exported = self.hdf5.has(file, SIDECAR_GROUP)
            data = self.hdf5.member(file, _DATA, _DATA)
            self.attributes: Mapping[str, str] = {}
            self.masks: dict[str, list[str]] = {}
            self.others = self._read_others(file, data)
            names = sorted(data, key=natural_order)
            names = [name for name in names if f"{_DATA}/{name}" not in self.others["arrays"]]
            self.demos = [self._scan(data, name) for name in names]
            self.first_look = self._look(data, names[:1])

    def _read_others(self, file: Any, data: Any) -> dict[str, Any]:
        """Reads what is in no demonstration."""
        hdf5 = self.hdf5
        found: list[tuple[str, Any]] = [("/", file), (_DATA, data)]
        for name in file:
            if name not in (_DATA, SIDECAR_GROUP):
                item = hdf5.member(file, name, name)
                found.append((name, item))
                found += [] if is_array(item) else hdf5.items(item, name)
        for name in data:
            item = hdf5.member(data, name, f"{_DATA}/{name}")
            found += [(f"{_DATA}/{name}", item)] if is_array(item) else []
        attributes, arrays = {}, {}
        for path, item in found:
            if of_item := read_attributes(hdf5, item, path):
                attributes[path] = of_item
            if is_array(item):
                values = item[()]
                try:
                    arrays[path] = encode_value(values)
                except ValueError as error:
                    raise hdf5.error(str(error), path) from error
                if path.startswith(f"{_MASK}/") and item.dtype.kind in "SO":
                    names = [as_text(name) for name in values.reshape(-1).tolist()]
                    self.masks[path.removeprefix(f"{_MASK}/")] = names
        self.attributes = {
            name: as_text(value)
            for name, value in data.attrs.items()
            if isinstance(value, str | bytes)
        }
        return {"attributes": attributes, "arrays": arrays}

    def _look(self, data: Any, names: list[str]) -> FirstLook:
        demo: Any = self.hdf5.member(data, names[0], f"{_DATA}/{names[0]}") if names else None
        if demo is None:
            return FirstLook(self.attributes, (), (), (), False)
        parts = {
            name: self.hdf5.member(demo, name, f"{_DATA}/{names[0]}/{name}")
            for name in ("obs", "states")
            if self.hdf5.has(demo, name)
        }
        groups = {name: list(part) for name, part in parts.items() if not is_array(part)}
        return FirstLook(
            self.attributes, list(demo.attrs), list(demo), groups.get("obs", ()), "states" in groups
        )

    # --- What the demonstrations are.

    def _scan(self, data: Any, name: str) -> Demo:
        try:
            return self._demo(data, name)
        except SourceChangedError:
            raise
        except SourceError as error:
            error.locate(episode=name)
            return Demo(self._number, name, damage=error)

    def _demo(self, data: Any, name: str) -> Demo:
        h5py = import_extra("h5py")
        demo = self.hdf5.member(data, name, f"{_DATA}/{name}")
        attributes = self._attributes(demo.id, "")
        arrays: dict[str, Array] = {}
        rows: dict[str, int] = {}
        for path, item in self.hdf5.open_items(demo.id):
            if h5py.h5a.get_num_attrs(item):
                attributes |= self._attributes(item, f"{path}/")
            if not is_array(item):
                continue
            shape = item.shape
            if shape is None:
                raise self.hdf5.error("an array without values", path)
            if shape:
                rows[path] = shape[0]
            arrays[path] = self._array(item, shape[1:] if shape else None, path)
        self._check_length(rows, demo)
        arrays = self._structures.setdefault(tuple(arrays.items()), arrays)
        return Demo(self._number, name, arrays, rows, attributes)

    def _attributes(self, item: Any, prefix: str) -> dict[str, Array]:
        """Returns what the attributes of a group or an array hold, but for those without values."""
        h5py = import_extra("h5py")
        found = {}
        for name in (h5py.Dataset if is_array(item) else h5py.Group)(item).attrs:
            path = f"{prefix}{name}"
            stored = h5py.h5a.open(item, name.encode())
            if stored.get_space().get_simple_extent_type() != h5py.h5s.NULL:
                found[path] = self._array(stored, stored.shape, f"@{path}")
        return found

    def _array(self, item: Any, shape: tuple[int, ...] | None, path: str) -> Array:
        """Returns what an array or an attribute holds; most are of few types."""
        h5py = import_extra("h5py")
        stored = item.get_type()
        key = stored.encode()
        if key not in self._types:
            dtype, string = stored.dtype, h5py.check_string_dtype(stored.dtype)
            if string is not None:
                is_text = string.encoding == "utf-8" and string.length is None
                self._types[key] = np.dtype(object), "text" if is_text else "bytes"
            elif dtype.kind in "biufc":
                self._types[key] = dtype.newbyteorder("="), "numbers"
            else:
                raise self.hdf5.error(f"values of {dtype} are not supported", path)
        return Array(*self._types[key], shape)

    def _check_length(self, rows: Mapping[str, int], demo: Any) -> None:
        lengths = {rows[path] for path in rows if is_action(path)}
        if len(lengths) != 1:
            what = "they differ in their number of rows" if lengths else "missing"
            raise self.hdf5.error(what, _ACTIONS)
        (length,) = lengths
        said = demo.attrs.get(_SAMPLES, length)
        if not np.array_equal(said, length):
            raise self.hdf5.error(f"{said}, but there are {length} actions", _SAMPLES)


class OpenDemo:
    """A demonstration in an open file.

    Args:
      file: The file.
      opened: What its `hdf5.read()` lends.
      demo: The demonstration.

    Attributes:
      file: See above.
      demo: See above.
    """

    def __init__(self, file: DemoFile, opened: Any, demo: Demo) -> None:
        h5py = import_extra("h5py")
        self.file, self.demo = file, demo
        name = f"{_DATA}/{demo.name}".encode(errors="surrogateescape")
        self._group = h5py.h5g.open(opened.id, name)
        self._whole: dict[str, np.ndarray] = {}

    def array(self, path: str, rows: slice = slice(None)) -> np.ndarray:
        """Reads rows of an array; each array that is read as a whole is read once.

        Args:
          path: The path of the array in the demonstration.
          rows: Which rows.

        Raises:
          SourceError: They are damaged.
        """
        if path in self._whole:
            return self._whole[path][rows]
        h5py = import_extra("h5py")
        known = self.demo.arrays[path]
        shape = () if known.shape is None else (self.demo.rows[path], *known.shape)
        array = h5py.h5d.open(self._group, path.encode())
        if array.shape != shape:
            raise self.file.hdf5.error("it was changed while it was read", path)
        if rows != slice(None):
            return known.values(h5py.Dataset(array, readonly=True)[rows])
        if known.kind == "numbers" and 0 not in shape:
            values = np.empty(shape, known.dtype)
            array.read(h5py.h5s.ALL, h5py.h5s.ALL, values)
        else:
            values = known.values(h5py.Dataset(array, readonly=True)[()])
        self._whole[path] = values
        return values

    def attribute(self, path: str) -> Any:
        """Reads an attribute, by its path in `Demo.attributes`: text, bytes, or an array."""
        h5py = import_extra("h5py")
        item, name = h5py.Group(self._group), path
        while name not in item.attrs:
            part, _, name = name.partition("/")
            item = item[part]
        value = item.attrs[name]
        if isinstance(value, str):
            return value.encode(errors="surrogateescape").decode()
        return value
