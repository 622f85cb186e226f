"""Logs that are edited very often."""

import json

import pytest

import rlds
import rlds.sources
from envlogger.testing.catch_env import Catch
from rlds.editing import Set


@pytest.fixture
def log(tmp_path):
    import envlogger

    path = tmp_path / "log"
    note = {"note": "as recorded"}
    with envlogger.EnvLogger(Catch(), data_directory=path, episode_fn=lambda *_: note) as env:
        for index in range(6):
            timestep = env.reset()
            while not timestep.last():
                timestep = env.step(index % 3)
    return path


def test_very_many_edits_of_a_log(log):
    """The lineage of earlier edits is bounded, and can be stored."""
    from rlds.sources import lineage

    text = None
    for index in range(120):
        part = {"name": "log", "lineage": text}
        text = lineage._without_oldest({"operations": [index], "from": [part]})
    path = log / ".rlds" / "lineage.json"
    path.parent.mkdir()
    path.write_text(json.dumps(text))
    rlds.edit(log, Set("note", "again"))
    told, depth = rlds.editing.lineage_of(log), 0
    while told["from"][0]["lineage"]:
        told, depth = told["from"][0]["lineage"], depth + 1
    assert 50 <= depth < 53
    assert told["from"][0]["earlier_left_out"]
    assert rlds.sources.open(log).metadata["lineage"]
