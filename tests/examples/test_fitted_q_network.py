"""The example that fits a network to Q and rejects estimates that have not settled."""

import importlib
import itertools
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from rlds.evaluation import EvaluationSet, GaussianPolicy

pytest.importorskip("matplotlib")

SCRIPT = Path(__file__).parents[2] / "examples" / "fitted_q_network.py"


@pytest.fixture
def example(monkeypatch):
    monkeypatch.syspath_prepend(SCRIPT.parent)
    return importlib.import_module(SCRIPT.stem)


def test_fit_uses_only_transitions_with_a_known_end(example):
    # The final observation of the first episode is missing, so only two transitions count: one
    # terminates with a reward of 1, the other returns to its first observation.
    data = EvaluationSet(
        num_transitions=[1, 1, 1],
        is_terminal=[False, True, False],
        final_observation_known=[False, False, True],
        observations=np.array([[0.0], [0.0], [1.0], [1.0]]),
        actions=np.zeros((3, 1)),
        rewards=[100.0, 1.0, 1.0],
    )
    target = GaussianPolicy(lambda observations: (0 * observations, -np.inf))
    fits = example.fit(data, target, gamma=0.5, hidden=(8,), batch_size=8, learning_rate=0.01)
    *_, last = itertools.islice(fits, 8)
    # The values at the starts are 1, 1 and 1 + 0.5 · 2.
    assert last == pytest.approx(4 / 3, abs=0.05)


def test_doubts_name_decay_and_drift(example):
    step = np.arange(100)
    noise = np.random.default_rng(0).normal(0.0, 0.02, 100)
    settled = -4 + 3 * np.exp(-step / 10)
    assert example.doubts((settled + noise).tolist()) == []
    assert "8% of the value of later steps" in example.doubts(settled[:25].tolist())[0]
    (drifting,) = example.doubts((-4 - 0.01 * step + noise).tolist())
    assert drifting.startswith("a drift of -0.2")


def run(folder, *arguments):
    command = [sys.executable, SCRIPT, "--output", folder, *arguments]
    process = subprocess.run(
        list(map(str, command)), capture_output=True, text=True, check=False, timeout=600
    )
    assert (folder / "estimates.png").stat().st_size > 10_000, process.stderr
    return process.returncode, process.stdout


@pytest.mark.slow
def test_too_few_updates_are_an_error(tmp_path):
    code, output = run(tmp_path / "few", "--updates", 400)
    assert code == 1
    assert "its last estimate is not a result" in output
    # 0.95 to the power of 0.02 · 400.
    assert "66% of the value" in output


@pytest.mark.slow
def test_enough_updates_agree_with_the_true_value(tmp_path):
    code, output = run(tmp_path / "enough")
    assert code == 0, output
    lines = output.splitlines()
    true = float(lines[0].rpartition(" ")[2])
    closed = float(lines[1].partition("ms: ")[2].partition(",")[0])
    (last,) = [line for line in lines if "no sign of drift" in line]
    network = float(last.split("│")[2])
    assert closed == pytest.approx(true, abs=0.2)
    assert network == pytest.approx(closed, abs=0.2)
