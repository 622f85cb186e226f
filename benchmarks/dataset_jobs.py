"""Contenders that convert raw data to a dataset of TFDS, and write and read datasets.

Ours are `tfds_builders`, `rlds.tfds`, `tfds_files` and `rlds.sources`; their peers are TFDS and
Minari.
"""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
from recording_jobs import EPISODE_LENGTH
from worker import Work

MINARI_ID = "bench/walk-v0"
DEMONSTRATION_LENGTH = 150


# --- Raw data ------------------------------------------------------------------------------------


def write_d4rl(folder: Path, size: int) -> None:
    """Writes a file like those of D4RL."""
    from raw_d4rl import write_mujoco_like

    write_mujoco_like(folder / "halfcheetah_medium.hdf5", rows=size)


def write_robomimic(folder: Path, size: int) -> None:
    """Writes demonstrations like those of robomimic."""
    import raw_robomimic

    lengths = [DEMONSTRATION_LENGTH] * (size // DEMONSTRATION_LENGTH)
    raw_robomimic.lift(folder / "low_dim.hdf5", lengths)


def write_minari(folder: Path, size: int, *, length: int) -> None:
    """Writes a dataset with Minari: episodes of so many steps of 17 + 6 floats."""
    os.environ["MINARI_DATASETS_PATH"] = str(folder)
    from gymnasium import spaces
    from minari.data_collector.episode_buffer import EpisodeBuffer
    from raw_minari import write_buffers

    rng = np.random.default_rng(0)
    buffers = [
        EpisodeBuffer(
            id=index,
            observations=rng.standard_normal((length + 1, 17)),
            actions=rng.standard_normal((length, 6)).astype(np.float32),
            rewards=rng.standard_normal(length).tolist(),
            terminations=[False] * length,
            truncations=[False] * (length - 1) + [True],
            infos={"position": rng.standard_normal((length + 1, 2))},
        )
        for index in range(size // length)
    ]
    write_buffers(
        MINARI_ID,
        buffers,
        observation_space=spaces.Box(-np.inf, np.inf, (17,), np.float64),
        action_space=spaces.Box(-np.inf, np.inf, (6,), np.float32),
    )


# --- Conversions ---------------------------------------------------------------------------------


def convert(data: Path, size: int, *, file: str = "", format: str) -> Work:
    """Converts with `tfds_builders`, which reads what it has written back to check it."""
    import rlds.sources
    import tfds_builders

    def work(folder: Path) -> int:
        source = rlds.sources.open(data / file, format=format).source
        builder = tfds_builders.convert(source, name="made", data_dir=folder, progress=False)
        assert builder.info.splits["train"].num_examples
        return size

    return work


def _download_config() -> Any:
    import tensorflow_datasets as tfds

    tfds.disable_progress_bar()
    return tfds.download.DownloadConfig(try_download_gcs=False)


def convert_d4rl_by_tfds(data: Path, size: int) -> Work:
    """Converts with the builder of TFDS, which is told where the file is."""
    import tensorflow_datasets as tfds

    config, download = _download_config(), tfds.download.DownloadManager
    files = {"file_path": str(data / "halfcheetah_medium.hdf5")}

    def work(folder: Path) -> int:
        builder = tfds.builder("d4rl_mujoco_halfcheetah/v0-medium", data_dir=folder)
        with mock.patch.object(download, "download_and_extract", return_value=files):
            builder.download_and_prepare(download_config=config)
        return size

    return work


def convert_robomimic_by_tfds(data: Path, size: int) -> Work:
    """Converts with the builder of TFDS, likewise."""
    import raw_robomimic

    def work(folder: Path) -> int:
        raw_robomimic.by_tfds(data / "low_dim.hdf5", folder)
        return size

    return work


def convert_logs_by_tfds(data: Path, size: int) -> Work:
    """Converts with `rlds_base` of TFDS, which reads logs with the `envlogger` of this project."""
    import tensorflow_datasets as tfds
    from tensorflow_datasets.rlds import rlds_base

    config = _download_config()

    class Logs(tfds.core.GeneratorBasedBuilder, skip_registration=True):  # type: ignore[misc,call-arg]
        VERSION = tfds.core.Version("1.0.0")
        name = "logs"

        def _info(self) -> tfds.core.DatasetInfo:
            return rlds_base.build_info(_config("logs", rlds_base.DatasetConfig), self)

        def _split_generators(self, dl_manager: Any) -> dict[str, Any]:
            return {"train": rlds_base.generate_examples(data)}

        def _generate_examples(self) -> Iterator[Any]:
            raise NotImplementedError

    def work(folder: Path) -> int:
        Logs(data_dir=folder).download_and_prepare(download_config=config)
        return size

    return work


# --- Datasets of TFDS ----------------------------------------------------------------------------


def _config(name: str, config: Any) -> Any:
    import tensorflow_datasets as tfds

    return config(
        name=name,
        observation_info=tfds.features.Tensor(shape=(17,), dtype=np.float32),
        action_info=tfds.features.Tensor(shape=(6,), dtype=np.float32),
        reward_info=np.float32,
        discount_info=np.float32,
    )


def _episodes(size: int) -> list[dict[str, Any]]:
    rng, index = np.random.default_rng(0), np.arange(EPISODE_LENGTH)
    flags = {"is_first": index == 0} | dict.fromkeys(
        ("is_last", "is_terminal"), index == EPISODE_LENGTH - 1
    )
    return [
        {
            "steps": {
                "observation": rng.random((EPISODE_LENGTH, 17), np.float32),
                "action": rng.random((EPISODE_LENGTH, 6), np.float32),
                "reward": rng.random(EPISODE_LENGTH, np.float32),
                "discount": np.ones(EPISODE_LENGTH, np.float32),
                **flags,
            }
        }
        for _ in range(size // EPISODE_LENGTH)
    ]


def write_dataset(data: Path, size: int) -> Work:
    """Writes episodes with `EpisodeWriter`."""
    from rlds.tfds import DatasetConfig, EpisodeWriter

    config, episodes = _config("bench", DatasetConfig), _episodes(size)

    def work(folder: Path) -> int:
        with EpisodeWriter(str(folder), config) as writer:
            for episode in episodes:
                writer.add_episode(episode)
        return size

    return work


def write_dataset_by_tfds(data: Path, size: int) -> Work:
    """Writes episodes as the published `EpisodeWriter` does."""
    import tensorflow_datasets as tfds
    from tensorflow_datasets.rlds import rlds_base

    config, episodes = _config("bench", rlds_base.DatasetConfig), _episodes(size)

    def work(folder: Path) -> int:
        identity = tfds.core.dataset_info.DatasetIdentity(
            name="bench", version=tfds.core.Version("0.0.1"), data_dir=str(folder), module_name=""
        )
        writer = tfds.core.SequentialWriter(rlds_base.build_info(config, identity), 1000)
        writer.initialize_splits(["train"])
        for episode in episodes:
            writer.add_examples({"train": [episode]})
        writer.close_all()
        return size

    return work


def make_dataset(folder: Path, size: int) -> None:
    """Writes a dataset of TFDS, as data for those that read."""
    write_dataset(folder, size)(folder)


def read_dataset_as_tensors(data: Path, size: int) -> Work:
    """Reads whole episodes with `rlds.tfds.load`, and cuts them into batches."""
    from rlds.tfds import load

    batches = load(str(data)).map(lambda episode: episode["steps"]).rebatch(256)
    return lambda _: sum(len(batch["is_last"]) for batch in batches)


def read_dataset_as_arrays(data: Path, size: int) -> Work:
    """Reads whole episodes with `tfds_files`, without TensorFlow."""
    import tfds_files

    def work(_: Path) -> int:
        episodes = tfds_files.open_folder(data)["train"]
        return sum(len(episode["steps"]["is_last"]) for episode in episodes)

    return work


def read_dataset_by_tfds(data: Path, size: int) -> Work:
    """Reads nested steps with TFDS, in batches."""
    import tensorflow_datasets as tfds

    builder = tfds.builder_from_directory(str(data))
    config = tfds.ReadConfig(try_autocache=False)
    episodes = builder.as_dataset(split="train", read_config=config)
    batches = episodes.flat_map(lambda episode: episode["steps"]).batch(256)
    return lambda _: sum(len(batch["is_last"]) for batch in batches)


# --- Minari --------------------------------------------------------------------------------------


def read_minari(data: Path, size: int) -> Work:
    """Opens a dataset of Minari with `rlds.sources`, and reads its episodes."""
    import rlds.sources

    def work(_: Path) -> int:
        episodes = rlds.sources.open(data / MINARI_ID, format="minari")
        return sum(len(episode.steps["is_last"]) - 1 for episode in episodes)

    return work


def read_minari_columns(data: Path, size: int) -> Work:
    """Opens it, whichever format it is in, and reads the columns of any episode."""
    import rlds.sources

    def work(_: Path) -> int:
        episodes = rlds.sources.open(data / MINARI_ID)
        return sum(len(episodes.columns(i)["is_last"]) - 1 for i in range(len(episodes)))

    return work


def read_minari_by_minari(data: Path, size: int) -> Work:
    """Loads it with Minari, and reads its episodes."""
    os.environ["MINARI_DATASETS_PATH"] = str(data)
    import minari

    def work(_: Path) -> int:
        dataset = minari.load_dataset(MINARI_ID)
        return sum(len(episode.rewards) for episode in dataset.iterate_episodes())

    return work
