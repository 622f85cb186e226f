"""Small folders of AgiBot World, with what is odd in them."""

import io
import json
from pathlib import Path
from typing import Any, NamedTuple

import h5py
import numpy as np
from PIL import Image
from videos import encoded

PARTS = {"effector/position": (2,), "end/position": (2, 3), "joint/position": (14,)}
CAMERAS = {"videos/hand_left_color": 0, "videos/head_color": 1, "tactile/left_sensor_1": 2}


class Written(NamedTuple):
    """The written data of an episode.

    Attributes:
      arrays: Those of the HDF5 file.
      depth: The bytes of the images.
      segments: What was labelled.
      frames: How many frames the videos have.
    """

    arrays: dict[str, np.ndarray]
    depth: list[bytes]
    segments: list[dict[str, Any]]
    frames: int


def write_episode(
    root: Path, task: int, episode: int, steps: int, rows: dict[str, list[int]], frames: int
) -> Written:
    """Writes an episode.

    Args:
      root: The folder of the dataset.
      task: The number of its task.
      episode: Its own number.
      steps: How many states it has.
      rows: The steps that the rows of a part of the action belong to; of other parts, all.
      frames: How many frames its videos have.
    """
    rng = np.random.default_rng(episode)
    arrays = {"timestamp": 10**18 + 33_333_333 * np.arange(steps)}
    for path, shape in PARTS.items():
        part = path.partition("/")[0]
        index = np.array(rows.get(part, range(steps)), np.int64)
        arrays[f"state/{path}"] = rng.normal(size=(steps, *shape))
        values = rng.normal(size=(len(index), *shape))
        arrays[f"action/{path}"] = values if len(index) else np.zeros(0)
        arrays[f"action/{part}/index"] = index if part != "end" else np.zeros(0, np.int64)
    arrays["state/effector/force"] = np.zeros(0)
    file = root / "proprio_stats" / str(task) / str(episode) / "proprio_stats.h5"
    file.parent.mkdir(parents=True)
    with h5py.File(file, "w") as opened:
        for path, values in arrays.items():
            opened[path] = values
    folder = root / "observations" / str(task) / str(episode)
    for name, seed in CAMERAS.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / f"{name}.mp4").write_bytes(encoded("h264", frames, seed=seed + 3 * episode))
    depth = []
    (folder / "depth").mkdir()
    for step in range(steps):
        data = io.BytesIO()
        Image.fromarray(rng.integers(0, 1 << 16, (4, 6), np.uint16)).save(data, "png")
        depth.append(data.getvalue())
        (folder / "depth" / f"head_depth_{step:06}.png").write_bytes(data.getvalue())
    segments = [
        {"start_frame": 0, "end_frame": 2, "action_text": f"Grasp {episode} ü", "skill": "Pick"},
        {"start_frame": 1, "end_frame": steps, "action_text": "Put it down", "skill": "Place"},
    ]
    return Written(arrays, depth, segments, frames)


# Episodes whose actions are complete, have gaps, are empty, and are too many; by task.
EPISODES: dict[tuple[int, int], tuple[int, dict[str, list[int]], int]] = {
    (327, 9): (6, {"joint": [1, 2, 4], "end": [1, 2, 4]}, 6),
    (327, 10): (5, {}, 4),
    (1000, 2): (4, {"joint": []}, 4),
    (1000, 3): (4, {"joint": [0, 1, 2, 3, 4]}, 4),
}


def write_folder(
    root: Path, episodes: dict[tuple[int, int], Any] | None = None
) -> dict[tuple[int, int], Written]:
    """Writes episodes; nothing is said of episode 2."""
    all_written = {
        names: write_episode(root, *names, *how) for names, how in (episodes or EPISODES).items()
    }
    (root / "task_info").mkdir()
    for task in {task for task, _ in all_written}:
        infos = [
            {
                "episode_id": number,
                "task_id": task,
                "task_name": f"Task {task}",
                "init_scene_text": "A table.",
                "label_info": {"action_config": written.segments},
            }
            for (other, number), written in all_written.items()
            if other == task and number != 2
        ]
        text = json.dumps(infos, ensure_ascii=False)
        (root / "task_info" / f"task_{task}.json").write_text(text)
    return all_written


def write_sound(root: Path) -> None:
    """Writes the episodes that can be read."""
    write_folder(root, {names: how for names, how in EPISODES.items() if names[1] != 3})
