"""Small files in robomimic's format, with the oddities of its dialects.

`DIALECTS` has a writer for each, which returns the file. Names, dtypes and attributes are those of
published files; episodes have few rows, and images few pixels.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any
from unittest import mock

import h5py
import numpy as np

LENGTHS = {"demo_0": 3, "demo_2": 5, "demo_10": 4}
MODEL = "<mujoco>" + "<body/>" * 200 + "</mujoco>"
ENV_ARGS = {
    "env_name": "Lift",
    "type": 1,
    "env_kwargs": {"controller_configs": {"type": "OSC_POSE"}, "control_freq": 20},
}


def walk(rng: np.random.Generator, length: int) -> dict[str, np.ndarray]:
    """`length + 1` observations of a robot."""
    return {
        "object": rng.normal(size=(length + 1, 10)),
        "robot0_eef_pos": rng.normal(size=(length + 1, 3)),
        "robot0_eef_quat": rng.normal(size=(length + 1, 4)).astype("f4"),
        "agentview_image": rng.integers(0, 256, (length + 1, 4, 5, 3), np.uint8),
    }


def robomimic(
    path: Any,
    *,
    next_obs: bool = True,
    masks: bool = True,
    dones: str = "both",
    lengths: Mapping[str, int] = LENGTHS,
    **compression: Any,
) -> Path:
    """All features of robomimic: demonstrations out of order, two models, masks, metadata.

    Args:
      path: The file.
      next_obs: Whether it has `next_obs`.
      masks: Whether it has masks.
      dones: The rows that are done: "success", "end", or "both".
      lengths: The numbers of actions of demonstrations.
      **compression: Options of the arrays.
    """
    rng = np.random.default_rng(0)
    with h5py.File(path, "w") as file:
        data = file.create_group("data")
        data.attrs["total"] = sum(lengths.values())
        data.attrs["env_args"] = json.dumps(ENV_ARGS)
        for index, (name, length) in enumerate(lengths.items()):
            demo = data.create_group(name)
            observations = walk(rng, length)
            succeeded = index != 1
            rewards = (np.arange(length) == length - 1) * float(succeeded)
            flags = {"success": succeeded, "end": True, "both": True}
            last = (np.arange(length) == length - 1).astype(np.int64) * flags[dones]
            arrays = {
                "actions": rng.uniform(-1, 1, (length, 7)),
                "actions_abs": rng.normal(size=(length, 7)),
                "action_dict/rel_pos": rng.normal(size=(length, 3)).astype("f4"),
                "action_dict/gripper": rng.normal(size=(length, 1)).astype("f4"),
                "states": rng.normal(size=(length, 12)),
                "rewards": rewards,
                "dones": last,
                **{f"obs/{key}": value[:-1] for key, value in observations.items()},
            }
            if next_obs:
                following = {f"next_obs/{key}": value[1:] for key, value in observations.items()}
                arrays |= {key: value.copy() for key, value in following.items()}
            for key, value in arrays.items():
                demo.create_dataset(key, data=value, **compression)
            demo.attrs["num_samples"] = length
            demo.attrs["model_file"] = MODEL + "<!-- other -->" * (name == "demo_2")
            demo.attrs["ep_meta"] = json.dumps({"lang": f"lift cube {index}", "layout_id": index})
            demo.attrs["camera_info"] = json.dumps({"agentview": {"fov": 45 + index}})
            demo["obs"].attrs["note"] = "upright"
            demo["actions"].attrs["scale"] = np.float32([0.05, 0.5])
        if masks:
            names = np.array([*lengths], "S")
            file["mask/train"] = names[:2]
            file["mask/valid"] = names[2:]
            file["mask/20_percent"] = np.array(["demo_99", "demo_0"], "S")
    return Path(path)


def robosuite(path: Any) -> Path:
    """Raw: no observations, the first demonstration is `demo_1`."""
    rng = np.random.default_rng(1)
    with h5py.File(path, "w") as file:
        data = file.create_group("data")
        data.attrs.update(
            {"date": "11 22 2026", "time": "10:0:0", "repository_version": "1.5.1", "env": "Lift"}
        )
        data.attrs["env_info"] = json.dumps({"robots": "Panda"})
        for id, length in ((1, 4), (2, 3), (10, 2)):
            demo = data.create_group(f"demo_{id}")
            demo.attrs["model_file"] = MODEL
            demo["states"] = rng.normal(size=(length, 32))
            demo["actions"] = rng.uniform(-1, 1, (length, 7))
    return Path(path)


def mimicgen(path: Any) -> Path:
    """Adds the origins of segments, and an episode without the groups of the other ones."""
    robomimic(path, next_obs=False)
    rng = np.random.default_rng(2)
    with h5py.File(path, "a") as file:
        for name, length in LENGTHS.items():
            demo = file["data"][name]
            del demo["rewards"], demo["dones"], demo["action_dict"], demo["actions_abs"]
            demo["src_demo_inds"] = np.arange(2)
            demo["src_demo_labels"] = np.repeat(np.arange(2), [1, length - 1])[:, None]
            if name != "demo_2":
                demo["datagen_info/eef_pose"] = rng.normal(size=(length, 4, 4))
                demo["datagen_info/object_poses/cube"] = rng.normal(size=(length, 4, 4))
    return Path(path)


def libero(path: Any, *, states: int = 9) -> Path:
    """As published: `obs` of a row follows its action. Each value is a time.

    Args:
      path: The file.
      states: The size of a state, which differs by task.
    """
    with h5py.File(path, "w") as file:
        data = file.create_group("data")
        problem = {"problem_name": "tabletop", "language_instruction": "open the drawer"}
        data.attrs.update(
            {
                "env_name": "Libero_Kitchen_Tabletop_Manipulation",
                "problem_info": json.dumps(problem),
                "bddl_file_name": "chiliocosm/bddl_files/open_the_drawer.bddl",
                "bddl_file_content": "(define (problem kitchen))",
                "macros_image_convention": "opengl",
                "num_demos": 2,
                "total": 7,
                "env_args": json.dumps({"type": 1, "env_name": "Libero", "env_kwargs": {}}),
            }
        )
        for name, length in (("demo_0", 4), ("demo_1", 3)):
            time = np.arange(length, dtype="f8")[:, None]  # The time of the state and the action.
            demo = data.create_group(name)
            demo.attrs["num_samples"] = length
            demo.attrs["model_file"] = MODEL
            demo.attrs["init_state"] = np.zeros(states)
            _write_libero(demo, time, states, seen=time + 1)
    return Path(path)


def libero_regenerated(path: Any, *, states: int = 9) -> Path:
    """As OpenVLA replays it: `obs` precedes the action; there are no attributes."""
    with h5py.File(path, "w") as file:
        data = file.create_group("data")
        for name, length in (("demo_0", 4), ("demo_7", 3)):
            time = np.arange(length, dtype="f8")[:, None]
            _write_libero(data.create_group(name), time, states, seen=time)
    return Path(path)


def _write_libero(demo: Any, time: np.ndarray, states: int, seen: np.ndarray) -> None:
    length = len(time)
    last = (np.arange(length) == length - 1).astype(np.uint8)
    arrays = {
        "actions": np.repeat(time, 7, 1),
        "states": np.repeat(time, states, 1),
        "robot_states": np.repeat(seen, 9, 1),
        "rewards": last,
        "dones": last,
        "obs/ee_pos": np.repeat(seen, 3, 1),
        "obs/ee_ori": np.repeat(seen, 3, 1),
        "obs/gripper_states": np.repeat(seen, 2, 1),
        "obs/agentview_rgb": np.broadcast_to(seen[..., None, None], (length, 4, 4, 3)),
    }
    for key, value in arrays.items():
        demo[key] = value.astype(np.uint8) if key.endswith("rgb") else value


def isaac_lab(path: Any) -> Path:
    """float32, compressed, nested; `states` follow the action, after initial ones."""
    rng = np.random.default_rng(3)
    with h5py.File(path, "w") as file:
        data = file.create_group("data")
        data.attrs["total"] = 9
        data.attrs["env_args"] = json.dumps({"env_name": "Isaac-Stack-Cube-v0", "type": 2})
        for index, length in enumerate((4, 5)):
            demo = data.create_group(f"demo_{index}")
            demo.attrs["num_samples"] = length
            demo.attrs["seed"] = 7 + index
            demo.attrs["success"] = np.bool_(index == 0)
            sizes = {
                "articulation/robot/root_pose": 7,
                "articulation/robot/joint_position": 9,
                "rigid_object/cube/root_velocity": 6,
            }
            arrays = {
                "actions": rng.normal(size=(length, 7)),
                "processed_actions": rng.normal(size=(length, 9)),
                "obs/eef_pos": rng.normal(size=(length, 3)),
                "obs/rgb_camera/table": rng.normal(size=(length, 2)),
            }
            for name, size in sizes.items():
                states = rng.normal(size=(length + 1, size))
                arrays[f"initial_state/{name}"] = states[:1]
                arrays[f"states/{name}"] = states[1:]
            for key, value in arrays.items():
                demo.create_dataset(key, data=value.astype("f4"), compression="gzip")
    return Path(path)


def robocasa(path: Any) -> Path:
    """robomimic without `next_obs`, with an empty group and texts in rows."""
    robomimic(path, next_obs=False, masks=False, dones="success")
    with h5py.File(path, "a") as file:
        for name, length in LENGTHS.items():
            demo = file["data"][name]
            demo.create_group("empty/inner")
            demo["subtask"] = np.array([f"phase {row} ü" for row in range(length)], object)
            demo["code"] = np.array([b"a", b"bcd"] * length, "S3")[:length]
            demo["is_grasped"] = np.arange(length) > 1
            demo["wrench"] = np.arange(length, dtype=">i2")
            demo["goal"] = np.arange(6.0).reshape(2, 3)
            demo["version"] = "1.0"
    return Path(path)


# The observations and the masks that TFDS expects in `lift/ph/low_dim.hdf5`.
LIFT = {
    "object": 10,
    "robot0_eef_pos": 3,
    "robot0_eef_quat": 4,
    "robot0_eef_vel_ang": 3,
    "robot0_eef_vel_lin": 3,
    "robot0_gripper_qpos": 2,
    "robot0_gripper_qvel": 2,
    "robot0_joint_pos": 7,
    "robot0_joint_pos_cos": 7,
    "robot0_joint_pos_sin": 7,
    "robot0_joint_vel": 7,
}
LIFT_MASKS = (
    *("train", "valid", "20_percent", "20_percent_train", "20_percent_valid"),
    *("50_percent", "50_percent_train", "50_percent_valid"),
)


def lift(path: Any, lengths: Sequence[int]) -> Path:
    """A file for the builder of TFDS, too: all episodes end in success, the first one has two."""
    rng = np.random.default_rng(4)
    names = np.array([f"demo_{index}" for index in range(len(lengths))], "S")
    with h5py.File(path, "w") as file:
        data = file.create_group("data")
        data.attrs["total"], data.attrs["env_args"] = sum(lengths), json.dumps(ENV_ARGS)
        for name, length in zip(names.astype(str), lengths):
            demo = data.create_group(name)
            demo.attrs["num_samples"], demo.attrs["model_file"] = length, MODEL
            for key, size in LIFT.items():
                seen = np.cumsum(rng.normal(size=(length + 1, size)), axis=0)
                demo[f"obs/{key}"], demo[f"next_obs/{key}"] = seen[:-1], seen[1:]
            demo["actions"] = rng.uniform(-1, 1, (length, 7))
            demo["states"] = rng.normal(size=(length, 32))
            dones = np.arange(length) >= length - 1 - (name == "demo_0")
            demo["rewards"], demo["dones"] = dones.astype("f8"), dones.astype("i8")
        for mask in LIFT_MASKS:
            file[f"mask/{mask}"] = names[: len(names) // 2 + 1]
    return Path(path)


def by_tfds(path: Path, data_dir: Path) -> Any:
    """Converts a file with the builder of TFDS instead of a download."""
    import tensorflow_datasets as tfds

    builder = tfds.builder("robomimic_ph/lift_ph_low_dim", data_dir=data_dir)
    download = tfds.download.DownloadManager
    with mock.patch.object(download, "download_and_extract", return_value={"file_path": path}):
        builder.download_and_prepare(
            download_config=tfds.download.DownloadConfig(try_download_gcs=False)
        )
    return builder


# By the name of the dialect and of the file.
DIALECTS: Mapping[str, Callable[[Any], Path]] = {
    "robomimic": robomimic,
    "robosuite": robosuite,
    "mimicgen": mimicgen,
    "libero": libero,
    "libero_regenerated": libero_regenerated,
    "isaac_lab": isaac_lab,
    "robocasa": robocasa,
}


def libero_folder(directory: Path) -> Path:
    """Two tasks, with states of different sizes."""
    directory.mkdir()
    libero(directory / "KITCHEN_SCENE10_open_the_drawer_demo.hdf5")
    libero(directory / "KITCHEN_SCENE2_close_the_drawer_demo.hdf5", states=11)
    return directory
