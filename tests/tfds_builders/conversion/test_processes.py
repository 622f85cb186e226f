"""Conversions by several processes, also from the command line: the same bytes as by one."""

import contextlib

import conversions
import numpy as np
import pytest
import raw_d4rl
import tensorflow_datasets as tfds

import rlds.sources
import tfds_builders
from tfds_builders.conversion import job as conversion
from tfds_builders.conversion import sharding

D4rlSource = rlds.sources.formats()["d4rl"].load()

pytestmark = [
    pytest.mark.slow,
    pytest.mark.filterwarnings("ignore"),  # Of Beam, in a version that others decide.
]

# More than a part has, of the sources that are divided by number.
NUM_EPISODES = 130
PROCESSES = ["--direct_num_workers=2", "--direct_running_mode=multi_processing"]


def d4rl(directory):
    rows, path = 5 * NUM_EPISODES + 2, directory / "hopper_medium-v2.hdf5"
    return D4rlSource(
        raw_d4rl.write_mujoco_like(
            path, rows=rows, episode_length=5, next_observations=True, infos=True
        )
    )


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
            context.setattr(conversion._Stager, "stage", work)
            context.setattr(sharding, "_read", work)
            yield

    return idle


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
