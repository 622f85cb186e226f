"""Transitions of one and of several steps."""

from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given
from hypothesis import strategies as st
from random_episodes import (
    Columns,
    as_columns,
    assert_equal,
    assert_same_episodes,
    datasets,
    episode_columns,
    few_examples,
    in_both_layouts,
    pass_in_sections,
)

from rlds.transformations import relabel_goals, transitions


def calculate(steps: Columns, n: int, gamma: float, is_final_known: bool) -> list[dict[str, Any]]:
    """Computes transitions step by step."""
    result = []
    length = len(steps["reward"])
    is_appended = not is_final_known and length > 0 and bool(steps["is_terminal"][-1])
    final = length if is_appended else length - 1
    for i in range(max(final, 0)):
        after = min(i + n, final)
        reward, discount = 0.0, 1.0
        for j in range(i, after):
            reward += discount * float(steps["reward"][j])
            discount *= gamma * float(steps["discount"][j])
        is_placeholder = after == length
        # An observation on which an action was taken is not terminal.
        is_flagged = bool(steps["is_terminal"][min(after, length - 1)])
        is_terminal = is_placeholder or (is_flagged and not is_appended)
        state = steps["observation"]["state"]
        result.append(
            {
                "action": steps["action"][i],
                "reward": np.float32(reward),
                "discount": np.float32(0.0 if is_terminal else discount),
                "next_state": np.zeros(2) if is_placeholder else state[after],
                "next_is_last": after == final,
                "next_is_terminal": is_terminal,
            }
        )
    return result


