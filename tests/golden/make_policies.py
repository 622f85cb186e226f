"""Makes the golden files of policies, with the published loaders of Octo, OpenVLA and openpi.

    python make_policies.py DIRECTORY

It runs the installed ones of `octo`, `prismatic` and `openpi`, as published.

The files in `policies/` are its output, with octo 241fb35, openvla c8f03f4, openpi 15a9616 and
dlimp ad72ce3: a small dataset in the layout of DROID, and the statistics and samples of loaders.
"""

import os
import pathlib
import sys
import types

os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
import importlib.util

import numpy as np

import tfds_files

LENGTHS = {"train": (5, 3, 1, 6), "val": (4,)}
CAMERAS = ("exterior_image_1_left", "exterior_image_2_left", "wrist_image_left")
SIZE = (6, 8)
SIZES = {"primary": SIZE, "secondary": SIZE, "wrist": (5, 11)}
NAME = "arm"
MASK = [True, True, True, False]


def features():
    def tensor(dtype, *shape):
        return tfds_files.Tensor(dtype=np.dtype(dtype), shape=shape)

    def nested(**features_by_name):
        return tfds_files.Features(features=features_by_name)

    image = tfds_files.Image(shape=(*SIZE, 3), dtype=np.dtype(np.uint8), encoding_format="png")
    joints = {"joint_position": tensor(np.float32, 3), "gripper_position": tensor(np.float32, 1)}
    texts = dict.fromkeys((f"language_instruction{n}" for n in ("", "_2", "_3")), tensor(object))
    steps = nested(
        observation=nested(**dict.fromkeys(CAMERAS, image), **joints),
        action=tensor(np.float32, 4),
        action_dict=nested(**joints, joint_velocity=tensor(np.float32, 3)),
        **texts,
        **dict.fromkeys(("reward", "discount"), tensor(np.float32)),
        **dict.fromkeys(("is_first", "is_last", "is_terminal"), tensor(bool)),
    )
    metadata = nested(file_path=tensor(object), recording_folderpath=tensor(object))
    return nested(steps=tfds_files.Dataset(feature=steps), episode_metadata=metadata)


def episode(rng, index, length):
    flags = {name: np.zeros(length, bool) for name in ("is_first", "is_last", "is_terminal")}
    flags["is_first"][0] = flags["is_last"][-1] = flags["is_terminal"][-1] = True

    def floats(width):
        return rng.normal(2.0, size=(length, width)).astype(np.float32)

    action = floats(4)
    action[:, 1] = 0.25  # A constant element.
    action[:, 3] = rng.integers(0, 2, length)  # The gripper.
    views = [rng.integers(0, 256, (length, *SIZE, 3), np.uint8) for _ in range(2)]
    instruction = "" if length == 3 else f"Pick up block {index}"
    return {
        "episode_metadata": {
            "file_path": f"/data/success/{index}.h5",
            "recording_folderpath": f"/data/recordings/{index}",
        },
        "steps": {
            "observation": {
                # openpi draws one of two cameras; here they are equal.
                **dict(zip(CAMERAS, [views[0], views[0], views[1]])),
                "joint_position": floats(3),
                "gripper_position": floats(1),
            },
            "action": action,
            "action_dict": {
                "joint_position": floats(3),
                "joint_velocity": floats(3),
                "gripper_position": floats(1),
            },
            **{
                f"language_instruction{n}": np.array([instruction] * length, object)
                for n in ("", "_2", "_3")
            },
            "reward": np.zeros(length, np.float32),
            "discount": np.ones(length, np.float32),
            **flags,
        },
    }


def write_dataset(directory):
    rng = np.random.default_rng(0)
    index = 0
    with tfds_files.append_to(directory / NAME / "1.0.0", features(), NAME) as writer:
        for split, lengths in LENGTHS.items():
            for length in lengths:
                writer.add(episode(rng, index, length), split)
                index += 1


def leaves(tree, path=""):
    for name, value in tree.items():
        if isinstance(value, dict):
            yield from leaves(value, f"{path}{name}/")
        else:
            array = np.asarray(value)
            yield f"{path}{name}", array.astype(np.bytes_) if array.dtype == object else array


def save(directory, name, rows):
    """Writes the rows of all episodes, one after the other."""
    columns = [dict(leaves(row)) for row in rows]
    joined = {path: np.concatenate([row[path] for row in columns]) for path in columns[0]}
    np.savez_compressed(directory / f"{name}.npz", **joined)


