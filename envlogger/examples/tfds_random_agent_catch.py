"""Records episodes of Catch, played at random, as an RLDS dataset, and reads it with TFDS.

python -m envlogger.examples.tfds_random_agent_catch --trajectories_dir=<directory>
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence

import numpy as np
import tensorflow_datasets as tfds

import envlogger
from envlogger.backends.tfds_backend_writer import DatasetConfig, TFDSBackendWriter
from envlogger.callbacks import step_timestamp
from envlogger.testing.catch_env import Catch


def record(data_directory: str, num_episodes: int) -> None:
    """Records episodes of Catch, each step with the time."""
    rng = np.random.default_rng()
    config = DatasetConfig(
        name="catch_example",
        observation_info=tfds.features.Tensor(shape=(10, 5), dtype=np.float32),
        action_info=np.int64,
        reward_info=np.float64,
        discount_info=np.float64,
        step_metadata_info={"timestamp": np.float64},
    )
    with envlogger.EnvLogger(
        Catch(),
        backend=TFDSBackendWriter,
        data_directory=data_directory,
        ds_config=config,
        float64="bytes",  # Times in seconds would not survive as float32.
        max_episodes_per_file=500,
        step_fn=step_timestamp,
    ) as env:
        for _ in range(num_episodes):
            timestep = env.reset()
            while not timestep.last():
                timestep = env.step(int(rng.integers(3)))


def main(argv: Sequence[str] | None = None) -> None:
    """Records episodes, and prints the description of the dataset."""
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("--num_episodes", type=int, default=1000)
    parser.add_argument("--trajectories_dir", default="/tmp/catch_data/", help="created if missing")
    arguments = parser.parse_args(argv)
    directory = arguments.trajectories_dir
    record(directory, arguments.num_episodes)
    print(tfds.builder_from_directory(directory).info)


if __name__ == "__main__":
    main()
