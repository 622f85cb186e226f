"""Sums of rewards."""

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
)

from rlds.transformations import episode_return, returns_to_go


def calculate(columns: Columns, gamma: float, stored: bool, is_final_known: bool) -> list[float]:
    sums, total = [], 0.0
    length = len(columns["reward"])
    for i in reversed(range(length)):
        is_placeholder = is_final_known and i == length - 1
        discount = gamma * (float(columns["discount"][i]) if stored else 1.0)
        reward = 0.0 if is_placeholder else float(columns["reward"][i])
        total = reward + discount * total
        sums.append(total)
    return sums[::-1]


@few_examples
@given(
    all_columns=datasets(),
    gamma=st.sampled_from([1.0, 0.9, 0.0]),
    stored=st.booleans(),
    unknown=st.sets(st.integers(0, 7)),
)
def test_returns_equal_those_computed_by_hand_in_both_layouts(
    all_columns: list[Columns], gamma: float, stored: bool, unknown: set[int]
) -> None:
    is_known = [i not in unknown for i in range(len(all_columns))]
    both = in_both_layouts(*all_columns, final_observation_known=is_known)
    options = {"gamma": gamma, "stored_discounts": stored}
    nested, batched = (returns_to_go(data, **options) for data in both)
    assert_same_episodes(nested, batched)
    totals = [list(data.map(lambda e: episode_return(e, **options))) for data in both]
    for i, episode in enumerate(batched):
        expected = calculate(all_columns[i], gamma, stored, is_known[i])
        computed = as_columns(episode["steps"])["return_to_go"]
        np.testing.assert_allclose(computed, expected, rtol=1e-6)
        for total in totals:
            np.testing.assert_allclose(total[i], expected[0] if expected else 0.0, rtol=1e-6)


def test_nested_rewards_equal_arrays_per_leaf() -> None:
    reward, discount = np.random.default_rng(0).random((2, 5, 2), np.float32)

    def split(column: np.ndarray) -> dict[str, np.ndarray]:
        return {"a": column[:, 0], "b": column[:, 1]}

    for in_array, in_dict in ((discount, split(discount)), (discount[:, 0], discount[:, 0])):
        arrays = {"reward": reward, "discount": in_array}
        nested = {"reward": split(reward), "discount": in_dict}
        for stored in (False, True):
            options = {"gamma": 0.9, "stored_discounts": stored}
            expected = as_columns(returns_to_go(arrays, **options))["return_to_go"]
            for layout in (nested, tf.data.Dataset.from_tensor_slices(nested)):
                computed = as_columns(returns_to_go(layout, **options))["return_to_go"]
                assert_equal(computed, split(expected))
                total = episode_return(layout, **options)
                assert [float(total[leaf]) for leaf in "ab"] == expected[0].tolist()


def test_the_reward_of_the_last_step_is_a_placeholder() -> None:
    steps = {"reward": [1, 2, 99]}
    for layout in (steps, tf.data.Dataset.from_tensor_slices(steps)):
        assert episode_return(layout) == 3.0
        assert episode_return(layout, final_observation_known=False) == 102.0
        assert episode_return({"steps": layout, "final_observation_known": False}) == 102.0
        assert episode_return(layout).dtype == tf.float32


@pytest.mark.slow
def test_returns_of_long_episodes_are_exact() -> None:
    """Added in float32, the sum would stop at 2^24."""
    rewards = np.ones(2**24 + 1001, np.float32)
    assert episode_return({"reward": rewards}) == 2**24 + 1000
    # Discounting is vectorized and does not underflow.
    to_go = returns_to_go({"reward": rewards[:100_000]}, gamma=0.99)["return_to_go"]
    np.testing.assert_allclose(to_go[:90_000], np.full(90_000, 100.0), rtol=1e-6)


def test_rewards_of_several_agents_have_returns() -> None:
    steps = {"reward": [[1.0, 10.0], [2.0, 20.0], [0.0, 0.0]], "discount": [1.0, 0.5, 0.0]}
    assert episode_return(steps).numpy().tolist() == [3.0, 30.0]
    computed = returns_to_go(steps, gamma=0.5, stored_discounts=True, field="g")["g"]
    assert computed.numpy().tolist() == [[2.0, 20.0], [2.0, 20.0], [0.0, 0.0]]


def test_bad_input_is_an_error_at_once() -> None:
    columns = episode_columns(3)
    with pytest.raises(ValueError, match="returns_to_go: gamma must be between 0 and 1, got 2"):
        returns_to_go(columns, gamma=2)
    with pytest.raises(ValueError, match=r"already have the fields \['action'\]"):
        returns_to_go(columns, field="action")
    with pytest.raises(KeyError, match="episode_return: there is no field 'reward'"):
        episode_return({"action": [1, 2]})
    with pytest.raises(KeyError, match="returns_to_go: there is no field 'discount'"):
        returns_to_go({"reward": [1, 2]}, stored_discounts=True)
    with pytest.raises(TypeError, match="'reward' must be a numeric tensor"):
        episode_return({"reward": ["a", "b"]})
    with pytest.raises(TypeError, match=r"a dataset of episodes\. Map it"):
        episode_return(in_both_layouts(columns)[0])
