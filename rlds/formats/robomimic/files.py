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
from typing import Any

import numpy as np

from rlds.formats.hdf5_sidecar import SIDECAR_GROUP
from rlds.formats.robomimic.dialects import FirstLook
from rlds.raw_files.hdf5_access import Hdf5File, is_array
from rlds.raw_files.hdf5_arrays import ArrayReader, StoredArray
from rlds.raw_files.hdf5_values import encode_value, read_attributes
from rlds.raw_files.input_files import natural_order
from rlds.raw_files.untrusted import SourceChangedError, SourceError
from rlds.sources.texts import as_text
from rlds_ecosystem import import_extra

__all__ = ["Demo", "DemoFile", "OpenDemo", "actions_in"]

_DATA, _MASK, _ACTIONS = "data", "mask", "actions"
_SAMPLES = "num_samples"


@dataclasses.dataclass
class Demo:
    """A demonstration.

    Attributes:
      file: In which of several files it is.
      name: Its name in the file.
      arrays: Its arrays, by path.
      rows: How many rows they have, by path; none for single values.
      attributes: Its attributes, by name; those of its arrays and groups by `<path>/<name>`.
      damage: What is wrong with it.
      num_steps: How many steps it makes.
    """

    file: int
    name: str
    arrays: Mapping[str, StoredArray] = dataclasses.field(default_factory=dict)
    rows: Mapping[str, int] = dataclasses.field(default_factory=dict)
    attributes: Mapping[str, StoredArray] = dataclasses.field(default_factory=dict)
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
      reader: Reads its arrays.
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
        self.reader = ArrayReader(self.hdf5)
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
        if is_array(demo):
            raise self.hdf5.error("an array, expected a group", f"{_DATA}/{name}")
        attributes = self.reader.attributes(demo.id)
        arrays: dict[str, StoredArray] = {}
        for path, item, stored in self.reader.describe(demo.id):
            if h5py.h5a.get_num_attrs(item):
                inner = self.reader.attributes(item, path)
                attributes |= {f"{path}/{name}": each for name, each in inner.items()}
            if stored is not None and stored.kind == "ragged":
                raise self.hdf5.error("rows of different lengths are not supported", path)
            if stored is not None:
                arrays[path] = stored
        rows = {path: stored.shape[0] for path, stored in arrays.items() if stored.shape}
        self._check_length(rows, demo)
        return Demo(self._number, name, arrays, rows, attributes)

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
        values = self.file.reader.read(self._group, path, self.demo.arrays[path], rows)
        if rows == slice(None):
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
