"""How fast episodes are written as a TFDS dataset, and read: beside TFDS's own writer and reader.

    python benchmarks/bench_episode_writer.py [--episodes N] [--images] [--json]

Rows of the table, in thousand steps per second, are medians of the rounds; all of a round is
measured one after the other, so that a busy machine slows them alike. The bytes that are written
are the same in both cases, which is checked.
"""

import argparse
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import rounds
import tensorflow as tf
import tensorflow_datasets as tfds
from rich.console import Console
from rich.table import Table
from tensorflow_datasets.rlds.rlds_base import build_info

import tfds_files
from envlogger.converters.tfds_examples import ExampleEncoder
from rlds.tfds import DatasetConfig, EpisodeWriter, load


def make_config(*, images: bool) -> DatasetConfig:
    """17 floats a step, or 64 x 64 images in colour, with an action and the flags."""
    observation: Any = tfds.features.Tensor(shape=(17,), dtype=np.float32)
    if images:
        observation = tfds.features.Image(shape=(64, 64, 3), encoding_format="png")
    return DatasetConfig(
        name="benchmark",
        observation_info=observation,
        action_info=tfds.features.Tensor(shape=(6,), dtype=np.float32),
        reward_info=np.float32,
        discount_info=np.float32,
    )


def make_episode(seed: int, num_steps: int, *, images: bool) -> dict[str, Any]:
    """An episode as columns."""
    rng = np.random.default_rng(seed)
    index = np.arange(num_steps)
    observation: Any = rng.random((num_steps, 17), np.float32)
    if images:
        observation = np.repeat(rng.integers(0, 255, (num_steps, 8, 8, 3), np.uint8), 8, axis=1)
        observation = np.repeat(observation, 8, axis=2)
    steps = {
        "observation": observation,
        "action": rng.random((num_steps, 6), np.float32),
        "reward": rng.random(num_steps, np.float32),
        "discount": np.ones(num_steps, np.float32),
        "is_first": index == 0,
        "is_last": index == num_steps - 1,
        "is_terminal": index == num_steps - 1,
    }
    return {"steps": steps}


def sorted_examples(shard: Path) -> list[bytes]:
    """The examples of a file with their fields in order; TFDS leaves that to chance."""
    records = tf.data.TFRecordDataset(str(shard)).as_numpy_iterator()
    examples = [tf.train.Example.FromString(record) for record in records]
    return [example.SerializeToString(deterministic=True) for example in examples]


def write_by_tfds(directory: str, config: DatasetConfig, episodes: list[Any]) -> None:
    """Writes as the published EpisodeWriter does."""
    identity = tfds.core.dataset_info.DatasetIdentity(
        name=config.name, version=tfds.core.Version("0.0.1"), data_dir=directory, module_name=""
    )
    writer = tfds.core.SequentialWriter(build_info(config, identity), 1000)
    writer.initialize_splits(["train"])
    for episode in episodes:
        writer.add_examples({"train": [episode]})
    writer.close_all()


def write(directory: str, config: DatasetConfig, episodes: list[Any]) -> None:
    """Writes with `EpisodeWriter`."""
    with EpisodeWriter(directory, config) as writer:
        for episode in episodes:
            writer.add_episode(episode)


def as_rows(episode: dict[str, Any]) -> dict[str, Any]:
    """The same episode as a list of steps."""
    columns = episode["steps"]
    num_steps = len(columns["is_first"])
    rows = [{name: column[i] for name, column in columns.items()} for i in range(num_steps)]
    return {"steps": rows}


def read_nested(dataset: tf.data.Dataset) -> None:
    """Reads all steps of nested episodes, in batches."""
    for _ in dataset.flat_map(lambda episode: episode["steps"]).batch(256):
        pass


def read_batched(dataset: tf.data.Dataset) -> None:
    """Reads all steps of batched episodes, in batches."""
    for _ in dataset.map(lambda episode: episode["steps"]).rebatch(256):
        pass


def measure(
    num_episodes: int, num_steps: int, num_rounds: int, *, images: bool
) -> dict[str, list[rounds.Times]]:
    """The times of each task."""
    config = make_config(images=images)
    episodes = [make_episode(seed, num_steps, images=images) for seed in range(num_episodes)]
    rows = [as_rows(episode) for episode in episodes]
    with tempfile.TemporaryDirectory() as parent:
        by_tfds, by_us, stored = f"{parent}/tfds", f"{parent}/rlds", f"{parent}/stored"
        write(stored, config, episodes)
        Path(by_tfds).mkdir()
        write_by_tfds(by_tfds, config, episodes)
        shards = [Path(path, "benchmark-train.tfrecord-00000") for path in (by_tfds, stored)]
        if sorted_examples(shards[0]) != sorted_examples(shards[1]):
            raise AssertionError("the files differ")
        builder = tfds.builder_from_directory(stored)
        features = builder.info.features
        encoder = ExampleEncoder(features)
        nested = builder.as_dataset(split="train", read_config=tfds.ReadConfig(try_autocache=False))
        batched = load(stored)
        read_nested(nested.take(1))  # What is only done the first time is not measured.
        read_batched(batched.take(1))
        tasks = {
            "encode, TFDS": lambda: [features.serialize_example(e) for e in episodes],
            "encode, columns": lambda: [encoder.encode(e) for e in episodes],
            "write, SequentialWriter of TFDS": lambda: write_by_tfds(by_tfds, config, episodes),
            "write, EpisodeWriter, lists of steps": lambda: write(by_us, config, rows),
            "write, EpisodeWriter, columns": lambda: write(by_us, config, episodes),
            "read, TFDS, nested steps": lambda: read_nested(nested),
            "read, rlds.tfds.load, batched": lambda: read_batched(batched),
            "read, tfds_files, columns": lambda: list(tfds_files.open_folder(stored)["train"]),
        }
        return rounds.take_turns(tasks, num_rounds, warm_up=False)


def main() -> None:
    """Measures and prints."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--episodes", type=int, default=50)
    parser.add_argument("--steps", type=int, default=1000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--images", action="store_true", help="64 x 64 images, not 17 floats")
    parser.add_argument("--json", action="store_true", help="print lines of JSON")
    arguments = parser.parse_args()
    times = measure(arguments.episodes, arguments.steps, arguments.rounds, images=arguments.images)
    if arguments.json:
        rounds.report("TFDS dataset", times)
        return
    total = arguments.episodes * arguments.steps / 1000
    speeds = {name: total / wall for name, (_, wall) in rounds.medians(times).items()}
    what = "64 x 64 x 3 images" if arguments.images else "17 floats"
    table = Table(title=f"{arguments.episodes} episodes of {arguments.steps} steps of {what}")
    table.add_column("task")
    table.add_column("thousand steps/s", justify="right")
    table.add_column("of TFDS", justify="right")
    base = 1.0
    for name, speed in speeds.items():
        base = speed if "TFDS" in name else base
        table.add_row(name, f"{speed:,.1f}", f"{speed / base:.1f} x")
    Console(width=100).print(table)


if __name__ == "__main__":
    main()
