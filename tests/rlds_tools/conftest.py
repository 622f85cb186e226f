"""A log and datasets for the tests of all commands."""

import pytest
from tiny_datasets import episode, write_dataset

import envlogger
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


@pytest.fixture(scope="session")
def dataset(tmp_path_factory):
    """A dataset of TFDS of three episodes."""
    directory = tmp_path_factory.mktemp("datasets") / "tiny" / "1.0.0"
    return write_dataset(directory, [episode(length, seed=length) for length in (5, 8, 30)])
