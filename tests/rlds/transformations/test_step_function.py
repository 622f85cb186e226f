"""Reuse of traced functions in eager calls, and their application to batches."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from rlds.transformations import _step_function, map_steps

step_function = _step_function.step_function

SPEC = {"x": tf.TensorSpec([], tf.float32)}
SCALE = 2.0


def scale_by_global(step: dict[str, Any]) -> Any:
    return step["x"] * SCALE


def scale_by(scale: Any) -> Any:
    return lambda step: step["x"] * scale


@pytest.mark.parametrize(
    "scale", [3.0, np.float32(3.0), np.array([3.0], np.float32), tf.constant(3.0), (3.0, 1)[:1]]
)
def test_functions_with_equal_values_are_traced_once(scale: Any) -> None:
    assert step_function(scale_by(scale), SPEC) is step_function(scale_by(scale), SPEC)


@pytest.mark.slow
def test_functions_with_other_values_are_traced_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever a function reads from outside may have changed since it was traced."""
    steps = {"x": np.array([1.0], np.float32)}
    scale = np.array(2.0, np.float32)
    by_array, settings = scale_by(scale), {"scale": 2.0}

    def by_dict(step: dict[str, Any]) -> Any:
        return step["x"] * settings["scale"]

    def through_another(step: dict[str, Any]) -> Any:
        return scale_by_global(step)

    functions = (by_array, by_dict, scale_by_global, through_another)
    for function in functions:
        assert map_steps(steps, function).numpy().tolist() == [2.0]
    scale[...] = 5.0
    settings["scale"] = 5.0
    monkeypatch.setitem(globals(), "SCALE", 5.0)
    for function in functions:
        assert map_steps(steps, function).numpy().tolist() == [5.0]


class Scaler:
    def __init__(self) -> None:
        self.scale = 2.0

    def __call__(self, step: dict[str, Any]) -> Any:
        return step["x"] * self.scale


def test_functions_that_cannot_be_compared_are_traced_again() -> None:
    scaler = Scaler()
    steps = {"x": np.array([1.0], np.float32)}
    for function in (scaler, scaler.__call__, lambda step: scaler(step)):
        scaler.scale = 2.0
        assert map_steps(steps, function).numpy().tolist() == [2.0]
        scaler.scale = 3.0
        assert map_steps(steps, function).numpy().tolist() == [3.0]

    def add_noise(step: dict[str, Any]) -> Any:
        return step["x"] + np.random.default_rng().normal()

    assert step_function(add_noise, SPEC) is not step_function(add_noise, SPEC)


def test_steps_of_another_shape_are_traced_again() -> None:
    function = scale_by(2.0)
    assert map_steps({"x": np.array([1.0, 2.0])}, function).numpy().tolist() == [2.0, 4.0]
    assert map_steps({"x": np.array([[1.0]])}, function).numpy().tolist() == [[2.0]]
    assert map_steps({"x": np.array([1.0])}, function).numpy().tolist() == [2.0]


@pytest.mark.slow
def test_cache_of_traced_functions_is_bounded() -> None:
    for scale in range(2 * _step_function._MAX_CACHED_FUNCTIONS):
        step_function(scale_by(float(scale)), SPEC)
    assert len(_step_function._cache) == _step_function._MAX_CACHED_FUNCTIONS


def test_equal_variables_are_distinguished() -> None:
    first, second = tf.Variable(2.0), tf.Variable(2.0)
    steps = {"x": np.array([1.0], np.float32)}
    assert map_steps(steps, scale_by(first)).numpy().tolist() == [2.0]
    first.assign(5.0)
    assert map_steps(steps, scale_by(second)).numpy().tolist() == [2.0]
    assert map_steps(steps, scale_by(first)).numpy().tolist() == [5.0]


PAIRS: dict[str, Callable[[Any, Any], Any]] = {
    "elementwise": lambda x, v: {"x": -x, "v": tf.where(v > 0.5, v * [1.0, 2.0, 3.0], 0.0), "w": v},
    "more axes": lambda x, v: x * tf.constant([1.0, 2.0, 3.0]),
    "more axes of its own": lambda x, v: x + v,
    "a constant": lambda x, v: (x, tf.ones([3])),
    "across elements": lambda x, v: (tf.reduce_sum(v), v[::-1], v[0]),
    "one element": lambda x, v: tf.reshape(x, [1]) * v,
}


@pytest.mark.slow
@pytest.mark.parametrize("function", PAIRS.values(), ids=PAIRS)
@pytest.mark.parametrize("num_steps", [0, 1, 3])
def test_batches_are_mapped_like_single_steps(function: Callable[..., Any], num_steps: int) -> None:
    """With three steps of three elements, a wrong axis would not be noticed by its length."""
    spec = (tf.TensorSpec([], tf.float32), tf.TensorSpec([3], tf.float32))
    rng = np.random.default_rng(num_steps)
    batch = tuple(tf.constant(rng.random((num_steps, *s.shape)), s.dtype) for s in spec)
    traced = step_function(function, spec)
    steps = zip(*map(tf.unstack, batch))
    expected = tf.nest.map_structure(
        lambda leaf, *values: np.reshape(values, [num_steps, *leaf.shape]),
        traced.output_spec,
        *(function(*step) for step in steps),
    )
    tf.nest.map_structure(np.testing.assert_array_equal, traced.apply(batch), expected)
