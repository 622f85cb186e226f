"""Folders of small files as ACT, ALOHA and their forks record them."""

import io
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import PIL.Image

CAMERAS = ("cam_high", "cam_low", "cam_left_wrist")
SHAPE = (6, 8, 3)


def frames(steps: int, seed: int) -> np.ndarray:
    """Random frames."""
    return np.random.default_rng(seed).integers(0, 256, (steps, *SHAPE), np.uint8)


def jpeg(frame: np.ndarray) -> bytes:
    """A frame as a file."""
    stream = io.BytesIO()
    PIL.Image.fromarray(frame).save(stream, "jpeg", quality=50)
    return stream.getvalue()


def write_episode(
    path: Path,
    steps: int,
    *,
    seed: int = 0,
    images: str = "plain",
    mobile: bool = False,
    real: bool = True,
    attributes: dict[str, Any] | None = None,
) -> Path:
    """Writes a file.

    Args:
      path: The file.
      steps: The number of rows.
      seed: The seed of the values.
      images: "plain" frames; "padded" files with `compress_len`; "rows" of different lengths; or
        padded files in a "matrix" without an attribute that tells it.
      mobile: Whether the robot has a base.
      real: Whether the robot is real, with `effort`.
      attributes: More attributes of the file.
    """
    rng = np.random.default_rng(seed)
    with h5py.File(path, "w", rdcc_nbytes=1024**2 * 2) as file:
        file.attrs["sim"] = not real
        observations = file.create_group("observations")
        group = observations.create_group("images")
        recorded = {name: frames(steps, seed + index) for index, name in enumerate(CAMERAS)}
        files = {name: [jpeg(frame) for frame in recorded[name]] for name in CAMERAS}
        width = max(len(data) for name in CAMERAS for data in files[name])
        for name in CAMERAS:
            if images == "plain":
                group.create_dataset(name, data=recorded[name], chunks=(1, *SHAPE))
            elif images == "rows":
                array = group.create_dataset(name, (steps,), h5py.vlen_dtype(np.uint8))
                for row, data in enumerate(files[name]):
                    array[row] = np.frombuffer(data, np.uint8)
            else:
                padded = np.zeros((steps, width), np.uint8)
                for row, data in enumerate(files[name]):
                    padded[row, : len(data)] = np.frombuffer(data, np.uint8)
                group.create_dataset(name, data=padded, chunks=(1, width))
        if images == "padded":
            file.attrs["compress"] = True
            lengths = [[len(data) for data in files[name]] for name in CAMERAS]
            file.create_dataset("compress_len", data=np.array(lengths, np.float32))
        for name in ("qpos", "qvel", *(["effort"] if real else [])):
            array = observations.create_dataset(name, (steps, 14))  # float32, the default of h5py.
            array[...] = rng.normal(size=(steps, 14))
        file.create_dataset("action", (steps, 14))[...] = rng.normal(size=(steps, 14))
        if mobile:
            file.create_dataset("base_action", (steps, 2))[...] = rng.normal(size=(steps, 2))
            file.create_dataset("base_vel", data=rng.normal(size=(steps, 2)))
        for name, value in (attributes or {}).items():
            file.attrs[name] = value
    return path


def write_folder(directory: Path, lengths: dict[int, int] | None = None, **options: Any) -> Path:
    """Writes episodes by index, and other files that recorders write."""
    directory.mkdir(parents=True, exist_ok=True)
    for index, steps in (lengths or {0: 4, 2: 3, 10: 5}).items():
        write_episode(directory / f"episode_{index}.hdf5", steps, seed=index, **options)
    (directory / "episode_0_qpos.png").write_bytes(b"a plot")
    (directory / "dataset_stats.pkl").write_bytes(b"never read")
    return directory
