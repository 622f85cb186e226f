"""Riegeli files are exchanged with envlogger 1.2, which has Google's C++.

Runs if the environment variable ENVLOGGER_PYTHON names a Python with `envlogger==1.2`. Run
with `-s` to see the counts.
"""

import itertools
import json
import os
import random
import subprocess
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from interop import seeds
from random_records import brotli_window, kind_of, message, riegeli_options

import riegeli
from envlogger import Data
from envlogger.converters import codec

HERE = Path(__file__).parent
PEER = os.environ.get("ENVLOGGER_PYTHON", "")

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not PEER, reason="ENVLOGGER_PYTHON names no Python with envlogger 1.2"),
]


def run_jobs(path, jobs):
    path.write_text(json.dumps(jobs))
    command = [PEER, HERE / "riegeli_with_envlogger.py", path]
    process = subprocess.run(command, capture_output=True, text=True, check=False, env={})
    assert process.returncode == 0, process.stderr
    return json.loads(path.read_text())


def write_file(path, options, content, compressions=()):
    with riegeli.RecordWriter(path, options=options) as writer:
        if compressions:
            writer.set_compression(lambda _: next(compressions))
        for record in content:
            writer.write_record(record)
            yield writer.last_pos


def array(values):
    return codec.encode(np.array(values, np.int64)).datum.SerializeToString()


def write_dataset(directory, options, steps, compressions):
    """Writes a dataset of one episode with any steps."""
    shard = directory / "20240101T000000000000"
    shard.mkdir(parents=True)
    list(write_file(directory / "metadata.riegeli", options, [b""]))
    positions = list(write_file(shard / "steps.riegeli", options, steps, compressions))
    offsets = array([position.numeric for position in positions])
    list(write_file(shard / "step_offsets.riegeli", options, [offsets]))
    list(write_file(shard / "episode_metadata.riegeli", options, []))
    list(write_file(shard / "episode_index.riegeli", options, [array([[0, -1]])]))


def random_value(rng, depth=3):
    """Draws a value of a step; dicts have one entry, because their order is random."""
    kind = rng.choice(["number", "text", "bytes", "array", "array", "dict", "tuple"])
    if kind == "number":
        return rng.choice([rng.randint(-(2**40), 2**40), rng.random(), True, None])
    if kind == "text":
        return "".join(rng.choices("abc ä漢", k=rng.randint(0, 30)))
    if kind == "bytes":
        return rng.randbytes(rng.randint(0, 30))
    if kind == "array" or depth == 0:
        dtype = rng.choice([np.uint8, np.bool_])  # envlogger 1.2 re-encodes other dtypes.
        shape = [rng.randint(1, 8) for _ in range(rng.randint(1, 3))]
        return np.array([rng.randrange(2) for _ in range(np.prod(shape))], dtype).reshape(shape)
    if kind == "dict":
        return {rng.choice("abc"): random_value(rng, depth - 1)}
    return tuple(random_value(rng, depth - 1) for _ in range(rng.randint(1, 4)))


def random_steps(rng):
    """Serialized `Data`, some with unknown fields."""
    field_ids = [rng.randint(1000, 2**29 - 1) for _ in range(3)]
    has_unknown_fields = rng.random() < 0.3
    values = [random_value(rng) for _ in range(rng.randint(1, 20))]
    if rng.random() < 0.1:
        values.append(rng.randbytes(rng.randint(60_000, 300_000)))
    steps = []
    for _ in range(rng.choice([1, 10, 300])):
        step = codec.encode(rng.choice(values)).SerializeToString(deterministic=True)
        steps.append(step + message(rng, field_ids, 2) if has_unknown_fields else step)
    return steps


def test_envlogger_1_2_reads_written_files(tmp_path):
    cases = []
    for seed in seeds():
        rng = random.Random(seed)
        expected = random_steps(rng)
        options = riegeli_options(rng, newest=True)
        # In every second file, compressions vary by chunk.
        compressions = seed % 2 and itertools.cycle(["zstd:3", "brotli:6", "uncompressed"])
        write_dataset(tmp_path / str(seed), options, expected, compressions)
        cases.append((seed, options, expected))
    jobs = [{"directory": str(tmp_path / str(seed))} for seed, _, _ in cases]
    for (seed, options, expected), actual in zip(cases, run_jobs(tmp_path / "jobs", jobs)):
        assert actual == [record.hex() for record in expected], f"seed {seed}, {options}"


def test_files_of_envlogger_1_2_are_read_and_written_alike(tmp_path):
    """Compares bytes without compression; with compression, counts equal files."""
    cases, jobs = [], []
    for seed in seeds():
        rng = random.Random(seed)
        steps = random_steps(rng)
        options = riegeli_options(rng, newest=False, brotli_windows=(10, 30))
        directory = tmp_path / str(seed)
        directory.mkdir()
        cases.append((seed, options, steps))
        jobs.append(
            {
                "directory": str(directory),
                "options": options,
                "records": [step.hex() for step in steps],
            }
        )
    same, total = Counter(), Counter()
    for (seed, options, steps), result in zip(cases, run_jobs(tmp_path / "jobs", jobs)):
        assert result is None, f"seed {seed}, {options}: {result}"
        (path,) = (tmp_path / str(seed)).glob("*/steps.riegeli")
        with riegeli.RecordReader(path) as reader:
            actual = list(reader.read_records())
        assert len(actual) == len(steps), f"seed {seed}, {options}"
        for i, (step, expected) in enumerate(zip(actual, steps)):
            assert Data.FromString(step) == Data.FromString(expected), (
                f"seed {seed}, {options}, step {i}"
            )
        if brotli_window(options) > 24:
            continue  # Cannot be written here.
        list(write_file(tmp_path / "again", options, actual))
        kind = kind_of(options)
        is_same = (tmp_path / "again").read_bytes() == path.read_bytes()
        total[kind] += 1
        same[kind] += is_same
        if "uncompressed" in kind:
            assert is_same, f"seed {seed}, {options}"
    print("\n".join(f"{kind}: {same[kind]} of {total[kind]} the same" for kind in sorted(total)))
