"""The published envlogger 1.2 opens killed recordings after `recover`.

Runs if the environment variable ENVLOGGER_PYTHON names a Python with `envlogger==1.2`.
"""

import json
import os
import random
import subprocess
import sys

import killing
import pytest
from etils import epath

import envlogger
from envlogger.backends.riegeli_files.shard_reader import load_shards

PEER = os.environ.get("ENVLOGGER_PYTHON", "")

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not PEER, reason="ENVLOGGER_PYTHON names no Python with envlogger 1.2"),
]

READ = """
import json, sys
import envlogger
sys.path.insert(0, sys.argv[2])
import killing
with envlogger.Reader(sys.argv[1]) as reader:
    steps = [killing.ids_in(step.timestep.observation) for step in reader.steps]
    lengths = [len(episode) for episode in reader.episodes]
    print(json.dumps([steps, lengths, list(reader.episode_metadata())]))
"""


def read_with_envlogger_1_2(directory):
    command = [PEER, "-I", "-c", READ, str(directory), os.path.dirname(killing.__file__)]
    process = subprocess.run(command, capture_output=True, text=True, check=False, env={})
    assert process.returncode == 0, process.stderr
    return json.loads(process.stdout)


def read(directory):
    with envlogger.Reader(directory) as reader:
        steps = [list(killing.ids_in(step.timestep.observation)) for step in reader.steps]
        lengths = [len(episode) for episode in reader.episodes]
        assert sum(lengths) == len(steps)
        return [steps, lengths, list(reader.episode_metadata())]


@pytest.mark.parametrize("python", [sys.executable, PEER])
@pytest.mark.parametrize("in_place", [False, True])
@pytest.mark.parametrize("seed", range(3))
def test_envlogger_1_2_reads_recovered_recordings(tmp_path, python, in_place, seed):
    rng = random.Random(seed)
    is_original = python != sys.executable
    plan = killing.random_original_plan(rng) if is_original else killing.random_plan(rng)
    recording = tmp_path / "recording"
    recording.mkdir()
    plans = [plan] if plan.records_alone else [plan, plan]
    processes = killing.kill(plans, recording, 2.0, python)
    outcome = killing.check(processes, recording, tmp_path / "recovered")
    assert outcome.wrong == []
    # envlogger 1.2 keeps a whole chunk in memory, which on a slow machine holds all steps.
    has_chunks = any(path.stat().st_size > 64 for path in recording.rglob("steps.riegeli"))
    assert outcome.recovered > 0 or (is_original and not has_chunks)
    recovered = tmp_path / "recovered"
    if in_place:
        recovered = recording
        envlogger.recover(recording, in_place=True)
    episodes = read(recovered)
    assert sum(episodes[1]) == outcome.recovered
    assert read_with_envlogger_1_2(recovered) == episodes


def was_killed_between_index_and_offsets(directory):
    """Whether episodes have no steps: envlogger 1.2 miscounts them, readers here skip them."""
    shards = load_shards(epath.Path(directory))
    return any(len(shard.all_rows) > len(shard.episode_starts) for shard in shards)


def test_envlogger_1_2_reads_killed_recordings_without_recovery(tmp_path):
    plan = killing.Plan(backend={"flush_interval": 0.2, "max_episodes_per_file": 500})
    processes = killing.kill([plan], tmp_path, 1.5)
    assert processes[0].steps
    episodes = read(tmp_path)
    assert len(episodes[1]) > 0
    if was_killed_between_index_and_offsets(tmp_path):
        envlogger.recover(tmp_path, in_place=True)
        episodes = read(tmp_path)
    assert read_with_envlogger_1_2(tmp_path) == episodes
