"""Small files of ManiSkill 2 and 3, with their oddities."""

import json
from pathlib import Path
from typing import Any

import h5py
import numpy as np


def write(
    path: Path,
    lengths: dict[int, int] | None = None,
    *,
    obs: str = "nested",
    actions: str = "array",
    version: int = 3,
    rewards: bool = True,
    entries: list[int] | None = None,
    commit_info: bool = True,
) -> Path:
    """Writes a trajectory file and the JSON file.

    Args:
      path: The HDF5 file.
      lengths: The numbers of transitions, by the ids of episodes. Episode 1 terminates.
      obs: "nested", "array" or "none".
      actions: "array" or "dict".
      version: 2 or 3.
      rewards: Whether the file has rewards.
      entries: The episodes that the JSON file lists; all episodes by default.
      commit_info: Whether the JSON file has it; merged files do not.
    """
    lengths = {0: 4, 1: 3, 2: 5, 10: 2} if lengths is None else lengths
    path.parent.mkdir(parents=True, exist_ok=True)
    rng = np.random.default_rng(0)
    with h5py.File(path, "w") as file:
        for episode, steps in lengths.items():
            group = file.create_group(f"traj_{episode}", track_order=True)
            rows = steps + 1
            if obs == "array":
                group.create_dataset("obs", data=rng.random((rows, 5), np.float32))
            elif obs == "nested":
                _write_obs(group.create_group("obs", track_order=True), rows, rng)
            if actions == "dict":
                action_group = group.create_group("actions", track_order=True)
                action_group.create_dataset("panda-1", data=rng.random((steps, 4), np.float32))
                action_group.create_dataset("panda-0", data=rng.random((steps, 4), np.float32))
            else:
                group.create_dataset("actions", data=rng.random((steps, 8), np.float32))
            flags = np.zeros(steps, bool)
            last = np.arange(steps) == steps - 1
            group.create_dataset("terminated", data=last if episode == 1 else flags)
            group.create_dataset("truncated", data=last)
            group.create_dataset("success", data=np.arange(steps) >= steps // 2)
            if version == 2:
                group.create_dataset("env_states", data=rng.random((rows, 31), np.float32))
                group.create_dataset("env_init_state", data=rng.random(31, np.float32))
            else:
                group.create_dataset("fail", data=flags)
                states = group.create_group("env_states", track_order=True)
                actors = states.create_group("actors", track_order=True)
                actors.create_dataset("cube", data=rng.random((rows, 13), np.float32))
                arms = states.create_group("articulations", track_order=True)
                arms.create_dataset("panda", data=rng.random((rows, 31), np.float32))
            if rewards:
                group.create_dataset("rewards", data=rng.random(steps, np.float32))
    listed = list(lengths) if entries is None else entries
    path.with_suffix(".json").write_text(json.dumps(_json(lengths, listed, commit_info), indent=2))
    return path


def _write_obs(group: Any, rows: int, rng: np.random.Generator) -> None:
    agent = group.create_group("agent", track_order=True)
    agent.create_dataset("qpos", data=rng.random((rows, 9), np.float32))
    group.create_group("extra", track_order=True)  # Empty.
    camera = group.create_group("sensor_data/base_camera", track_order=True)
    for name, dtype, channels in (("rgb", "u1", 3), ("depth", "i2", 1)):
        frames = rng.integers(0, 200, (rows, 6, 5, channels)).astype(dtype)
        camera.create_dataset(name, data=frames, compression="gzip", compression_opts=5)
    camera.create_dataset("segmentation", data=rng.integers(0, 9, (rows, 6, 5, 1)).astype("i2"))
    sensor = group.create_group("sensor_param/base_camera", track_order=True)
    sensor.create_dataset("extrinsic_cv", data=rng.random((rows, 3, 4), np.float32))


def _json(lengths: dict[int, int], listed: list[int], commit_info: bool) -> dict[str, Any]:
    episodes = [
        {
            "episode_id": episode,
            "episode_seed": 100 + episode,
            "control_mode": "pd_joint_pos",
            "elapsed_steps": lengths.get(episode, 7),
            "reset_kwargs": {"seed": 100 + episode, "options": {}} if episode else {},
            "success": True,
            "fail": False,
        }
        for episode in listed
    ]
    commit = {"commit_info": {"commit": "abc", "message": "ü"}} if commit_info else {}
    return {
        "env_info": {
            "env_id": "PickCube-v1",
            "env_kwargs": {"obs_mode": "rgbd", "sim_backend": "physx_cpu"},
            "max_episode_steps": 50,
        },
        **commit,
        "episodes": episodes,
        "source_type": "motionplanning",
        "source_desc": "a planner",
    }
