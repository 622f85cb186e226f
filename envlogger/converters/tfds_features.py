"""TFDS features that hold recorded values without loss, and the check that values fit them.

The records that TFDS writes hold int64, float32 and byte strings. In the default encoding of
`tfds.features.Tensor`, bool, (u)int8 to (u)int64, float16 and float32 come back unchanged (but for
signalling NaNs, which become quiet). Yet float64 is silently rounded to float32, complex numbers
and bfloat16 are refused, and reading an array without elements kills the process (TFDS 4.9.10).
The features made here store these as raw bytes.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

import numpy as np
import tensorflow_datasets as tfds
import tree

__all__ = [
    "MismatchError",
    "children_of",
    "encoding_of",
    "is_absent",
    "lossless",
    "lossless_config",
    "match_columns",
]


class MismatchError(ValueError):
    """Values do not fit the feature that they are stored in.

    Attributes:
      path: The path of the field.
      what: What there is, and what was expected.
    """

    def __init__(self, where: str, path: str, what: str) -> None:
        super().__init__(f"{where}, {path}: {what}")
        self.path, self.what = path, what


_AS_NUMBERS = ["bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"]
_AS_NUMBERS += ["float16", "float32"]
_AS_BYTES = ["float64", "complex64", "complex128", "bfloat16"]
# TensorFlow decodes raw bytes to every dtype that is needed but this one.
_NOT_FROM_BYTES = "uint32"


def lossless(feature: Any, path: str = "") -> Any:
    """Returns a feature given by the user, changed so that TFDS stores its values without loss.

    A float64 `Tensor` in the default encoding, for example, is stored as bytes instead; what a
    reader gets is a float64 tensor in both cases.

    Args:
      feature: The feature.
      path: Its name in error messages.

    Raises:
      ValueError: If a feature other than a `Tensor` or a `FeaturesDict` would narrow its values.
    """
    if isinstance(feature, tfds.features.FeaturesDict):
        children = {name: lossless(child, f"{path}/{name}") for name, child in feature.items()}
        return tfds.features.FeaturesDict(children, doc=feature.doc)
    if all(_is_lossless(stored) for stored in tree.flatten(feature.get_serialized_info())):
        return feature
    if type(feature) is tfds.features.Sequence:
        length = tree.flatten(feature.get_tensor_info())[0].shape[0]
        return tfds.features.Sequence(lossless(feature.feature, path), length=length)
    if type(feature) not in (tfds.features.Tensor, tfds.features.Scalar):
        raise ValueError(
            f"{path}: TFDS would not store {feature} without loss; use tfds.features.Tensor with "
            "encoding='bytes' instead."
        )
    info = feature.get_tensor_info()
    return tfds.features.Tensor(
        shape=info.shape,
        dtype=info.np_dtype,
        encoding=encoding_of(info.shape, np.dtype(info.np_dtype), path),
        doc=feature.doc,
        minimum=info.minimum,
        maximum=info.maximum,
        optional=info.optional,
    )


def lossless_config(ds_config: Any) -> Any:
    """Returns a `DatasetConfig` whose features give back what is stored, see `lossless`.

    Raises:
      ValueError: As `lossless`.
    """
    names = ("observation_info", "action_info", "reward_info", "discount_info")
    given = {name: getattr(ds_config, name) for name in names}
    given = {name: feature for name, feature in given.items() if feature is not None}
    given = dict(lossless(tfds.features.FeaturesDict(given), "ds_config"))
    for name in ("step_metadata_info", "episode_metadata_info"):
        features = tfds.features.FeaturesDict(dict(getattr(ds_config, name) or {}))
        given[name] = dict(lossless(features, f"ds_config/{name}"))
    return dataclasses.replace(ds_config, **given)


def match_columns(columns: Any, feature: Any, *, rows: int, where: str, path: str = "") -> Any:
    """Returns columns in the form that `feature` encodes, after checking that they fit it.

    None throughout counts as absent, and stands for an array without elements if that is what the
    feature holds: an EnvLogger log cannot tell the two apart.

    Args:
      columns: Arrays with a leading axis of length `rows`, nested in dicts, lists and tuples.
      feature: The feature of one row.
      rows: The number of rows.
      where: Beginning of error messages: which data this is.
      path: Path of the field that `columns` hold.

    Raises:
      MismatchError: If fields are missing or not expected; if the shape is not that of the feature,
        or a value is not one of its dtype: integers may be of another width, floats too, if they
        fit.
    """
    absent = is_absent(columns)
    if isinstance(feature, tfds.features.FeaturesDict):
        if isinstance(columns, np.ndarray) and not absent:
            raise _mismatch(where, path, _in_words(columns), f"the fields {list(feature)}")
        children = {} if absent else children_of(columns, path)
        children = {name: child for name, child in children.items() if not is_absent(child)}
        for name in sorted(children.keys() - feature.keys()):
            raise _mismatch(where, _join(path, name), "a field", f"only the fields {list(feature)}")
        return {
            name: match_columns(
                children.get(name), child, rows=rows, where=where, path=_join(path, name)
            )
            for name, child in feature.items()
        }
    info = feature.get_tensor_info()
    is_leaf = isinstance(info, tfds.features.TensorInfo)
    if absent:
        if is_leaf and 0 in info.shape:
            return np.zeros((rows, *info.shape), info.np_dtype)
        raise _mismatch(where, path, "nothing", _leaf_in_words(info) if is_leaf else str(feature))
    if not is_leaf or isinstance(feature, tfds.features.ClassLabel):
        return columns  # What these features accept is up to TFDS.
    if not isinstance(columns, np.ndarray):
        raise _mismatch(where, path, f"the fields {list(children_of(columns, path))}", str(feature))
    is_text = columns.dtype == object
    if is_text and isinstance(feature, tfds.features.Image):
        return columns  # Images that were encoded before they were recorded.
    exact = _exactly_as(columns, np.dtype(info.np_dtype))
    if exact is None or not _fits(columns.shape[1:], info.shape):
        raise _mismatch(where, path, _in_words(columns), _leaf_in_words(info))
    return exact


def encoding_of(shape: tuple[int | None, ...], dtype: np.dtype, path: str) -> Any:
    """Returns the encoding in which a `Tensor` keeps its values.

    Raises:
      ValueError: If there is none.
    """
    if dtype.name in [*_AS_NUMBERS, "object"] and 0 not in shape:
        return tfds.features.Encoding.NONE
    if dtype.name in _AS_NUMBERS + _AS_BYTES and dtype.name != _NOT_FROM_BYTES:
        return tfds.features.Encoding.BYTES
    dtype_name = "string" if dtype.name == "object" else dtype.name
    raise ValueError(f"{path}: TFDS cannot hold arrays of dtype {dtype_name} and shape {shape}.")


def children_of(nest: Any, path: str) -> dict[str, Any]:
    """Returns the children of a container under the names that they have in a dataset."""
    if not isinstance(nest, (Mapping, list, tuple)):
        raise ValueError(f"{path}: {nest!r} is neither a spec nor a dict, list or tuple of specs.")
    items = list(nest.items() if isinstance(nest, Mapping) else enumerate(nest))
    children = {str(key): child for key, child in items}
    if len(children) < len(items):
        raise ValueError(f"{path}: as strings, some of the keys are equal: {list(nest)}.")
    return children


def is_absent(columns: Any) -> bool:
    """Whether columns are None throughout, or containers of nothing else."""
    if columns is None:
        return True
    if isinstance(columns, np.ndarray):
        return columns.dtype == object and all(item is None for item in columns.flat)
    return all(is_absent(child) for child in children_of(columns, "").values())


def _exactly_as(column: np.ndarray, dtype: np.dtype) -> np.ndarray | None:
    """Returns a column in another dtype of the same kind, None if a value would not be the same.

    Python's numbers are recorded in the widest dtype, whatever the spec says that they are.
    """
    if column.dtype == dtype:
        return column
    if not any(column.dtype.kind in kinds and dtype.kind in kinds for kinds in ("iu", "f")):
        return None
    with np.errstate(over="ignore"):
        converted = column.astype(dtype)
    same = np.array_equal(converted, column, equal_nan=dtype.kind == "f")
    return converted if same else None


def _is_lossless(stored: Any) -> bool:
    """Whether TFDS stores a value without loss as what the `TensorInfo` says."""
    return 0 not in stored.shape and np.dtype(stored.np_dtype).name in [*_AS_NUMBERS, "object"]


def _fits(shape: tuple[int, ...], expected: tuple[int | None, ...]) -> bool:
    return len(shape) == len(expected) and all(
        size == wanted or wanted is None for size, wanted in zip(shape, expected)
    )


def _join(path: str, name: str) -> str:
    return f"{path}/{name}" if path else name


def _leaf_in_words(info: Any) -> str:
    name = np.dtype(info.np_dtype).name
    return f"{'string' if name == 'object' else name} of shape {tuple(info.shape)}"


def _in_words(column: np.ndarray) -> str:
    is_text = column.dtype == object and column.size > 0
    name = type(column.flat[0]).__name__ if is_text else column.dtype.name
    return f"{name} of shape {column.shape[1:]}"


def _mismatch(where: str, path: str, got: str, expected: str) -> MismatchError:
    what = (
        f"got {got}, expected {expected}. Where the data is right, name the feature for it in the "
        "DatasetConfig."
    )
    return MismatchError(where, path, what)
