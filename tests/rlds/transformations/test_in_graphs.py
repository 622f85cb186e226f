"""All transformations of steps: in graphs, in both layouts, and after a restore."""

import functools
from collections.abc import Callable
from typing import Any

import pytest
import tensorflow as tf
from random_episodes import (
    as_columns,
    assert_equal,
    episode_columns,
    in_both_layouts,
    rest_after_restoring,
)

from rlds.transformations import (
    add_absorbing_states,
    compute_statistics,
    concat_if_terminal,
    concatenate,
    drop_idle_steps,
    episode_length,
    final_step,
    map_steps,
    normalize,
    relabel_goals,
    returns_to_go,
    shift_keys,
    subsample,
    sum_dataset,
    to_batched,
    to_nested,
    transitions,
    truncate_after_condition,
    windows,
)
from rlds.transformations.batched_helpers import batched_map

COLUMNS = episode_columns(6)


@functools.cache
def statistics():
    return compute_statistics(in_both_layouts(COLUMNS)[1], ["action"], include_last_action=True)


def make_extra(step: Any) -> Any:
    """Returns extra steps, by Python control flow that only AutoGraph puts into a graph."""
    if step["reward"] > 100.0:
        reward = 7.0
    else:
        reward = 8.0
    return {"reward": [reward], "is_terminal": [True]}


def make_nested_extra(step: Any) -> Any:
    return to_nested(make_extra(step))


# Functions of steps in either layout.
FUNCTIONS: dict[str, Callable[[Any], Any]] = {
    "add_absorbing_states": add_absorbing_states,
    "batched_map": lambda steps: batched_map(
        steps, lambda rows: tf.nest.map_structure(lambda leaf: tf.reverse(leaf, [0]), rows), size=4
    ),
    "concat_if_terminal": lambda steps: concat_if_terminal(
        steps, make_nested_extra if isinstance(steps, tf.data.Dataset) else make_extra
    ),
    "concatenate": lambda steps: concatenate(steps, map_steps(steps, lambda s: {"b": s["reward"]})),
    "drop_idle_steps": lambda steps: drop_idle_steps(steps, tolerance=0.5),
    "episode_length": episode_length,
    "final_step": final_step,
    "map_steps": lambda steps: map_steps(steps, lambda step: {"r": step["reward"] + 1}),
    "normalize": lambda steps: normalize(steps, statistics()),
    "relabel_goals": lambda steps: relabel_goals(steps, seed=0),
    "returns_to_go": lambda steps: returns_to_go(steps, gamma=0.9),
    "shift_keys": lambda steps: shift_keys(steps, ["action"], -1),
    "subsample": lambda steps: subsample(steps, stride=2),
    "sum_dataset": lambda steps: sum_dataset(steps, lambda step: step["reward"]),
    "to_batched": to_batched,
    "to_nested": to_nested,
    "transitions": lambda steps: transitions(steps, n=2),
    "truncate_after_condition": lambda steps: truncate_after_condition(
        steps, lambda step: step["reward"] == COLUMNS["reward"][2], set_is_last=True
    ),
    "windows": lambda steps: windows(steps, history=2, horizon=3),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", FUNCTIONS)
def test_graphs_equal_eager_execution(name, tmp_path):
    function = FUNCTIONS[name]
    expected = as_columns(function(COLUMNS))
    for steps in (tf.data.Dataset.from_tensor_slices(COLUMNS), COLUMNS):
        assert_equal(function(steps), expected)
        assert_equal(tf.function(function)(steps), expected)
        (inside,) = tf.data.Dataset.from_tensors(steps).map(function)
        assert_equal(inside, expected)
        if isinstance(inside, tf.data.Dataset):
            assert_equal(tf.data.Dataset.from_tensors(steps).flat_map(function), expected)
            before, after = rest_after_restoring(function(steps), 2, tmp_path)
            for element, restored in zip(before, after, strict=True):
                assert_equal(element, restored)
