"""Datasets in the format of Open X-Embodiment, with its oddities, written without TFDS.

Their content is deterministic. `EPISODES` has the lengths of episodes.
"""

import io

import numpy as np
from PIL import Image

import tfds_files

FLAGS = ("is_first", "is_last", "is_terminal")
EPISODES = (6, 2, 9)


def tensor(dtype, *shape, encoding="none", doc=""):
    return tfds_files.Tensor(dtype=np.dtype(dtype), shape=shape, encoding=encoding, doc=doc)


def picture(height=12, width=16):
    return tfds_files.Image(
        shape=(height, width, 3), dtype=np.dtype(np.uint8), encoding_format="jpeg"
    )


def jpegs(rng, length, height=12, width=16):
    """The bytes of JPEG files."""
    files = np.empty(length, object)
    for index in range(length):
        data = io.BytesIO()
        pixels = rng.integers(0, 256, (height // 4, width // 4, 3), np.uint8)
        pixels = np.repeat(np.repeat(pixels, 4, axis=0), 4, axis=1)
        Image.fromarray(pixels).save(data, "jpeg", quality=95)
        files[index] = data.getvalue()
    return files


def texts(text, length):
    column = np.empty(length, object)
    column[:] = text
    return column


def flags(length):
    index = np.arange(length)
    return {"is_first": index == 0, "is_last": index == length - 1, "is_terminal": index == length}


def nested(features):
    """Converts nested dicts of features to `Features`."""
    return tfds_files.Features(
        features={n: nested(f) if isinstance(f, dict) else f for n, f in features.items()}
    )


def write(directory, name, step, episodes, episode=None, **options):
    """Writes a dataset with some step fields and the flags; returns its directory."""
    step = {**step, **dict.fromkeys(FLAGS, tensor(bool))}
    features = nested({"steps": tfds_files.Dataset(feature=nested(step)), **(episode or {})})
    with tfds_files.append_to(str(directory), features, name, **options) as writer:
        for content in episodes:
            writer.add(content)
    return str(directory)


def bridge_dataset(directory, name="bridge_dataset", lengths=EPISODES, size=(12, 16), **options):
    """Flat actions that begin with zeros, and one episode without an instruction."""
    step = {
        "observation": {"image_0": picture(*size), "state": tensor(np.float32, 7)},
        "action": tensor(np.float32, 7),
        "language_instruction": tensor(object),
    }

    def episodes():
        for seed, length in enumerate(lengths):
            rng = np.random.default_rng(seed)
            action = rng.normal(size=(length, 7)).astype(np.float32)
            action[:, 6] = rng.choice([0.0, 1.0, 0.3, 0.7], length)
            action[0] = 0
            yield {
                "steps": {
                    "observation": {
                        "image_0": jpegs(rng, length, *size),
                        "state": rng.normal(size=(length, 7)).astype(np.float32),
                    },
                    "action": action,
                    "language_instruction": texts("" if seed == 0 else "open the drawer", length),
                    **flags(length),
                },
            }

    return write(directory, name, step, episodes(), **options)


def fractal(directory, name="fractal20220817_data", lengths=EPISODES, size=(12, 16), **options):
    """Actions in nested fields, and a gripper with relative commands."""
    step = {
        "observation": {
            "image": picture(*size),
            "base_pose_tool_reached": tensor(np.float32, 7),
            "gripper_closed": tensor(np.float32, 1),
            "natural_language_instruction": tensor(object),
        },
        "action": {
            "world_vector": tensor(np.float32, 3),
            "rotation_delta": tensor(np.float32, 3),
            "gripper_closedness_action": tensor(np.float32, 1),
            "base_displacement_vector": tensor(np.float32, 2),
            "base_displacement_vertical_rotation": tensor(np.float32, 1),
            "terminate_episode": tensor(np.int32, 3),
        },
        "reward": tensor(np.float32),
    }
    episode = {"aspects": {"success": tensor(bool)}, "attributes": {"env_name": tensor(object)}}

    def episodes():
        for seed, length in enumerate(lengths):
            rng = np.random.default_rng(seed)

            def floats(*shape, length=length, rng=rng):
                return rng.normal(size=(length, *shape)).astype(np.float32)

            yield {
                "aspects": {"success": seed % 2 == 0},
                "attributes": {"env_name": "kitchen"},
                "steps": {
                    "observation": {
                        "image": jpegs(rng, length, *size),
                        "base_pose_tool_reached": floats(7),
                        "gripper_closed": floats(1),
                        "natural_language_instruction": texts("pick the can", length),
                    },
                    "action": {
                        "world_vector": floats(3),
                        "rotation_delta": floats(3),
                        "gripper_closedness_action": rng.choice(
                            [-1.0, 0.0, 0.0, 0.0, 0.05, 1.0], (length, 1)
                        ).astype(np.float32),
                        "base_displacement_vector": floats(2),
                        "base_displacement_vertical_rotation": floats(1),
                        "terminate_episode": np.zeros((length, 3), np.int32),
                    },
                    "reward": np.zeros(length, np.float32),
                    **flags(length),
                },
            }

    return write(directory, name, step, episodes(), episode, **options)


def kuka(directory, lengths=EPISODES):
    """Tensors compressed for each step, and a name with a slash."""
    small = {"encoding": "zlib"}
    step = {
        "observation": {
            "clip_function_input/base_pose_tool_reached": tensor(np.float32, 7, **small),
            "gripper_closed": tensor(np.float32, 1, **small),
            "natural_language_instruction": tensor(object),
        },
        "action": {
            "world_vector": tensor(np.float32, 3),
            "rotation_delta": tensor(np.float32, 3),
            "gripper_closedness_action": tensor(np.float32, 1),
            "terminate_episode": tensor(np.int32, 3),
        },
    }

    def episodes():
        for seed, length in enumerate(lengths):
            rng = np.random.default_rng(seed)
            yield {
                "success": seed == 1,
                "steps": {
                    "observation": {
                        "clip_function_input/base_pose_tool_reached": rng.normal(
                            size=(length, 7)
                        ).astype(np.float32),
                        "gripper_closed": rng.random((length, 1), np.float32),
                        "natural_language_instruction": texts("pick anything", length),
                    },
                    "action": {
                        "world_vector": rng.normal(size=(length, 3)).astype(np.float32),
                        "rotation_delta": rng.normal(size=(length, 3)).astype(np.float32),
                        "gripper_closedness_action": np.zeros((length, 1), np.float32),
                        "terminate_episode": np.zeros((length, 3), np.int32),
                    },
                    **flags(length),
                },
            }

    return write(directory, "kuka", step, episodes(), {"success": tensor(bool)})


def roboturk(directory, lengths=EPISODES):
    """Flags without a true `is_last` or `is_terminal`."""
    step = {
        "observation": {"natural_language_instruction": tensor(object)},
        "action": {
            "world_vector": tensor(np.float32, 3),
            "rotation_delta": tensor(np.float32, 3),
            "gripper_closedness_action": tensor(np.float32, 1),
            "terminate_episode": tensor(np.float32),
        },
    }

    def episodes():
        for seed, length in enumerate(lengths):
            rng = np.random.default_rng(seed)
            yield {
                "steps": {
                    "observation": {"natural_language_instruction": texts("lay the cloth", length)},
                    "action": {
                        "world_vector": rng.normal(size=(length, 3)).astype(np.float32),
                        "rotation_delta": rng.normal(size=(length, 3)).astype(np.float32),
                        "gripper_closedness_action": rng.choice(
                            [-0.2, 0.4, 1.5], (length, 1)
                        ).astype(np.float32),
                        "terminate_episode": np.zeros(length, np.float32),
                    },
                    **flags(length),
                    "is_last": np.zeros(length, bool),
                },
            }

    return write(directory, "roboturk", step, episodes())


def droid(directory, lengths=EPISODES):
    """Actions in float64, also in nested fields."""
    wide = {"encoding": "bytes"}  # Plain lists would be float32.
    step = {
        "observation": {
            "cartesian_position": tensor(np.float64, 6, **wide),
            "gripper_position": tensor(np.float64, 1, **wide),
        },
        "action": tensor(np.float64, 7, **wide),
        "action_dict": {
            "cartesian_velocity": tensor(np.float64, 6, **wide),
            "cartesian_position": tensor(np.float64, 6, **wide),
            "gripper_position": tensor(np.float64, 1, **wide),
        },
        "language_instruction": tensor(object),
        "language_instruction_2": tensor(object),
        "language_instruction_3": tensor(object),
    }
    episode = {"episode_metadata": {"file_path": tensor(object)}}

    def episodes():
        for seed, length in enumerate(lengths):
            rng = np.random.default_rng(seed)
            pose, gripper = rng.normal(size=(length, 6)), rng.random((length, 1))
            yield {
                "episode_metadata": {"file_path": f"/lab/success/{seed}/trajectory.h5"},
                "steps": {
                    "observation": {
                        "cartesian_position": rng.normal(size=(length, 6)),
                        "gripper_position": rng.random((length, 1)),
                    },
                    "action": np.concatenate([pose, gripper], axis=1),
                    "action_dict": {
                        "cartesian_velocity": rng.normal(size=(length, 6)),
                        "cartesian_position": pose,
                        "gripper_position": gripper,
                    },
                    "language_instruction": texts("wipe the table", length),
                    "language_instruction_2": texts("", length),
                    "language_instruction_3": texts("", length),
                    **flags(length),
                },
            }

    return write(directory, "droid", step, episodes(), episode)


def mt_opt(directory, lengths=EPISODES):
    """No reward, two commands for the gripper, and a task code of the episode."""
    small = {"encoding": "zlib"}
    step = {
        "observation": {
            "image": picture(),
            "state_dense": tensor(np.float32, 7, **small),
            "height_to_bottom": tensor(np.float32, **small),
            "gripper_closed": tensor(bool),
        },
        "action": {
            "target_pose": tensor(np.float32, 7, **small),
            "close_gripper": tensor(bool),
            "open_gripper": tensor(bool),
            "terminate": tensor(bool),
        },
    }
    episode = {
        "episode_id": tensor(object),
        "skill": tensor(np.uint8),
        "task_code": tensor(object),
    }

    def episodes():
        for seed, length in enumerate(lengths):
            rng = np.random.default_rng(seed)
            yield {
                "episode_id": f"run-{seed}",
                "skill": seed,
                "task_code": f"lift-{seed}",
                "steps": {
                    "observation": {
                        "image": jpegs(rng, length),
                        "state_dense": rng.normal(size=(length, 7)).astype(np.float32),
                        "height_to_bottom": rng.random(length, np.float32),
                        "gripper_closed": rng.random(length) < 0.5,
                    },
                    "action": {
                        "target_pose": rng.normal(size=(length, 7)).astype(np.float32),
                        "close_gripper": rng.random(length) < 0.5,
                        "open_gripper": rng.random(length) < 0.5,
                        "terminate": np.zeros(length, bool),
                    },
                    **flags(length),
                },
            }

    return write(directory, "mt_opt", step, episodes(), episode)
