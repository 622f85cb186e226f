"""Sizes of steps, and steps of zeros."""

import sys

import numpy as np
import pytest
import tensorflow as tf

from rlds.transformations import shape_ops, zero_dataset_like, zeros_from_spec

SPEC = {
    "observation": {"image": tf.TensorSpec([2, 3], tf.uint8), "text": tf.TensorSpec([], tf.string)},
    "action": (tf.TensorSpec([], tf.float32), tf.TensorSpec([0], tf.int64)),
    "is_last": tf.TensorSpec([], tf.bool),
}


def test_size_from_spec() -> None:
    assert shape_ops.size_from_spec(SPEC) == 6 + 1024 + 4 + 0 + 1
    assert shape_ops.size_from_spec(tf.TensorSpec([2], tf.float64)) == 16
    assert shape_ops.size_from_spec((tf.TensorSpec([2], tf.string),)) == 2048


@pytest.mark.parametrize(
    "spec",
    [
        tf.TensorSpec([None], tf.float32),
        tf.TensorSpec(None, tf.float32),
        tf.RaggedTensorSpec([2, None]),
        tf.data.DatasetSpec(tf.TensorSpec([])),
    ],
)
def test_size_of_what_is_not_known(spec: tf.TypeSpec) -> None:
    assert shape_ops.size_from_spec({"x": spec, "y": tf.TensorSpec([])}) == sys.maxsize


def test_zeros_from_spec() -> None:
    zeros = zeros_from_spec(SPEC)
    assert tf.nest.map_structure(tf.TensorSpec.from_tensor, zeros) == SPEC
    assert zeros["observation"]["image"].numpy().tolist() == [[0, 0, 0], [0, 0, 0]]
    assert zeros["observation"]["text"].numpy() == b""
    assert float(zeros["action"][0]) == 0.0
    assert not bool(zeros["is_last"])


def test_zeros_in_place_of_unknown_dimensions() -> None:
    assert zeros_from_spec(tf.TensorSpec([None, 2])).shape == (1, 2)
    assert zeros_from_spec(tf.TensorSpec(None)).shape == ()


def test_zero_episode() -> None:
    steps = tf.data.Dataset.from_tensor_slices({"reward": [1.0, 2.0]})
    episodes = tf.data.Dataset.from_tensors({"steps": steps, "id": 7})
    (zero,) = zero_dataset_like(episodes)
    assert int(zero["id"]) == 0
    assert [float(step["reward"]) for step in zero["steps"]] == [0.0]


def test_zero_dataset_like() -> None:
    columns = {"observation": np.ones([3, 2], np.float32), "text": [b"a", b"b", b"c"]}
    steps = tf.data.Dataset.from_tensor_slices(columns)
    for zero in (
        zero_dataset_like(steps),
        zero_dataset_like(tf.data.DatasetSpec.from_value(steps)),
    ):
        assert zero.element_spec == steps.element_spec
        assert [step["text"].numpy() for step in zero] == [b""]
    batched = zero_dataset_like(columns)
    assert batched["observation"].numpy().tolist() == [[0.0, 0.0]]
    assert batched["text"].numpy().tolist() == [b""]
