"""Trains with LeRobot's script and one changed import, and compares; see `test_compat.py`.

Usage: train_with_lerobot.py FOLDER , an empty one, in a Python that has `lerobot[dataset,training]`
and this project.
"""

import inspect
import os
import sys
from pathlib import Path

os.environ["HF_HUB_OFFLINE"] = "1"
import lerobot.datasets.factory as factory
import lerobot.datasets.lerobot_dataset as theirs
import lerobot.datasets.streaming_dataset as streaming
import numpy as np
import torch
from lerobot.scripts import lerobot_train

from rlds.feeds.compat import lerobot as ours

CAMERA, STATE = "observation.images.top", "observation.state"


def write(root, *, use_videos):
    """Records four episodes of two tasks as LeRobot does."""
    kind = "video" if use_videos else "image"
    names = ["height", "width", "channels"]
    features = {
        CAMERA: {"dtype": kind, "shape": (64, 96, 3), "names": names},
        STATE: {"dtype": "float32", "shape": (3,), "names": ["x", "y", "z"]},
        "action": {"dtype": "float32", "shape": (2,), "names": ["x", "y"]},
        "next.done": {"dtype": "bool", "shape": (1,), "names": None},
    }
    dataset = theirs.LeRobotDataset.create(
        "me/set", 10, features, root=root, use_videos=use_videos, robot_type="so100"
    )
    rng = np.random.default_rng(0)
    for episode, length in enumerate((7, 5, 6, 4)):
        for step in range(length):
            row = {CAMERA: np.full((64, 96, 3), 20 + 30 * episode + 5 * step, np.uint8)}
            row |= {STATE: rng.normal(size=3).astype(np.float32)}
            row |= {"action": rng.normal(size=2).astype(np.float32)}
            done = np.array([step == length - 1])
            dataset.add_frame({**row, "next.done": done, "task": ("push", "pull")[episode % 2]})
        dataset.save_episode()
    dataset.finalize()
    return root


def check_signature(theirs, ours):
    """Checks that ours has all arguments of theirs, in their order and with their defaults."""
    signatures = map(inspect.signature, (theirs, ours))
    expected, actual = ([*signature.parameters.values()] for signature in signatures)
    parameters = {parameter.name: parameter for parameter in actual}
    for each in expected:
        assert parameters[each.name].kind == each.kind, each
        assert parameters[each.name].default == each.default, each
    positional = inspect.Parameter.POSITIONAL_OR_KEYWORD
    orders = [[p.name for p in each if p.kind == positional] for each in (expected, actual)]
    assert orders[0] == orders[1], orders


def check_surface(theirs, ours, *, missing):
    """Checks that ours has the public names of theirs, except for writing and downloading."""
    public = {name for name in dir(theirs) if not name.startswith("_")}
    assert {name for name in public if not hasattr(ours, name)} == missing


def check_items(expected_dataset, dataset):
    assert len(expected_dataset) == len(dataset)
    for index in range(len(expected_dataset)):
        expected, actual = expected_dataset[index], dataset[index]
        assert expected.keys() == actual.keys()
        for key, value in expected.items():
            if isinstance(value, str):
                assert actual[key] == value, key
                continue
            assert (actual[key].dtype, actual[key].shape) == (value.dtype, value.shape), key
            tolerance = 0.02 if key == CAMERA else 1e-6
            torch.testing.assert_close(actual[key], value, atol=tolerance, rtol=1e-6)


