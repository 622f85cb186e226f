"""The example of the page on evaluation, which draws its figure."""

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


def test_estimates_of_a_close_target_are_right(example, tmp_path, monkeypatch, capsys):
    figure = tmp_path / "figure.svg"
    arguments = ["evaluation.py", "--episodes", "100", "--output", str(figure)]
    monkeypatch.setattr(sys, "argv", arguments)
    example.main()
    output = capsys.readouterr().out
    close, far = output.split("Target far from the behaviour policy")
    assert "100 episodes, 2500 transitions" in close
    assert close.count(" yes ") == 7
    assert " no " in far
    assert "true value" in figure.read_text("utf-8")


def test_true_value_of_a_controller_that_reaches_the_middle_in_one_step(example):
    gain, deviation = -1.8, 0.0
    first_reward = -(1 + 0.1 * gain**2)  # The mean square of the first distance is 1.
    later_rewards = -(0.3**2) * (1 + 0.1 * gain**2) * example.GAMMA / (1 - example.GAMMA)
    assert example.true_value(gain, deviation) == pytest.approx(first_reward + later_rewards)
