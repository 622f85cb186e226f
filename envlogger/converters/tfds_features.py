"""TFDS features that hold recorded values as asked for, and the check that values fit them.

The records that TFDS writes hold int64, float32 and byte strings. In the default encoding of
`tfds.features.Tensor`, bool, (u)int8 to (u)int64, float16 and float32 come back unchanged (but for
signalling NaNs, which become quiet). Yet float64 is silently rounded to float32, complex numbers
and bfloat16 are refused, and reading an array without elements kills the process (TFDS 4.9.10).
The features made here store these as raw bytes, unless a `TensorStorage` says otherwise.
"""

from __future__ import annotations

import dataclasses
import warnings
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import tensorflow_datasets as tfds
import tree

from envlogger.converters.rlds_episode import known_field, missing

__all__ = [
    "EXACT",
    "MismatchError",
    "TensorStorage",
    "check_readable",
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
_FLOAT64_CHOICES = ("bytes", "float32")
_ENCODING_CHOICES = ("none", "zlib")


@dataclasses.dataclass(frozen=True)
class TensorStorage:
    """How a dataset stores the numbers of steps: what all writers of datasets let you choose.

    The loaders of dlimp, Octo and OpenVLA take the steps as they are stored. They need
    `float64="float32"` and plain arrays (`tensor_encoding="none"` if the features ask for zlib).
    The metadata of episodes, which TFDS decodes for them too, always keeps every bit.

    Attributes:
      float64: How float64 is stored. "bytes" keeps every bit; TFDS decodes the bytes, and readers
        get float64. "float32" rounds, and stores plain numbers; readers get float32. None is
        "bytes", with a warning if a feature that you give would have made plain numbers of it.
      tensor_encoding: How arrays of numbers are stored: "none" as plain numbers, "zlib" compressed.
        None leaves that to the features.

    Raises:
      ValueError: There is no such choice.

    >>> storage = TensorStorage(float64="float32")
    >>> lossless(tfds.features.Tensor(shape=(3,), dtype=np.float64), "action", storage)
    Tensor(shape=(3,), dtype=float32)
    """

    float64: str | None = None
    tensor_encoding: Any = None

    def __post_init__(self) -> None:
        if self.float64 not in (None, *_FLOAT64_CHOICES):
            raise ValueError(f"float64: got {self.float64!r}, expected one of {_FLOAT64_CHOICES}")
        encoding = getattr(self.tensor_encoding, "value", self.tensor_encoding)
        if encoding not in (None, *_ENCODING_CHOICES):
            raise ValueError(
                f"tensor_encoding: got {self.tensor_encoding!r}, expected one of "
                f"{_ENCODING_CHOICES}"
            )
        object.__setattr__(self, "tensor_encoding", encoding)

    @property
    def rounds(self) -> bool:
        """Whether float64 becomes float32."""
        return self.float64 == "float32"


# Every bit is kept, and the features say the rest.
EXACT = TensorStorage(float64="bytes")


def lossless(feature: Any, path: str = "", storage: TensorStorage = EXACT) -> Any:
    """Returns a feature given by the user, changed so that TFDS stores its values as they are.

    A float64 `Tensor` in the default encoding, for example, is stored as bytes instead; what a
    reader gets is a float64 tensor in both cases.

    Args:
      feature: The feature.
      path: Its name in error messages.
      storage: Whether float64 may be rounded nevertheless, and how arrays are encoded.

    Raises:
      ValueError: If a feature other than a `Tensor` or a `FeaturesDict` would narrow its values.
    """
    if isinstance(feature, tfds.features.FeaturesDict):
        children = {
            name: lossless(child, f"{path}/{name}", storage) for name, child in feature.items()
        }
        if all(children[name] is child for name, child in feature.items()):
            return feature
        return tfds.features.FeaturesDict(children, doc=feature.doc)
    if type(feature) in (tfds.features.Tensor, tfds.features.Scalar):
        return _stored_tensor(feature, path, storage)
    if type(feature) is tfds.features.Sequence:
        inner = lossless(feature.feature, path, storage)
        if inner is feature.feature:
            return feature
        length = tree.flatten(feature.get_tensor_info())[0].shape[0]
        return tfds.features.Sequence(inner, length=length, doc=feature.doc)
    if all(_is_lossless(stored) for stored in tree.flatten(feature.get_serialized_info())):
        return feature
    raise ValueError(
        f"{path}: TFDS would not store {feature} without loss; use tfds.features.Tensor with "
        "encoding='bytes' instead."
    )


def _stored_tensor(feature: Any, path: str, storage: TensorStorage) -> Any:
    info = feature.get_tensor_info()
    given = dtype = np.dtype(info.np_dtype)
    encoding = asked = _encoding(feature)
    if given == np.float64 and storage.rounds:
        dtype, asked = np.dtype(np.float32), tfds.features.Encoding.NONE
    if storage.tensor_encoding is not None and info.shape and dtype.name in _AS_NUMBERS + _AS_BYTES:
        asked = tfds.features.Encoding(storage.tensor_encoding)
    if asked == tfds.features.Encoding.NONE or dtype.name == _NOT_FROM_BYTES:
        asked = encoding_of(info.shape, dtype, path)
    if (asked, dtype) == (encoding, given):
        return feature
    return tfds.features.Tensor(
        shape=info.shape,
        dtype=dtype,
        encoding=asked,
        doc=feature.doc,
        minimum=info.minimum,
        maximum=info.maximum,
        optional=info.optional,
    )


def lossless_config(
    ds_config: Any,
    storage: TensorStorage = EXACT,
    *,
    argument: str = "ds_config",
    stacklevel: int = 2,
) -> Any:
    """Returns a `DatasetConfig` whose features give back what is stored, see `lossless`.

    Args:
      ds_config: The config. What is None in it stays None.
      storage: See `lossless`.
      argument: The name of the config in error messages.
      stacklevel: Where a warning points to, as in `warnings.warn`.

    Raises:
      ValueError: As `lossless`.
    """
    names = ("observation_info", "action_info", "reward_info", "discount_info")
    given = {name: getattr(ds_config, name) for name in names}
    steps = tfds.features.FeaturesDict({k: v for k, v in given.items() if v is not None})
    metadata = {
        name: tfds.features.FeaturesDict(dict(getattr(ds_config, name)))
        for name in ("step_metadata_info", "episode_metadata_info")
        if getattr(ds_config, name) is not None
    }
    of_steps = {**dict(steps.items()), **metadata}
    of_steps.pop("episode_metadata_info", None)
    rounded = list(_rounded_by_tfds(tfds.features.FeaturesDict(of_steps)))
    if rounded and storage.float64 is None:
        warnings.warn(
            f"{argument}: TFDS would round the float64 of {', '.join(rounded)} to float32. It is "
            "stored as bytes instead, which keeps it as it is, but which loaders that do not "
            "decode steps (dlimp, Octo, OpenVLA) cannot use. Pass float64='bytes' if that is "
            "right, or float64='float32' for rounded numbers that all of them read.",
            stacklevel=stacklevel + 1,
        )
    stored = dict(lossless(steps, argument, storage).items())
    for name, features in metadata.items():
        chosen = storage if name == "step_metadata_info" else EXACT
        stored[name] = dict(lossless(features, f"{argument}/{name}", chosen).items())
    return dataclasses.replace(ds_config, **stored)


def check_readable(features: Any, where: str = "") -> None:
    """Checks that TFDS can read what it would write of episodes.

    Args:
      features: The features of an episode.
      where: Beginning of error messages: what the features are for.

    Raises:
      ValueError: It could not; says which field, and why.
    """
    for path, stored in tree.flatten_with_path(features.get_serialized_info()):
        is_ragged = None in stored.shape[1:]
        if stored.sequence_rank > 1 and not is_ragged:
            raise ValueError(
                f"{where}{_path_of(path)}: TFDS cannot read sequences of a fixed length in steps; "
                "use a Tensor, or a Sequence without length"
            )
        if stored.sequence_rank == 1 and is_ragged:
            raise ValueError(
                f"{where}{_path_of(path)}: TFDS cannot read plain arrays of an unknown size, "
                f"{tuple(stored.shape[1:])}, in steps; give the feature a shape, or the encoding "
                "'zlib' or 'bytes' (which dlimp, Octo and OpenVLA do not decode)"
            )


def _path_of(keys: tuple[Any, ...]) -> str:
    return "/".join(map(str, keys))


def _rounded_by_tfds(feature: Any, path: str = "") -> Iterator[str]:
    """Yields the paths of float64 that TFDS would store as float32."""
    if isinstance(feature, tfds.features.FeaturesDict):
        for name, child in feature.items():
            yield from _rounded_by_tfds(child, _join(path, name))
    elif type(feature) is tfds.features.Sequence:
        yield from _rounded_by_tfds(feature.feature, path)
    elif type(feature) in (tfds.features.Tensor, tfds.features.Scalar):
        is_plain = _encoding(feature) == tfds.features.Encoding.NONE
        if is_plain and np.dtype(feature.np_dtype) == np.float64:
            yield path


def _encoding(feature: Any) -> Any:
    return tfds.features.Encoding(feature.to_json_content().encoding)


def match_columns(
    columns: Any,
    feature: Any,
    *,
    rows: int,
    where: str,
    path: str = "",
    storage: TensorStorage = EXACT,
) -> Any:
    """Returns columns in the form that `feature` encodes, after checking that they fit it.

    None throughout counts as absent, and stands for an array without elements if that is what the
    feature holds: an EnvLogger log cannot tell the two apart. A field may be absent, too, where a
    feature `<name>_known`, a bool, says so; columns that do not have that one get it.

    Args:
      columns: Arrays with a leading axis of length `rows`, nested in dicts, lists and tuples.
      feature: The feature of one row.
      rows: The number of rows.
      where: Beginning of error messages: which data this is.
      path: Path of the field that `columns` hold.
      storage: Whether float64 is rounded where the feature is float32.

    Raises:
      MismatchError: If fields are missing or not expected; if the shape is not that of the feature,
        or a value is not one of its dtype: integers may be of another width, floats too, if they
        fit. If a float64 to be rounded is beyond float32.
    """
    absent = is_absent(columns)
    if isinstance(feature, tfds.features.FeaturesDict):
        if isinstance(columns, np.ndarray) and not absent:
            raise _mismatch(where, path, _in_words(columns), f"the fields {list(feature)}")
        children = {} if absent else children_of(columns, path)
        children = {name: child for name, child in children.items() if not is_absent(child)}
        for name in sorted(children.keys() - feature.keys()):
            raise _mismatch(where, _join(path, name), "a field", f"only the fields {list(feature)}")
        marked = {known_field(name): name for name in feature if known_field(name) not in children}
        marked = {mark: name for mark, name in marked.items() if _is_mark(feature, mark)}
        matched = {}
        for name, child in feature.items():
            column, inner = children.get(name), _join(path, name)
            if name in marked:
                matched[name] = np.full(rows, marked[name] in children)
            elif column is None and known_field(name) in marked:
                matched[name] = _missing_rows(child, rows, where, inner)
            else:
                matched[name] = match_columns(
                    column, child, rows=rows, where=where, path=inner, storage=storage
                )
        return matched
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
    dtype = np.dtype(info.np_dtype)
    is_wider = columns.dtype == np.float64 and dtype == np.float32
    if not _fits(columns.shape[1:], info.shape):
        raise _mismatch(where, path, _in_words(columns), _leaf_in_words(info))
    if is_wider and storage.rounds:
        return _rounded(columns, where, path)
    exact = _exactly_as(columns, dtype)
    if exact is None:
        what_to_do = "Pass float64='float32' to store it rounded." if is_wider else ""
        raise _mismatch(where, path, _in_words(columns), _leaf_in_words(info), what_to_do)
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


def _is_mark(features: Any, name: str) -> bool:
    info = features[name].get_tensor_info() if name in features else None
    if not isinstance(info, tfds.features.TensorInfo):
        return False
    return bool(info.shape == () and np.dtype(info.np_dtype) == np.bool_)


def _missing_rows(feature: Any, rows: int, where: str, path: str) -> Any:
    """Returns columns for a field of which there is nothing."""
    if isinstance(feature, tfds.features.FeaturesDict):
        return {
            name: _missing_rows(child, rows, where, _join(path, name))
            for name, child in feature.items()
        }
    info = feature.get_tensor_info()
    if isinstance(feature, tfds.features.ClassLabel):
        return np.full(rows, -1)
    if not isinstance(info, tfds.features.TensorInfo) or (
        isinstance(feature, tfds.features.Image) and None in info.shape
    ):
        raise _mismatch(where, path, "nothing", str(feature))
    return missing((rows, *(size or 0 for size in info.shape)), np.dtype(info.np_dtype))


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


def _rounded(column: np.ndarray, where: str, path: str) -> np.ndarray:
    with np.errstate(over="ignore"):
        rounded = column.astype(np.float32)
    beyond = np.isinf(rounded) & np.isfinite(column)
    if beyond.any():
        row, *_ = place = tuple(np.argwhere(beyond)[0])
        raise MismatchError(
            where,
            path,
            f"{column[place].item()!r} in row {row} is beyond float32. float64='bytes' keeps it, "
            "float64='float32' cannot.",
        )
    return rounded


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


def _mismatch(
    where: str, path: str, got: str, expected: str, what_to_do: str = ""
) -> MismatchError:
    what_to_do = what_to_do or (
        "Where the data is right, name the feature for it in the DatasetConfig."
    )
    return MismatchError(where, path, f"got {got}, expected {expected}. {what_to_do}")
