"""Encoding of columns as examples of TFDS datasets.

`tfds_files` encodes whole columns of the features that it supports. TFDS encodes other columns:
features of other types, images to compress, and values that need a conversion to their feature.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import tensorflow as tf
import tensorflow_datasets as tfds

import tfds_files
from rlds_ecosystem.model.columns import fits
from tfds_files import RaggedColumn, parse_features
from tfds_files.example_encoder import (
    FieldLists,
    Fields,
    Path,
    are_encoded_as_png,
    bytes_lists,
    feature_at,
    list_rows,
    split_rows,
)

__all__ = ["RaggedColumn", "TfdsExampleEncoder"]

_SUPPORTED_FEATURES = (
    *(tfds.features.Tensor, tfds.features.Scalar, tfds.features.Text),
    *(tfds.features.Image, tfds.features.LabeledImage),
)


class TfdsExampleEncoder(tfds_files.ExampleEncoder):
    """Encodes episodes as bytes of examples, see `tfds_files.ExampleEncoder`.

    Args:
      features: The features of an example, usually an episode.
      png_level: The compression level of PNG files, see `tfds_files.png.encode_png`.

    Attributes:
      features: The features as types of `tfds_files`; a plain `Feature` if only TFDS encodes it.

    >>> features = tfds.features.FeaturesDict({
    ...     "steps": tfds.features.Dataset({"action": np.float32}), "id": np.int64
    ... })
    >>> episode = {"steps": {"action": np.array([0.5, 1.5], np.float32)}, "id": 7}
    >>> example = tf.train.Example.FromString(TfdsExampleEncoder(features).encode(episode))
    >>> example == tf.train.Example.FromString(features.serialize_example(episode))
    True
    """

    def __init__(
        self, features: tfds.features.FeaturesDict, *, png_level: int | None = None
    ) -> None:
        converted = _convert(features)
        assert isinstance(converted, tfds_files.Features)
        super().__init__(converted, self._encode_unsupported, png_level=png_level)
        self._tfds_features = features

    @classmethod
    def of_json(cls, features: Any, *, png_level: int | None = None) -> TfdsExampleEncoder:
        """Returns the encoder for features in the JSON of `features.json`."""
        return cls(tfds.features.FeaturesDict.from_json(features), png_level=png_level)

    def _encode_unsupported(self, path: Path, rows: Any, offsets: np.ndarray) -> Fields:
        if are_encoded_as_png(feature_at(self.features, path), rows):
            return self._encode_images(path, rows, offsets)
        return _encode_by_tfds(self._tfds_features, path, rows, offsets)


def _convert(feature: Any) -> tfds_files.Feature:
    """Converts a feature of TFDS to `tfds_files`; a plain `Feature` if only TFDS encodes it."""
    kind = type(feature)
    if kind is tfds.features.FeaturesDict:
        return tfds_files.Features(features={name: _convert(f) for name, f in feature.items()})
    if kind in (tfds.features.Dataset, tfds.features.Sequence):
        infos = tf.nest.flatten(feature.get_serialized_info())
        length = infos[0].shape[0] if infos else None
        sequence = tfds_files.Dataset if kind is tfds.features.Dataset else tfds_files.Sequence
        return sequence(feature=_convert(feature.feature), length=length)
    if kind in _SUPPORTED_FEATURES and getattr(feature, "encoder", None) is None:
        single_feature = tfds.features.FeaturesDict({"it": feature})
        return parse_features(single_feature.to_json())["it"]
    return tfds_files.Feature(class_name=kind.__name__)


def _encode_by_tfds(
    features: tfds.features.FeaturesDict, path: Path, rows: Any, offsets: np.ndarray
) -> Fields:
    """Yields the TFDS encoding of the rows of each example."""
    feature, key = feature_at(features, path), "/".join(name for name in path if name is not None)
    if None not in path:
        values = list_rows(rows)
    elif isinstance(feature, tfds.features.Image) and _is_jpeg_column(feature, rows):
        yield key, bytes_lists((tf.io.encode_jpeg(row).numpy() for row in rows), offsets)
        return
    else:
        feature, values = tfds.features.Dataset(feature), split_rows(rows, offsets)
    examples = [dict(_features_by_tfds(feature, value, key)) for value in values]
    for name in dict.fromkeys(name for fields in examples for name in fields):
        yield name, FieldLists([fields.get(name) for fields in examples])


def _is_jpeg_column(feature: Any, rows: Any) -> bool:
    return (
        feature.encoding_format == "jpeg"
        and isinstance(rows, np.ndarray)
        and rows.dtype == feature.np_dtype
        and fits(rows.shape[1:], feature.shape)
    )


def _features_by_tfds(feature: Any, value: Any, key: str) -> Iterator[tuple[str, bytes]]:
    info = feature.get_serialized_info()
    serializer = tfds.core.example_serializer.ExampleSerializer({key: info})
    value = _as_lists(value)
    try:
        encoded = feature.encode_example(value)
        # The result is a TFDS type, not `tf.train.Example`.
        fields = serializer.get_tf_example({key: encoded}).features.feature
    except Exception as e:  # A feature may raise any error.
        raise ValueError(f"{key}{_invalid_step(feature, value)}: {e}") from e
    for name in tfds.core.utils.flatten_nest_dict({key: info}):
        ragged = sorted(other for other in fields if other.startswith(f"{name}/ragged_row_lengths"))
        for field in [name, *ragged, f"{name}/ragged_flat_values"]:
            if field in fields:
                yield field, fields[field].SerializeToString()


def _as_lists(rows: Any) -> Any:
    if isinstance(rows, RaggedColumn):
        return [_as_lists(rows[index]) for index in range(len(rows))]
    return rows


def _invalid_step(feature: Any, rows: Any) -> str:
    """Returns the location of the first row that cannot be encoded, if it fails alone."""
    if isinstance(feature, tfds.features.Dataset) and not isinstance(rows, Mapping):
        for index, row in enumerate(rows):
            try:
                feature.feature.encode_example(row)
            except Exception:
                return f", step {index}"
    return ""
