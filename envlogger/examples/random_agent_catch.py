"""Records episodes of Catch, played at random, and reads them back.

python -m envlogger.examples.random_agent_catch --trajectories_dir=<directory>
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence

import numpy as np

import envlogger
from envlogger.callbacks import EpisodeStatistics, step_timestamp
from envlogger.testing.catch_env import Catch


def record(data_directory: str, num_episodes: int) -> None:
    """Records episodes of Catch, each step with the time, each episode with its return."""
    rng = np.random.default_rng()
    with envlogger.EnvLogger(
        Catch(),
        data_directory=data_directory,
        max_episodes_per_file=1000,
        metadata={"agent_type": "random", "num_episodes": num_episodes},
        step_fn=step_timestamp,
        episode_fn=EpisodeStatistics(),
    ) as env:
        for _ in range(num_episodes):
            timestep = env.reset()
            while not timestep.last():
                timestep = env.step(int(rng.integers(3)))


def main(argv: Sequence[str] | None = None) -> None:
    """Records episodes, and prints the share of caught balls."""
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("--num_episodes", type=int, default=1000)
    parser.add_argument("--trajectories_dir", default="/tmp/catch_data/", help="created if missing")
    arguments = parser.parse_args(argv)
    directory = arguments.trajectories_dir
    record(directory, arguments.num_episodes)
    with envlogger.Reader(directory) as reader:
        returns = [metadata["return"] for metadata in reader.episode_metadata()]
    print(f"{len(returns)} episodes in {directory}, {np.mean(np.array(returns) > 0):.0%} caught")


if __name__ == "__main__":
    main()
