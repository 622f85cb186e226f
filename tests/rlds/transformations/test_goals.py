"""Hindsight goals."""

import collections
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
    rest_after_restoring,
)

from rlds.transformations import relabel_goals


def is_reached(step: dict[str, Any]) -> tf.Tensor:
    return tf.cast(step["goal_distance"] == 1, tf.float32)


@few_examples
@given(
    all_columns=datasets(),
    strategy=st.sampled_from(["uniform", "last", "geometric"]),
    max_distance=st.sampled_from([None, 2]),
    seed=st.integers(0, 2**31),
)
def test_goals_are_relabeled_alike_in_both_layouts(
    all_columns: list[Columns], strategy: str, max_distance: int | None, seed: int
) -> None:
    options = {"seed": seed, "strategy": strategy, "max_distance": max_distance}
    both = in_both_layouts(*all_columns)
    nested, batched = (relabel_goals(data, **options, reward_fn=is_reached) for data in both)
    assert_same_episodes(nested, batched)
    for columns, episode in zip(all_columns, batched, strict=True):
        relabeled = as_columns(episode["steps"])
        length = len(columns["reward"])
        distance = relabeled["goal_distance"]
        farthest = length - 1 - np.arange(length)
        assert (distance <= np.minimum(farthest, max_distance or length)).all()
        assert (distance[:-1] >= 1).all()
        state = columns["observation"]["state"]
        np.testing.assert_array_equal(
            relabeled["goal"]["state"], state[np.arange(length) + distance]
        )
        assert relabeled["reward"].tolist() == (distance == 1).tolist()


def count_distances(strategy: str, **options: Any) -> collections.Counter[int]:
    """Counts the distances of the goal of the first of 6 steps, in 1000 episodes."""
    steps = {"observation": np.arange(6)}
    episodes = tf.data.Dataset.from_tensors({"steps": steps}).repeat(1000)
    relabeled = relabel_goals(episodes, seed=1, strategy=strategy, **options)
    return collections.Counter(
        int(d) for e in relabeled.batch(1000) for d in e["steps"]["goal_distance"][:, 0]
    )


@pytest.mark.slow
def test_goal_distances_follow_their_distribution() -> None:
    uniform = count_distances("uniform")
    assert set(uniform) == {1, 2, 3, 4, 5}
    assert all(abs(count - 200) < 60 for count in uniform.values())
    assert set(count_distances("uniform", max_distance=2)) == {1, 2}
    geometric = count_distances("geometric", gamma=0.5)
    total = sum(0.5**d for d in range(1, 6))
    for d in range(1, 6):
        assert abs(geometric[d] / 1000 - 0.5**d / total) < 0.04
    assert count_distances("last") == {5: 1000}


@pytest.mark.slow
def test_goals_depend_on_the_seed_and_the_episode_alone(tmp_path: Any) -> None:
    columns = episode_columns(40)
    _, batched = in_both_layouts(columns, columns)

    def list_distances(data: tf.data.Dataset, seed: int = 3) -> list[list[int]]:
        relabeled = relabel_goals(data, seed=seed)
        return [episode["steps"]["goal_distance"].numpy().tolist() for episode in relabeled]

    first, second = list_distances(batched)
    assert first != second
    assert list_distances(batched) == [first, second]
    assert list_distances(batched, seed=4) != [first, second]
    later_epoch = list_distances(batched.repeat(2))
    assert later_epoch[:2] == [first, second]
    assert later_epoch[2:] != [first, second]

    relabeled = relabel_goals(batched.repeat(3), seed=3)
    expected, restored = rest_after_restoring(relabeled, 4, tmp_path)
    assert len(expected) == 2
    for before, after in zip(expected, restored, strict=True):
        assert_equal(before, after)


@pytest.mark.slow
def test_the_reward_function_may_use_python_control_flow() -> None:
    def reward(step: dict[str, Any]) -> Any:
        if step["goal_distance"] == 1:
            result = 1.0
        else:
            result = -1.0
        return result

    for data in in_both_layouts(episode_columns(4)):
        relabeled = relabel_goals(data, seed=0, strategy="last", reward_fn=reward)
        (episode,) = relabeled
        rewards = as_columns(episode["steps"])["reward"]
        assert rewards.tolist() == [-1.0, -1.0, 1.0, -1.0]


@pytest.mark.slow
def test_field_of_the_observation_may_be_the_goal() -> None:
    columns = episode_columns(4)
    relabeled = relabel_goals(
        columns, seed=0, strategy="last", get_goal=lambda observation: observation["state"]
    )
    np.testing.assert_array_equal(relabeled["goal"], columns["observation"]["state"][[3, 3, 3, 3]])
    in_graph = tf.function(lambda steps: relabel_goals(steps, seed=5, strategy="geometric"))
    assert_equal(in_graph(columns), relabel_goals(columns, seed=5, strategy="geometric"))


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"strategy": "random"}, ValueError, "strategy must be one of .*got 'random'"),
        ({"max_distance": 0}, ValueError, "max_distance must be positive, got 0"),
        ({"strategy": "geometric", "gamma": 1.0}, ValueError, "gamma must lie between 0 and 1"),
    ],
)
def test_bad_input_is_an_error_at_once(options: dict, error: type, message: str) -> None:
    for data in in_both_layouts(episode_columns(3)):
        with pytest.raises(error, match=f"relabel_goals: {message}"):
            relabel_goals(data, seed=0, **options)


def test_missing_and_existing_fields_are_refused() -> None:
    with pytest.raises(KeyError, match="relabel_goals: there is no field 'observation'"):
        relabel_goals({"obs": [1, 2]}, seed=0)
    with pytest.raises(ValueError, match=r"already have the fields \['goal'\]"):
        relabel_goals({"observation": [1, 2], "goal": [1, 2]}, seed=0)
