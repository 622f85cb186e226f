"""Small folders of AgiBot World, with its oddities."""

import io
import json
from pathlib import Path
from typing import Any, NamedTuple

import h5py
import numpy as np
from PIL import Image
from videos import encoded

JOINTS = {"effector/position": (2,), "end/position": (2, 3), "joint/position": (14,)}
CAMERAS = {"videos/hand_left_color": 0, "videos/head_color": 1, "tactile/left_sensor_1": 2}


class Written(NamedTuple):
    """The written data of an episode.

    Attributes:
      arrays: The arrays of the HDF5 file.
      depth: The bytes of the images.
      segments: The labelled segments.
      frames: The number of frames of the videos.
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
      task: The id of its task.
      episode: Its id.
      steps: The number of states.
      rows: The steps of the rows, by group of the action; all steps by default.
      frames: The number of frames of its videos.
    """
    rng = np.random.default_rng(episode)
    arrays = {"timestamp": 10**18 + 33_333_333 * np.arange(steps)}
    for path, shape in JOINTS.items():
        group = path.partition("/")[0]
        index = np.array(rows.get(group, range(steps)), np.int64)
        arrays[f"state/{path}"] = rng.normal(size=(steps, *shape))
        values = rng.normal(size=(len(index), *shape))
        arrays[f"action/{path}"] = values if len(index) else np.zeros(0)
        arrays[f"action/{group}/index"] = index if group != "end" else np.zeros(0, np.int64)
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


# By task and episode: actions with gaps, complete ones, an empty array, too many actions.
EPISODES: dict[tuple[int, int], tuple[int, dict[str, list[int]], int]] = {
    (327, 9): (6, {"joint": [1, 2, 4], "end": [1, 2, 4]}, 6),
    (327, 10): (5, {}, 4),
    (1000, 2): (4, {"joint": []}, 4),
    (1000, 3): (4, {"joint": [0, 1, 2, 3, 4]}, 4),
}


def write_folder(
    root: Path, episodes: dict[tuple[int, int], Any] | None = None
) -> dict[tuple[int, int], Written]:
    """Writes episodes; the task information lacks episode 2."""
    all_written = {
        names: write_episode(root, *names, *how) for names, how in (episodes or EPISODES).items()
    }
    (root / "task_info").mkdir()
    for task in {task for task, _ in all_written}:
        infos = [
            {
                "episode_id": episode,
                "task_id": task,
                "task_name": f"Task {task}",
                "init_scene_text": "A table.",
                "label_info": {"action_config": written.segments},
            }
            for (other_task, episode), written in all_written.items()
            if other_task == task and episode != 2
        ]
        text = json.dumps(infos, ensure_ascii=False)
        (root / "task_info" / f"task_{task}.json").write_text(text)
    return all_written


def write_sound(root: Path) -> None:
    """Writes the readable episodes."""
    write_folder(root, {names: how for names, how in EPISODES.items() if names[1] != 3})
