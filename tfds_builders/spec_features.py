"""TFDS features for environment specs, and specs of recorded values.

The features keep values without loss, see `envlogger.converters.tfds_features`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import tensorflow_datasets as tfds
from dm_env import specs

from envlogger.converters.tfds_features import children_of, encoding_of, is_absent

__all__ = ["feature_from_spec", "specs_from_columns"]


def feature_from_spec(spec: Any, *, images_as_png: bool = True, path: str = "") -> Any:
    """Returns the TFDS feature that holds, without loss, what a dm_env spec describes.

    Dicts become a `FeaturesDict`; so do lists and tuples, with the keys `'0'`, `'1'`, .... Strings
    become `Text` if they are scalar and known to be `str`, string tensors otherwise. Containers
    that hold nothing are left out, as TFDS cannot store them.

    Args:
      spec: A dm_env spec, or a dict, list or tuple of them, nested as needed.
      images_as_png: Whether uint8 arrays of shape `(height, width, 1 | 3 | 4)` become PNG images.
      path: Name of the spec in error messages.

    Returns:
      The feature, or None for a container that holds nothing.

    Raises:
      ValueError: If TFDS has no way to hold a dtype, or two keys have the same name.

    >>> feature_from_spec({"position": specs.Array((3,), np.float32)})
    FeaturesDict({
        'position': Tensor(shape=(3,), dtype=float32),
    })
    """
    if not isinstance(spec, specs.Array):
        children = {
            name: feature_from_spec(child, images_as_png=images_as_png, path=f"{path}/{name}")
            for name, child in children_of(spec, path).items()
        }
        children = {name: child for name, child in children.items() if child is not None}
        return tfds.features.FeaturesDict(children) if children else None
    shape, dtype = spec.shape, spec.dtype
    if dtype.kind in "OUS":
        if shape == () and getattr(spec, "string_type", None) is str:
            return tfds.features.Text()
        dtype = np.dtype(object)
    is_image = dtype == np.uint8 and len(shape) == 3 and shape[2] in (1, 3, 4) and 0 not in shape
    if is_image and images_as_png:
        return tfds.features.Image(shape=shape, encoding_format="png")
    return tfds.features.Tensor(shape=shape, dtype=dtype, encoding=encoding_of(shape, dtype, path))


def specs_from_columns(columns: Any) -> Any:
    """Returns the specs of one row of columns, as `envlogger.converters.rlds_episode` makes them.

    Fields that are None throughout become an empty dict, the spec of nothing.

    >>> specs_from_columns({"x": np.zeros((5, 2)), "y": np.array(["a", "b"], object)})
    {'x': Array(shape=(2,), dtype=dtype('float64'), name=None), 'y': StringArray(shape=(), \
string_type=<class 'str'>, name=None)}
    """
    if isinstance(columns, Mapping):
        return {key: specs_from_columns(child) for key, child in columns.items()}
    if isinstance(columns, (list, tuple)):
        return tuple(specs_from_columns(child) for child in columns)
    if is_absent(columns):
        return {}
    shape = columns.shape[1:]
    if columns.dtype != object:
        return specs.Array(shape, columns.dtype)
    is_text = all(isinstance(item, str) for item in columns.flat)
    return specs.StringArray(shape, string_type=str if is_text else bytes)
