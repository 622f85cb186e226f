"""Rotations, angles and padding in vectors are recognized by their numbers, or are unknown."""

import numpy as np
import pytest
import vector_forms

import rlds.sources
from rlds.auditing import vector_meanings
from rlds.auditing.declared import contradictions
from rlds.auditing.forms import find_end_conventions, forms

NAMES = [*vector_forms.FORMS, *vector_forms.UNKNOWABLE]


def count_elements(name, seeds, noise):
    """Counts the right, the wrong and the knowable elements."""
    right = wrong = knowable = 0
    for seed in seeds:
        episodes, truths = vector_forms.make_vectors(name, seed, noise=noise)
        recognized = forms(episodes)
        kinds = [
            recognized[index].kind if index in recognized else "" for index in range(len(truths))
        ]
        right += sum(bool(truth) and kind == truth for truth, kind in zip(truths, kinds))
        wrong += sum(kind not in ("", truth) for truth, kind in zip(truths, kinds))
        knowable += sum(map(bool, truths))
    return right, wrong, knowable


@pytest.mark.parametrize("name", NAMES)
def test_only_true_forms_are_recognized(name):
    right, wrong, knowable = count_elements(name, [40], "none")
    assert (right, wrong) == (knowable, 0)


@pytest.mark.slow
@pytest.mark.parametrize(("noise", "least"), [("usual", 0.9), ("bad", 0)])
def test_noise_makes_a_form_unknown_and_not_wrong(noise, least):
    totals = np.array([count_elements(name, range(200, 204), noise) for name in NAMES])
    right, wrong, knowable = totals.sum(0)
    assert right >= least * knowable
    assert not wrong


def test_a_quaternion_that_may_be_a_sine_and_a_cosine_is_unknown():
    episodes, _ = vector_forms.make_vectors("quaternion of a planar turn", 3)
    assert not forms(episodes)
    alone = [each[:, np.ptp(each, axis=0) > 0][:, -2:] for each in episodes]
    assert {it.kind for it in forms(alone).values()} <= {"sine and cosine"}


def test_few_rows_and_rows_with_nan_have_no_form():
    episodes, _ = vector_forms.make_vectors("direction", 4)
    assert forms([]) == forms(episodes[:2]) == forms([each[:9] for each in episodes]) == {}
    for each in episodes:
        each[::2] = np.nan
    assert "direction" in {it.kind for it in forms(episodes).values()}
    for each in episodes:
        each[:] = np.nan
    assert forms(episodes) == {}


def test_only_zero_elements_at_the_end_are_padding():
    rng = np.random.default_rng(0)
    episodes = [rng.normal(size=(60, 6)) * [1, 0, 1, 1, 0, 0] for _ in range(4)]
    assert {index: it.kind for index, it in forms(episodes).items()} == {
        4: "constant",
        5: "constant",
    }
    assert forms([0 * each for each in episodes]) == {}


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        (lambda action: action, []),
        (lambda action: action * (np.arange(40) > 0)[:, None], ["the first row is zero"]),
        (lambda action: action * (np.arange(40) < 39)[:, None], ["the last row is zero"]),
        (
            lambda action: action[[*range(39), 38]],
            ["the last row is the row before"],
        ),
        (
            lambda action: np.where((np.arange(40) == 39)[:, None], np.nan, action),
            ["the last row is not finite"],
        ),
        (lambda action: action * 0, []),
    ],
)
def test_conventions_of_the_first_and_the_last_row_are_reported(change, expected):
    rng = np.random.default_rng(0)
    episodes = [change(rng.normal(size=(40, 2))) for _ in range(10)]
    assert [*find_end_conventions(episodes)] == [
        f"{text} in 100% of the episodes" for text in expected
    ]
    assert [*find_end_conventions(episodes[:2])] == []


@pytest.fixture
def rotating(tmp_path):
    """The path of data with two quaternions, an angle in radians, and padded actions."""
    for index in range(8):
        rng = np.random.default_rng(index)
        left, right = (vector_forms.FORMS["quaternion, w last"][1](rng, 81) for _ in range(2))
        yaw = vector_forms.FORMS["angle, -pi to pi"][1](rng, 81)
        arrays = {
            "observation/state": np.concatenate([left, right, yaw], axis=1),
            "observation/joints": rng.normal(size=(81, 2)).cumsum(0),
            "action": np.where((np.arange(80) < 79)[:, None], rng.normal(size=(80, 2)), 0.0),
            "reward": np.zeros(80),
            "terminal": np.array(True),
        }
        np.savez(tmp_path / f"{index}.npz", **arrays)
    return tmp_path


def test_observations_with_forms_follow_the_actions(rotating):
    action, state = vector_meanings(rlds.sources.open(rotating))
    assert (action.field, state.field) == ("action", "observation/state")
    assert [*action.sentences()][1:] == ["action: the last row is zero in 100% of the episodes"]
    rotation, angle = state.sentences()
    assert rotation.startswith("observation/state[0:8]: 2 times quaternion, the index of its real")
    assert angle.startswith("observation/state[8]: angle, in rad, by ")


@pytest.mark.parametrize("unit", ["rad", "deg", ""])
def test_declared_unit_that_contradicts_the_wraps_of_an_angle_is_a_fact(rotating, unit):
    vectors = vector_meanings(rlds.sources.open(rotating))
    facts = [*contradictions(vectors, {}, {"observation/state[8]": unit})]
    angle = "observation/state[8]: declared in deg, but it wraps like an angle in rad"
    assert facts == ([angle] if unit == "deg" else [])
