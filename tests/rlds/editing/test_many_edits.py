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


def test_lineage_of_many_edits_is_bounded_and_storable(log):
    from rlds.sources import lineage

    history = None
    for index in range(120):
        parent = {"name": "log", "lineage": history}
        history = lineage._without_oldest({"operations": [index], "from": [parent]})
    path = log / ".rlds" / "lineage.json"
    path.parent.mkdir()
    path.write_text(json.dumps(history))
    rlds.edit(log, Set("note", "again"))
    ancestor, depth = rlds.editing.lineage_of(log), 0
    while ancestor["from"][0]["lineage"]:
        ancestor, depth = ancestor["from"][0]["lineage"], depth + 1
    assert 50 <= depth < 53
    assert ancestor["from"][0]["earlier_left_out"]
    assert rlds.sources.open(log).metadata["lineage"]
