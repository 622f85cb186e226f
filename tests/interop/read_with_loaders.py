"""Reads datasets with dlimp, Octo and OpenVLA, as they are published; run by `test_loaders.py`.

Usage: read_with_loaders.py DATA_DIR NAME... . Prints, for each dataset and each installed loader,
its episodes and its statistics, as a line of JSON.
"""

import base64
import importlib.util
import json
import os
import sys
import types

os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
import numpy as np
import tensorflow_datasets as tfds


def read_with_dlimp(name, data_dir):
    import dlimp

    builder = tfds.builder(name, data_dir=data_dir)
    dataset = dlimp.DLataset.from_rlds(builder, split="train", shuffle=False)
    return list(dataset.as_numpy_iterator()), None


def read_with_octo(name, data_dir):
    from octo.data.dataset import make_single_dataset

    return _read(make_single_dataset, {"proprio_obs_key": "state"}, name, data_dir)


def read_with_openvla(name, data_dir):
    # The packages of the loader import models and PyTorch; only these imports are skipped.
    for package in ("prismatic", "prismatic.vla", "prismatic.vla.datasets"):
        root = importlib.util.find_spec("prismatic").submodule_search_locations[0]
        empty = types.ModuleType(package)
        empty.__path__ = [os.path.join(root, *package.split(".")[1:])]
        sys.modules[package] = empty
        empty.__spec__ = importlib.util.spec_from_loader(package, None, is_package=True)
        empty.__spec__.submodule_search_locations = empty.__path__
    from prismatic.vla.datasets.rlds import make_single_dataset

    return _read(make_single_dataset, {"state_obs_keys": ["state"]}, name, data_dir)


def _read(make_single_dataset, options, name, data_dir):
    dataset = make_single_dataset(
        {
            "name": name,
            "data_dir": data_dir,
            "shuffle": False,
            "image_obs_keys": {"primary": "image"},
            "language_key": "language_instruction",
            **options,
        },
        train=True,
        frame_transform_kwargs={"resize_size": (8, 8)},
    )
    if isinstance(dataset, tuple):  # From OpenVLA.
        dataset, _, statistics = dataset
    else:
        statistics = dataset.dataset_statistics
    return list(dataset.as_numpy_iterator()), statistics


def to_plain(value):
    """Converts a value to JSON: arrays become lists with a dtype."""
    if isinstance(value, dict):
        return {key: to_plain(item) for key, item in value.items()}
    array = np.asarray(value)
    if array.dtype == object:
        values = [base64.b64encode(item).decode() for item in array.ravel()]
        return {"dtype": "bytes", "values": values}
    return {"dtype": array.dtype.name, "values": array.tolist()}


LOADERS = {"dlimp": read_with_dlimp, "octo": read_with_octo, "prismatic": read_with_openvla}


def main(data_dir, *names):
    installed = [loader for loader in LOADERS if importlib.util.find_spec(loader)]
    for name in names:
        for loader in installed:
            result = {"dataset": name, "loader": loader}
            try:
                episodes, statistics = LOADERS[loader](name, data_dir)
                result["episodes"] = [to_plain(episode) for episode in episodes]
                result["statistics"] = None if statistics is None else to_plain(statistics)
            except Exception as error:  # The loader cannot read the dataset.
                result["error"] = f"{type(error).__name__}: {error}"
            print(json.dumps(result), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
