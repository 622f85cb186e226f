"""Files of demonstrations: what is in each, and the values of it.

    data/<demo>/actions              T rows
    data/<demo>/obs/<name>           T rows
    data/<demo>/<any other path>     arrays
    mask/<name>                      the names of some demonstrations

Everything may have attributes. What all demonstrations of a file have in common is their structure:
which arrays and groups there are, of which dtypes and shapes, but for the number of rows.
"""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import json
import math
import os
from collections.abc import Iterator, Mapping
from typing import Any, Literal

import numpy as np

from rlds.formats.robomimic.dialects import FirstLook
from rlds.raw_files.hdf5_access import Hdf5File
from rlds.raw_files.hdf5_layout import (
    array_layout,
    attributes_layout,
    constant_layout,
    items_of,
)
from rlds.raw_files.input_files import natural_order
from rlds.raw_files.untrusted import Budget, SourceChangedError, SourceError
from rlds.sources.texts import as_text
from rlds_ecosystem import import_extra

__all__ = ["KEPT", "Array", "Demo", "DemoFile", "OpenDemo", "Structure", "actions_in"]

# The attribute of a file, and the group, that have what robomimic has no place for.
KEPT = "rlds"
_DATA, _MASK, _ACTIONS = "data", "mask", "actions"
_SAMPLES = "num_samples"
# All that is not in a demonstration, and the attributes of one: more would not do as JSON.
_MAX_CONSTANT_BYTES = 64 << 20
# What may be different in each demonstration, although it is compressed in the same way.
_OWN_LAYOUT = ("chunks", "maxshape")


@dataclasses.dataclass(frozen=True)
class Array:
    """An array of a demonstration.

    Attributes:
      dtype: What it holds: that of objects for strings.
      kind: "text" for strings of UTF-8 of any length; "bytes" for other strings.
      shape: The shape of a row; None for a single value.
    """

    dtype: np.dtype
    kind: Literal["numbers", "text", "bytes"]
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
        strings = [_string(item, self.kind) for item in values.reshape(-1)]
        return np.array([*strings, None], object)[:-1].reshape(values.shape)


def _string(item: Any, kind: str) -> Any:
    item = bytes(item)
    return item.decode() if kind == "text" else item


@dataclasses.dataclass(frozen=True, eq=False)
class Structure:
    """What demonstrations have in common.

    Attributes:
      name: A digest of the description.
      arrays: The arrays, by path.
      attributes: The types of the attributes of the demonstration, by name.
      description: All of it, in the types of JSON, for who makes such a demonstration.
    """

    name: str
    arrays: Mapping[str, Array]
    attributes: Mapping[str, Mapping[str, Any]]
    description: Mapping[str, Any]


