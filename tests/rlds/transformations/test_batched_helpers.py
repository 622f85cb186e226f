"""Functions of windows of steps."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from rlds.transformations.batched_helpers import batched_map


def nested(steps: Any) -> tf.data.Dataset:
    return tf.data.Dataset.from_tensor_slices(steps)


def as_list(steps: Any) -> list[Any]:
    return [
        int(step["x"]) for step in (steps if isinstance(steps, tf.data.Dataset) else nested(steps))
    ]


def reverse(window: dict[str, Any]) -> dict[str, Any]:
    return {"x": window["x"][::-1]}


both_layouts = pytest.mark.parametrize("layout", [nested, dict], ids=["nested", "batched"])


@pytest.mark.slow
@both_layouts
@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ({}, [4, 3, 2, 1, 0]),
        ({"size": 2}, [1, 0, 3, 2, 4]),
        ({"size": 2, "shift": 3}, [1, 0, 4, 3]),
        ({"size": 3, "shift": 2}, [2, 1, 0, 4, 3, 2, 4]),
        ({"size": 2, "shift": 2, "stride": 2}, [2, 0, 4, 2, 4]),
        ({"size": 2, "num_parallel_calls": 2}, [1, 0, 3, 2, 4]),
    ],
)
def test_windows_are_mapped_and_joined(
    layout: Callable[[Any], Any], arguments: dict[str, int], expected: list[int]
) -> None:
    assert as_list(batched_map(layout({"x": np.arange(5)}), reverse, **arguments)) == expected


@pytest.mark.slow
@both_layouts
def test_the_number_of_steps_may_change(layout: Callable[[Any], Any]) -> None:
    def repeat_steps(window: dict[str, Any]) -> dict[str, Any]:
        return {"x": tf.repeat(window["x"], 2)}

    steps = layout({"x": np.arange(3)})
    assert as_list(batched_map(steps, repeat_steps, size=2)) == [0, 0, 1, 1, 2, 2]
    assert as_list(batched_map(steps, lambda window: {"x": window["x"][:0]})) == []
    assert as_list(batched_map(layout({"x": np.arange(0)}), repeat_steps)) == []


@pytest.mark.slow
@both_layouts
def test_fields_without_elements_are_mapped(layout: Callable[[Any], Any]) -> None:
    """`Dataset.unbatch` crashes on them."""
    steps = layout({"x": np.arange(3), "nothing": np.zeros([3, 0])})
    assert as_list(batched_map(steps, lambda window: window, size=2)) == [0, 1, 2]


@both_layouts
def test_bad_sizes_are_refused(layout: Callable[[Any], Any]) -> None:
    with pytest.raises(ValueError, match="stride must be positive, got 0"):
        batched_map(layout({"x": np.arange(3)}), reverse, size=2, stride=0)