@pytest.fixture
def _tiny_sections(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nested steps pass in sections of two or three."""
    pass_in_sections(monkeypatch, 5000)


@few_examples
@given(
    all_columns=datasets(),
    n=st.integers(1, 4),
    gamma=st.sampled_from([1.0, 0.9]),
    unknown=st.sets(st.integers(0, 7)),
)
@pytest.mark.usefixtures("_tiny_sections")
def test_transitions_equal_those_computed_by_hand_in_both_layouts(
    all_columns: list[Columns], n: int, gamma: float, unknown: set[int]
) -> None:
    is_known = [i not in unknown for i in range(len(all_columns))]
    both = in_both_layouts(*all_columns, final_observation_known=is_known)
    nested, batched = (transitions(data, n=n, gamma=gamma) for data in both)
    assert_same_episodes(nested, batched)
    for columns, is_final_known, episode in zip(all_columns, is_known, batched, strict=True):
        expected = calculate(columns, n, gamma, is_final_known)
        computed = as_columns(episode["steps"])
        assert len(computed["action"]) == len(expected)
        computed["next_state"] = computed["next_observation"]["state"]
        for i, transition in enumerate(expected):
            for name, value in transition.items():
                np.testing.assert_array_equal(computed[name][i], value, err_msg=name)


def test_all_other_fields_of_the_step_stay() -> None:
    columns = episode_columns(4)
    computed = transitions(columns)
    replaced = {"is_last", "is_terminal"}
    added = {"next_observation", "next_is_last", "next_is_terminal"}
    assert set(computed) == set(columns) - replaced | added
    assert computed["instruction"].numpy().tolist() == [b"go"] * 3
    assert_equal(computed["observation"], {k: v[:3] for k, v in columns["observation"].items()})
    assert_equal(
        computed["next_observation"], {k: v[1:] for k, v in columns["observation"].items()}
    )


def test_truncated_episodes_keep_their_last_discount() -> None:
    """The value of the final observation counts after a time limit, and only then."""
    steps = {"observation": [0, 1, 2], "reward": [1.0, 1.0, 0.0]}
    for is_terminal, last_discount in ((True, 0.0), (False, 0.5)):
        computed = transitions({**steps, "is_terminal": [False, False, is_terminal]}, gamma=0.5)
        assert computed["discount"].numpy().tolist() == [0.5, last_discount]
        assert computed["next_observation"].numpy().tolist() == [1, 2]


def test_zero_discount_ends_episodes_without_is_terminal() -> None:
    steps = {"observation": [0, 1, 2], "discount": [1.0, 0.0, 0.0]}
    computed = transitions(steps)
    assert computed["discount"].numpy().tolist() == [1.0, 0.0]
    assert computed["next_is_terminal"].numpy().tolist() == [False, True]
    assert "reward" not in computed
    unknown = transitions(steps, final_observation_known=False)
    assert unknown["next_observation"].numpy().tolist() == [1, 2, 0]
    assert unknown["next_is_terminal"].numpy().tolist() == [False, True, True]


def test_rewards_of_several_agents_and_integers_become_floats() -> None:
    steps = {
        "observation": [0, 1, 2],
        "reward": [[1, 10], [2, 20], [0, 0]],
        "is_terminal": [False, False, True],
    }
    computed = transitions(steps, n=2, gamma=0.5)
    assert computed["reward"].dtype == computed["discount"].dtype == tf.float32
    assert computed["reward"].numpy().tolist() == [[2.0, 20.0], [2.0, 20.0]]


@pytest.mark.slow
def test_lengths_are_static_if_possible() -> None:
    columns = episode_columns(5)
    static = tf.data.Dataset.from_tensors({"steps": columns})
    assert transitions(static).element_spec["steps"]["action"].shape == [4, 3]
    steps = tf.data.Dataset.from_tensor_slices(columns)
    assert len(transitions(steps)) == 4
    assert len(transitions(steps.take(0))) == 0
    assert transitions(steps, final_observation_known=False).cardinality() == -2
    assert transitions(steps.filter(lambda _: True)).cardinality() == -2
    assert len(transitions(static)) == 1


@pytest.mark.slow
@pytest.mark.parametrize("function", [transitions, lambda s: relabel_goals(s, seed=0)])
def test_steps_mapped_in_the_same_graph_become_transitions(function: Any) -> None:
    """TensorFlow fuses such a map with the batch that follows, or fails at it."""
    nested, _ = in_both_layouts(episode_columns(5))

    def transform(steps: tf.data.Dataset) -> tf.data.Dataset:
        return function(steps.map(lambda step: {**step, "reward": -step["reward"]}))

    (episode,) = nested.map(lambda e: {"steps": transform(e["steps"])})
    columns = episode_columns(5)
    columns["reward"] *= -1
    assert_equal(episode["steps"], function(columns))


def test_undeclared_shapes_are_kept() -> None:
    """Many published datasets have images of undeclared size."""
    images = np.arange(5 * 2 * 2).reshape([5, 2, 2]).astype(np.uint8)
    columns = {"observation": images, "is_terminal": np.zeros(5, np.bool_)}
    spec = {
        "observation": tf.TensorSpec([None, None], tf.uint8),
        "is_terminal": tf.TensorSpec([], tf.bool),
    }
    steps = tf.data.Dataset.from_generator(
        lambda: ({k: v[i] for k, v in columns.items()} for i in range(5)), output_signature=spec
    )
    assert_equal(transitions(steps), transitions(columns))


@pytest.mark.parametrize(
    ("changes", "options", "error", "message"),
    [
        ({}, {"n": 0}, ValueError, "transitions: n must be positive, got 0"),
        ({}, {"gamma": 1.5}, ValueError, "transitions: gamma must be between 0 and 1, got 1.5"),
        ({"observation": None}, {}, KeyError, "there is no field 'observation'. The fields are"),
        (
            {"is_terminal": None, "discount": None},
            {},
            KeyError,
            "neither 'is_terminal' nor 'discount', only .*truncated episodes look alike",
        ),
        ({"reward": np.array(["a"] * 3)}, {}, TypeError, "'reward' must be a numeric tensor"),
        ({"next_observation": np.ones(3)}, {}, ValueError, "already have the fields"),
    ],
)
@pytest.mark.parametrize("layout", [0, 1, 2])
def test_bad_input_is_an_error_at_once(
    layout: int, changes: dict, options: dict, error: type, message: str
) -> None:
    columns = {k: v for k, v in {**episode_columns(3), **changes}.items() if v is not None}
    data = columns if layout == 2 else in_both_layouts(columns)[layout]
    with pytest.raises(error, match=message):
        transitions(data, **options)
