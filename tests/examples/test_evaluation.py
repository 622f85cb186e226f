"""The example that draws the figure of the page: what it estimates is near the truth."""

import importlib.util
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[2] / "examples" / "evaluation.py"


@pytest.fixture(scope="module")
def example():
    spec = importlib.util.spec_from_file_location("evaluation_example", SCRIPT)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_a_close_target_is_estimated_well_and_drawn(example, tmp_path, monkeypatch, capsys):
    figure = tmp_path / "figure.svg"
    arguments = ["evaluation.py", "--episodes", "100", "--output", str(figure)]
    monkeypatch.setattr(sys, "argv", arguments)
    example.main()
    printed = capsys.readouterr().out
    close, far = printed.split("Target far from the behaviour policy")
    assert "100 episodes, 2500 transitions" in close
    assert close.count(" yes ") == 7
    assert " no " in far
    assert "true value" in figure.read_text("utf-8")


def test_the_true_value_of_a_controller_that_leads_to_the_middle_at_once(example):
    gain, deviation = -1.8, 0.0
    first = -(1 + 0.1 * gain**2)  # The mean square of the first distance is 1.
    others = -(0.3**2) * (1 + 0.1 * gain**2) * example.GAMMA / (1 - example.GAMMA)
    assert example.true_value(gain, deviation) == pytest.approx(first + others)
