"""The test case that compares steps and datasets."""

from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from rlds.transformations.transformations_testlib import TransformationsTest

STEP = {"observation": {"x": np.array([1, 2]), "pair": (1, {"y": 2.0})}, "reward": 1.0}


@pytest.fixture
def case() -> TransformationsTest:
    return TransformationsTest()


def test_expect_equal_step_accepts_equal_steps(case: TransformationsTest) -> None:
    case.expect_equal_step({**STEP, "more": 1}, STEP)
    case.expect_equal_step(tf.nest.map_structure(tf.constant, STEP), STEP)


@pytest.mark.parametrize(
    "step",
    [
        {"reward": 1.0},
        {**STEP, "reward": 2.0},
        {**STEP, "reward": [1.0]},
        {**STEP, "observation": {"x": np.array([1, 3]), "pair": (1, {"y": 2.0})}},
        {**STEP, "observation": {"x": np.array([1, 2]), "pair": (1, {"y": 3.0})}},
        {**STEP, "observation": {"x": np.array([1, 2]), "pair": (1,)}},
        {**STEP, "observation": {**STEP["observation"], "more": 1}},
    ],
)
def test_expect_equal_step_refuses_different_steps(
    case: TransformationsTest, step: dict[str, Any]
) -> None:
    with pytest.raises(AssertionError):
        case.expect_equal_step(step, STEP)


def test_expect_equal_datasets_compares_values_and_lengths(case: TransformationsTest) -> None:
    def episodes(*rewards: float) -> tf.data.Dataset:
        steps = tf.data.Dataset.from_tensor_slices({"reward": list(rewards)})
        return tf.data.Dataset.from_tensors({"steps": steps})

    case.expect_equal_datasets(episodes(1.0, 2.0), episodes(1.0, 2.0))
    with pytest.raises(AssertionError, match="reward"):
        case.expect_equal_datasets(episodes(1.0, 2.0), episodes(1.0, 3.0))
    with pytest.raises(AssertionError, match="length of the dataset"):
        case.expect_equal_datasets(episodes(1.0, 2.0), episodes(1.0))


def test_expect_nested_dict_equality_compares_names_and_values(case: TransformationsTest) -> None:
    case.expect_nested_dict_equality({"a": {"b": [1.0, 2.0]}}, {"a": {"b": [1.0, 2.0]}})
    nearly = {"a": {"b": [1.0, 2.000001]}}
    case.expect_nested_dict_equality(nearly, {"a": {"b": [1.0, 2.0]}}, approximate=True)
    for other in ({"a": {"b": [1.0, 2.0]}}, {"a": {"c": [1.0, 2.0]}}, {"a": {"b": [1.0]}}):
        with pytest.raises(AssertionError):
            case.expect_nested_dict_equality(nearly, other)
