"""Recordings that envlogger 1.2 made are read: values, dtypes, specs, episode boundaries."""

import importlib.util
import shutil
from pathlib import Path

import pytest

import envlogger
import riegeli
from envlogger.converters import codec, spec_codec

HERE = Path(__file__).parent
DIRECTORIES = sorted((HERE / "envlogger_1_2").iterdir())
SIMPLE = [path for path in DIRECTORIES if not path.name.startswith("transpose")]

spec = importlib.util.spec_from_file_location("golden_episodes", HERE / "episodes.py")
episodes = importlib.util.module_from_spec(spec)
spec.loader.exec_module(episodes)


def with_simple_metadata(golden, directory):
    """A copy of a recording whose metadata is written anew: the original's is always transposed."""
    shutil.copytree(golden, directory)
    specs = spec_codec.encode_environment_specs(episodes.Specs())
    metadata = codec.encode({**episodes.METADATA, "environment_specs": specs})
    with riegeli.RecordWriter(directory / "metadata.riegeli") as writer:
        writer.write_message(metadata)
    return directory


def test_the_golden_recordings_are_there():
    names = [path.name for path in DIRECTORIES]
    assert names == ["brotli_6", "transpose_brotli_6", "uncompressed", "zstd_3"]


@pytest.mark.parametrize("golden", SIMPLE, ids=lambda path: path.name)
def test_steps_episodes_and_metadata_are_read(golden, tmp_path):
    with envlogger.Reader(with_simple_metadata(golden, tmp_path / "copy")) as reader:
        episodes.same_recording(reader, envlogger.StepData)


@pytest.mark.parametrize("golden", DIRECTORIES, ids=lambda path: path.name)
def test_transposed_chunks_are_refused_by_name(golden):
    with pytest.raises(riegeli.UnimplementedError, match=r"transposed.*metadata\.riegeli"):
        envlogger.Reader(golden)


def test_transposed_steps_are_refused_by_name(tmp_path):
    golden = HERE / "envlogger_1_2" / "transpose_brotli_6"
    with pytest.raises(riegeli.UnimplementedError, match=r"transposed.*\.riegeli"):
        envlogger.Reader(with_simple_metadata(golden, tmp_path / "copy"))
