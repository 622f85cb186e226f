"""Lossless TFDS features for the fields of a source."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

import numpy as np

import rlds
from rlds.sources.episode_fields import EPISODE_FIELDS, RESERVED
from rlds.sources.source import AnySource, SourceError, files_of
from rlds_ecosystem.model.fields import Field, Opaque, as_fields
from rlds_ecosystem.model.nests import map_named_leaves
from tfds_files.example_scan import direct_encoding
from tfds_files.features import Dataset, Feature, Features, Image, Sequence, Tensor, parse_features
from tfds_files.png import check_level

__all__ = [
    "AS_NUMBERS",
    "EXACT",
    "TensorStorage",
    "encoding_of",
    "feature_of",
    "features_of",
    "field_of",
]

AS_NUMBERS = ["bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"]
AS_NUMBERS += ["float16", "float32"]
"""The dtypes that TFDS stores as plain numbers without loss."""

_DTYPES_AS_BYTES = ["float64", "complex64", "complex128", "bfloat16"]
# A dtype to which TensorFlow cannot decode raw bytes.
_UNDECODABLE_DTYPE = "uint32"
_FLOAT64_CHOICES = ("bytes", "float32")
_ENCODING_CHOICES = ("none", "zlib")
_LAYOUT_CHOICES = ("direct",)
# Numbers of channels of uint8 arrays that are images.
_CHANNELS = (1, 3, 4)
# The class of strings other than text.
_TENSOR_CLASS = "tensorflow_datasets.core.features.tensor_feature.Tensor"
_TENSOR_CLASSES = ("", _TENSOR_CLASS, "tensorflow_datasets.core.features.scalar.Scalar")


@dataclasses.dataclass(frozen=True)
class TensorStorage:
    """The storage of arrays in a TFDS dataset: encoding, rounding and compression.

    The loaders of dlimp, Octo and OpenVLA do not decode steps. These loaders need
    `float64="float32"` and plain arrays (`tensor_encoding="none"` if the features ask for zlib).
    The metadata of episodes, which TFDS decodes, always keeps every bit.

    Attributes:
      float64: The storage of float64. "bytes" keeps every bit; TFDS decodes the bytes, and readers
        get float64. "float32" rounds, and stores plain numbers; readers get float32. None is
        "bytes", with a warning if a feature of yours would have rounded it.
      tensor_encoding: The storage of arrays of numbers: "none" as plain numbers, "zlib" compressed.
        None leaves that to the features.
      layout: "direct" stores the values of a field with a fixed width, where possible, so that
        any step can be read alone: plain float32 and bools, and the bytes of other numbers. None
        leaves that to the features.
      png_level: The compression level of PNG files, see `tfds_files.png.encode_png`.

    Raises:
      ValueError: A choice is invalid, or two choices contradict each other.
    """

    float64: str | None = None
    tensor_encoding: Any = None
    layout: str | None = None
    png_level: int | None = None

    def __post_init__(self) -> None:
        check_level(self.png_level)
        if self.float64 not in (None, *_FLOAT64_CHOICES):
            raise ValueError(f"float64: got {self.float64!r}, expected one of {_FLOAT64_CHOICES}")
        encoding = getattr(self.tensor_encoding, "value", self.tensor_encoding)
        if encoding not in (None, *_ENCODING_CHOICES):
            raise ValueError(
                f"tensor_encoding: got {self.tensor_encoding!r}, expected one of "
                f"{_ENCODING_CHOICES}"
            )
        object.__setattr__(self, "tensor_encoding", encoding)
        if self.layout not in (None, *_LAYOUT_CHOICES):
            raise ValueError(f"layout: got {self.layout!r}, expected one of {_LAYOUT_CHOICES}")
        if self.layout is not None:
            if encoding is not None:
                raise ValueError("layout and tensor_encoding decide the same: pass one of them")
            object.__setattr__(self, "float64", self.float64 or "bytes")

    @property
    def rounds(self) -> bool:
        """Whether float64 becomes float32."""
        return self.float64 == "float32"

    def of_tensor(
        self, shape: tuple[int | None, ...], dtype: np.dtype, encoding: str, path: str
    ) -> tuple[np.dtype, str]:
        """Returns the stored dtype and the encoding of a tensor.

        Args:
          shape: The shape of the tensor.
          dtype: The dtype of the tensor.
          encoding: The encoding that its feature asks for.
          path: The name in error messages.

        Raises:
          ValueError: TFDS cannot hold it.
        """
        if dtype == np.float64 and self.rounds:
            dtype, encoding = np.dtype(np.float32), "none"
        if self.tensor_encoding and shape and dtype.name in AS_NUMBERS + _DTYPES_AS_BYTES:
            encoding = self.tensor_encoding
        if self.layout == "direct" and None not in shape:
            encoding = direct_encoding(shape, dtype)
        if encoding == "none" or dtype.name == _UNDECODABLE_DTYPE:
            encoding = encoding_of(shape, dtype, path)
        return dtype, encoding


# Every bit is kept, and the features record the meaning.
EXACT = TensorStorage(float64="bytes")


def encoding_of(shape: tuple[int | None, ...], dtype: np.dtype, path: str) -> str:
    """Returns the TFDS encoding of a tensor.

    Raises:
      ValueError: TFDS has no encoding for the tensor.
    """
    if dtype.name in [*AS_NUMBERS, "object"] and 0 not in shape:
        return "none"
    if dtype.name in AS_NUMBERS + _DTYPES_AS_BYTES and dtype.name != _UNDECODABLE_DTYPE:
        return "bytes"
    dtype_name = "string" if dtype.name == "object" else dtype.name
    raise ValueError(f"{path}: TFDS cannot hold arrays of dtype {dtype_name} and shape {shape}.")


def features_of(source: AnySource, storage: TensorStorage = EXACT) -> Features:
    """Returns the features of the dataset that is converted from a source.

    Args:
      source: The source.
      storage: The storage of its steps.

    Raises:
      SourceError: The source has a field with a name of the dataset's own, or a field that TFDS
        cannot hold without loss.
    """
    fields = source.fields
    flags = () if source.bases else fields.flags  # An edit may have added flags.
    for reserved_names, names in ((flags, fields.steps), (RESERVED, fields.episode)):
        if clashes := [name for name in reserved_names if name in names]:
            raise SourceError(
                f"{type(source).__name__}: the name {clashes[0]!r} is reserved; rename the field",
                file=files_of(source),
            )
    steps = {**as_fields(fields.steps), **dict.fromkeys(fields.flags, Field(np.bool_))}
    episode_fields = as_fields({**EPISODE_FIELDS, **fields.episode})
    # TFDS stores image files unchanged, as bytes.
    episode_fields = map_named_leaves(lambda path, field: _as_file(field), episode_fields)
    try:
        step_feature = feature_of(steps, rlds.STEPS, storage, source.source_info.images_as_png)
        children = {name: feature_of(field, name) for name, field in episode_fields.items()}
    except ValueError as error:  # Fields may come from a file.
        raise SourceError(str(error), file=files_of(source)) from error
    return Features(features=_sort({**children, rlds.STEPS: Dataset(feature=step_feature)}))


def _as_file(field: Any) -> Any:
    return Field(bytes, doc=field.doc) if isinstance(field, Field) and field.encoding else field


def _sort(features: Mapping[str, Feature]) -> dict[str, Feature]:
    return {name: features[name] for name in sorted(features)}


def feature_of(
    field: Any, path: str, storage: TensorStorage | None = None, as_png: bool = False
) -> Feature:
    """Returns the feature for a field.

    Args:
      field: A field, a dict of fields, or a feature of TFDS, which stays unchanged.
      path: The name in error messages.
      storage: The storage of steps; None for a field of an episode.
      as_png: Whether uint8 arrays of shape `(height, width, 1 | 3 | 4)` become PNG images.

    Raises:
      ValueError: TFDS cannot hold it.
    """
    if isinstance(field, Mapping) and not hasattr(field, "to_json"):
        children = {
            name: feature_of(child, f"{path}/{name}", storage, as_png)
            for name, child in field.items()
        }
        return Features(features=_sort(children))
    if not isinstance(field, Field):
        if not hasattr(field, "to_json"):
            raise ValueError(f"{path}: {field} cannot be stored")
        features = {"featuresDict": {"features": {"it": field.to_json()}}}
        return _as_stored(parse_features(features)["it"], path, storage or EXACT)
    shape, dtype = field.shape, field.column_dtype
    is_image = dtype == np.uint8 and len(shape) == 3 and shape[2] in _CHANNELS and 0 not in shape
    if field.encoding or (is_image and as_png):
        return Image(
            shape=shape, dtype=dtype, encoding_format=field.encoding or "png", doc=field.doc
        )
    dtype, encoding = (storage or EXACT).of_tensor(shape, dtype, "none", path)
    # TFDS reads plain values of fixed sizes only.
    is_ragged = None in shape and (storage is not None or shape.count(None) > 1)
    if is_ragged and encoding == "none":
        if dtype.kind == "O" or dtype.name == _UNDECODABLE_DTYPE:
            raise ValueError(f"{path}: TFDS cannot read {field} in steps; give it a fixed shape")
        encoding = "bytes"
    class_name = _TENSOR_CLASS if np.dtype(field.dtype).kind in "SO" else ""
    return Tensor(shape=shape, dtype=dtype, encoding=encoding, doc=field.doc, class_name=class_name)


def _as_stored(feature: Feature, path: str, storage: TensorStorage) -> Feature:
    """Returns a feature, changed to store its values without loss."""
    if isinstance(feature, Features):
        children = {name: _as_stored(c, f"{path}/{name}", storage) for name, c in feature.items()}
        return dataclasses.replace(feature, features=children)
    if isinstance(feature, Sequence):
        return dataclasses.replace(feature, feature=_as_stored(feature.feature, path, storage))
    if not isinstance(feature, Tensor) or feature.class_name not in _TENSOR_CLASSES:
        return feature
    dtype, encoding = storage.of_tensor(feature.shape, feature.dtype, feature.encoding, path)
    return dataclasses.replace(feature, dtype=dtype, encoding=encoding)


def field_of(feature: Feature) -> Any:
    """Returns the field that a feature holds; see `rlds_ecosystem.model.fields`."""
    if isinstance(feature, Features):
        return {name: field_of(child) for name, child in feature.items()}
    if isinstance(feature, Tensor) and feature.num_classes is not None:
        return Opaque("the number of a class", absent=-1)
    if isinstance(feature, Tensor):
        return Field(feature.dtype, feature.shape)
    if isinstance(feature, Image):
        return Field(feature.dtype, feature.shape, feature.encoding_format or "image")
    return Opaque("a sequence" if isinstance(feature, Sequence) else str(feature))
