"""Recordings of envlogger 1.2 are read: values, dtypes, specs, episode boundaries."""

import importlib.util
import shutil
from pathlib import Path

import pytest

import envlogger
from envlogger.converters import spec_codec

HERE = Path(__file__).parent
DIRECTORIES = sorted((HERE / "envlogger_1_2").iterdir())

spec = importlib.util.spec_from_file_location("golden_episodes", HERE / "episodes.py")
episodes = importlib.util.module_from_spec(spec)
spec.loader.exec_module(episodes)


def test_all_golden_recordings_exist():
    names = [path.name for path in DIRECTORIES]
    assert names == ["brotli_6", "transpose_brotli_6", "uncompressed", "zstd_3"]


@pytest.mark.parametrize("golden", DIRECTORIES, ids=lambda path: path.name)
def test_recordings_of_envlogger_1_2_are_read(golden):
    with envlogger.Reader(golden) as reader:
        episodes.check_recording(reader, envlogger.StepData)


@pytest.mark.parametrize("golden", DIRECTORIES, ids=lambda path: path.name)
def test_recordings_of_envlogger_1_2_can_be_continued(golden, tmp_path):
    directory = shutil.copytree(golden, tmp_path / "copy")
    specs = spec_codec.encode_environment_specs(episodes.Specs())
    metadata = {**episodes.METADATA, "environment_specs": specs}
    episodes.record(
        envlogger.RiegeliBackendWriter(directory, metadata=metadata), envlogger.StepData
    )
    with envlogger.Reader(directory) as reader:
        assert len(reader.episodes) == 2 * len(episodes.EPISODES)
        episodes.check_step(reader.steps[0], reader.steps[len(reader.steps) // 2], "step")
