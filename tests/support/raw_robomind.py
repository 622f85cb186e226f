"""Small folders of RoboMIND, with its oddities."""

import io
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import PIL.Image

SHAPE = (6, 8, 3)
EMBODIMENT, TASK = "h5_agilex_3rgb", "10_packplate_2"


def files_of(frames: np.ndarray, kind: str) -> list[bytes]:
    """Frames as files."""
    files = []
    for frame in frames:
        stream = io.BytesIO()
        PIL.Image.fromarray(frame).save(stream, kind)
        files.append(stream.getvalue())
    return files


def write_episode(
    path: Path, steps: int, *, seed: int = 0, raw: bool = False, text: str | None = None
) -> None:
    """Writes a file.

    Args:
      path: The file.
      steps: The number of rows.
      seed: The seed of the values.
      raw: Whether the second row of a camera of 480 x 640 is a raw frame instead of a file.
      text: The content of `language_raw`, if any.
    """
    rng = np.random.default_rng(seed)
    path.parent.mkdir(parents=True)
    with h5py.File(path, "w") as file:
        for side in ("left", "right"):
            for group, name, size in (
                ("puppet", "joint_position", 7),
                ("puppet", "end_effector", 6),
                ("master", "joint_position", 7),
            ):
                file[f"{group}/{name}_{side}"] = rng.normal(size=(steps, size))
        frames = rng.integers(0, 256, (steps, *SHAPE), np.uint8)
        depth = rng.integers(0, 4000, (steps, *SHAPE[:2])).astype(np.uint16)
        _write_rows(file, "observations/rgb_images/camera_front", files_of(frames, "jpeg"))
        _write_rows(file, "observations/depth_images/camera_front", files_of(depth, "png"))
        if raw:
            large = rng.integers(0, 9, (2, 480, 640, 3)).astype(np.uint8)
            rows = [*files_of(large[:1], "jpeg") * (steps - 1)]
            rows.insert(1, large[1].tobytes())
            _write_rows(file, "observations/rgb_images/camera_top", rows)
        if text is not None:
            file["language_raw"] = [text]


def _write_rows(file: Any, name: str, rows: list[bytes]) -> None:
    array = file.create_dataset(name, (len(rows),), h5py.vlen_dtype(np.uint8))
    for index, data in enumerate(rows):
        array[index] = np.frombuffer(data, np.uint8)


def write_folder(
    directory: Path,
    lengths: dict[str, int] | None = None,
    task: str = TASK,
    **options: Any,
) -> Path:
    """Writes episodes by their split and name; returns the folder of the embodiment."""
    lengths = lengths or {"train/9_1": 3, "train/1014_2": 4, "val/7_0": 2}
    for index, (name, steps) in enumerate(lengths.items()):
        episodes = directory / EMBODIMENT / task / "success_episodes"
        write_episode(episodes / name / "data" / "trajectory.hdf5", steps, seed=index, **options)
    return directory / EMBODIMENT
