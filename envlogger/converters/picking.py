"""Single values of stored steps, without decoding the rest."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from google.protobuf.message import DecodeError

from envlogger.converters import codec
from envlogger.errors import DamagedDataError
from envlogger.proto.storage_pb2 import Data

__all__ = ["picked", "value_at"]

# Where the fields of a step are in its record.
_PLACES = {
    "step_type": (0, 0),
    "reward": (0, 1),
    "discount": (0, 2),
    "observation": (0, 3),
    "action": (1,),
    "custom_data": (2,),
}


def picked(record: bytes, fields: Iterable[tuple[Any, ...]]) -> list[Any]:
    """Returns values of a stored step; None for those that it does not have.

    Args:
      record: The step.
      fields: For each value the keys that lead to it, see `Reader.pick`.

    Raises:
      DamagedDataError: The record is no step.

    >>> record = codec.encode(((1, 2, None, {"x": (7, 8)}), None, None)).SerializeToString()
    >>> picked(record, [("reward",), ("observation", "x", 1), ("action", "grip")])
    [2, 8, None]
    """
    try:
        data = Data.FromString(record)
    except DecodeError as e:
        raise DamagedDataError(f"a record is not a {Data.DESCRIPTOR.full_name}: {e}") from e
    return [
        _picked(data, (*_PLACES[keys[0]], *keys[1:])) if keys[0] in _PLACES else None
        for keys in fields
    ]


def _picked(data: Data, keys: Sequence[Any]) -> Any:
    for number, key in enumerate(keys):
        kind = data.WhichOneof("value")
        if kind == "dict" and isinstance(key, str):
            if key not in data.dict.values:
                return None
            data = data.dict.values[key]
        elif kind in ("tuple", "array") and isinstance(key, int):
            items = data.tuple.values if kind == "tuple" else data.array.values
            if not 0 <= key < len(items):
                return None
            data = items[key]
        else:
            return value_at(codec.decode(data), keys[number:])
    return codec.decode(data)


def value_at(value: Any, keys: Iterable[Any]) -> Any:
    """Returns what some keys lead to in nested dicts, lists and tuples; None if there is nothing.

    >>> value_at({"x": (7, 8)}, ("x", 1)), value_at({"x": 7}, ("y",))
    (8, None)
    """
    for key in keys:
        if isinstance(value, Mapping):
            value = value.get(key)
        elif isinstance(value, list | tuple) and isinstance(key, int) and 0 <= key < len(value):
            value = value[key]
        else:
            return None
    return value
