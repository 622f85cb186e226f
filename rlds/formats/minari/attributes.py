"""The attributes of Minari's episodes as fields of a dataset, and back.

What the fields cannot show, because it differs from episode to episode, is written down in JSON.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Collection, Mapping
from typing import Any

import numpy as np

from rlds.formats.minari.storage import INFOS, Column, RawEpisode
from rlds_ecosystem.nests import has

__all__ = [
    "ATTRIBUTES",
    "IRREGULAR",
    "OPTIONS",
    "OPTIONS_KNOWN",
    "RECORDED_ID",
    "SEED",
    "SEED_KNOWN",
    "TOTAL_STEPS",
    "Irregularities",
    "common_attributes",
    "metadata_of",
    "restored_episode",
]

# The attributes of an episode that have a place of their own in its metadata.
_ID, TOTAL_STEPS, SEED, OPTIONS = "id", "total_steps", "seed", "options"
_OWN_PLACE = (_ID, TOTAL_STEPS, SEED, OPTIONS)
RECORDED_ID, SEED_KNOWN, OPTIONS_KNOWN = "recorded_episode_id", "seed_known", "options_known"
ATTRIBUTES, IRREGULAR = "attributes", "irregular"


def metadata_of(
    attributes: Mapping[str, Any],
    common: Collection[str],
    irregular: Irregularities,
    *,
    index: int,
    transitions: int,
) -> dict[str, Any]:
    """Returns the fields of an episode.

    Args:
      attributes: Its attributes.
      common: Those that all episodes have.
      irregular: How it is unlike others; attributes that no field shows are added to it.
      index: Which episode it is.
      transitions: How many it has.
    """
    options = attributes.get(OPTIONS)
    seed = _integer(attributes.get(SEED), np.uint64)
    recorded_id = _integer(attributes.get(_ID), np.int64)
    fields: dict[str, Any] = {
        RECORDED_ID: np.int64(index) if recorded_id is None else recorded_id,
        SEED: np.uint64(0) if seed is None else seed,
        SEED_KNOWN: np.bool_(seed is not None),
        OPTIONS: "" if options is None else json.dumps(options, default=_to_json),
        OPTIONS_KNOWN: np.bool_(options is not None),
    }
    if common:
        arrays = {name: np.asarray(attributes[name]) for name in common}
        fields[ATTRIBUTES] = {
            name: str(value) if value.dtype.kind == "U" else value for name, value in arrays.items()
        }
    # What follows from the fields above is not stored again.
    restored = restored_attributes(fields, transitions)
    irregular.missing = [name for name in restored if name not in attributes]
    irregular.attributes = {
        name: _encode(value)
        for name, value in attributes.items()
        if name not in restored or not _same(restored[name], value)
    }
    fields[IRREGULAR] = irregular.to_json()
    return fields


class Irregularities:
    """In which ways an episode was recorded otherwise than the features show it.

    Attributes:
      absent: The paths of infos that it does not have; "infos" if there is no place for any.
      empty: The paths of groups with nothing in them.
      shapes: The shapes of what is a single value in the dataset.
      dtypes: The dtypes of columns that have another one in the dataset.
      missing: The attributes that it does not have though the dataset shows them.
      attributes: The attributes that the dataset does not show as they are, encoded.
    """

    def __init__(self, raw: RawEpisode) -> None:
        has_infos = INFOS in raw.empty or has(raw.columns, INFOS)
        self.absent: list[str] = [] if has_infos else [INFOS]
        self.empty = [path for path in raw.empty if path != INFOS]
        self.shapes: dict[str, list[int]] = {}
        self.dtypes: dict[str, str] = {}
        self.missing: list[str] = []
        self.attributes: dict[str, Any] = {}

    def to_json(self) -> str:
        """Returns what there is of it."""
        return json.dumps({name: value for name, value in vars(self).items() if value})


def restored_episode(
    columns: Mapping[str, Column],
    fields: Mapping[str, Any],
    transitions: int,
    *,
    same_dtypes: bool = False,
) -> RawEpisode:
    """Returns an episode as it was recorded.

    Args:
      columns: Its columns, as they are in the dataset.
      fields: The fields that `MinariSource` adds to an episode, texts as `str`.
      transitions: How many there are.
      same_dtypes: Whether dtypes stay those of the dataset, the same in all episodes.
    """
    irregular: dict[str, Any] = json.loads(fields[IRREGULAR])
    absent = irregular.get("absent", [])
    columns = {path: column for path, column in columns.items() if path not in absent}
    dtypes = {} if same_dtypes else irregular.get("dtypes", {})
    for path, dtype in dtypes.items():
        columns[path] = Column(columns[path].kind, columns[path].values.astype(dtype))
    for path, shape in irregular.get("shapes", {}).items():
        columns[path] = Column(columns[path].kind, columns[path].values.reshape(-1, *shape))
    attributes = restored_attributes(fields, transitions)
    for name in irregular.get("missing", []):
        del attributes[name]
    for name, encoded in irregular.get("attributes", {}).items():
        attributes[name] = _decode(encoded)
    empty = list(irregular.get("empty", []))
    if INFOS not in absent and not has(columns, INFOS):
        empty.append(INFOS)
    return RawEpisode(columns, attributes, empty)


def restored_attributes(fields: Mapping[str, Any], transitions: int) -> dict[str, Any]:
    """Returns the attributes of an episode that the fields of `MinariSource` show."""
    attributes: dict[str, Any] = {_ID: int(fields[RECORDED_ID]), TOTAL_STEPS: transitions}
    if fields[SEED_KNOWN]:
        attributes[SEED] = int(fields[SEED])
    if fields[OPTIONS_KNOWN]:
        attributes[OPTIONS] = json.loads(fields[OPTIONS])
    return {**attributes, **fields.get(ATTRIBUTES, {})}


def _encode(value: Any) -> Any:
    """Returns any attribute in the types of JSON, so that `_decode` gives back the same."""
    if isinstance(value, Mapping):
        return {"dict": {name: _encode(child) for name, child in value.items()}}
    if isinstance(value, np.ndarray | np.generic) and value.dtype != object:
        data = base64.b64encode(np.asarray(value).tobytes()).decode()
        return {"dtype": value.dtype.str, "shape": value.shape, "data": data}
    if isinstance(value, np.ndarray):
        return {"objects": [_encode(item) for item in value.flat], "shape": value.shape}
    if isinstance(value, bytes):
        return {"bytes": base64.b64encode(value).decode()}
    return {"json": value}


def _decode(encoded: Mapping[str, Any]) -> Any:
    if "dict" in encoded:
        return {name: _decode(child) for name, child in encoded["dict"].items()}
    if "dtype" in encoded:
        values = np.frombuffer(base64.b64decode(encoded["data"]), encoded["dtype"])
        return values.reshape(encoded["shape"])[()]
    if "objects" in encoded:
        items = np.empty(len(encoded["objects"]), object)
        items[:] = [_decode(item) for item in encoded["objects"]]
        return items.reshape(encoded["shape"])
    if "bytes" in encoded:
        return base64.b64decode(encoded["bytes"])
    return encoded["json"]


def common_attributes(
    known: dict[str, np.ndarray] | None, attributes: Mapping[str, Any]
) -> dict[str, np.ndarray]:
    """The attributes that have one dtype and shape in all episodes so far."""
    arrays = {}
    for name, value in attributes.items():
        if name in _OWN_PLACE or "/" in name or isinstance(value, Mapping | list):
            continue
        array = np.asarray(value)
        if array.dtype.kind in "biuf" or (array.dtype.kind == "U" and not array.shape):
            arrays[name] = array
    if known is None:
        return arrays
    return {
        name: array
        for name, array in known.items()
        if name in arrays
        and arrays[name].shape == array.shape
        and (
            arrays[name].dtype == array.dtype or arrays[name].dtype.kind == array.dtype.kind == "U"
        )
    }


def _same(restored: Any, value: Any) -> bool:
    """Whether an attribute that a writer would restore equals the stored one, type and all."""
    if isinstance(restored, Mapping) or isinstance(value, Mapping):
        return (
            isinstance(restored, Mapping)
            and isinstance(value, Mapping)
            and restored.keys() == value.keys()
            and all(_same(child, value[name]) for name, child in restored.items())
        )
    if isinstance(value, list):  # Of JSON, as the restored one.
        return json.dumps(restored) == json.dumps(value)
    if isinstance(restored, str) or isinstance(value, str):
        return type(restored) is type(value) and bool(restored == value)
    one, other = np.asarray(restored), np.asarray(value)
    return (
        one.dtype == other.dtype != object
        and one.shape == other.shape
        and one.tobytes() == other.tobytes()
    ) or (restored is None and value is None)


def _integer(value: Any, dtype: type[np.integer[Any]]) -> np.integer[Any] | None:
    """Returns an integer in a dtype; None if it is no integer, or does not fit."""
    if not isinstance(value, int | np.integer) or isinstance(value, bool):
        return None
    is_small_enough = np.iinfo(dtype).min <= int(value) <= np.iinfo(dtype).max
    return dtype(value) if is_small_enough else None


def _to_json(value: Any) -> Any:
    """What comes next to a value in JSON; `_encode` keeps what it is."""
    return value.tolist() if isinstance(value, np.ndarray | np.generic) else str(value)
