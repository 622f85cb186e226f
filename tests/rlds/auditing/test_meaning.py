"""The meaning of actions is derived from numbers alone, or is unknown."""

import re

import action_conventions
import numpy as np
import pytest
from action_conventions import CONVENTIONS, is_right, is_wrong

import rlds.sources
from rlds.auditing import meanings, vector_meanings


def count_elements(seeds, **options):
    """Counts right, unknown and wrong elements, for knowable and for unknowable truths."""
    totals = np.zeros((2, 3), int)
    for name in CONVENTIONS:
        for seed in seeds:
            case = action_conventions.make_case(name, seed, **options)
            for truth, meaning in zip(case.truths, meanings(case.episodes), strict=True):
                column = 0 if is_right(truth, meaning) else 2 if is_wrong(truth, meaning) else 1
                totals[int("unknown" in truth.kinds), column] += 1
    return totals


NAMES = [
    pytest.param(name, marks=() if index % 4 == 0 else pytest.mark.slow)
    for index, name in enumerate(CONVENTIONS)
]


@pytest.mark.parametrize("name", NAMES)
def test_conventions_of_actions_are_recognized(name):
    case = action_conventions.make_case(name, 101)
    for truth, meaning in zip(case.truths, meanings(case.episodes), strict=True):
        assert is_right(truth, meaning), meaning


@pytest.mark.slow
@pytest.mark.parametrize(("noise", "least"), [("usual", 0.85), ("bad", 0.5), ("awful", 0)])
def test_noise_makes_elements_unknown_and_not_wrong(noise, least):
    totals = count_elements(range(200, 203), noise=noise)
    knowable, unknown = totals / totals.sum(1, keepdims=True)
    assert knowable[0] >= least
    assert knowable[2] <= 0.01
    assert unknown[0] >= 0.95


def test_meaning_of_few_rows_is_unknown():
    case = action_conventions.make_case("joint targets", 1, episodes=2)
    assert {it.kind for it in meanings(case.episodes)} == {"unknown"}
    assert meanings([]) == []


def test_actions_without_a_state_are_unknown_and_nan_rows_are_left_out():
    case = action_conventions.make_case("joint changes", 1)
    alone = [(actions, states[:, :0]) for actions, states in case.episodes]
    assert {it.why for it in meanings(alone)} == {"there is no state"}
    for _, states in case.episodes:
        states[20] = np.nan
    assert {it.kind for it in meanings(case.episodes)} == {"delta"}


def test_a_sentence_describes_a_run_of_elements(tmp_path):
    case = action_conventions.make_case("joint targets in degrees", 3)
    for index, (actions, states) in enumerate(case.episodes):
        columns = {"observation": {"joints": states, "clock": np.arange(len(states)) / 10}}
        arrays = {f"observation/{name}": it for name, it in columns["observation"].items()}
        arrays |= {"action": actions[:-1], "reward": actions[:-1, 0], "terminal": np.array(True)}
        np.savez(tmp_path / f"{index:02}.npz", **arrays)
    [vector] = vector_meanings(rlds.sources.open(tmp_path))
    assert (vector.field, vector.num_episodes) == ("action", 20)
    [sentence] = vector.sentences()
    assert re.match(r"action\[0:6\]: absolute, 57\.\d x observation/joints\[0\] to ", sentence)
