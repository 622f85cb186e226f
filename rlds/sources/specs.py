"""dm_env specs as fields of a source, and dm_env specs of recorded columns.

The sources of recorded environments use it; `envlogger` records them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from dm_env import specs

from rlds_ecosystem.model.columns import known_field
from rlds_ecosystem.model.fields import Field, Fields, children_of, is_absent

__all__ = ["fields_from_spec", "merged_specs", "specs_from_columns"]


def fields_from_spec(spec: Any, path: str = "") -> Fields | Field | None:
    """Returns the fields of a dm_env spec.

    Lists and tuples become dicts with the keys `'0'`, `'1'`, .... Empty containers are left out.

    Args:
      spec: A dm_env spec, or a dict, list or tuple of them, nested as needed.
      path: Name of the spec in error messages.

    Returns:
      A field, or fields nested in dicts; None for an empty container.

    Raises:
      ValueError: Two keys have the same name.

    >>> fields = fields_from_spec({"position": specs.Array((3,), np.float32), "nothing": ()})
    >>> {name: str(field) for name, field in fields.items()}
    {'position': 'float32 of shape (3,)'}
    """
    if not isinstance(spec, specs.Array):
        children = {
            name: fields_from_spec(child, f"{path}/{name}" if path else name)
            for name, child in children_of(spec, path).items()
        }
        return {name: child for name, child in children.items() if child is not None} or None
    dtype = spec.dtype
    if dtype.kind in "OUS":
        dtype = np.dtype(str if getattr(spec, "string_type", None) is str else bytes)
    return Field(dtype, spec.shape)


def specs_from_columns(columns: Any) -> Any:
    """Returns the specs of one row of columns of `envlogger.converters.rlds_episode`.

    Fields that are None in all rows become an empty dict.

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
    """Merges the specs of values with different fields.

    A field that some values lack gets a mask field, the bool `<name>_known`. If specs of a field
    differ otherwise, the first one is used.

    Args:
      nests: The results of `specs_from_columns` for each of the values.
      path: Name of the values in error messages.

    Raises:
      ValueError: The name of a mask field is already used.

    >>> merged_specs([{}, {"x": specs.Array((), np.int64)}])
    {'x': Array(shape=(), dtype=dtype('int64'), name=None), 'x_known': Array(shape=(), \
dtype=dtype('bool'), name=None)}
    """
    if not all(isinstance(nest, Mapping) for nest in nests):
        return next(nest for nest in nests if nest != {})
    fields = {}
    names = dict.fromkeys(name for nest in nests for name in nest)
    for name in names:
        children = [nest[name] for nest in nests if not _is_empty(nest.get(name))]
        inner = f"{path}/{name}" if path else str(name)
        fields[name] = merged_specs(children, inner) if children else {}
        if 0 < len(children) < len(nests):
            if known_field(name) in names:
                raise ValueError(
                    f"{path or 'metadata'}: {name!r} is missing in some episodes, and its marker "
                    f"{known_field(name)!r} is recorded, too; pass values with "
                    "`episode_metadata_defaults`."
                )
            fields[known_field(name)] = specs.Array((), np.bool_)
    return fields


def _is_empty(nest: Any) -> bool:
    if isinstance(nest, Mapping):
        return all(map(_is_empty, nest.values()))
    return nest is None or (isinstance(nest, tuple) and all(map(_is_empty, nest)))
