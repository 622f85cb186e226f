"""Writes policies and indices as Deep-OPE publishes them, with the same keys."""

import json
import pickle
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import raw_d4rl


def weights(sizes: Sequence[int], *, seed: int = 7, **changes: Any) -> dict[str, Any]:
    """Returns the content of the pickle of a policy with layers of some sizes."""
    arrays = raw_d4rl.policy(sizes, seed=seed)
    arrays = {name.removeprefix("metadata/policy/"): value for name, value in arrays.items()}
    for name in ("nonlinearity", "output_distribution"):
        arrays[name] = arrays[name].decode()
    return {**arrays, **changes}


def write_policy(path: Path, sizes: Sequence[int], *, protocol: int = 4, **changes: Any) -> Path:
    """Writes a policy for D4RL."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(pickle.dumps(weights(sizes, **changes), protocol=protocol))
    return path


def d4rl_record(name: str, return_mean: float, **changes: Any) -> dict[str, Any]:
    """Returns a record of `d4rl_policies.json`; one key has a stray colon."""
    return {
        "policy_path": f"{name}.pkl",
        "task.task_names": ["hopper-medium-v0", "hopper-random-v0"],
        "agent_name": "SAC",
        "return_mean": return_mean,
        "return_std:": 118.8,
        **changes,
    }


def rlu_record(name: str, return_mean: float, **changes: Any) -> dict[str, Any]:
    """Returns a record of `rlunplugged_policies.json`; missing values are NaN or null."""
    identifier, _, snapshot = name.partition("/")
    return {
        "snapshot_name": snapshot,
        "cwp": False,
        "is_recurrent": True,
        "agent_name": "RCRR exp",
        "return_mean": return_mean,
        "return_std": 0.16,
        "agent.batch_size": 256,
        "agent.discount": np.nan,
        "agent.policy_comparison_modes": None,
        "agent.truncate_on_evaluation": 1.0,
        "networks.policy_lstm_sizes": [],
        "seed": 0,
        "task.task_name": "cartpole_swingup",
        "policy_path": name,
        "id": identifier,
        **changes,
    }


def write_index(path: Path, records: Any) -> Path:
    """Writes an index, which is not strict JSON if it has NaN."""
    path.write_text(json.dumps(records))
    return path
