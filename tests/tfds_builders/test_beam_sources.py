"""Sources of every kind, converted by several processes: the same bytes as by one."""

import contextlib
import os
import subprocess
import sys

import conversions
import dm_env
import numpy as np
import pytest
import raw_atari_dqn_replay
import raw_d4rl
import raw_minari
import raw_rlu
import tensorflow_datasets as tfds
from gymnasium import spaces
from minari.data_collector.episode_buffer import EpisodeBuffer

import envlogger
import tfds_builders
from rlds.formats.atari_dqn_replay.source import AtariDqnReplaySource
from rlds.formats.d4rl.source import D4rlSource
from rlds.formats.minari.source import MinariSource
from rlds.formats.rlu.atari import RluAtariSource
from rlds.formats.tfds.source import FolderSource
from rlds.sources.source import RandomAccessSource
from tfds_builders.conversion import job as conversion
from tfds_builders.conversion import sharding

pytestmark = [
    pytest.mark.slow,
    pytest.mark.filterwarnings("ignore"),  # Of Beam, in a version that others decide.
]

# More than a part has, of the sources that are divided by number.
NUM_EPISODES = RandomAccessSource.episodes_per_part + 30
PROCESSES = ["--direct_num_workers=2", "--direct_running_mode=multi_processing"]


class Coin(dm_env.Environment):
    """One step, heads or tails; every second episode is cut."""

    def __init__(self):
        self.number = 0

    def reset(self):
        self.number += 1
        return dm_env.restart({"number": np.int64(self.number), "name": f"{self.number}"})

    def step(self, action):
        end = dm_env.termination if self.number % 2 else dm_env.truncation
        return end(float(action), {"number": np.int64(-self.number), "name": "over"})

    def observation_spec(self):
        return {
            "number": dm_env.specs.Array((), np.int64),
            "name": dm_env.specs.StringArray(()),
        }

    def action_spec(self):
        return dm_env.specs.DiscreteArray(2)


def logs(directory):
    """Two logs, one of which has more than a part."""
    for name, number in (("first", NUM_EPISODES), ("second", 5)):
        (directory / name).mkdir()
        env = envlogger.EnvLogger(
            Coin(),
            data_directory=directory / name,
            episode_fn=lambda timestep, action, env: {"number": env.number},
        )
        with env:
            for episode in range(number):
                env.reset()
                env.step(episode % 2)
    return tfds_builders.EnvLoggerSource(directory)


def d4rl(directory):
    rows, path = 5 * NUM_EPISODES + 2, directory / "hopper_medium-v2.hdf5"
    return D4rlSource(
        raw_d4rl.write_mujoco_like(
            path, rows=rows, episode_length=5, next_observations=True, infos=True
        )
    )


def atari_dqn_replay(directory):
    """Two runs of several checkpoints, with episodes across them, in buffers that go round."""
    for run in range(2):
        episodes = [
            raw_atari_dqn_replay.episode(
                5 + i % 7, terminal=i % 3 > 0, black=i % 2, seed=10 * run + i
            )
            for i in range(9)
        ]
        raw_atari_dqn_replay.write_run(
            directory / "Pong" / f"{run + 1}" / "replay_logs",
            raw_atari_dqn_replay.record(episodes),
            capacity=30,
            offset=7,
        )
    return AtariDqnReplaySource(directory)


def rlu_atari(directory):
    raw_rlu.write_files(
        directory, "run_1", raw_rlu.atari_episodes((5, 4, 6, 3) * 3, shape=(6, 4)), num_files=3
    )
    return RluAtariSource(directory)


def minari(directory):
    os.environ["MINARI_DATASETS_PATH"] = str(directory)
    rng = np.random.default_rng(0)
    episodes = [
        EpisodeBuffer(
            id=index,
            seed=index,
            observations=rng.normal(size=(3, 4)),
            actions=rng.integers(0, 2, 2),
            rewards=rng.normal(size=2).tolist(),
            terminations=[False, index % 2 == 0],
            truncations=[False, index % 2 == 1],
            infos={"speed": rng.normal(size=3)},
        )
        for index in range(NUM_EPISODES)
    ]
    return MinariSource(
        raw_minari.write_buffers(
            "many-v1",
            episodes,
            observation_space=spaces.Box(-np.inf, np.inf, (4,), np.float64),
            action_space=spaces.Discrete(2),
        )
    )


