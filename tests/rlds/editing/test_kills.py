"""A process that edits is killed at any moment: there is the old dataset or the new one."""

import json
import os
import random
import signal
import subprocess
import sys
import textwrap
import time

import pytest

import rlds
import rlds.sources
from envlogger.testing.catch_env import Catch
from rlds.editing import Set
from rlds.sources.digests import digest_of

_SCRIPT = """
    import sys
    import rlds
    from rlds.editing import Delete, Set
    path, number = sys.argv[1], int(sys.argv[2])
    while True:
        rlds.edit(path, Set("note", f"edit {number}"), Delete(episodes=[3] if number == 0 else []))
        print(number, flush=True)
        number += 1
"""


@pytest.fixture
def log(tmp_path):
    import envlogger

    path = tmp_path / "log"
    note = {"note": "as recorded"}
    with envlogger.EnvLogger(Catch(), data_directory=path, episode_fn=lambda *_: note) as env:
        for number in range(6):
            timestep = env.reset()
            while not timestep.last():
                timestep = env.step(number % 3)
    return path


def state(path, format):
    """The notes of a dataset, and its steps."""
    episodes = rlds.sources.open(path, "all", format=format)
    notes = {str(episode.metadata["note"]) for episode in episodes}
    return notes, [digest_of(episode.steps).hex() for episode in episodes]


@pytest.mark.slow
@pytest.mark.parametrize("format", ["envlogger", "tfds", "lerobot", "robomimic"])
def test_a_killed_edit(log, tmp_path, format):
    path, rng = tmp_path / "data", random.Random(format)
    if format == "envlogger":
        log.rename(path)
    else:
        options = {"lerobot": {"fps": 10}, "robomimic": {}, "tfds": {}}[format]
        path = tmp_path / ("data.hdf5" if format == "robomimic" else "data")
        rlds.sources.export(log, format, path, **options)
    _, before = state(path, format)
    after = [*before[:3], *before[4:]]
    number = 0
    for _ in range(8):
        command = [sys.executable, "-c", textwrap.dedent(_SCRIPT), os.fspath(path), str(number)]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
            line = process.stdout.readline()
            assert line, "the edit failed"
            began = time.monotonic()
            line = process.stdout.readline()
            seconds = time.monotonic() - began
            time.sleep(rng.uniform(0, 2 * seconds))
            os.kill(process.pid, signal.SIGKILL)
            done = [int(each) for each in (line, *process.stdout.read().split())]
        notes, found = state(path, format)
        assert found == after
        assert len(notes) == 1
        assert notes <= {f"edit {done[-1]}", f"edit {done[-1] + 1}"}
        number = done[-1] + 2
    rlds.edit(path, Set("note", "the end"))
    assert state(path, format) == ({"the end"}, after)
    assert {each.name for each in path.parent.iterdir()} <= {path.name, log.name, ".rlds"}


def test_very_many_edits_of_a_log(log):
    """What is told of those before does not grow for ever, and can be stored."""
    from rlds.sources import lineage

    said = None
    for number in range(120):
        part = {"name": "log", "lineage": said}
        said = lineage._latest({"operations": [number], "from": [part]})
    path = log / ".rlds" / "lineage.json"
    path.parent.mkdir()
    path.write_text(json.dumps(said))
    rlds.edit(log, Set("note", "again"))
    told, depth = rlds.editing.lineage_of(log), 0
    while told["from"][0]["lineage"]:
        told, depth = told["from"][0]["lineage"], depth + 1
    assert 50 <= depth < 53
    assert told["from"][0]["earlier_left_out"]
    assert rlds.sources.open(log).metadata["lineage"]