def compare(root, video_backend="pyav"):
    """Compares metadata, statistics and items."""
    for case in (
        {},
        {"episodes": [3, 1]},
        {"episode_filter": lambda row: row["length"] > 4, "episodes": [3, 2, 0]},
        {"delta_timestamps": {"action": [-0.1, 0, 0.1], CAMERA: [0, 0.1]}, "episodes": [2]},
    ):
        a = theirs.LeRobotDataset("me/set", root=root, video_backend=video_backend, **case)
        b = ours.LeRobotDataset("me/set", root=root, video_backend=video_backend, **case)
        assert (a.num_episodes, a.num_frames, a.fps) == (b.num_episodes, b.num_frames, b.fps)
        assert a.absolute_to_relative_idx == b.absolute_to_relative_idx
        check_items(a, b)
        for name in (STATE, "action", "index", "task_index", "timestamp", "next.done"):
            rows = [np.stack([np.asarray(v) for v in each.hf_dataset[name]]) for each in (a, b)]
            np.testing.assert_array_equal(*rows, err_msg=name)
        assert torch.equal(a.get_raw_item(3)["action"], b.get_raw_item(3)["action"])
        assert torch.equal(*(each.select_columns("action")[-1:]["action"][0] for each in (a, b)))
    meta, mine = a.meta, b.meta
    assert meta.stats.keys() == mine.stats.keys()
    for name, values in meta.stats.items():
        assert values.keys() == mine.stats[name].keys(), name
        for key, value in values.items():
            np.testing.assert_array_equal(mine.stats[name][key], value)
    assert meta.tasks.equals(mine.tasks)
    assert [meta.get_task_index(task) for task in ("pull", "none")] == [1, None]
    assert [mine.get_task_index(task) for task in ("pull", "none")] == [1, None]
    for name in ("names", "shapes", "camera_keys", "video_keys", "image_keys", "total_tasks"):
        assert getattr(meta, name) == getattr(mine, name), name
    for name in ("fps", "robot_type", "total_frames", "chunks_size", "data_path", "splits"):
        assert getattr(meta.info, name) == getattr(mine.info, name), name
    for index, row in enumerate(meta.episodes):
        assert dict(row) == {name: mine.episodes[index][name] for name in row}
    assert list(meta.episodes.to_pandas()["length"]) == list(mine.episodes.to_pandas()["length"])
    assert {*meta.episodes.column_names} == {*mine.episodes.column_names}
    assert meta.get_data_file_path(1) == mine.get_data_file_path(1)
    for key in meta.video_keys:
        assert meta.get_video_file_path(1, key) == mine.get_video_file_path(1, key)
    for function in (theirs.LeRobotDataset, ours.LeRobotDataset):
        try:
            function("me/set", root=root, episode_filter=lambda row: False)
        except ValueError:
            continue
        raise AssertionError("an episode_filter without episodes raises no ValueError")


def check_stream(root):
    stream = ours.StreamingLeRobotDataset("me/set", root=root, seed=3)
    loader = torch.utils.data.DataLoader(stream, batch_size=None, num_workers=2)
    passes = [[int(item["index"]) for item in each] for each in (stream, stream, loader)]
    assert all(sorted(each) == list(range(stream.num_frames)) for each in passes)
    assert passes[0] != passes[1]


def train(root, out, *options):
    """Runs `lerobot-train` for three steps."""
    small = {"dim_model": 16, "n_heads": 2, "dim_feedforward": 16, "n_encoder_layers": 1}
    small |= {"n_vae_encoder_layers": 1, "latent_dim": 4, "chunk_size": 3, "n_action_steps": 2}
    sys.argv = [
        *("lerobot-train", "--dataset.repo_id=me/set", f"--dataset.root={root}"),
        *("--policy.type=act", "--policy.device=cpu", "--policy.push_to_hub=false"),
        *("--policy.pretrained_backbone_weights=null", "--steps=3", "--batch_size=2"),
        *("--num_workers=0", "--wandb.enable=false", "--log_freq=1", f"--output_dir={out}"),
        *(f"--policy.{name}={value}" for name, value in small.items()),
        *options,
    ]
    lerobot_train.main()
    assert (out / "checkpoints" / "000003" / "pretrained_model" / "config.json").exists()


def main(folder):
    for name in ("LeRobotDataset", "LeRobotDatasetMetadata"):
        check_signature(getattr(theirs, name), getattr(ours, name))
    check_signature(streaming.StreamingLeRobotDataset, ours.StreamingLeRobotDataset)
    for kind in ("images", "videos"):
        root = write(folder / kind, use_videos=kind == "videos")
        compare(root)
        a, b = (each.LeRobotDataset("me/set", root=root) for each in (theirs, ours))
        writing = {"add_frame", "save_episode", "clear_episode_buffer", "has_pending_frames"}
        writing |= {"create", "resume", "finalize", "push_to_hub", "writer"}
        check_surface(a, b, missing=writing | {"reader"})
        writing = {"create", "finalize", "save_episode", "save_episode_tasks", "latest_episode"}
        writing |= {"ensure_readable", "rescale_depth_stats", "url_root", "tools"}
        writing |= {f"{kind}_chunk_settings" for kind in ("get", "update")}
        check_surface(a.meta, b.meta, missing=writing | {"update_video_info"})
    # The changed import.
    for name in ("LeRobotDataset", "LeRobotDatasetMetadata", "StreamingLeRobotDataset"):
        setattr(factory, name, getattr(ours, name))
    for kind in ("images", "videos"):
        check_stream(folder / kind)
        train(folder / kind, folder / f"{kind} trained")
    eval_options = ("--dataset.eval_split=0.3", "--eval_steps=1", "--max_eval_samples=2")
    train(folder / "videos", folder / "evaluated", *eval_options)
    train(folder / "images", folder / "streamed", "--dataset.streaming=true")
    print("trained:", "images, videos, evaluated, streamed")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
