"""Minari datasets: recorded and written by Minari itself, and by hand in its older layouts.

Every function writes below the directory that `MINARI_DATASETS_PATH` names.
"""

import gc
import json
import os
import warnings
from pathlib import Path
from typing import Any

import gymnasium
import h5py
import minari
import numpy as np
from gymnasium import spaces
from minari.data_collector.episode_buffer import EpisodeBuffer

OBSERVATION_SPACE = spaces.Dict(
    {
        "box": spaces.Box(-1, 1, (2, 3), np.float32),
        "camera": spaces.Box(0, 255, (33, 40, 3), np.uint8),
        "flags": spaces.Box(0, 1, (2,), bool),
        "grey": spaces.Box(0, 255, (32, 34), np.uint8),
        "icon": spaces.Box(0, 255, (4, 5, 3), np.uint8),
        "multi": spaces.MultiDiscrete([2, 3]),
        "parts": spaces.Tuple((spaces.Discrete(3, start=1), spaces.MultiBinary(2), spaces.Text(5))),
        "scalar": spaces.Box(-1, 1, (), np.float64),
    }
)
ACTION_SPACE = spaces.Tuple((spaces.Box(-1, 1, (1,), np.float64), spaces.Text(4)))


def buffer(index: int, steps: int, rewards: list[Any], **kwargs: Any) -> EpisodeBuffer:
    """Returns an episode of the spaces above, without flags by default."""
    rng = np.random.default_rng(index)
    rows = steps + 1
    observations = {
        "box": rng.uniform(-1, 1, (rows, 2, 3)).astype(np.float32),
        "camera": list(rng.integers(0, 256, (rows, 33, 40, 3)).astype(np.uint8)),
        "flags": rng.integers(0, 2, (rows, 2)).astype(bool),
        # Encoded files of equal length.
        "grey": [np.full((32, 34), index, np.uint8)] * rows,
        "icon": rng.integers(0, 256, (rows, 4, 5, 3)).astype(np.uint8),
        "multi": rng.integers(0, 2, (rows, 2)),
        "parts": (
            list(rng.integers(1, 4, rows)),
            list(rng.integers(0, 2, (rows, 2)).astype(np.int8)),
            ["ab", "äöü", "c"] * (rows // 3) + ["d"] * (rows % 3),
        ),
        "scalar": rng.uniform(-1, 1, rows),
    }
    infos = {
        "position": rng.normal(size=(rows, 2)),
        "state": {
            "name": ["x"] * rows,
            "count": list(range(rows)),
            "half": np.zeros((rows, 1), "f2"),
        },
        "pair": ([0.5] * rows, [True] * rows),
    }
    fields: dict[str, Any] = {
        "observations": observations,
        "actions": (rng.uniform(-1, 1, (steps, 1)), ["go"] * steps),
        "rewards": rewards,
        "terminations": [False] * steps,
        "truncations": [False] * steps,
        "infos": infos,
    }
    return EpisodeBuffer(**{**fields, **kwargs})


def buffers() -> list[EpisodeBuffer]:
    """Returns episodes with all possible differences."""
    return [
        buffer(0, 3, [0, 1.5, 1], seed=7, terminations=[False, False, True]),
        # Rewards that are integers, a seed beyond int64, options.
        buffer(
            1,
            4,
            [0] * 4,
            seed=2**63 + 9,
            options={"start": {"x": 1, "name": "a"}, "goal": np.array([1, 2], np.float32)},
            truncations=[False, False, False, True],
        ),
        # Both flags at the end, and one before.
        buffer(2, 2, [np.nan, 1.0], terminations=[True, True], truncations=[False, True]),
        # No flag: the recording was cut.
        buffer(3, 1, [-0.0], options={"level": 2}),
    ]


def write_buffers(
    dataset_id: str,
    episodes: list[EpisodeBuffer] | None = None,
    *,
    data_format: str = "hdf5",
    observation_space: spaces.Space | None = None,
    action_space: spaces.Space | None = None,
    **kwargs: Any,
) -> Path:
    """Writes episodes with Minari; needs no JAX. Returns the directory of the dataset."""
    episodes = buffers() if episodes is None else episodes
    statistics = minari.EpisodeMetadataCallback()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # About missing metadata.
        dataset = minari.create_dataset_from_buffers(
            dataset_id,
            episodes,
            observation_space=observation_space or OBSERVATION_SPACE,
            action_space=action_space or ACTION_SPACE,
            data_format=data_format,
            author="Somebody",
            requirements=["gymnasium>=1"],
            **kwargs,
        )
        dataset.storage.update_episode_metadata(
            [statistics({"rewards": np.asarray(episode.rewards)}) for episode in episodes]
        )
    return directory_of(dataset_id)


class _InfosWrapper(gymnasium.Wrapper):
    """Adds infos: the index of the step, and a function of the observation."""

    def reset(self, **kwargs: Any) -> Any:
        self._steps = 0
        observation, _ = self.env.reset(**kwargs)
        return observation, self._info(observation)

    def step(self, action: Any) -> Any:
        self._steps += 1
        observation, reward, terminated, truncated, _ = self.env.step(action)
        return observation, reward, terminated, truncated, self._info(observation)

    def _info(self, observation: Any) -> dict[str, Any]:
        return {"step": self._steps, "state": {"doubled": 2 * observation}}


def record_cart_pole(dataset_id: str, *, data_format: str = "hdf5", episodes: int = 4) -> Path:
    """Records CartPole with Minari's DataCollector; needs JAX."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        env = _InfosWrapper(gymnasium.make("CartPole-v1", max_episode_steps=12))
        collector = minari.DataCollector(env, record_infos=True, data_format=data_format)
        collector.action_space.seed(0)
        for episode in range(episodes):
            collector.reset(
                seed=episode or None, options={"low": -0.01, "high": 0.01} if episode % 2 else None
            )
            done = False
            while not done:
                # Random actions, or pushes in one direction until the pole falls.
                action = collector.action_space.sample() if episode < 2 else 0
                _, _, terminated, truncated, _ = collector.step(action)
                done = terminated or truncated
        collector.create_dataset(dataset_id, algorithm_name="random", author="Somebody")
        collector.close()
        # The removal of its temporary directories warns.
        del collector, env
        gc.collect()
    return directory_of(dataset_id)


def write_raw_images(dataset_id: str, *, lengths: tuple[int, ...] = (3, 2)) -> Path:
    """Writes a dataset as Minari did up to 0.5.2: raw images, the seed "None", no infos."""
    directory = directory_of(dataset_id)
    (directory / "data").mkdir(parents=True)
    space = spaces.Box(0, 255, (32, 36, 3), np.uint8)
    rng = np.random.default_rng(0)
    with h5py.File(directory / "data" / "main_data.hdf5", "w") as file:
        for index, steps in enumerate(lengths):
            group = file.create_group(f"episode_{index}")
            group.attrs.update({"id": index, "total_steps": steps, "seed": "None"})
            images = rng.integers(0, 256, (steps + 1, 32, 36, 3)).astype(np.uint8)
            group["observations"] = images
            group["actions"] = rng.integers(0, 4, steps)
            group["rewards"] = rng.normal(size=steps)
            group["terminations"] = np.arange(steps) == steps - 1
            group["truncations"] = np.zeros(steps, bool)
            group.create_group("infos")
    write_metadata(
        directory,
        dataset_id=dataset_id,
        total_episodes=len(lengths),
        total_steps=sum(lengths),
        data_format="hdf5",
        observation_space=minari.serialization.serialize_space(space),
        action_space=minari.serialization.serialize_space(spaces.Discrete(4)),
        minari_version="0.5.2",
    )
    return directory


def directory_of(dataset_id: str) -> Path:
    """Returns the directory of a dataset."""
    return Path(os.environ["MINARI_DATASETS_PATH"]) / dataset_id


def read_metadata(directory: Path) -> dict[str, Any]:
    """Returns the metadata.json of a dataset."""
    return json.loads((directory / "data" / "metadata.json").read_text())


def write_metadata(directory: Path, **metadata: Any) -> None:
    """Writes the metadata.json of a dataset."""
    (directory / "data" / "metadata.json").write_text(json.dumps(metadata))
