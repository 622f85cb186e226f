"""Which arrays the files of D4RL have, what becomes of them, and which shapes they may have."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from etils import epath

import rlds
from tfds_builders.d4rl.hdf5 import describe_file, is_ragged, open_hdf5
from tfds_builders.source import SourceError

__all__ = [
    "ACTIONS",
    "FIELDS",
    "INFOS",
    "METADATA",
    "NEXT_OBSERVATION",
    "NEXT_OBSERVATIONS",
    "OBSERVATIONS",
    "REWARDS",
    "SCALARS",
    "TERMINALS",
    "TIMEOUTS",
    "describe",
    "is_index",
]

OBSERVATIONS, ACTIONS, REWARDS = "observations", "actions", "rewards"
TERMINALS, TIMEOUTS = "terminals", "timeouts"
NEXT_OBSERVATIONS, NEXT_OBSERVATION = "next_observations", "next_observation"
INFOS = "infos"
METADATA = "metadata"
# The fields of a step that the arrays become. Other arrays keep their names.
FIELDS = {
    OBSERVATIONS: rlds.OBSERVATION,
    ACTIONS: rlds.ACTION,
    REWARDS: rlds.REWARD,
    NEXT_OBSERVATIONS: NEXT_OBSERVATION,
}
_TAKEN = (*FIELDS.values(), rlds.DISCOUNT, *rlds.STEP_FLAGS)
# Arrays of a number per row, for which D4RL also has the shape (N, 1).
SCALARS = (REWARDS, TERMINALS, TIMEOUTS)


def describe(path: epath.Path) -> dict[str, Any]:
    """Returns the description of a file, after checking which arrays it has, and their shapes."""
    with open_hdf5(path) as file:
        for name in (OBSERVATIONS, ACTIONS, REWARDS, TERMINALS):
            if name not in file:
                raise SourceError(f"missing; the file has {sorted(file)}", file=path, field=name)
        for name in (*SCALARS, OBSERVATIONS, ACTIONS, NEXT_OBSERVATIONS):
            if name in file:
                _check_rank(path, name, file[name])
        num_rows = len(file[OBSERVATIONS])
        if not num_rows:
            raise SourceError("there are no rows", file=path, field=OBSERVATIONS)
        hdf5 = describe_file(file, num_rows, constants=(METADATA,))
    for name, facts in hdf5["constants"].items():
        if name in (*FIELDS, *SCALARS, INFOS) or name.startswith(f"{INFOS}/"):
            raise SourceError(
                f"shape {facts['shape']}, but there are {num_rows} rows of observations",
                file=path,
                field=name,
            )
    for name, facts in hdf5["arrays"].items():
        if not isinstance(facts["dtype"], str):
            raise SourceError("strings, expected numbers", file=path, field=name)
        if name.split("/")[0] in _TAKEN:
            raise SourceError("the name is that of another field", file=path, field=name)
    if NEXT_OBSERVATIONS in hdf5["arrays"]:
        _check_same_kind(path, hdf5["arrays"])
    return hdf5


def _check_rank(path: epath.Path, name: str, array: Any) -> None:
    if not hasattr(array, "dtype"):
        raise SourceError("a group, expected an array", file=path, field=name)
    if is_ragged(array.dtype):
        raise SourceError("rows of different lengths, expected one", file=path, field=name)
    shape = array.shape
    if name in SCALARS:
        is_right, expected = len(shape) == 1 or shape[1:] == (1,), "(N,) or (N, 1)"
    elif name == ACTIONS:
        is_right, expected = len(shape) >= 1, "(N, ...)"
    else:
        is_right, expected = len(shape) >= 2, "(N, ...) with an axis after that of rows"
    if not is_right:
        raise SourceError(f"shape {shape}, expected {expected}", file=path, field=name)


def _check_same_kind(path: epath.Path, arrays: Mapping[str, Any]) -> None:
    kinds = [
        (arrays[name]["dtype"], arrays[name]["shape"]) for name in (OBSERVATIONS, NEXT_OBSERVATIONS)
    ]
    if kinds[0] != kinds[1]:
        raise SourceError(
            f"dtype and shape {kinds[1]}, but those of the observations are {kinds[0]}",
            file=path,
            field=NEXT_OBSERVATIONS,
        )


def is_index(infos: Mapping[str, Any] | None) -> bool:
    """Whether `infos` is an array of integers, the index of a demonstration."""
    return infos is not None and len(infos["shape"]) == 1 and np.dtype(infos["dtype"]).kind in "iu"
