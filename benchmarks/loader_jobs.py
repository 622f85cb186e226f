"""Contenders that load what OpenVLA, Octo, openpi and LeRobot train on, as their scripts do.

A script has the name of the module from which it imports the loader: that of the project, or that
of `rlds.feeds.compat`. A unit of its work is a sample. OpenVLA shuffles in a buffer of 20,000
samples, Octo and openpi in one of 2,000, where their scripts ask for up to 500,000.
"""

import importlib
import importlib.util
import itertools
import os
import shutil
import sys
import types
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from feed_jobs import rounds
from worker import Work

BATCH_SIZE, IMAGE_SIZE = 64, (224, 224)
BUFFER = 2_000
LENGTH = 100
# Of the datasets of Open X.
BRIDGE, DROID = "bridge_orig", "droid"


def write_bridge(data: Path, size: int) -> None:
    """Writes a dataset of Open X with a camera of 256 x 320 pixels."""
    import raw_oxe

    lengths = (LENGTH,) * (size // LENGTH)
    raw_oxe.bridge_dataset(data / BRIDGE / "1.0.0", BRIDGE, lengths, size=(256, 320))


def write_droid(data: Path, size: int) -> None:
    """Writes a dataset like DROID, with three cameras of 180 x 320 pixels."""
    import raw_oxe

    cameras = ("exterior_image_1_left", "exterior_image_2_left", "wrist_image_left")
    vectors = {"joint_position": 7, "gripper_position": 1}
    vector_specs = {name: raw_oxe.tensor(np.float32, n) for name, n in vectors.items()}
    texts = [f"language_instruction{end}" for end in ("", "_2", "_3")]
    step = {
        "observation": {**dict.fromkeys(cameras, raw_oxe.picture(180, 320)), **vector_specs},
        "action_dict": vector_specs,
        "action": raw_oxe.tensor(np.float32, 7),
        **dict.fromkeys(texts, raw_oxe.tensor(object)),
    }

    def episodes() -> Iterator[dict[str, Any]]:
        for index in range(size // LENGTH):
            rng = np.random.default_rng(index)
            values = {name: rng.random((LENGTH, n), np.float32) for name, n in vectors.items()}
            films = {name: raw_oxe.jpegs(rng, LENGTH, 180, 320) for name in cameras}
            steps = {"observation": {**films, **values}, "action_dict": values}
            steps |= {"action": rng.random((LENGTH, 7), np.float32), **raw_oxe.flags(LENGTH)}
            steps |= dict.fromkeys(texts, raw_oxe.texts("wipe the table", LENGTH))
            names = {"file_path": f"/success/{index}", "recording_folderpath": f"/{index}"}
            yield {"steps": steps, "episode_metadata": names}

    episode = dict.fromkeys(("file_path", "recording_folderpath"), raw_oxe.tensor(object))
    folder = data / DROID / "1.0.0"
    raw_oxe.write(folder, DROID, step, episodes(), {"episode_metadata": episode})


def write_lerobot(data: Path, size: int) -> None:
    """Writes the first one as a dataset of LeRobot, with video."""
    import rlds.sources

    write_bridge(data / "before", size)
    source = data / "before" / BRIDGE / "1.0.0"
    rlds.sources.export(source, "lerobot", data / "lerobot", fps=10)
    shutil.rmtree(data / "lerobot" / "meta" / "rlds")  # LeRobot would not have that.


def openvla(data: Path, size: int, *, module: str) -> Work:
    """OpenVLA's dataset in a DataLoader; a row is what its model takes of it."""
    from torch.utils.data import DataLoader

    _without_models()
    dataset = importlib.import_module(module).RLDSDataset(
        data,
        BRIDGE,
        lambda row: {"action": row["action"], "pixels": row["observation"]["image_primary"]},
        IMAGE_SIZE,
        shuffle_buffer_size=10 * BUFFER,
    )
    return rounds(iter(DataLoader(dataset, BATCH_SIZE)), name="action")


def _without_models() -> None:
    """Has `prismatic` without its models, which its loader does not need, where that is there."""
    spec = importlib.util.find_spec("prismatic")
    if spec is None or not spec.submodule_search_locations:
        return
    root = Path(spec.submodule_search_locations[0])
    models, backbones = "prismatic.models", "prismatic.models.backbones"
    packages = ("prismatic", "prismatic.vla", "prismatic.vla.datasets", models, backbones)
    for name in (*packages, f"{backbones}.llm", "prismatic.util"):
        package = sys.modules[name] = types.ModuleType(name)
        package.__path__ = [str(root.joinpath(*name.split(".")[1:]))]
    for name, needed in (
        (f"{backbones}.vision", "ImageTransform"),
        (f"{backbones}.llm.prompting", "PromptBuilder"),
        ("transformers", "PreTrainedTokenizerBase"),
    ):
        sys.modules[name] = types.ModuleType(name)
        setattr(sys.modules[name], needed, object)


def octo(data: Path, size: int, *, module: str, has_images: bool = True) -> Work:
    """The chain of Octo's `finetune.py`, of images or of numbers only."""
    dataset = importlib.import_module(module).make_single_dataset(
        {
            "name": BRIDGE,
            "data_dir": str(data),
            "image_obs_keys": {"primary": "image_0"} if has_images else {},
            "proprio_obs_key": "state",
            "language_key": "language_instruction",
        },
        train=True,
        traj_transform_kwargs={"window_size": 2, "action_horizon": 4},
        frame_transform_kwargs={"resize_size": {"primary": IMAGE_SIZE}} if has_images else {},
    )
    size = BATCH_SIZE if has_images else 256
    return rounds(dataset.repeat().unbatch().shuffle(BUFFER).batch(size).iterator(), name="action")


def openpi(data: Path, size: int, *, module: str) -> Work:
    """The dataset of DROID, of openpi."""
    loader = importlib.import_module(module)
    datasets = [loader.RLDSDataset(DROID, "1.0.0", 1.0)]
    dataset = loader.DroidRldsDataset(str(data), BATCH_SIZE, datasets, shuffle_buffer_size=BUFFER)
    return rounds(iter(dataset), name="actions")


def lerobot(data: Path, size: int, *, module: str) -> Work:
    """LeRobot's dataset in a DataLoader: an image, and a chunk of actions."""
    import torch

    os.environ["HF_HUB_OFFLINE"] = "1"
    chunks = {"action": [step / 10 for step in range(16)]}
    dataset = importlib.import_module(module).LeRobotDataset(
        "me/set", root=data / "lerobot", delta_timestamps=chunks, video_backend="pyav"
    )
    torch.manual_seed(0)
    loader = torch.utils.data.DataLoader(dataset, BATCH_SIZE, shuffle=True, drop_last=True)
    epochs = itertools.chain.from_iterable(iter(loader) for _ in itertools.count())
    return rounds(epochs, name="action")
