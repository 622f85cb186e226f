"""Writes the items of LeRobot datasets, as `lerobot` reads them; see `test_compat.py`.

Usage: lerobot_items.py DATASET CASES OUT , where CASES is JSON: arguments of `LeRobotDataset`.
"""

import json
import os
import pickle
import sys

os.environ["HF_HUB_OFFLINE"] = "1"
from lerobot.datasets.lerobot_dataset import LeRobotDataset


def plain(value):
    return value if isinstance(value, str) else (str(value.dtype), value.numpy())


def main(path, cases, out):
    results = []
    for case in json.loads(cases):
        dataset = LeRobotDataset("me/set", root=path, video_backend="pyav", **case)
        items = [
            {key: plain(value) for key, value in dataset[index].items()}
            for index in range(len(dataset))
        ]
        meta = {
            "num_episodes": dataset.num_episodes,
            "num_frames": dataset.num_frames,
            "fps": dataset.fps,
            "absolute_to_relative_idx": dataset.absolute_to_relative_idx,
            "cameras": sorted(dataset.meta.camera_keys),
            "begins": list(dataset.meta.episodes["dataset_from_index"]),
            "tasks": [list(tasks) for tasks in dataset.meta.episodes["tasks"]],
            "shapes": {name: tuple(f["shape"]) for name, f in dataset.features.items()},
        }
        results.append((items, meta))
    with open(out, "wb") as file:
        pickle.dump(results, file)


if __name__ == "__main__":
    main(*sys.argv[1:])