def folder(directory):
    """A part for each file."""
    copied = tfds_builders.convert(
        d4rl(directory),
        name="copied",
        data_dir=directory,
        download_config=tfds.download.DownloadConfig(num_shards=3),
    )
    return FolderSource(copied.data_path)


SOURCES = {
    write.__name__: write for write in (logs, d4rl, atari_dqn_replay, rlu_atari, minari, folder)
}


def converted(source, directory, *, beam_options=None, file_format=None):
    return tfds_builders.convert(
        source,
        name="dataset",
        data_dir=directory,
        file_format=file_format,
        download_config=tfds.download.DownloadConfig(
            num_shards=3,
            beam_runner=None if beam_options is None else "DirectRunner",
            beam_options=beam_options,
        ),
    )


@pytest.fixture
def idle(monkeypatch):
    """A context in which this process neither reads episodes nor writes files: workers have to.

    Without them it would do so itself, in the end, with the same result.
    """

    def work(*args, **kwargs):
        raise AssertionError("the calling process works")

    @contextlib.contextmanager
    def idle():
        with monkeypatch.context() as context:
            context.setattr(conversion, "_stage_episodes", work)
            context.setattr(sharding, "_read", work)
            yield

    return idle


@pytest.mark.parametrize("name", SOURCES)
def test_processes_give_the_same_bytes(tmp_path, idle, name):
    raw = tmp_path / "raw"
    raw.mkdir()
    source = SOURCES[name](raw)
    assert sum(len(source.parts(split)) for split in source.splits) > 1
    one = converted(source, tmp_path / "one")
    with idle():
        many = converted(source, tmp_path / "many", beam_options=PROCESSES)
    assert conversions.contents(many.data_path) == conversions.contents(one.data_path)
    if name != "folder":  # Its episodes are examples.
        conversions.check_against_source(many, source)


def test_processes_write_files_for_random_access(tmp_path, idle):
    source = d4rl(tmp_path)
    one = converted(source, tmp_path / "one", file_format="array_record")
    with idle(), pytest.raises(AssertionError, match="the calling process works"):
        converted(source, tmp_path / "none")
    with idle():
        many = converted(
            source, tmp_path / "many", beam_options=PROCESSES, file_format="array_record"
        )
    assert conversions.contents(many.data_path) == conversions.contents(one.data_path)
    data = many.as_data_source(split="train")
    assert len(data) == source.num_episodes("train")
    for index in (0, len(data) // 2, len(data) - 1):
        number = int(data[index]["episode_id"].decode().rpartition("-")[2])
        expected = source.read("train", number)
        steps = list(data[index]["steps"])
        assert len(steps) == expected.num_steps
        for name in ("observation", "action", "reward", "discount", "is_terminal"):
            found = np.stack([step[name] for step in steps])
            assert found.dtype == expected.steps[name].dtype
            np.testing.assert_array_equal(found, expected.steps[name])


def test_from_the_command_line(tmp_path):
    """In a directory of its own, with paths that are relative to it."""
    source = d4rl(tmp_path)
    command = [sys.executable, "-m", "rlds_tools", "convert", "hopper_medium-v2.hdf5"]
    command += ["--dataset=rlds_d4rl", "--option=boundary=length", "--option=length=3"]
    command += ["--num-shards=3"]
    on_beam = ["--runner=DirectRunner", "--direct_running_mode", "multi_processing"]
    on_beam += ["--direct_num_workers", "2"]
    for directory, options in (("one", []), ("many", on_beam)):
        subprocess.run([*command, directory, *options], cwd=tmp_path, check=True)
    one, many = (
        conversions.contents(tmp_path / directory / "rlds_d4rl" / "file" / "1.0.0")
        for directory in ("one", "many")
    )
    assert many == one
    built = tfds.builder_from_directory(tmp_path / "many" / "rlds_d4rl" / "file" / "1.0.0")
    counted = built.info.metadata["conversion"]["splits"]["train"]
    assert counted["raw"]["rows"] == source.totals("train")["rows"]
    assert counted["episodes"] == -(-counted["raw"]["rows"] // 3)
