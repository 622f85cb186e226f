"""Small datasets of CALVIN, with the oddities of the real ones."""

from pathlib import Path
from typing import Any

import numpy as np

# First and last steps: there is a gap between the ranges, and their order is not that of steps.
RANGES = {"training": [(100, 105), (60, 63)], "validation": [(0, 2)]}
# Windows that overlap, one that lies in the gap, and one that leaves its range.
WINDOWS = {
    "training": [(101, 104), (100, 103), (61, 63), (64, 70), (104, 107)],
    "validation": [],
}
SHAPES: dict[str, tuple[Any, tuple[int, ...]]] = {
    "actions": ("f8", (7,)),
    "rel_actions": ("f8", (7,)),
    "robot_obs": ("f8", (15,)),
    "scene_obs": ("f8", (24,)),
    "rgb_static": ("u1", (10, 12, 3)),
    "rgb_gripper": ("u1", (5, 6, 3)),
    "rgb_tactile": ("u1", (4, 3, 6)),
    "depth_static": ("f4", (10, 12)),
}


def step(index: int) -> dict[str, np.ndarray]:
    """The arrays of a step."""
    rng = np.random.default_rng(index)
    return {
        name: rng.integers(0, 256, shape, np.uint8) if kind == "u1" else rng.random(shape, kind)
        for name, (kind, shape) in SHAPES.items()
    }


def annotations(windows: list[tuple[int, int]]) -> dict[str, Any]:
    """The content of `auto_lang_ann.npy`."""
    rng = np.random.default_rng(0)
    num_windows = len(windows)
    return {
        "language": {
            "ann": [f"push the block {row}" for row in range(num_windows)],
            "task": [f"push_block_{row}" for row in range(num_windows)],
            "emb": rng.random((num_windows, 1, 8), np.float32),
        },
        "info": {"episodes": [], "indx": windows},
    }


def write(directory: Path, *, splits: tuple[str, ...] = ("training", "validation")) -> Path:
    """Writes a dataset; returns the folder."""
    for split in splits:
        folder = directory / split
        (folder / "lang_annotations").mkdir(parents=True)
        for first, last in RANGES[split]:
            for index in range(first, last + 1):
                np.savez(folder / f"episode_{index:07d}.npz", **step(index))
        np.save(folder / "ep_start_end_ids.npy", np.array(RANGES[split]))
        language: Any = annotations(WINDOWS[split])
        np.save(folder / "lang_annotations" / "auto_lang_ann.npy", language)
        scenes: Any = {"calvin_scene_B": [0, 80], "calvin_scene_A": [81, 200]}
        np.save(folder / "scene_info.npy", scenes)
        (folder / "statistics.yaml").write_text("robot_obs:\n  - mean: [0.5]\n")
    if "training" in splits:
        np.savez(directory / "training" / "episode_0000064.npz", **step(64))  # In no range.
    return directory
