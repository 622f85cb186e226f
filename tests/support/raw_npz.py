"""Folders of small `.npz` files, as people save their episodes."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

Arrays = dict[str, np.ndarray]


def episode(length: int, *, seed: int = 0, **changes: Any) -> Arrays:
    """The arrays of an episode with all possible fields; `changes` replace or add some."""
    rng = np.random.default_rng(seed)
    arrays = {
        "observation/camera": rng.integers(0, 256, (length + 1, 4, 5, 3), np.uint8),
        "observation/joints": rng.random((length + 1, 3), np.float32),
        "action": rng.random((length, 2)),
        "reward": rng.random(length, np.float32),
        "discount": rng.random(length, np.float32),
        "terminal": np.arange(length) == length - 1,
        "truncated": np.zeros(length, bool),
        "info/qpos": rng.random((length + 1, 4)).astype(">f8"),
        "info/contact": np.asfortranarray(rng.integers(0, 2, (length, 2), np.int8)),
        "note": np.array([f"ü{index}" for index in range(length)]),
        "seed": np.array(seed),
        "task": np.array("stack"),
        "goal": rng.random((2, 7)),
    }
    return arrays | {name: np.asarray(value) for name, value in changes.items()}


def sample() -> dict[str, Arrays]:
    """A few episodes, by the names of their files."""
    return {
        "episode_1.npz": episode(3, seed=1),
        "episode_2.npz": episode(5, seed=2, terminal=False, truncated=True),
        "episode_10.npz": episode(4, seed=3, terminal=False),
    }


def write_folder(directory: Path, files: Mapping[str, Arrays]) -> Path:
    """Writes files, every second one compressed; returns the folder."""
    directory.mkdir(exist_ok=True)
    for index, (name, arrays) in enumerate(files.items()):
        save: Any = np.savez_compressed if index % 2 else np.savez
        save(directory / name, **arrays)
    return directory