def read_samples(make_single_dataset, directory, dataset_options, window_options):
    return make_single_dataset(
        {
            "name": NAME,
            "data_dir": str(directory),
            "shuffle": False,
            "language_key": "language_instruction",
            "action_normalization_mask": MASK,
            **dataset_options,
        },
        train=True,
        traj_transform_kwargs=window_options,
        frame_transform_kwargs={"resize_size": SIZES},
    )


CACHED = "dataset_statistics_*.json"


def make_octo(directory):
    from octo.data.dataset import make_single_dataset

    cameras = {
        "primary": "exterior_image_1_left",
        "secondary": None,
        "wrist": "wrist_image_left",
    }
    options = {"image_obs_keys": cameras, "proprio_obs_key": "joint_position"}
    windows = {"window_size": 2, "action_horizon": 3, "max_action_dim": 6, "max_proprio_dim": 5}
    samples = read_samples(make_single_dataset, directory, options, windows)
    save(directory, "octo", samples.as_numpy_iterator())
    options["action_proprio_normalization_type"] = "bounds"
    windows = {"window_size": 3, "action_horizon": 2, "goal_relabeling_strategy": "uniform"}
    samples = read_samples(make_single_dataset, directory, options, windows)
    save(directory, "octo_goals", samples.as_numpy_iterator())
    (path,) = (directory / NAME / "1.0.0").glob(CACHED)
    path.rename(directory / "octo.json")


def make_openvla(directory):
    # The packages of the loader import models and PyTorch; only these imports are skipped.
    for package in ("prismatic", "prismatic.vla", "prismatic.vla.datasets"):
        root = importlib.util.find_spec("prismatic").submodule_search_locations[0]
        empty = types.ModuleType(package)
        empty.__path__ = [os.path.join(root, *package.split(".")[1:])]
        sys.modules[package] = empty
        empty.__spec__ = importlib.util.spec_from_loader(package, None, is_package=True)
        empty.__spec__.submodule_search_locations = empty.__path__
    from prismatic.vla.datasets.rlds import make_single_dataset
    from prismatic.vla.datasets.rlds.utils.data_utils import save_dataset_statistics

    options = {
        "image_obs_keys": {"primary": "exterior_image_1_left", "wrist": None},
        "state_obs_keys": ["joint_position", None, "gripper_position"],
        "absolute_action_mask": [False, False, False, True],
        "action_proprio_normalization_type": "bounds_q99",
    }
    windows = {"window_size": 2, "future_action_window_size": 2}
    samples, _, statistics = read_samples(make_single_dataset, directory, options, windows)
    save(directory, "openvla", samples.as_numpy_iterator())
    save_dataset_statistics({NAME: statistics}, directory)
    (directory / "dataset_statistics.json").rename(directory / "openvla.json")
    options["action_proprio_normalization_type"] = "bounds"
    windows = {"window_size": 1, "goal_relabeling_strategy": "uniform"}
    samples, _, _ = read_samples(make_single_dataset, directory, options, windows)
    save(directory, "openvla_goals", samples.as_numpy_iterator())
    for path in (directory / NAME / "1.0.0").glob(CACHED):
        path.unlink()


def make_openpi(directory):
    from openpi.shared import normalize
    from openpi.training.droid_rlds_dataset import DroidRldsDataset, RLDSDataset

    num_rows = sum(LENGTHS["train"])
    loader = DroidRldsDataset(
        str(directory),
        1,
        [RLDSDataset(NAME, "1.0.0", 1.0)],
        shuffle=False,
        action_chunk_size=4,
        shuffle_buffer_size=1,
    )
    rows_by_step = {}
    for row in loader:
        rows_by_step[row["step_id"][0]] = row
        if len(rows_by_step) == num_rows:
            break
    rows = [rows_by_step[step_id] for step_id in sorted(rows_by_step)]
    save(directory, "openpi", rows)
    statistics = {"state": normalize.RunningStats(), "actions": normalize.RunningStats()}
    for row in rows:
        fields = [row["observation"][f"{name}_position"] for name in ("joint", "gripper")]
        state = np.concatenate(fields, axis=-1)
        statistics["state"].update(state)
        statistics["actions"].update(row["actions"])
    normalize.save(directory, {name: stats.get_statistics() for name, stats in statistics.items()})
    (directory / "norm_stats.json").rename(directory / "openpi.json")


if __name__ == "__main__":
    directory = pathlib.Path(sys.argv[1])
    directory.mkdir(parents=True, exist_ok=True)
    write_dataset(directory)
    for package, make in {
        "octo": make_octo,
        "prismatic": make_openvla,
        "openpi": make_openpi,
    }.items():
        if importlib.util.find_spec(package):
            make(directory)
