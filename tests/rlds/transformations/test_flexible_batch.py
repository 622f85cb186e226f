"""Windows over steps."""

from collections.abc import Callable, Iterator
from unittest import mock

import numpy as np
import pytest
import tensorflow as tf
from fast_share import one_in
from hypothesis import given, settings
from hypothesis import strategies as st
from random_episodes import few_examples

from rlds.transformations import batch, flexible_batch

UNKNOWN = tf.data.experimental.UNKNOWN_CARDINALITY
INFINITE = tf.data.experimental.INFINITE_CARDINALITY


def count_to(n: int) -> tf.data.Dataset:
    return tf.data.Dataset.range(n)


def hide_length(dataset: tf.data.Dataset) -> tf.data.Dataset:
    return dataset.filter(lambda *_: True)


def as_lists(dataset: tf.data.Dataset) -> list:
    return [tf.nest.map_structure(lambda leaf: leaf.numpy().tolist(), e) for e in dataset]


def simple_windows(
    dataset: tf.data.Dataset, size: int, shift: int, stride: int, drop_remainder: bool
) -> tf.data.Dataset:
    """Implements the definition: one dataset per window."""
    windows = dataset.window(size, shift, stride, drop_remainder)
    return windows.flat_map(lambda window: tf.data.Dataset.zip(window).batch(size))


@pytest.mark.slow
@settings(few_examples, max_examples=2 * few_examples.max_examples)
@given(
    n=st.integers(0, 12),
    size=st.integers(1, 5),
    shift=st.integers(1, 6),
    stride=st.integers(1, 3),
    drop_remainder=st.booleans(),
    chunk_size=st.sampled_from([1, 50, 1_000_000]),
)
def test_windows_equal_the_definition(
    n: int, size: int, shift: int, stride: int, drop_remainder: bool, chunk_size: int
) -> None:
    elements = {
        "observation": {"x": np.arange(2 * n, dtype=np.float32).reshape(n, 2)},
        "text": np.array([f"step {i}" for i in range(n)], dtype=object).astype("S"),
    }
    dataset = tf.data.Dataset.from_tensor_slices(elements)

    with mock.patch.object(flexible_batch, "_CHUNK_SIZE_IN_BYTES", chunk_size):
        windows = batch(dataset, size, shift, stride, drop_remainder)

    expected = simple_windows(dataset, size, shift, stride, drop_remainder)
    assert as_lists(windows) == as_lists(expected)
    assert int(windows.cardinality()) == len(list(expected))
    leading = size if drop_remainder else None
    assert windows.element_spec["observation"]["x"].shape.as_list() == [leading, 2]


@pytest.mark.slow
@pytest.mark.parametrize("shift", [None, 0])
def test_default_shift_is_the_size(shift: int | None) -> None:
    assert as_lists(batch(count_to(5), size=2, shift=shift)) == [[0, 1], [2, 3], [4]]
    assert as_lists(batch(count_to(5), size=2, shift=shift, stride=2)) == [[0, 2], [2, 4], [4]]


@pytest.mark.slow
def test_datasets_of_any_structure_are_batched() -> None:
    pairs = tf.data.Dataset.zip((count_to(3), count_to(3)))
    assert as_lists(batch(pairs, 2, 1, drop_remainder=True)) == [
        ([0, 1], [0, 1]),
        ([1, 2], [1, 2]),
    ]
    assert as_lists(batch(pairs)) == [([0, 1, 2], [0, 1, 2])]
    assert as_lists(batch(count_to(3))) == [[0, 1, 2]]
    single = count_to(3).map(lambda x: (x,))
    assert as_lists(batch(single, 2, 1, drop_remainder=True)) == [([0, 1],), ([1, 2],)]


def test_strings_of_unknown_size_have_a_bounded_batch_size() -> None:
    images = tf.data.Dataset.from_tensors({"image": b"", "action": tf.zeros([7])}).repeat(1000)
    assert flexible_batch.get_batch_size(images) == 200_000 // (1024 + 28)
    flags = tf.data.Dataset.from_tensors({"empty": tf.zeros([0])})
    assert flexible_batch.get_batch_size(flags) == 200_000


