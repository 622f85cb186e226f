"""How HDF5 files store what is in them, in the types of JSON, and the same files made again.

The layout of an array is its dtype, its chunks, its compression and the like; that of a group has
an entry for each array and each group in it, by path, the empty one for itself:

    dtype       of an array
    empty       whether an array has no values, not even none
    chunks ...  the arguments of h5py that make the array
    ordered     whether a group keeps the order in which things were added
    attributes  by name: dtype, shape and value

Values are kept as bytes (in base64) with dtype and shape, so that not a bit is lost.
"""

from __future__ import annotations

import base64
from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

import numpy as np

from rlds.raw_files.hdf5_access import Hdf5File
from rlds.raw_files.untrusted import Budget, SourceError
from rlds_ecosystem import import_extra

__all__ = [
    "Layout",
    "array_layout",
    "attributes_layout",
    "create_array",
    "create_attributes",
    "decode_dtype",
    "decode_value",
    "encode_data",
    "group_layout",
    "is_ragged",
    "layout_changes",
    "make_group",
    "with_changes",
]

Layout: TypeAlias = Mapping[str, Mapping[str, Any]]

# What of a layout are arguments of `create_dataset`.
_OPTIONS = ("chunks", "maxshape", "compression", "compression_opts", "shuffle", "fletcher32")
# All attributes of a group together. More would not do as JSON.
_MAX_ATTRIBUTE_BYTES = 64 << 20


def is_ragged(dtype: np.dtype) -> bool:
    """Whether rows of a dtype have different lengths."""
    h5py = import_extra("h5py")
    return h5py.check_vlen_dtype(dtype) not in (None, str, bytes)


def _text(hdf5: Hdf5File, name: str | bytes, path: str) -> str:
    """A name in the file, which h5py leaves as bytes where they are not UTF-8."""
    if isinstance(name, bytes):
        raise hdf5.error(f"the name {name!r} is not in UTF-8", path or "/")
    return name


# --- Groups --------------------------------------------------------------------------------------


def group_layout(hdf5: Hdf5File, group: Any) -> dict[str, dict[str, Any]]:
    """Returns the layout of a group, without the shapes of its arrays.

    Raises:
      SourceError: There is something in it that cannot be kept.
    """
    h5py = import_extra("h5py")
    budget = hdf5.budget(_MAX_ATTRIBUTE_BYTES)
    layout = {}
    for path, item in [("", group), *hdf5.items(group)]:
        if hasattr(item, "dtype"):
            facts = array_layout(item.file, path, item, ragged=True)
            if facts.pop("shape") is None:
                facts["empty"] = True
        else:
            opened = h5py.h5g.open(item.id, b".")  # The properties of a file are others.
            is_ordered = opened.get_create_plist().get_link_creation_order()
            facts = {"ordered": True} if is_ordered else {}
        attributes = attributes_layout(hdf5, item, path, budget)
        layout[path] = {**facts, **({"attributes": attributes} if attributes else {})}
    return layout


def layout_changes(layout: Layout, first: Layout) -> dict[str, Any]:
    """Returns in what a layout is not that of another group: entries, None for those it lacks."""
    changes: dict[str, Any] = {path: None for path in first if path not in layout}
    changes |= {path: facts for path, facts in layout.items() if facts != first.get(path)}
    return changes


