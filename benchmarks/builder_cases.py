"""Raw data and jobs for the cases of `bench_builders` beside D4RL and logs.

A job takes the path of the raw data and a directory to write to, and returns how much it has done.
"""

import gzip
import itertools
import os
import pickle
import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any
from unittest import mock

import dm_env
import numpy as np
from dm_env import specs

SUPPORT = Path(__file__).parent.parent / "tests" / "support"
MINARI_ID = "bench/walk-v0"
RWRL_FOLDER = "combined_challenge_none/cartpole/swingup/1_percent"  # Where TFDS looks for files.
RWRL_LENGTH = 1001  # The only one that TFDS reads.
RWRL_FILES = 3
ATARI_LENGTH = 1000

if str(SUPPORT) not in sys.path:
    sys.path.append(str(SUPPORT))


# --- Logs, read without a conversion -------------------------------------------------------------


class Walk(dm_env.Environment):
    """Episodes of given lengths, in steps; observations are random floats or coarse images."""

    def __init__(self, shape: tuple[int, ...], lengths: Iterable[int]) -> None:
        self._rng = np.random.default_rng(0)
        self._shape, self._lengths = shape, iter(lengths)
        self._is_image = len(shape) == 3
        self._left = 0

    def _observe(self) -> np.ndarray:
        if not self._is_image:
            return self._rng.standard_normal(self._shape, np.float32)
        height, width, channels = self._shape
        return coarse(self._rng.integers(0, 256, (height // 4, width // 4, channels), np.uint8), 4)

    def reset(self) -> dm_env.TimeStep:
        """Begins the next episode."""
        self._left = next(self._lengths) - 1
        return dm_env.restart(self._observe())

    def step(self, action: Any) -> dm_env.TimeStep:
        """Goes on with it."""
        self._left -= 1
        make = dm_env.transition if self._left else dm_env.truncation
        timestep = make(np.float32(self._left), self._observe())
        return timestep._replace(discount=np.float32(1.0))

    def observation_spec(self) -> Any:
        """See `dm_env.Environment`."""
        return specs.Array(self._shape, np.uint8 if self._is_image else np.float32)

    def action_spec(self) -> Any:
        """See `dm_env.Environment`."""
        return specs.Array((6,), np.float32)

    def reward_spec(self) -> Any:
        """See `dm_env.Environment`."""
        return specs.Array((), np.float32)

    def discount_spec(self) -> Any:
        """See `dm_env.Environment`."""
        return specs.Array((), np.float32)


def coarse(image: np.ndarray, factor: int) -> np.ndarray:
    """An image with larger pixels, which compresses like one of a game rather than like noise."""
    return image.repeat(factor, -3).repeat(factor, -2)


def record(directory: str, shape: tuple[int, ...], lengths: list[int]) -> None:
    """Records logs."""
    import envlogger

    rng = np.random.default_rng(1)
    with envlogger.EnvLogger(Walk(shape, lengths), data_directory=directory) as env:
        for _ in lengths:
            timestep = env.reset()
            while not timestep.last():
                timestep = env.step(rng.standard_normal(6, np.float32))


def lengths_of_logs(steps: int) -> list[int]:
    """Lengths of episodes from 100 to 1000 steps."""
    rng = np.random.default_rng(2)
    lengths = [int(rng.integers(100, 1001))]
    while sum(lengths) < steps:
        lengths.append(int(rng.integers(100, 1001)))
    return lengths


def readers_of_logs(logs: str, data_dir: str) -> dict[str, Callable[[], int]]:
    """Converts logs; returns ways of reading them and the dataset, which count the steps."""
    import tensorflow as tf

    import envlogger
    import rlds
    from rlds.tfds import load
    from tfds_builders import build_from_logs, episodes_from_logs

    def loop() -> int:
        with envlogger.Reader(logs) as reader:
            return sum(1 for episode in reader.episodes for _ in episode)

    def columns() -> int:
        with envlogger.Reader(logs) as reader:
            episodes = range(len(reader.episodes))
            return sum(len(reader.columns(i, rlds=True)[rlds.IS_LAST]) for i in episodes)

    def by_episode(dataset: tf.data.Dataset) -> Callable[[], int]:
        return lambda: sum(int(one[rlds.STEPS][rlds.IS_LAST].shape[0]) for one in dataset)

    def by_batch(dataset: tf.data.Dataset) -> Callable[[], int]:
        batches = dataset.flat_map(lambda episode: episode[rlds.STEPS]).batch(256)
        return lambda: sum(int(batch[rlds.IS_LAST].shape[0]) for batch in batches)

    converted = build_from_logs(logs, name="logs", data_dir=data_dir)
    streamed = {layout: episodes_from_logs(logs, layout=layout) for layout in ("batched", "nested")}
    shuffled = episodes_from_logs(logs, layout="batched", shuffle=True, seed=0)
    return {
        "episodes_from_logs, batched": by_episode(streamed["batched"]),
        "episodes_from_logs, batched, shuffled": by_episode(shuffled),
        "episodes_from_logs, nested, in batches of 256": by_batch(streamed["nested"]),
        "envlogger.Reader, step by step": loop,
        "envlogger.Reader, columns": columns,
        "converted, rlds.tfds.load batched": by_episode(load(converted)),
    }


# --- Minari --------------------------------------------------------------------------------------


def write_minari(directory: str, steps: int, length: int = 500) -> None:
    """Writes an HDF5 dataset with Minari: episodes of some steps of 17 + 6 floats."""
    os.environ["MINARI_DATASETS_PATH"] = directory
    from gymnasium import spaces
    from minari.data_collector.episode_buffer import EpisodeBuffer
    from raw_minari import write_buffers

    rng = np.random.default_rng(0)
    ends = [False] * (length - 1) + [True]
    buffers = [
        EpisodeBuffer(
            id=number,
            observations=rng.standard_normal((length + 1, 17)),
            actions=rng.standard_normal((length, 6)).astype(np.float32),
            rewards=rng.standard_normal(length).tolist(),
            terminations=[False] * length,
            truncations=ends,
            infos={"position": rng.standard_normal((length + 1, 2))},
        )
        for number in range(steps // length)
    ]
    write_buffers(
        MINARI_ID,
        buffers,
        observation_space=spaces.Box(-np.inf, np.inf, (17,), np.float64),
        action_space=spaces.Box(-np.inf, np.inf, (6,), np.float32),
    )


def minari_by_us(raw: str, data_dir: str) -> int:
    """Converts a Minari dataset with `tfds_builders`."""
    from tfds_builders import MinariSource, convert

    source = MinariSource(Path(raw, MINARI_ID))
    builder = convert(source, name="walk", data_dir=data_dir, progress=False)
    return int(builder.info.splits["train"].num_examples)


def minari_read_by_us(raw: str, data_dir: str) -> int:
    """Reads the episodes of a Minari dataset as they are converted."""
    del data_dir
    from tfds_builders import MinariSource

    return _num_steps(MinariSource(Path(raw, MINARI_ID)))


def minari_by_minari(raw: str, data_dir: str) -> int:
    """Reads a Minari dataset with Minari."""
    del data_dir
    os.environ["MINARI_DATASETS_PATH"] = raw
    import minari

    dataset = minari.load_dataset(MINARI_ID)
    return sum(len(episode.rewards) for episode in dataset.iterate_episodes())


def readers_of_minari(raw: str) -> dict[str, Callable[[], int]]:
    """Returns ways of reading a Minari dataset, which count the steps."""
    from tfds_builders import MinariSource

    source = MinariSource(Path(raw, MINARI_ID))
    _num_steps(source)  # Small values are kept until they are read once.
    return {
        "Minari": lambda: minari_by_minari(raw, ""),
        "MinariSource, made and read": lambda: minari_read_by_us(raw, ""),
        "MinariSource, read again": lambda: _num_steps(source),
        "MinariSource, a pickled copy, read": lambda: _num_steps(
            pickle.loads(pickle.dumps(source))
        ),
    }


def _num_steps(source: Any) -> int:
    parts = [source.episodes("train", part) for part in source.parts("train")]
    return sum(episode.num_steps for episode in itertools.chain.from_iterable(parts))


# --- One door for all of them --------------------------------------------------------------------


def readers_of_columns(steps: int, directory: str) -> dict[str, dict[str, Callable[[], int]]]:
    """Returns ways of reading the columns of all episodes, which count the steps, by format."""
    import envlogger
    import tfds_files
    from tfds_builders import build_from_logs

    logs, minari_root = (os.path.join(directory, name) for name in ("logs", "minari"))
    record(logs, (17,), lengths_of_logs(steps))
    folder = build_from_logs(logs, name="logs", data_dir=directory).data_path
    os.mkdir(minari_root)
    write_minari(minari_root, steps)

    def by_reader() -> int:
        with envlogger.Reader(logs) as reader:
            indices = range(len(reader.episodes))
            return sum(len(reader.columns(index, rlds=True)["is_last"]) for index in indices)

    def by_tfds_files() -> int:
        train = tfds_files.open_folder(folder)["train"]
        return sum(len(train.example(index)["steps"]["is_last"]) for index in range(len(train)))

    direct = {
        "log": (logs, "envlogger.Reader.columns", by_reader),
        "TFDS folder": (folder, "tfds_files", by_tfds_files),
        "Minari, HDF5": (
            os.path.join(minari_root, MINARI_ID),
            "Minari",
            lambda: minari_by_minari(minari_root, ""),
        ),
    }
    return {
        name: {way: read, **_through_the_door(os.fspath(path))}
        for name, (path, way, read) in direct.items()
    }


def _through_the_door(path: str) -> dict[str, Callable[[], int]]:
    import rlds.sources

    def read(episodes: rlds.sources.Episodes, fields: list[str] | None = None) -> int:
        indices = range(len(episodes))
        columns = (episodes.columns(index, fields) for index in indices)
        return sum(len(found["is_last"]) for found in columns)

    opened = rlds.sources.open(path)
    return {
        "rlds.sources, opened and read": lambda: read(rlds.sources.open(path)),
        "rlds.sources, read again": lambda: read(opened),
        "rlds.sources, read again, action": lambda: read(opened, ["action", "is_last"]),
    }


# --- RL Unplugged --------------------------------------------------------------------------------


def write_rwrl(directory: str, steps: int) -> None:
    """Writes files of RWRL."""
    from raw_rlu import rwrl_episodes, write_files

    folder = Path(directory, RWRL_FOLDER)
    episodes = rwrl_episodes(max(steps // RWRL_LENGTH, RWRL_FILES), RWRL_LENGTH)
    for episode in episodes:  # TFDS reads no deeper names.
        episode["observation:height"] = episode.pop("observation:sensors:height")
    write_files(folder, "episodes.tfrecord", episodes, num_files=RWRL_FILES, compression="")


def rlu_by_us(raw: str, data_dir: str) -> int:
    """Converts files of RWRL with `tfds_builders`."""
    from tfds_builders import RluRwrlSource, convert

    source = RluRwrlSource(Path(raw, RWRL_FOLDER))
    builder = convert(source, name="rwrl", data_dir=data_dir, progress=False)
    return int(builder.info.splits["train"].num_examples)


def rlu_by_tfds(raw: str, data_dir: str) -> int:
    """Converts files of RWRL with the builder of TFDS, which needs to know where they are."""
    import tensorflow_datasets as tfds
    from tensorflow_datasets.rl_unplugged.rlu_rwrl import rlu_rwrl

    name = "rlu_rwrl/cartpole_swingup_combined_challenge_none_1_percent"
    place = {"_INPUT_FILE_PREFIX": raw, "_SHARDS": RWRL_FILES}
    with mock.patch.multiple(rlu_rwrl.RluRwrl, create=True, **place):
        builder = tfds.builder(name, data_dir=data_dir)
        builder.download_and_prepare(
            download_config=tfds.download.DownloadConfig(try_download_gcs=False)
        )
    return int(builder.info.splits["train"].num_examples)


# --- Tiny episodes of RL Unplugged ---------------------------------------------------------------


def write_windows(directory: str, episodes: int) -> None:
    """Writes windows of the Control Suite, of two rows each."""
    from raw_rlu import control_suite_windows, write_files

    lengths = (101,) * -(-episodes // 100)
    write_files(Path(directory), "train", control_suite_windows(lengths)[:episodes])


def write_transitions(directory: str, episodes: int) -> None:
    """Writes transitions of Atari, whose frames are coarse: PNG files of a kilobyte."""
    import tensorflow as tf
    from raw_rlu import atari_transitions, write_files

    rng = np.random.default_rng(0)
    frames = [
        tf.io.encode_png(coarse(rng.integers(0, 256, (21, 21, 1), np.uint8), 4)).numpy()
        for _ in range(100)
    ]
    transitions = atari_transitions((100,) * -(-episodes // 100), shape=(1, 1))[:episodes]
    for transition in transitions:
        first = int(rng.integers(0, len(frames) - 4))
        transition |= {"o_t": frames[first : first + 4], "o_tp1": frames[first + 1 : first + 5]}
    write_files(Path(directory), "run_1", transitions)


def _tiny_source(raw: str) -> Any:
    import tfds_builders

    is_atari = any(Path(raw).glob("run_1-*"))
    kind = "RluAtariTransitionsSource" if is_atari else "RluControlSuiteWindowsSource"
    return getattr(tfds_builders, kind)(raw)


def tiny_by_us(raw: str, data_dir: str, *, verify: bool = True) -> int:
    """Converts tiny episodes with `tfds_builders`."""
    from tfds_builders import convert

    source = _tiny_source(raw)
    builder = convert(source, name="tiny", data_dir=data_dir, progress=False, verify=verify)
    return int(builder.info.splits["train"].num_examples)


def tiny_unverified(raw: str, data_dir: str) -> int:
    """Converts them, and does not read them back."""
    return tiny_by_us(raw, data_dir, verify=False)


def tiny_read_by_us(raw: str, data_dir: str) -> int:
    """Reads them as they are converted."""
    del data_dir
    return _num_steps(_tiny_source(raw))


def tiny_by_tfds(raw: str, data_dir: str) -> int:
    """Converts them with a builder of TFDS, which encodes what the source here has read."""
    import tensorflow_datasets as tfds

    from rlds.sources.episode_fields import fields_of
    from tfds_builders.features import features_of

    source = _tiny_source(raw)

    class Tiny(tfds.core.GeneratorBasedBuilder, skip_registration=True):  # type: ignore[misc,call-arg]
        VERSION = tfds.core.Version("1.0.0")
        name = "tiny"

        def _info(self) -> tfds.core.DatasetInfo:
            return tfds.core.DatasetInfo(builder=self, features=features_of(source))

        def _split_generators(self, dl_manager: Any) -> dict[str, Any]:
            return {"train": self._generate_examples()}

        def _generate_examples(self) -> Iterable[Any]:
            for part in source.parts("train"):
                for episode in source.episodes("train", part):
                    yield episode.key, {**fields_of(episode), "steps": episode.steps}

    builder = Tiny(data_dir=data_dir)
    builder.download_and_prepare(
        download_config=tfds.download.DownloadConfig(try_download_gcs=False)
    )
    return int(builder.info.splits["train"].num_examples)


# --- Atari DQN Replay ----------------------------------------------------------------------------


def write_dqn(directory: str, steps: int) -> None:
    """Writes a run in two checkpoints."""
    from raw_atari_dqn_replay import Recorded, write_run
    from raw_atari_dqn_replay import record as rows_of

    rng = np.random.default_rng(0)
    episodes = [
        Recorded(
            coarse(rng.integers(1, 256, (ATARI_LENGTH, 12, 12, 1), np.uint8), 7)[..., 0],
            rng.integers(0, 18, ATARI_LENGTH, np.int32),
            rng.choice(np.array([0, 0, 1], np.float32), ATARI_LENGTH),
            terminal=True,
        )
        for _ in range(max(steps // ATARI_LENGTH, 1))
    ]
    rows = rows_of(episodes)
    folder = Path(directory, "Pong", "1", "replay_logs")
    write_run(folder, rows, capacity=-(-len(rows["action"]) // 2))


def dqn_by_us(raw: str, data_dir: str) -> int:
    """Converts a run with `tfds_builders`."""
    from tfds_builders import AtariDqnReplaySource, convert

    builder = convert(AtariDqnReplaySource(raw), name="dqn", data_dir=data_dir, progress=False)
    return int(builder.info.splits["train"].num_examples)


def dqn_read_by_us(raw: str, data_dir: str) -> int:
    """Reads the episodes of a run, and encodes their images."""
    del data_dir
    from tfds_builders import AtariDqnReplaySource

    source = AtariDqnReplaySource(raw)
    parts = [source.episodes("train", part) for part in source.parts("train")]
    return sum(1 for _ in itertools.chain.from_iterable(parts))


def dqn_files(raw: str, data_dir: str) -> int:
    """Decompresses the files of a run, and loads their arrays."""
    del data_dir
    size = 0
    for file in sorted(Path(raw).rglob("*.gz")):
        with gzip.open(file) as stream:
            size += np.load(stream).nbytes
    return size