def test_batch_size_of_episodes_is_that_of_their_steps() -> None:
    steps = {"observation": tf.zeros([4, 100])}
    batched = tf.data.Dataset.from_tensors({"steps": steps, "id": 1})
    nested = tf.data.Dataset.from_tensors(
        {"steps": tf.data.Dataset.from_tensor_slices(steps), "id": 1}
    )
    assert flexible_batch.get_batch_size(batched) == 500
    assert flexible_batch.get_batch_size(nested) == 500
    assert flexible_batch.get_batch_size(steps) == 500
    assert flexible_batch.get_batch_size(nested, 0) == 0


def test_windows_keep_automatic_batch_sizes_large() -> None:
    transitions = batch(count_to(10), size=2, shift=1, drop_remainder=True)
    assert flexible_batch.get_batch_size(transitions) == 200_000 // 16


@pytest.mark.slow
@pytest.mark.parametrize(
    ("dataset", "cardinality"),
    [
        (hide_length(count_to(4)), UNKNOWN),
        (count_to(4).repeat(), INFINITE),
    ],
)
@pytest.mark.parametrize("drop_remainder", [True, False])
def test_unknown_and_infinite_lengths_are_kept(
    dataset: tf.data.Dataset, cardinality: int, drop_remainder: bool
) -> None:
    windows = batch(dataset, size=2, shift=1, drop_remainder=drop_remainder)
    assert int(windows.cardinality()) == cardinality
    assert as_lists(windows.take(3)) == [[0, 1], [1, 2], [2, 3]]


@pytest.mark.slow
def test_batch_works_inside_map_and_flat_map() -> None:
    episodes = count_to(4).map(lambda n: {"steps": tf.data.Dataset.range(n)})

    nested = episodes.map(lambda e: batch(e["steps"], 2, 1, drop_remainder=True))
    assert [int(windows.cardinality()) for windows in nested] == [0, 0, 1, 2]
    flat = episodes.flat_map(lambda e: batch(e["steps"], 2, 1))
    assert as_lists(flat) == [[0], [0, 1], [1], [0, 1], [1, 2], [2]]
    unknown = episodes.map(lambda e: batch(hide_length(e["steps"]), 2, 1))
    assert {int(windows.cardinality()) for windows in unknown} == {UNKNOWN}