def with_changes(first: Layout, changes: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the layout that `layout_changes` compared with the first one."""
    return {path: facts for path, facts in {**first, **changes}.items() if facts is not None}


def make_group(group: Any, layout: Layout, value: Callable[[str, Mapping[str, Any]], Any]) -> None:
    """Fills an empty group as a layout says.

    Args:
      group: The `h5py.Group`.
      layout: The layout.
      value: Returns the values of an array, by its path and its layout. Those of rows of different
        lengths, and of strings, are objects.
    """
    h5py = import_extra("h5py")
    for path, facts in layout.items():
        if not path:
            item = group
        elif "dtype" not in facts:
            item = group.create_group(path, track_order=facts.get("ordered", False))
        elif facts.get("empty"):
            item = group.create_dataset(path, data=h5py.Empty(decode_dtype(facts["dtype"])))
        else:
            values = value(path, facts)
            item = create_array(group, path, {**facts, "shape": np.shape(values)})
            _fill(item, values)
        create_attributes(item, facts.get("attributes", {}))


def _fill(array: Any, values: Any) -> None:
    if is_ragged(array.dtype):
        for row, data in enumerate(values):
            array[row] = np.frombuffer(data, np.uint8)
        return
    values = np.asarray(values)
    if array.dtype.kind == "S":  # Of a fixed length.
        encoded = [item.encode() if isinstance(item, str) else item for item in values.flat]
        values = np.array(encoded, array.dtype).reshape(values.shape)
    if values.size:
        array[...] = values


# --- Arrays --------------------------------------------------------------------------------------


def array_layout(file: Any, path: str, array: Any, *, ragged: bool = False) -> dict[str, Any]:
    """Returns the layout of an array, with its shape.

    Args:
      file: The `h5py.File`.
      path: What to call the array.
      array: The array.
      ragged: Whether its rows may be bytes of different lengths.

    Raises:
      SourceError: Its dtype cannot be kept.
    """
    options = {
        "chunks": array.chunks,
        "maxshape": None if array.maxshape == array.shape else array.maxshape,
        "compression": array.compression,
        "compression_opts": array.compression_opts,
        "shuffle": array.shuffle,
        "fletcher32": array.fletcher32,
    }
    return {
        "dtype": _encode_dtype(file, path, array.dtype, ragged=ragged),
        "shape": None if array.shape is None else list(array.shape),
        **{
            name: list(value) if isinstance(value, tuple) else value
            for name, value in options.items()
            if value is not None and value is not False
        },
    }


def create_array(group: Any, name: str, facts: Mapping[str, Any]) -> Any:
    """Creates an array as a layout with a shape says; returns it."""
    options = {
        option: tuple(value) if isinstance(value, list) else value
        for option, value in facts.items()
        if option in _OPTIONS
    }
    dtype = decode_dtype(facts["dtype"])
    return group.create_dataset(name, shape=tuple(facts["shape"]), dtype=dtype, **options)


def attributes_layout(
    hdf5: Hdf5File, item: Any, path: str, budget: Budget, *, values: bool = True
) -> dict[str, Any]:
    """Returns the attributes of an array or a group: dtypes, shapes and values.

    Args:
      hdf5: The file.
      item: The array or the group.
      path: What to call it.
      budget: What the values may take.
      values: Whether they are needed.

    Raises:
      SourceError: One cannot be kept.
    """
    h5py = import_extra("h5py")
    attributes: dict[str, Any] = {}
    for name in item.attrs:
        stored = item.attrs.get_id(_text(hdf5, name, path))
        dtype = _encode_dtype(item.file, f"{path}@{name}", stored.dtype)
        attributes[name] = {"dtype": dtype, "shape": None}
        if stored.get_space().get_simple_extent_type() != h5py.h5s.NULL:
            attributes[name]["shape"] = list(stored.shape)
            if values:
                budget.take(stored.get_storage_size(), f"{path}@{name}")
                attributes[name]["data"] = encode_data(item.attrs[name], dtype)
    return attributes


def create_attributes(item: Any, attributes: Mapping[str, Mapping[str, Any]]) -> None:
    """Adds the attributes that `attributes_layout` returned."""
    h5py = import_extra("h5py")
    for name, facts in attributes.items():
        dtype = decode_dtype(facts["dtype"])
        value = h5py.Empty(dtype) if facts["shape"] is None else decode_value(facts)
        item.attrs.create(name, value, dtype=dtype)


def decode_value(facts: Mapping[str, Any]) -> Any:
    """Returns the value of a constant or an attribute: an array, a NumPy scalar, or bytes."""
    shape = tuple(facts["shape"])
    if isinstance(facts["data"], list):
        strings = [base64.b64decode(item) for item in facts["data"]]
        value = np.array([*strings, None], object)[:-1].reshape(shape)
    else:
        dtype = decode_dtype(facts["dtype"])
        value = np.frombuffer(base64.b64decode(facts["data"]), dtype).reshape(shape)
    return value[()]


def encode_data(value: Any, encoded_dtype: Any) -> Any:
    """Returns what `decode_value` has as `data`."""
    if isinstance(encoded_dtype, dict) and encoded_dtype.get("length", 0) is None:
        items = np.asarray(value, object).flat
        strings = [item.encode() if isinstance(item, str) else item for item in items]
        return [base64.b64encode(item).decode() for item in strings]
    value = value.encode() if isinstance(value, str) else value
    return base64.b64encode(np.asarray(value).tobytes()).decode()


def decode_dtype(encoded: Any) -> np.dtype:
    """Returns the dtype of a layout."""
    if isinstance(encoded, str):
        return np.dtype(encoded)
    h5py = import_extra("h5py")
    dtype: np.dtype = (
        h5py.vlen_dtype(np.dtype(encoded["rows"]))
        if "rows" in encoded
        else h5py.string_dtype(encoded["string"], encoded["length"])
    )
    return dtype


def _encode_dtype(file: Any, path: str, dtype: np.dtype, *, ragged: bool = False) -> Any:
    h5py = import_extra("h5py")
    string = h5py.check_string_dtype(dtype)
    if string is not None:
        return {"string": string.encoding, "length": string.length}
    if ragged and h5py.check_vlen_dtype(dtype) == np.uint8:
        return {"rows": "|u1"}
    if dtype.kind not in "biufc" or dtype.metadata:
        what = "rows of different lengths" if is_ragged(dtype) else f"arrays of {dtype}"
        raise SourceError(
            f"{what} are not supported, only numbers and strings",
            file=file.filename,
            field=path,
        )
    return dtype.str
