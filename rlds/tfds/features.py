"""TFDS features that store recorded values without loss, or as requested.

Records of TFDS hold int64, float32 and byte strings. The default encoding of
`tfds.features.Tensor` is lossless for bool, (u)int8 to (u)int64, float16 and float32 (signalling
NaNs become quiet). However, TFDS rounds float64 to float32 silently, rejects complex numbers and
bfloat16, and reading an array without elements kills the process (TFDS 4.9.10). The features of
this module store such values as raw bytes, or as a `TensorStorage` requests.
"""

from __future__ import annotations

import dataclasses
import warnings
from collections.abc import Iterator
from typing import Any

import numpy as np
import tensorflow_datasets as tfds
import tree

from rlds.formats.tfds.features import AS_NUMBERS, EXACT, TensorStorage
from rlds_ecosystem.model.fields import Field, Opaque
from rlds_ecosystem.model.nests import join_path

__all__ = [
    "EXACT",
    "TensorStorage",
    "check_readable",
    "fields_of_features",
    "lossless",
    "lossless_config",
]


def lossless(feature: Any, path: str = "", storage: TensorStorage = EXACT) -> Any:
    """Returns a lossless variant of a user's feature.

    For example, a float64 `Tensor` in the default encoding is stored as bytes instead; readers get
    a float64 tensor in both cases.

    Args:
      feature: The feature.
      path: The path of the feature in error messages.
      storage: The rounding of float64, and the encoding of arrays.

    Raises:
      ValueError: A feature other than a `Tensor` or a `FeaturesDict` is lossy.
    """
    if isinstance(feature, tfds.features.FeaturesDict):
        children = {n: lossless(child, f"{path}/{n}", storage) for n, child in feature.items()}
        if all(children[name] is child for name, child in feature.items()):
            return feature
        return tfds.features.FeaturesDict(children, doc=feature.doc)
    if type(feature) in (tfds.features.Tensor, tfds.features.Scalar):
        return _create_tensor(feature, path, storage)
    if type(feature) is tfds.features.Sequence:
        inner = lossless(feature.feature, path, dataclasses.replace(storage, layout=None))
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


def _create_tensor(feature: Any, path: str, storage: TensorStorage) -> Any:
    info = feature.get_tensor_info()
    old_dtype, encoding = np.dtype(info.np_dtype), _get_encoding(feature)
    dtype, name = storage.of_tensor(tuple(info.shape), old_dtype, encoding.value or "none", path)
    new_encoding = tfds.features.Encoding(name)
    if (new_encoding, dtype) == (encoding, old_dtype):
        return feature
    return tfds.features.Tensor(
        shape=info.shape,
        dtype=dtype,
        encoding=new_encoding,
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
    """Returns a `DatasetConfig` with lossless features, see `lossless`.

    Args:
      ds_config: The config. Entries of None are kept.
      storage: See `lossless`.
      argument: The name of the config in error messages.
      stacklevel: The frame that a warning points to, as in `warnings.warn`.

    Raises:
      ValueError: See `lossless`.
    """
    names = ("observation_info", "action_info", "reward_info", "discount_info")
    infos = {name: getattr(ds_config, name) for name in names}
    steps = tfds.features.FeaturesDict({k: v for k, v in infos.items() if v is not None})
    metadata = {
        name: tfds.features.FeaturesDict(dict(getattr(ds_config, name)))
        for name in ("step_metadata_info", "episode_metadata_info")
        if getattr(ds_config, name) is not None
    }
    step_features = {**dict(steps.items()), **metadata}
    step_features.pop("episode_metadata_info", None)
    rounded = list(_find_rounded(tfds.features.FeaturesDict(step_features)))
    if rounded and storage.float64 is None:
        warnings.warn(
            f"{argument}: TFDS would round the float64 of {', '.join(rounded)} to float32. It is "
            "stored as bytes instead, without loss, but dlimp, Octo and OpenVLA cannot read it. "
            "Pass float64='bytes' to keep this, or float64='float32' to store rounded numbers "
            "that all loaders read.",
            stacklevel=stacklevel + 1,
        )
    config = dict(lossless(steps, argument, storage).items())
    for name, features in metadata.items():
        used_storage = storage if name == "step_metadata_info" else EXACT
        config[name] = dict(lossless(features, f"{argument}/{name}", used_storage).items())
    return dataclasses.replace(ds_config, **config)


def check_readable(features: Any, prefix: str = "") -> None:
    """Checks that TFDS can read the episodes that it writes.

    Args:
      features: The features of an episode.
      prefix: The beginning of error messages: the owner of the features.

    Raises:
      ValueError: TFDS cannot read a field; the message names the field and the reason.
    """
    for path, info in tree.flatten_with_path(features.get_serialized_info()):
        is_ragged = None in info.shape[1:]
        if info.sequence_rank > 1 and not is_ragged:
            raise ValueError(
                f"{prefix}{_path_of(path)}: TFDS cannot read sequences of a fixed length in steps; "
                "use a Tensor, or a Sequence without length"
            )
        if info.sequence_rank == 1 and is_ragged:
            raise ValueError(
                f"{prefix}{_path_of(path)}: TFDS cannot read plain arrays of an unknown size, "
                f"{tuple(info.shape[1:])}, in steps; give the feature a shape, or the encoding "
                "'zlib' or 'bytes' (which dlimp, Octo and OpenVLA do not decode)"
            )


def _path_of(keys: tuple[Any, ...]) -> str:
    return "/".join(map(str, keys))


def _find_rounded(feature: Any, path: str = "") -> Iterator[str]:
    """Yields the paths of float64 that TFDS would store as float32."""
    if isinstance(feature, tfds.features.FeaturesDict):
        for name, child in feature.items():
            yield from _find_rounded(child, join_path(path, name))
    elif type(feature) is tfds.features.Sequence:
        yield from _find_rounded(feature.feature, path)
    elif type(feature) in (tfds.features.Tensor, tfds.features.Scalar):
        is_plain = _get_encoding(feature) == tfds.features.Encoding.NONE
        if is_plain and np.dtype(feature.np_dtype) == np.float64:
            yield path


def _get_encoding(feature: Any) -> Any:
    return tfds.features.Encoding(feature.to_json_content().encoding)


def _is_lossless(info: Any) -> bool:
    """Returns True if TFDS stores a value of a `TensorInfo` without loss."""
    return 0 not in info.shape and np.dtype(info.np_dtype).name in [*AS_NUMBERS, "object"]


def fields_of_features(features: tfds.features.FeaturesDict) -> dict[str, Any]:
    """Converts features to fields, see `rlds_ecosystem.model.fields`.

    >>> str(fields_of_features(tfds.features.FeaturesDict({"reward": np.float32}))["reward"])
    'float32 of shape ()'
    """
    return {name: _field_of(feature) for name, feature in features.items()}


def _field_of(feature: Any) -> Any:
    if isinstance(feature, tfds.features.FeaturesDict):
        return fields_of_features(feature)
    info = feature.get_tensor_info()
    if isinstance(feature, tfds.features.ClassLabel):
        return Opaque(str(feature), absent=-1)
    if not isinstance(info, tfds.features.TensorInfo):
        return Opaque(str(feature))
    is_image = isinstance(feature, tfds.features.Image)
    encoding = (feature.encoding_format or "image") if is_image else ""
    return Field(info.np_dtype, tuple(info.shape), encoding)