@dataclasses.dataclass
class Demo:
    """A demonstration.

    Attributes:
      file: In which of several files it is.
      name: Its name in the file.
      structure: What it has; nothing if it is damaged.
      rows: How many rows its arrays have, by path.
      layout: How its arrays are stored, as far as that may be different in each demonstration.
      places: For each array of the structure, where in the file its values are as numbers of this
        machine; -1 where they are not.
      damage: What is wrong with it.
      num_steps: How many steps it makes.
    """

    file: int
    name: str
    structure: Structure
    rows: Mapping[str, int]
    layout: Mapping[str, Mapping[str, Any]]
    places: np.ndarray
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
      description: What is in the file beside them, see `rlds.raw_files.hdf5_layout`.
      attributes: The attributes of the group `data` that are text.
      masks: The demonstrations that each of the masks names.
      first_look: What shows in which dialect it is.
      kept: The attribute in which RLDS keeps what the format has no place for, if it is there.

    Raises:
      SourceError: It is no HDF5 file, or cut short; it has no group `data`.
    """

    def __init__(
        self, path: str | os.PathLike[str], number: int = 0, *, follow_links: bool = False
    ) -> None:
        self.hdf5 = Hdf5File(path, follow_links=follow_links, whole_arrays=True)
        self.name = os.path.basename(os.fspath(path))
        self._structures: dict[str, Structure] = {}
        self._types: dict[bytes, tuple[Any, np.dtype, bool]] = {}
        with self.hdf5.read() as file:
            self.kept: str | None = None
            if KEPT in file.attrs:
                self.kept = as_text(file.attrs[KEPT])
            data = self.hdf5.member(file, _DATA, _DATA)
            names = sorted(data, key=natural_order)
            self._describe(file, data)
            self.demos = [
                self._scan(file, data, name, number)
                for name in names
                if f"{_DATA}/{name}" not in self.description["constants"]
            ]
            self.first_look = self._look(data, names[:1])

    def _describe(self, file: Any, data: Any) -> None:
        """Describes what is not in a demonstration."""
        budget, kept = self.hdf5.budget(), self.hdf5.budget(_MAX_CONSTANT_BYTES)
        found: list[tuple[str, Any]] = [("/", file), (_DATA, data)]
        for name in file:
            if name not in (_DATA, KEPT):
                item = self.hdf5.member(file, name, name)
                found.append((name, item))
                if not hasattr(item, "dtype"):
                    found += items_of(self.hdf5, item, budget, f"{name}/")
        for name in data:
            item = self.hdf5.member(data, name, f"{_DATA}/{name}")
            if hasattr(item, "dtype"):
                found.append((f"{_DATA}/{name}", item))
        attributes: dict[str, Any] = {}
        constants: dict[str, Any] = {}
        masks: dict[str, Any] = {}
        for path, item in found:
            if of_item := attributes_layout(self.hdf5, item, path, kept):
                attributes[path] = of_item
            if hasattr(item, "dtype"):
                self.hdf5.check_values(item, path)
                constants[path] = constant_layout(file, path, item, kept)
                if path.startswith(f"{_MASK}/") and item.dtype.kind in "SO":
                    names = item[()].reshape(-1).tolist()
                    masks[path.removeprefix(f"{_MASK}/")] = [as_text(name) for name in names]
        attributes.get("/", {}).pop(KEPT, None)
        groups = [path for path, item in found[2:] if not hasattr(item, "dtype")]
        self.masks: Mapping[str, list[str]] = masks
        self.description = {"groups": groups, "constants": constants, "attributes": attributes}
        self.attributes = {
            name: as_text(data.attrs[name])
            for name, facts in attributes.get(_DATA, {}).items()
            if isinstance(facts["dtype"], dict) and facts["shape"] == []
        }

    def _look(self, data: Any, names: list[str]) -> FirstLook:
        demo: Any = self.hdf5.member(data, names[0], f"{_DATA}/{names[0]}") if names else None
        if not hasattr(demo, "keys"):
            return FirstLook(self.attributes, (), (), (), False)
        parts = {
            name: self.hdf5.member(demo, name, f"{_DATA}/{names[0]}/{name}")
            for name in ("obs", "states")
            if self.hdf5.has(demo, name)
        }
        groups = {name: list(part) for name, part in parts.items() if hasattr(part, "keys")}
        return FirstLook(
            self.attributes, list(demo.attrs), list(demo), groups.get("obs", ()), "states" in groups
        )

    # --- What the demonstrations are.

    def _scan(self, file: Any, data: Any, name: str, number: int) -> Demo:
        try:
            return self._demo(file, data, name, number)
        except SourceChangedError:
            raise
        except SourceError as error:
            error.locate(episode=name)
            return Demo(number, name, Structure("", {}, {}, {}), {}, {}, np.array([]), error)

    def _demo(self, file: Any, data: Any, name: str, number: int) -> Demo:
        hdf5 = self.hdf5
        demo = hdf5.member(data, name, f"{_DATA}/{name}")
        if hasattr(demo, "dtype"):
            raise hdf5.error("an array, expected a group", f"{_DATA}/{name}")
        budget, kept = hdf5.budget(), hdf5.budget(_MAX_CONSTANT_BYTES)
        h5py = import_extra("h5py")
        arrays: dict[str, Array] = {}
        described: dict[str, Any] = {}
        attributes: dict[str, Any] = {}
        layout: dict[str, Any] = {}
        rows: dict[str, int] = {}
        places: list[int] = []
        groups = []
        for path, item in self._items(demo.id, budget):
            if h5py.h5a.get_num_attrs(item):
                opened = (h5py.Dataset if isinstance(item, h5py.h5d.DatasetID) else h5py.Group)(
                    item
                )
                attributes[path] = attributes_layout(hdf5, opened, path, kept)
            if not isinstance(item, h5py.h5d.DatasetID):
                groups.append(path)
                continue
            array, facts, place = self._array(file, path, item, budget)
            places.append(place)
            own = {key: facts.pop(key) for key in _OWN_LAYOUT if key in facts}
            if own:
                layout[path] = own
            shape = facts["shape"]
            if shape:
                rows[path] = shape[0]
            facts["shape"] = shape[1:] if shape else None
            described[path], arrays[path] = facts, array
        types = attributes_layout(hdf5, demo, "", kept, values=False)
        length = self._length(rows, demo, types)
        for path, count in rows.items():
            if count == length + 1:
                described[path]["more"] = 1
        description = {
            "arrays": described,
            "groups": groups,
            "attributes": attributes,
            "types": types,
        }
        text = json.dumps(description)
        digest = hashlib.blake2b(text.encode(), digest_size=8).hexdigest()
        if digest not in self._structures:
            self._structures[digest] = Structure(digest, arrays, types, description)
        return Demo(number, name, self._structures[digest], rows, layout, np.array(places))

    def _items(
        self, group: Any, budget: Budget, prefix: bytes = b"", depth: int = 1
    ) -> Iterator[tuple[str, Any]]:
        """Yields all arrays and groups in a group, in the low-level types, with their paths."""
        h5py = import_extra("h5py")
        for name, link_type in self.hdf5.links(group):
            try:
                path = (prefix + name).decode()
            except UnicodeDecodeError as error:
                raise self.hdf5.error(f"the name {name!r} is not in UTF-8") from error
            budget.enter(depth, path)
            item = self.hdf5.open(group, name, path, link_type=link_type, maybe_array=True)
            yield path, item
            if not isinstance(item, h5py.h5d.DatasetID):
                yield from self._items(item, budget, prefix + name + b"/", depth + 1)

    def _array(
        self, file: Any, path: str, item: Any, budget: Budget
    ) -> tuple[Array, dict[str, Any], int]:
        """Returns what an array is, its layout and its place; most are of few types, and plain."""
        h5py = import_extra("h5py")
        stored = item.get_type()
        encoded = stored.encode()
        known = self._types.get(encoded)
        if known is None:
            dtype = array_layout(file, path, h5py.Dataset(item))["dtype"]
            in_numpy = item.dtype
            is_plain = in_numpy.kind in "iuf" and h5py.h5t.py_create(
                in_numpy.newbyteorder("=")
            ).equal(stored)
            known = self._types[encoded] = (dtype, in_numpy, is_plain)
        dtype, in_numpy, is_plain = known
        place = self.hdf5.place(item) if is_plain else None
        chunk = self.hdf5.check_place(item, path) if place is None else 0
        shape = item.shape
        if not shape and item.get_space().get_simple_extent_type() == h5py.h5s.NULL:
            raise self.hdf5.error("an array without values", path)
        facts = {"dtype": dtype, "shape": list(shape)}
        if chunk or self.hdf5.follow_links:
            facts = array_layout(file, path, h5py.Dataset(item))
        budget.take((math.prod(shape) + chunk) * in_numpy.itemsize, path)
        row = tuple(shape[1:]) if shape else None
        if isinstance(dtype, str):
            found = Array(np.dtype(dtype).newbyteorder("="), "numbers", row)
            return found, facts, -1 if place is None else place
        is_text = dtype["string"] == "utf-8" and dtype["length"] is None
        return Array(np.dtype(object), "text" if is_text else "bytes", row), facts, -1

    def _length(self, rows: Mapping[str, int], demo: Any, types: Mapping[str, Any]) -> int:
        lengths = {rows[path] for path in rows if is_action(path)}
        if len(lengths) != 1:
            what = "they differ in their number of rows" if lengths else "missing"
            raise self.hdf5.error(what, _ACTIONS)
        (length,) = lengths
        said = demo.attrs[_SAMPLES] if _SAMPLES in types else length
        if not np.array_equal(said, length):
            raise self.hdf5.error(f"{said}, but there are {length} actions", _SAMPLES)
        return length


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
        known = self.demo.structure.arrays[path]
        shape = known.shape or ()
        shape = shape if known.shape is None else (self.demo.rows[path], *shape)
        values = self._read(path, known, shape, rows)
        if rows == slice(None):
            self._whole[path] = values
        return values

    def _read(self, path: str, known: Array, shape: tuple[int, ...], rows: slice) -> np.ndarray:
        h5py = import_extra("h5py")
        array = h5py.h5d.open(self._group, path.encode())
        if array.shape != shape:
            raise self.file.hdf5.error("it was changed while it was read", path)
        if known.kind == "numbers" and rows == slice(None) and 0 not in shape:
            values = np.empty(shape, known.dtype)
            array.read(h5py.h5s.ALL, h5py.h5s.ALL, values)
            return values
        opened = h5py.Dataset(array, readonly=True)
        return known.values(opened[() if known.shape is None else rows])

    def attribute(self, name: str) -> Any:
        """Reads an attribute: text, bytes, or an array."""
        value = import_extra("h5py").Group(self._group).attrs[name]
        if isinstance(value, str):
            return value.encode(errors="surrogateescape").decode()
        return value

    def attributes(self) -> dict[str, Any]:
        """Returns all attributes with their types, for who makes them again."""
        hdf5 = self.file.hdf5
        group = import_extra("h5py").Group(self._group)
        return attributes_layout(hdf5, group, "", hdf5.budget(_MAX_CONSTANT_BYTES))
