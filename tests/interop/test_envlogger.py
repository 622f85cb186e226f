"""Recordings are exchanged with the published envlogger 1.2.

Runs if the environment variable ENVLOGGER_PYTHON names a Python with `envlogger==1.2`.
"""

import importlib.util
import os
import subprocess
from pathlib import Path

import pytest

import envlogger
from envlogger.converters import spec_codec

HERE = Path(__file__).parent
GOLDEN = HERE.parent / "golden"
PEER = os.environ.get("ENVLOGGER_PYTHON", "")

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not PEER, reason="ENVLOGGER_PYTHON names no Python with envlogger 1.2"),
]


def load(path):
    spec = importlib.util.spec_from_file_location(path.stem, path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


episodes = load(GOLDEN / "episodes.py")
OPTIONS = [
    None,
    "brotli:6",
    "zstd:3",
    "uncompressed",
    "transpose",
    "transpose,zstd,bucket_fraction:0.1",
    "brotli:1,chunk_size:1K,pad_to_block_boundary",
]


def run(*command):
    return subprocess.run(
        [PEER, *map(str, command)], capture_output=True, text=True, check=False, env={}
    )


@pytest.mark.parametrize("options", OPTIONS)
@pytest.mark.parametrize("episodes_per_file", [0, 1, 3, 100])
def test_envlogger_1_2_reads_recordings(options, episodes_per_file, tmp_path):
    specs = spec_codec.encode_environment_specs(episodes.Specs())
    writer = envlogger.RiegeliBackendWriter(
        data_directory=tmp_path,
        max_episodes_per_file=episodes_per_file,
        writer_options=options,
        metadata={**episodes.METADATA, "environment_specs": specs},
    )
    episodes.record(writer, envlogger.StepData)
    with envlogger.Reader(tmp_path) as reader:
        episodes.check_recording(reader, envlogger.StepData)
    process = run(HERE / "read_with_envlogger.py", tmp_path)
    assert process.returncode == 0, process.stderr
    assert process.stdout == "20 steps of 5 episodes as recorded\n"


def test_makers_reproduce_the_golden_files(tmp_path):
    process = run(GOLDEN / "make_envlogger.py", tmp_path)
    assert process.returncode == 0, process.stderr
    golden = GOLDEN / "envlogger_1_2"
    for path in sorted(golden.rglob("*.riegeli")):
        target = tmp_path / path.relative_to(golden)
        assert abs(target.stat().st_size - path.stat().st_size) < 200  # Maps have a random order.
