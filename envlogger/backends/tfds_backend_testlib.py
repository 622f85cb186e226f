"""Test fixtures of recorders: episodes of `Catch`, and their dataset."""

from __future__ import annotations

import os
import time
from typing import Any

import numpy as np
import tensorflow_datasets as tfds
from tensorflow_datasets.rlds.rlds_base import DatasetConfig

from envlogger.backends.backend_writer import BackendWriter
from envlogger.backends.tfds_backend_writer import TFDSBackendWriter
from envlogger.step_data import StepData
from envlogger.testing.catch_env import Catch

__all__ = ["catch_env_tfds_config", "generate_episode_data", "tfds_backend_catch_env"]


def generate_episode_data(backend: BackendWriter, num_episodes: int = 2) -> list[list[StepData]]:
    """Records episodes of `Catch`, played at random, and closes the backend.

    The custom data of a step has the time as `timestamp`, in whole seconds; the metadata of an
    episode has its index as `episode_id`.

    Returns:
      The steps of each episode.
    """
    env = Catch()
    rng = np.random.default_rng()
    episodes = []
    for episode_index in range(num_episodes):
        episode: list[StepData] = []
        timestep, action = env.reset(), None
        while True:
            step = StepData(timestep, action, {"timestamp": int(time.time())})
            backend.record_step(step, is_new_episode=not episode)
            episode.append(step)
            if timestep.last():
                break
            action = int(rng.integers(3))
            timestep = env.step(action)
        backend.set_episode_metadata({"episode_id": episode_index})
        episodes.append(episode)
    backend.close()
    return episodes


def catch_env_tfds_config(name: str = "catch_example") -> DatasetConfig:
    """Returns the features of the episodes of `generate_episode_data`."""
    return DatasetConfig(
        name=name,
        observation_info=tfds.features.Tensor(shape=(10, 5), dtype=np.float32, encoding="zlib"),
        action_info=np.int64,
        reward_info=np.float64,
        discount_info=np.float64,
        step_metadata_info={"timestamp": np.int64},
        episode_metadata_info={"episode_id": np.int64},
    )


def tfds_backend_catch_env(
    data_directory: str | os.PathLike[str],
    max_episodes_per_file: int = 1,
    split_name: str | None = None,
    ds_metadata: dict[Any, Any] | None = None,
    store_ds_metadata: bool = True,
) -> TFDSBackendWriter:
    """Returns a writer for episodes of `generate_episode_data`; see `TFDSBackendWriter`."""
    return TFDSBackendWriter(
        data_directory,
        catch_env_tfds_config(),
        max_episodes_per_file=max_episodes_per_file,
        split_name=split_name,
        metadata=ds_metadata,
        store_ds_metadata=store_ds_metadata,
        float64="bytes",
    )
