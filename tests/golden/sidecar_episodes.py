"""The episodes of the golden sidecars; needs only NumPy."""

import pathlib

import numpy as np

FORMATS = {
    "d3rlpy": "d3rlpy.h5",  # Arrays of HDF5.
    "d4rl": "d4rl.hdf5",  # Attributes of HDF5.
    "envlogger": "log",
    "lerobot": "lerobot",
    "maniskill": "maniskill",
    "mcap": "mcap",
    "minari": "minari-v0",
    "webdataset": "webdataset",
    "zarr": "buffer.zarr.zip",
}
"""The formats of exports with a sidecar, each with the name of its file or folder."""


def write(folder: pathlib.Path) -> pathlib.Path:
    """Writes the episodes as `.npz` files: one that terminates, and one that is truncated."""
    folder.mkdir()
    for index, length in enumerate((3, 2)):
        ends = np.arange(length) == length - 1
        arrays = {
            "observation": np.arange(2 * length + 2, dtype=np.float32).reshape(-1, 2) / 3,
            "action": np.linspace(-1, 1, length, dtype=np.float32)[:, np.newaxis],
            "reward": np.arange(length, dtype=np.float32),
            "discount": np.full(length, 0.5, np.float32),
            "terminal": ends & (index == 0),
            "truncated": ends & (index == 1),
            "note": np.array([f"Ü{row}" for row in range(length)]),
            "seed": np.array(index),
            "goal": np.arange(6.0).reshape(2, 3),
            "task": np.array("stapeln ↦"),
        }
        np.savez_compressed(folder / f"episode_{index}.npz", **arrays)
    return folder
