"""TFDS features for environment specs, and specs of recorded values.

The features keep values without loss, see `envlogger.converters.tfds_features`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow_datasets as tfds
from dm_env import specs

from envlogger.converters.rlds_episode import known_field
from envlogger.converters.tfds_features import children_of, encoding_of, is_absent

__all__ = ["feature_from_spec", "merged_specs", "specs_from_columns"]


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


def merged_specs(nests: Sequence[Any], path: str = "") -> Any:
    """Returns the specs of values that need not all have the same fields.

    A field that some dicts lack has a mark beside it, the bool `<name>_known`. Of fields that
    differ otherwise, the first spec is taken.

    Args:
      nests: What `specs_from_columns` returns for each of the values.
      path: Name of the values in error messages.

    Raises:
      ValueError: The name that a mark needs is taken.

    >>> merged_specs([{}, {"x": specs.Array((), np.int64)}])
    {'x': Array(shape=(), dtype=dtype('int64'), name=None), 'x_known': Array(shape=(), \
dtype=dtype('bool'), name=None)}
    """
    if not all(isinstance(nest, Mapping) for nest in nests):
        return next(nest for nest in nests if nest != {})
    merged = {}
    names = dict.fromkeys(name for nest in nests for name in nest)
    for name in names:
        there = [nest[name] for nest in nests if not _is_empty(nest.get(name))]
        merged[name] = merged_specs(there, f"{path}/{name}" if path else str(name)) if there else {}
        if 0 < len(there) < len(nests):
            if known_field(name) in names:
                raise ValueError(
                    f"{path or 'metadata'}: {name!r} is missing in some episodes, and "
                    f"{known_field(name)!r}, which would say so, is recorded too; give values with "
                    "`episode_metadata_defaults`."
                )
            merged[known_field(name)] = specs.Array((), np.bool_)
    return merged


def _is_empty(nest: Any) -> bool:
    if isinstance(nest, Mapping):
        return all(map(_is_empty, nest.values()))
    return nest is None or (isinstance(nest, tuple) and all(map(_is_empty, nest)))
