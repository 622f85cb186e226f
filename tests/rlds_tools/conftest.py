"""A log and datasets that the commands are tried on, made once."""

import numpy as np
import pytest

import envlogger
import tfds_files
from envlogger.testing.catch_env import Catch


@pytest.fixture(scope="session")
def log(tmp_path_factory):
    """A log of three episodes of Catch, of ten steps each."""
    directory = tmp_path_factory.mktemp("logs") / "catch"
    with envlogger.EnvLogger(Catch(), data_directory=str(directory)) as env:
        for _ in range(3):
            timestep = env.reset()
            while not timestep.last():
                timestep = env.step(1)
    return str(directory)


def episode(length, *, seed=0, **fields):
    """An episode for `dataset`."""
    rng = np.random.default_rng(seed)
    flags = {name: np.zeros(length, bool) for name in ("is_first", "is_last", "is_terminal")}
    flags["is_first"][0] = flags["is_last"][-1] = flags["is_terminal"][-1] = True
    return {
        "episode_id": f"episode {seed}",
        "steps": {
            "observation": {
                "position": rng.normal(size=(length, 3)).astype(np.float32),
                "camera": rng.integers(0, 255, (length, 8, 8, 3), np.uint8),
            },
            "action": rng.integers(0, 4, length),
            "reward": rng.normal(size=length).astype(np.float32),
            "discount": np.ones(length, np.float32),
            **flags,
            **fields,
        },
    }


def write_dataset(directory, episodes, name="tiny"):
    """A dataset of TFDS with the fields of `episode`."""

    def tensor(dtype, *shape):
        return tfds_files.Tensor(dtype=np.dtype(dtype), shape=shape)

    camera = tfds_files.Image(shape=(8, 8, 3), dtype=np.dtype(np.uint8), encoding_format="png")
    observation = {"position": tensor(np.float32, 3), "camera": camera}
    step = {
        "observation": tfds_files.Features(features=observation),
        "action": tfds_files.Tensor(dtype=np.dtype(np.int64), doc="Which way to go. Or none."),
        **dict.fromkeys(("reward", "discount"), tensor(np.float32)),
        **dict.fromkeys(("is_first", "is_last", "is_terminal"), tensor(bool)),
    }
    features = tfds_files.Features(
        features={
            "steps": tfds_files.Dataset(feature=tfds_files.Features(features=step)),
            "episode_id": tensor(object),
        }
    )
    with tfds_files.DatasetWriter(directory, features, name) as writer:
        for content in episodes:
            writer.add(content)
    return str(directory)


@pytest.fixture(scope="session")
def dataset(tmp_path_factory):
    """A dataset of TFDS of three episodes."""
    directory = tmp_path_factory.mktemp("datasets") / "tiny" / "1.0.0"
    return write_dataset(directory, [episode(length, seed=length) for length in (5, 8, 30)])
