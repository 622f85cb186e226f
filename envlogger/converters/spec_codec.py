"""Converts dm_env specs to plain values that `codec` can store, and back.

A spec becomes a dict of its attributes; lists, tuples and dicts of specs keep their structure.

>>> encode(specs.DiscreteArray(3, name="action"))["num_values"]
3
>>> decode(encode({"speed": specs.Array((2,), np.float32)}))
{'speed': Array(shape=(2,), dtype=dtype('float32'), name=None)}
"""

from __future__ import annotations

from typing import Any

import dm_env
import numpy as np
from dm_env import specs

from rlds_ecosystem.model.columns import map_columns

__all__ = ["decode", "decode_environment_specs", "encode", "encode_environment_specs"]

_ENVIRONMENT_SPEC_NAMES = ("observation_spec", "action_spec", "reward_spec", "discount_spec")
_STRING_TYPES = {"str": str, "bytes": bytes}


def encode_environment_specs(env: dm_env.Environment | None) -> dict[str, Any]:
    """Encodes the four specs of an environment.

    Args:
      env: The environment, or None.

    Returns:
      A dict with the keys `observation_spec`, `action_spec`, `reward_spec` and `discount_spec`;
      empty if `env` is None.

    Raises:
      TypeError: A spec is not supported, see `encode`.
    """
    if env is None:
        return {}
    encoded = {}
    for name in _ENVIRONMENT_SPEC_NAMES:
        try:
            encoded[name] = encode(getattr(env, name)())
        except TypeError as e:
            raise TypeError(f"cannot store the {name} of {type(env).__name__}: {e}") from e
    return encoded


def decode_environment_specs(encoded_specs: dict[str, Any] | None) -> dict[str, Any]:
    """Decodes the result of `encode_environment_specs`.

    Returns:
      A dict with the same four keys. Missing specs are None; so are empty structures of specs from
      EnvLogger up to 1.3, which stores them as None.
    """
    encoded_specs = encoded_specs or {}
    return {name: _decode_or_none(encoded_specs.get(name)) for name in _ENVIRONMENT_SPEC_NAMES}


def encode(spec: Any) -> Any:
    """Converts a spec, or nested lists, tuples and dicts of specs, to plain values.

    Raises:
      TypeError: `spec` is of another type, or is an array spec of a structured dtype.
    """
    return map_columns(_encode_array, spec)


def _encode_array(spec: Any) -> dict[str, Any]:
    if not isinstance(spec, specs.Array):
        raise TypeError(
            f"expected a dm_env.specs.Array, or a list, tuple or dict of these, got "
            f"{type(spec).__name__}: {spec!r}"
        )
    if spec.dtype.fields is not None or spec.dtype.subdtype is not None:
        raise TypeError(
            f"structured dtypes are not supported, use a dict of specs instead of {spec!r}"
        )
    encoded = {
        "shape": np.array(spec.shape, dtype=np.int64),
        "dtype": str(spec.dtype),
        "name": spec.name,
    }
    if isinstance(spec, specs.BoundedArray):
        encoded |= {"minimum": spec.minimum, "maximum": spec.maximum}
    if isinstance(spec, specs.DiscreteArray):
        encoded["num_values"] = spec.num_values
    if isinstance(spec, specs.StringArray):
        # Old readers ignore this key: they decode the spec as an array of objects.
        encoded["string_type"] = spec.string_type.__name__
    return encoded


def decode(spec: Any) -> Any:
    """Converts the result of `encode` to a spec, or to a list, tuple or dict of specs.

    Raises:
      TypeError: `spec` is of another type.
    """
    if isinstance(spec, dict):
        if _is_array(spec):
            return _decode_array(spec)
        return {key: _decode_or_none(item) for key, item in spec.items()}
    if isinstance(spec, list):
        return [_decode_or_none(item) for item in spec]
    if isinstance(spec, tuple):
        return tuple(_decode_or_none(item) for item in spec)
    raise TypeError(f"expected a dict, list or tuple, got {type(spec).__name__}: {spec!r}")


def _decode_or_none(spec: Any) -> Any:
    return None if spec is None else decode(spec)


def _is_array(spec: dict[Any, Any]) -> bool:
    # In a dict of specs whose names are "shape" and "dtype", the items are dicts, lists or tuples.
    return (
        "shape" in spec
        and "dtype" in spec
        and (spec["dtype"] is None or isinstance(spec["dtype"], str))
    )


def _decode_array(spec: dict[str, Any]) -> specs.Array:
    shape = () if spec["shape"] is None else tuple(int(size) for size in spec["shape"])
    dtype, name = spec["dtype"], spec.get("name")
    if "num_values" in spec:
        return specs.DiscreteArray(spec["num_values"], dtype=dtype, name=name)
    if "minimum" in spec and "maximum" in spec:
        # EnvLogger up to 1.3 stores the bounds of an array without elements as None.
        minimum, maximum = (0 if x is None else x for x in (spec["minimum"], spec["maximum"]))
        return specs.BoundedArray(shape, dtype, minimum, maximum, name)
    if "string_type" in spec:
        return specs.StringArray(shape, string_type=_STRING_TYPES[spec["string_type"]], name=name)
    return specs.Array(shape, dtype=dtype, name=name)
