"""Sizes of steps, and steps of zeros."""

import sys

import numpy as np
import pytest
import tensorflow as tf

from rlds.transformations import shape_ops, uniform_from_spec, zero_dataset_like, zeros_from_spec

SPEC = {
    "observation": {"image": tf.TensorSpec([2, 3], tf.uint8), "text": tf.TensorSpec([], tf.string)},
    "action": (tf.TensorSpec([], tf.float32), tf.TensorSpec([0], tf.int64)),
    "is_last": tf.TensorSpec([], tf.bool),
}


def test_size_from_spec_adds_up_all_tensors() -> None:
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
def test_size_from_spec_of_unknown_shapes_is_the_largest_integer(spec: tf.TypeSpec) -> None:
    assert shape_ops.size_from_spec({"x": spec, "y": tf.TensorSpec([])}) == sys.maxsize


def test_zeros_from_spec_match_the_spec() -> None:
    zeros = zeros_from_spec(SPEC)
    assert tf.nest.map_structure(tf.TensorSpec.from_tensor, zeros) == SPEC
    assert zeros["observation"]["image"].numpy().tolist() == [[0, 0, 0], [0, 0, 0]]
    assert zeros["observation"]["text"].numpy() == b""
    assert float(zeros["action"][0]) == 0.0
    assert not bool(zeros["is_last"])


def test_zeros_from_spec_replace_unknown_dimensions_by_one() -> None:
    assert zeros_from_spec(tf.TensorSpec([None, 2])).shape == (1, 2)
    assert zeros_from_spec(tf.TensorSpec(None)).shape == ()


def test_zero_dataset_like_makes_an_episode_of_zeros() -> None:
    steps = tf.data.Dataset.from_tensor_slices({"reward": [1.0, 2.0]})
    episodes = tf.data.Dataset.from_tensors({"steps": steps, "id": 7})
    (zero,) = zero_dataset_like(episodes)
    assert int(zero["id"]) == 0
    assert [float(step["reward"]) for step in zero["steps"]] == [0.0]


def test_zero_dataset_like_has_one_step_of_zeros() -> None:
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


def test_zero_dataset_keeps_unknown_dimensions_of_the_spec() -> None:
    """The dimensions used to become 1 in the spec too."""
    steps = tf.data.Dataset.range(3).map(lambda n: {"x": tf.range(n), "text": tf.fill([n, 2], "")})
    zeros = zero_dataset_like(steps)
    assert zeros.element_spec == steps.element_spec
    (zero,) = zeros
    assert zero["x"].numpy().tolist() == [0]
    assert zero["text"].shape == (1, 2)
    assert len(list(steps.concatenate(zeros))) == 4


DTYPES = "float16 bfloat16 float32 float64 int8 uint8 int16 uint16 int32 uint32 int64 uint64"


@pytest.mark.parametrize("name", DTYPES.split())
def test_uniform_from_spec_draws_numbers_of_every_dtype_in_range(name: str) -> None:
    """Only few dtypes used to be possible: no images, for example."""
    dtype = tf.as_dtype(name)
    values = uniform_from_spec(tf.TensorSpec([1000], dtype), 3, 7, seed=1)
    assert values.dtype == dtype
    drawn = values.numpy().astype(np.float64)
    assert 3 <= drawn.min() < 3.1
    assert drawn.max() <= 7
    if dtype.is_integer:
        assert set(drawn) == {3, 4, 5, 6}


def test_uniform_from_spec_draws_nested_steps() -> None:
    spec = {
        "image": tf.TensorSpec([None, 4], tf.uint8),
        "a": tf.TensorSpec([100], tf.float32),
        "b": (tf.TensorSpec([100], tf.float32), tf.TensorSpec([100], tf.bool)),
        "steps": tf.data.DatasetSpec({"reward": tf.TensorSpec([], tf.float64)}),
    }
    values = uniform_from_spec(spec, 0, 2, 7)
    assert values["image"].shape == (1, 4)
    assert 20 < np.sum(values["b"][1]) < 80
    assert not np.array_equal(values["a"], values["b"][0])
    assert [0 <= float(step["reward"]) < 2 for step in values["steps"]] == [True]
    inside = next(iter(tf.data.Dataset.range(1).map(lambda _: uniform_from_spec(spec, 0, 2, 7))))
    assert not np.array_equal(inside["a"], inside["b"][0])


@pytest.mark.parametrize(
    ("dtype", "low", "high", "message"),
    [
        (tf.string, 0, 1, "field 'x/y' has dtype string, which has no uniform values"),
        (tf.uint8, -1, 1, r"field 'x/y': uint8 cannot hold \[-1, 1\)"),
        (tf.uint8, 0, 257, "cannot hold"),
        (tf.float32, 1, 1, r"the range \[1, 1\) is empty"),
    ],
)
def test_uniform_from_spec_refuses_dtypes_and_bounds_without_uniform_values(
    dtype: tf.DType, low: int, high: int, message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        uniform_from_spec({"x": {"y": tf.TensorSpec([2], dtype)}}, low, high, 0)
