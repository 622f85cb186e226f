"""Small files of OGBench: rows of all episodes, one after the other."""

from pathlib import Path

import numpy as np

LENGTHS = (4, 6, 3)


def arrays(lengths=LENGTHS, *, seed=0, pixels=False, compact=False):
    """The arrays of a split; each length counts the row of the final observation."""
    rng = np.random.default_rng(seed)
    rows = sum(lengths)
    terminals = np.zeros(rows, np.float32)
    terminals[np.cumsum(lengths) - 1] = 1
    if compact:
        terminals = np.minimum(terminals + np.append(terminals[1:], 1), 1).astype(np.float32)
    observations = rng.normal(size=(rows, 3)).astype(np.float32)
    if pixels:
        observations = rng.integers(0, 256, (rows, 4, 4, 3), np.uint8)
    return {
        "observations": observations,
        "actions": rng.normal(size=(rows, 2)).astype(np.float32),
        "terminals": terminals,
        "qpos": rng.normal(size=(rows, 5)).astype(np.float32),
        "button_states": rng.integers(0, 2, (rows, 2)),
    }


def write(directory: Path, name="cube-single-play-v0", **options) -> Path:
    """Writes both splits; returns the file of the first."""
    directory.mkdir(parents=True, exist_ok=True)
    np.savez_compressed(directory / f"{name}.npz", **arrays(**options))
    np.savez(directory / f"{name}-val.npz", **arrays((5,), seed=1, **options))
    return directory / f"{name}.npz"
