"""Rows in raw orders against the same episode in RLDS order."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rlds import append_row, from_rsa, from_sars


def make_transitions(length):
    """Returns an episode in which each value encodes its field and step."""
    return {
        "observation": {"x": 100 + np.arange(length + 1), "y": np.ones((length + 1, 2))},
        "action": 200 + np.arange(length),
        "reward": 300.0 + np.arange(length),
        "discount": 0.5 + 0.01 * np.arange(length),
    }


@given(st.integers(1, 6), st.booleans())
def test_all_orders_give_the_same_steps(length, terminal):
    rows = make_transitions(length)
    steps = from_sars(**rows, terminal=terminal)
    before = {name: np.concatenate([[np.nan], rows[name]]) for name in ("reward", "discount")}
    for action, led_here in (
        (np.concatenate([[-1], rows["action"]]), True),
        (np.concatenate([rows["action"], [-1]]), False),
    ):
        shifted = from_rsa(
            observation=rows["observation"],
            action=action,
            **before,
            terminal=terminal,
            action_led_here=led_here,
        )
        assert shifted.keys() == steps.keys()
        for name in steps.keys() - {"observation"}:
            np.testing.assert_array_equal(shifted[name], steps[name])
    np.testing.assert_array_equal(steps["observation"]["x"], rows["observation"]["x"])
    np.testing.assert_array_equal(steps["action"], [*rows["action"], 0])
    np.testing.assert_array_equal(steps["reward"], [*rows["reward"], 0])
    assert steps["is_first"].tolist() == [True] + [False] * length
    assert steps["is_last"].tolist() == [False] * length + [True]
    assert steps["is_terminal"].tolist() == [False] * length + [terminal]


@pytest.mark.parametrize(("terminal", "expected"), [(True, [1, 0, 0]), (False, [1, 1, 0])])
def test_missing_discount_follows_from_terminal(terminal, expected):
    steps = from_sars(observation=np.zeros(3), action=np.zeros(2), terminal=terminal)
    assert "reward" not in steps
    assert steps["discount"].tolist() == expected
    assert steps["discount"].dtype == np.float32


@pytest.mark.parametrize(("terminal", "expected"), [(True, [1, 0]), (False, [1, 1])])
def test_unknown_final_observation_keeps_the_last_transition(terminal, expected):
    steps = from_sars(
        observation=np.array([1, 2]),
        action=np.array([3, 4]),
        reward=np.array([5.0, 6.0]),
        terminal=terminal,
        transition_metadata={"timeout": np.array([False, True])},
    )
    assert steps["action"].tolist() == [3, 4]
    assert steps["reward"].tolist() == [5.0, 6.0]
    assert steps["discount"].tolist() == expected
    assert steps["timeout"].tolist() == [False, True]
    assert steps["is_terminal"].tolist() == [False, terminal]


def test_metadata_becomes_fields_padded_at_the_end():
    steps = from_sars(
        observation=np.zeros(2),
        action=np.array(["go"], object),
        reward=None,
        terminal=False,
        transition_metadata={"done": np.array([True]), "note": np.array([b"x"], object)},
        observation_metadata={"info": {"position": np.array([7, 8])}},
    )
    assert steps["action"].tolist() == ["go", ""]
    assert steps["done"].tolist() == [True, False]
    assert steps["note"].tolist() == [b"x", b""]
    assert steps["info"]["position"].tolist() == [7, 8]
    assert "reward" not in steps


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"observation": np.zeros(4)}, "4 observations and 2 actions"),
        ({"reward": np.zeros(3)}, "reward: 3 rows, expected 2"),
        ({"transition_metadata": {"done": np.zeros(3)}}, "done: 3 rows, expected 2"),
        ({"observation_metadata": {"info": np.zeros(2)}}, "info: 2 rows, expected 3"),
        ({"observation_metadata": {"action": np.zeros(3)}}, "action: another field has this name"),
        ({"observation": {"x": np.zeros(3), "y": np.zeros(2)}}, "observation: the columns differ"),
        ({"observation": np.zeros(0), "action": np.zeros(0)}, "0 observations"),
    ],
)
def test_rows_of_different_count_are_refused(change, message):
    rows = {"observation": np.zeros(3), "action": np.zeros(2), "reward": np.zeros(2)}
    with pytest.raises(ValueError, match=message):
        from_sars(**{**rows, **change}, terminal=False)


def test_append_row_extends_each_column():
    columns = {"x": np.array([1, 2], np.int8), "y": np.zeros((2, 3), np.float32)}
    longer = append_row(columns, {"x": 5, "y": np.ones(3)})
    assert longer["x"].tolist() == [1, 2, 5]
    assert longer["x"].dtype == np.int8
    assert longer["y"].shape == (3, 3)
