"""Transformations of steps after a user's own `Dataset.map`, in one graph."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from fast_share import one_in

import rlds.transformations as t

EXTRA = {"reward": np.array([7.0, 8.0]), "is_terminal": [False, False], "position": np.ones([2, 3])}


def double_reward(step: dict[str, Any]) -> dict[str, Any]:
    return {**step, "reward": step["reward"] * 2.0}


def make_episodes(rewards: Any) -> tf.data.Dataset:
    rewards = np.asarray(rewards)
    steps = {
        "reward": rewards,
        "is_terminal": np.arange(len(rewards)) == len(rewards) - 1,
        "position": np.zeros([len(rewards), 3]),
    }
    return tf.data.Dataset.from_tensors(steps).map(
        lambda columns: {"steps": tf.data.Dataset.from_tensor_slices(columns)}
    )


def nested(columns: dict[str, Any]) -> tf.data.Dataset:
    return tf.data.Dataset.from_tensor_slices(columns)


FUNCTIONS: dict[str, Callable[[tf.data.Dataset], Any]] = {
    "batch": lambda steps: t.batch(steps, 2, shift=1),
    "batch_apart": lambda steps: t.batch(steps, 2),
    "concat_if_terminal": lambda steps: t.concat_if_terminal(steps, lambda last: nested(EXTRA)),
    "concatenate": lambda steps: t.concatenate(steps, nested({**EXTRA, "is_extra": [True, True]})),
    "episode_length": lambda steps: {"length": t.episode_length(steps)},
    "episode_return": lambda steps: {"return": t.episode_return(steps)},
    "final_step": t.final_step,
    "map_steps": lambda steps: t.map_steps(steps, double_reward),
    "returns_to_go": t.returns_to_go,
    "shift_keys": lambda steps: t.shift_keys(steps, ["reward"], 1),
    "sum_dataset": lambda steps: t.sum_dataset(steps, lambda step: {"reward": step["reward"]}),
    "to_batched": t.to_batched,
    "truncate": lambda steps: t.truncate_after_condition(steps, lambda step: step["reward"] > 4.0),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", one_in(len(FUNCTIONS), FUNCTIONS))
def test_a_map_before_the_transformation_is_like_mapped_data(name: str) -> None:
    # In a graph that asks for the cardinality of a mapped dataset, TensorFlow's optimizer fails
    # where it fuses that map with a batch; and a fused batch of all steps would end the process.
    def transform(episodes: tf.data.Dataset, function: Callable[..., Any]) -> list[Any]:
        def apply(episode: dict[str, Any]) -> Any:
            result = FUNCTIONS[name](function(episode["steps"]))
            if isinstance(result, tf.data.Dataset):
                return result.batch(1)
            return tf.data.Dataset.from_tensors(result)

        return list(episodes.flat_map(apply).as_numpy_iterator())

    rewards = np.array([1.0, 2.0, 3.0])
    actual = transform(make_episodes(rewards), lambda steps: steps.map(double_reward))
    expected = transform(make_episodes(2.0 * rewards), lambda steps: steps)

    assert actual
    tf.nest.map_structure(np.testing.assert_array_equal, actual, expected)
