"""Conversion of the attributes of Minari's episodes to fields of a dataset, and back."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from typing import Any

import numpy as np

from rlds.raw_files.hdf5_values import decode_value, encode_value
from rlds_ecosystem.model.fields import Field

__all__ = [
    "ID",
    "IRREGULAR",
    "OPTIONS",
    "TOTAL_STEPS",
    "absent_infos",
    "common_attributes",
    "decode",
    "decode_attributes",
    "encode_attributes",
    "episode_fields",
]

# The attributes of an episode with separate fields in its metadata.
ID, TOTAL_STEPS, _SEED, OPTIONS = "id", "total_steps", "seed", "options"
_SEPARATE_ATTRIBUTES = (ID, TOTAL_STEPS, _SEED, OPTIONS)
_RECORDED_ID, _SEED_KNOWN, _OPTIONS_KNOWN = "recorded_episode_id", "seed_known", "options_known"
_ATTRIBUTES_GROUP, IRREGULAR = "attributes", "irregular"
_ABSENT_KEY = "absent"


def episode_fields(common: Mapping[str, np.ndarray]) -> dict[str, Any]:
    """Returns the types of the fields of an episode, for the values of `encode_attributes`.

    Args:
      common: The attributes of all episodes, with the value of an episode.
    """
    attributes = {
        name: Field(str) if value.dtype.kind == "U" else Field(value.dtype, value.shape)
        for name, value in common.items()
    }
    return {
        _RECORDED_ID: np.int64,
        _SEED: np.uint64,
        _SEED_KNOWN: np.bool_,
        OPTIONS: Field(str),
        _OPTIONS_KNOWN: np.bool_,
        **({_ATTRIBUTES_GROUP: attributes} if attributes else {}),
        IRREGULAR: Field(str),
    }


def encode_attributes(
    attributes: Mapping[str, Any], common: Collection[str], absent: Collection[str], index: int
) -> dict[str, Any]:
    """Returns the fields of an episode.

    Args:
      attributes: The attributes of the episode.
      common: The attributes of all episodes.
      absent: The infos that the episode lacks.
      index: The index of the episode.
    """
    options = attributes.get(OPTIONS)
    seed = _integer(attributes.get(_SEED), np.uint64)
    recorded_id = _integer(attributes.get(ID), np.int64)
    fields: dict[str, Any] = {
        _RECORDED_ID: np.int64(index) if recorded_id is None else recorded_id,
        _SEED: np.uint64(0) if seed is None else seed,
        _SEED_KNOWN: np.bool_(seed is not None),
        OPTIONS: "" if options is None else json.dumps(options, default=_to_json),
        _OPTIONS_KNOWN: np.bool_(options is not None),
    }
    if common:
        arrays = {name: np.asarray(attributes[name]) for name in common}
        fields[_ATTRIBUTES_GROUP] = {
            name: str(value) if value.dtype.kind == "U" else value for name, value in arrays.items()
        }
    encoded = {
        name: encode_value(value)
        for name, value in attributes.items()
        if name not in common and not _has_own_field(name, value, seed, recorded_id)
    }
    irregular = {_ABSENT_KEY: [*absent], _ATTRIBUTES_GROUP: encoded}
    fields[IRREGULAR] = json.dumps({name: value for name, value in irregular.items() if value})
    return fields


def _has_own_field(name: str, value: Any, seed: Any, recorded_id: Any) -> bool:
    """Returns True if a separate field holds an attribute exactly."""
    if name == OPTIONS:
        return _is_json(value)
    return name == TOTAL_STEPS or {ID: recorded_id, _SEED: seed}.get(name) is not None


def decode_attributes(fields: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the attributes of an episode without its id and its length.

    Args:
      fields: The fields from `encode_attributes`. Texts may be bytes, as in TFDS.
    """
    attributes: dict[str, Any] = {}
    if fields[_SEED_KNOWN]:
        attributes[_SEED] = int(fields[_SEED])
    if fields[_OPTIONS_KNOWN]:
        attributes[OPTIONS] = json.loads(fields[OPTIONS])
    attributes |= {name: decode(value) for name, value in fields.get(_ATTRIBUTES_GROUP, {}).items()}
    encoded = json.loads(fields[IRREGULAR]).get(_ATTRIBUTES_GROUP, {})
    return attributes | {name: decode_value(value) for name, value in encoded.items()}


def absent_infos(fields: Mapping[str, Any]) -> list[str]:
    """Returns the infos that an episode lacks, from the fields of `encode_attributes`."""
    absent: list[str] = json.loads(fields[IRREGULAR]).get(_ABSENT_KEY, [])
    return absent


def decode(value: Any) -> Any:
    """Returns bytes as text; returns all other values unchanged."""
    return value.decode() if isinstance(value, bytes) else value


def common_attributes(
    common: dict[str, np.ndarray] | None, attributes: Mapping[str, Any]
) -> dict[str, np.ndarray]:
    """Returns the attributes with the same dtype and shape in all episodes so far."""
    arrays = {}
    for name, value in attributes.items():
        if name in _SEPARATE_ATTRIBUTES or "/" in name or isinstance(value, Mapping | list):
            continue
        array = np.asarray(value)
        if array.dtype.kind in "biuf" or (array.dtype.kind == "U" and not array.shape):
            arrays[name] = array
    if common is None:
        return arrays
    return {
        name: array
        for name, array in common.items()
        if name in arrays and _are_alike(array, arrays[name])
    }


def _are_alike(one: np.ndarray, other: np.ndarray) -> bool:
    is_text = one.dtype.kind == other.dtype.kind == "U"
    return one.shape == other.shape and (is_text or one.dtype == other.dtype)


def _integer(value: Any, dtype: type[np.integer[Any]]) -> np.integer[Any] | None:
    """Returns an integer in a dtype; None if the value is no integer, or too large."""
    if not isinstance(value, int | np.integer) or isinstance(value, bool):
        return None
    is_small_enough = np.iinfo(dtype).min <= int(value) <= np.iinfo(dtype).max
    return dtype(value) if is_small_enough else None


def _is_json(value: Any) -> bool:
    if isinstance(value, Mapping):
        return all(map(_is_json, value.values()))
    return value is None or isinstance(value, str | bool | int | float | list)


def _to_json(value: Any) -> Any:
    """Returns the JSON value closest to an attribute; `encode_value` keeps the exact type."""
    return value.tolist() if isinstance(value, np.ndarray | np.generic) else str(value)
