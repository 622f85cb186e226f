"""Writes files in the layout of d4rl-pybullet: four arrays of float32, not compressed."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import h5py
import numpy as np


def write_pybullet(
    path: Any,
    lengths: Sequence[int],
    *,
    observation_size: int = 15,
    action_size: int = 3,
    cut: bool = False,
    seed: int = 0,
) -> Path:
    """Writes episodes; each has one row more than transitions.

    Args:
      path: The file.
      lengths: The numbers of transitions.
      observation_size: The length of an observation.
      action_size: The length of an action.
      cut: Whether the file ends before the last row of the last episode.
      seed: The seed of the values.
    """
    rng = np.random.default_rng(seed)
    rows = sum(lengths) + len(lengths)
    first = np.cumsum([0, *(length + 1 for length in lengths)])
    arrays = {
        "observations": rng.normal(size=(rows, observation_size)),
        "actions": rng.uniform(-1.0, 1.0, (rows, action_size)),
        "rewards": rng.normal(size=(rows, 1)),
        "terminals": np.zeros((rows, 1)),
    }
    arrays["rewards"][first[:-1]] = 0.0
    arrays["actions"][first[1:] - 1] = 0.0
    arrays["terminals"][first[1:] - 1] = 1.0
    with h5py.File(path, "w") as file:
        for name, rows_of_array in arrays.items():
            stored_rows = rows_of_array[:-1] if cut else rows_of_array
            file.create_dataset(name, data=stored_rows.astype(np.float32))
    return Path(path)
