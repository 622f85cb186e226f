"""Which arrays the files of D4RL have, what becomes of them, and which shapes they may have."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

import rlds
from rlds.formats.d4rl.hdf5 import describe_file
from rlds.raw_files.hdf5_access import Hdf5File
from rlds_ecosystem.nests import root_of

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


def describe(hdf5: Hdf5File) -> dict[str, Any]:
    """Returns the description of a file, after checking which arrays it has, and their shapes."""
    with hdf5.read() as file:
        for name in (OBSERVATIONS, ACTIONS, REWARDS, TERMINALS):
            if not hdf5.has(file, name):
                raise hdf5.error(f"missing; the file has {sorted(file)}", name)
        for name in (*SCALARS, OBSERVATIONS, ACTIONS, NEXT_OBSERVATIONS):
            if hdf5.has(file, name):
                _check_rank(hdf5, name, hdf5.array(file, name))
        num_rows = len(file[OBSERVATIONS])
        if not num_rows:
            raise hdf5.error("there are no rows", OBSERVATIONS)
        description = describe_file(hdf5, file, num_rows, constants=(METADATA,))
    for name, facts in description["constants"].items():
        if name in (*FIELDS, *SCALARS, INFOS) or name.startswith(f"{INFOS}/"):
            raise hdf5.error(
                f"shape {facts['shape']}, but there are {num_rows} rows of observations", name
            )
    for name, facts in description["arrays"].items():
        if not isinstance(facts["dtype"], str):
            raise hdf5.error("strings, expected numbers", name)
        if root_of(name) in _TAKEN:
            raise hdf5.error("the name is that of another field", name)
    if NEXT_OBSERVATIONS in description["arrays"]:
        _check_same_kind(hdf5, description["arrays"])
    return description


def _check_rank(hdf5: Hdf5File, name: str, array: Any) -> None:
    if array.dtype.kind == "O":
        raise hdf5.error("rows of different lengths, expected one", name)
    shape = array.shape
    if shape is None:
        raise hdf5.error("an array without values", name)
    if name in SCALARS:
        is_right, expected = len(shape) == 1 or shape[1:] == (1,), "(N,) or (N, 1)"
    elif name == ACTIONS:
        is_right, expected = len(shape) >= 1, "(N, ...)"
    else:
        is_right, expected = len(shape) >= 2, "(N, ...) with an axis after that of rows"
    if not is_right:
        raise hdf5.error(f"shape {shape}, expected {expected}", name)


def _check_same_kind(hdf5: Hdf5File, arrays: Mapping[str, Any]) -> None:
    kinds = [
        (arrays[name]["dtype"], arrays[name]["shape"]) for name in (OBSERVATIONS, NEXT_OBSERVATIONS)
    ]
    if kinds[0] != kinds[1]:
        raise hdf5.error(
            f"dtype and shape {kinds[1]}, but those of the observations are {kinds[0]}",
            NEXT_OBSERVATIONS,
        )


def is_index(infos: Mapping[str, Any] | None) -> bool:
    """Whether `infos` is an array of integers, the index of a demonstration."""
    return infos is not None and len(infos["shape"]) == 1 and np.dtype(infos["dtype"]).kind in "iu"
