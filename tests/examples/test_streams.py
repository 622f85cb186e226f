"""The scripts that record streams and play them back print correct results."""

import re
import runpy
import sys
from pathlib import Path

import numpy as np
import pytest

import rlds.sources

EXAMPLES = Path(__file__).parents[2] / "examples"

pytest.importorskip("av")
pytest.importorskip("rosbags")


def run(monkeypatch, script, *arguments):
    monkeypatch.setattr(sys, "argv", [script, *map(str, arguments)])
    runpy.run_path(str(EXAMPLES / script), run_name="__main__")


def test_recorded_streams_become_steps_and_can_be_played_back(tmp_path, monkeypatch, capsys):
    folder = tmp_path / "streams"
    run(monkeypatch, "record_streams.py", "--seconds", 1, "--output", folder)
    output = capsys.readouterr().out
    episodes = rlds.sources.open(folder, rate=20)
    assert len(episodes) == 1
    # A busy machine measures less often, and the recording ends with the slowest device.
    assert episodes[0].num_steps >= 1
    steps = episodes[0].steps
    assert set(np.diff(steps["timestamp"])) <= {50_000_000}
    assert re.search(r"\d+ steps at 20 Hz, state \(\d+, 7\)", output)
    run(monkeypatch, "play_back.py", folder, "--speed", 10, "--option", "rate=20")
    assert f"{episodes[0].num_steps} actions" in capsys.readouterr().out