@pytest.mark.slow
def test_elements_may_vary_in_shape_from_window_to_window() -> None:
    pairs = count_to(6).map(lambda i: tf.fill([i // 2], i))
    assert as_lists(batch(pairs, size=1, shift=3)) == [[[]], [[3]]]
    windows = batch(pairs, size=2, shift=4, drop_remainder=True)
    assert int(windows.cardinality()) == 1 + (6 - 2) // 4
    assert as_lists(windows) == [[[], []], [[4, 4], [5, 5]]]


def test_whole_episodes_are_batched_into_windows() -> None:
    episodes = count_to(5).map(lambda n: {"steps": tf.data.Dataset.range(n), "length": n})
    windows = batch(episodes, size=2, shift=3)
    assert [window["length"].numpy().tolist() for window in windows] == [[0, 1], [3, 4]]


@pytest.mark.slow
@pytest.mark.parametrize(
    "make",
    [
        lambda: batch(count_to(9), 3, 1, drop_remainder=True),
        lambda: batch(count_to(9), 3, 2),
        lambda: batch(count_to(9).map(lambda i: tf.fill([i * 0 + 1], i)[: i + 1]), 3, 2),
        lambda: count_to(4).flat_map(lambda n: batch(tf.data.Dataset.range(n), 2, 1)),
    ],
)
@pytest.mark.parametrize("chunk_size", one_in(2, [1, 1_000_000]))
def test_iterators_can_be_saved_and_restored(
    make: Callable[[], tf.data.Dataset], chunk_size: int, tmp_path: object
) -> None:
    with mock.patch.object(flexible_batch, "_CHUNK_SIZE_IN_BYTES", chunk_size):
        dataset = make()

    iterator = iter(dataset)
    for _ in range(3):
        next(iterator)
    path = tf.train.Checkpoint(iterator=iterator).write(f"{tmp_path}/position")
    remaining = as_lists(iterator)

    restored = iter(dataset)
    tf.train.Checkpoint(iterator=restored).read(path).assert_consumed()
    assert as_lists(restored) == remaining
    assert remaining


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"size": 0}, "size must be positive, got 0"),
        ({"size": -2}, "must not be negative, got -2"),
        ({"size": 2, "shift": -1}, "shift must be positive, got -1"),
        ({"size": 2, "stride": 0}, "stride must be positive, got 0"),
    ],
)
def test_bad_arguments_are_refused(arguments: dict[str, int], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        batch(count_to(3), **arguments)
    with pytest.raises(ValueError, match=message):
        batch(np.arange(3), **arguments)


def test_batched_steps_become_a_tensor_of_windows() -> None:
    steps = {"x": np.arange(5), "text": np.array([b"a", b"b", b"c", b"d", b"e"])}
    windows = batch(steps, size=2, shift=3)
    assert windows["x"].numpy().tolist() == [[0, 1], [3, 4]]
    assert windows["text"].numpy().tolist() == [[b"a", b"b"], [b"d", b"e"]]
    assert batch(np.arange(2), size=3, shift=1, drop_remainder=True).shape == (0, 3)
    assert batch(np.arange(0), size=3, shift=1).shape == (0, 3)


def test_batched_steps_refuse_short_windows() -> None:
    with pytest.raises(ValueError, match=r"drop_remainder=True.*nested layout.*5 steps"):
        batch(np.arange(5), size=2, shift=2)

    episodes = tf.data.Dataset.from_tensors(np.arange(4)).concatenate(
        tf.data.Dataset.from_tensors(np.arange(5))
    )
    windows = iter(episodes.map(lambda steps: batch(steps, size=2)))
    assert next(windows).numpy().tolist() == [[0, 1], [2, 3]]
    with pytest.raises(tf.errors.InvalidArgumentError, match="drop_remainder=True"):
        next(windows)


def test_malformed_batched_steps_are_refused() -> None:
    with pytest.raises(ValueError, match=r"differ in length: \{'a': 2, 'b': 3\}"):
        batch({"a": np.zeros(2), "b": np.zeros(3)}, size=2)
    with pytest.raises(ValueError, match="'a' of the batched steps is a scalar"):
        batch({"a": np.zeros(())}, size=2)
    with pytest.raises(TypeError, match=r"'a' of the batched steps is a RaggedTensor.*nested"):
        batch({"a": tf.ragged.constant([[1], [2, 3]])}, size=2)


@settings(max_examples=settings().max_examples // 4)
@given(n=st.integers(0, 9), size=st.integers(1, 4), shift=st.integers(1, 4))
def test_both_layouts_have_the_same_windows(n: int, size: int, shift: int) -> None:
    steps = {"observation": np.arange(3.0 * n).reshape(n, 3), "reward": np.arange(n)}
    nested = batch(tf.data.Dataset.from_tensor_slices(steps), size, shift, drop_remainder=True)
    batched = batch(steps, size, shift, drop_remainder=True)
    for name, windows in batched.items():
        assert windows.numpy().tolist() == [window[name].numpy().tolist() for window in nested]


@pytest.mark.slow
def test_datasets_are_read_once() -> None:
    reads = []

    def steps() -> Iterator[int]:
        reads.append("read")
        yield from range(5)

    spec = tf.TensorSpec([], tf.int64)
    dataset = tf.data.Dataset.from_generator(steps, output_signature=spec)
    assert len(as_lists(batch(dataset, 3, 1))) == 5
    assert reads == ["read"]
