"""Episodes truncated at the first step that meets a condition."""

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from fast_share import one_in
from hypothesis import given
from hypothesis import strategies as st
from random_episodes import few_examples

from rlds.transformations import layouts, sar_fields_mask, truncate_after_condition


def columns(n: int) -> dict[str, Any]:
    index = np.arange(n)
    return {"x": index, "is_last": index == n - 1}


def nested(steps: Any) -> tf.data.Dataset:
    return tf.data.Dataset.from_tensor_slices(steps)


def vary_shapes(steps: dict[str, Any]) -> tf.data.Dataset:
    return nested(steps).map(lambda step: {**step, "ragged": tf.range(step["x"])})


def values_of(steps: Any, name: str = "x") -> list[Any]:
    if isinstance(steps, tf.data.Dataset):
        return [step[name].numpy().tolist() for step in steps]
    return steps[name].numpy().tolist()


all_kinds = pytest.mark.parametrize("layout", [nested, dict, vary_shapes])
one_kind = pytest.mark.parametrize("layout", one_in(3, [nested, dict, vary_shapes]))


@pytest.mark.slow
@all_kinds
def test_steps_stay_up_to_and_including_the_first_that_meets_the_condition(
    layout: Callable[[Any], Any],
) -> None:
    steps = layout(columns(6))
    assert values_of(truncate_after_condition(steps, lambda step: step["x"] % 3 == 2)) == [0, 1, 2]
    assert values_of(truncate_after_condition(steps, lambda step: step["x"] == 0)) == [0]
    assert values_of(truncate_after_condition(steps, lambda step: step["x"] == 5)) == [*range(6)]
    assert values_of(truncate_after_condition(steps, lambda step: step["x"] > 9)) == [*range(6)]
    assert values_of(truncate_after_condition(layout(columns(0)), lambda step: True)) == []


@pytest.mark.slow
@one_kind
def test_conditions_of_any_form_are_evaluated(layout: Callable[[Any], Any]) -> None:
    def with_if(step: dict[str, Any]) -> Any:
        if step["x"] > 1:
            result = True
        else:
            result = False
        return result

    steps = layout(columns(4))
    assert values_of(truncate_after_condition(steps, with_if)) == [0, 1, 2]
    assert values_of(truncate_after_condition(steps, lambda step: step["x"][None] > 1)) == [0, 1, 2]
    assert values_of(truncate_after_condition(steps, lambda step: True)) == [0]
    assert values_of(truncate_after_condition(steps, lambda step: False)) == [0, 1, 2, 3]


@pytest.mark.slow
@one_kind
def test_new_last_step_is_marked_on_request(layout: Callable[[Any], Any]) -> None:
    """Otherwise, the invalid action of the new last step looks valid."""
    steps = layout(columns(4))

    def cut(**options: Any) -> Any:
        return truncate_after_condition(steps, lambda step: step["x"] == 1, **options)

    assert values_of(cut(), "is_last") == [False, False]
    marked = cut(set_is_last=True)
    assert values_of(marked, "is_last") == [False, True]
    assert values_of(marked) == [0, 1]
    never = truncate_after_condition(steps, lambda step: False, set_is_last=True)
    assert values_of(never, "is_last") == [False, False, False, True]

    last = {"observation": 1, "action": 2, "is_last": values_of(marked, "is_last")[-1]}
    assert not sar_fields_mask(last)[1]["action"]


@pytest.mark.slow
@few_examples
@given(met=st.lists(st.booleans(), max_size=8), chunk=st.integers(1, 3))
def test_results_do_not_depend_on_chunks(met: list[bool], chunk: int) -> None:
    # Steps so wide that a chunk holds `chunk` of them.
    steps = {
        "met": np.array(met, bool),
        "is_last": np.zeros(len(met), np.int8),
        "wide": np.zeros([len(met), 200_000 // chunk - 10], np.uint8),
    }
    cut = truncate_after_condition(nested(steps), lambda step: step["met"], set_is_last=True)
    count = met.index(True) + 1 if True in met else len(met)
    assert values_of(cut, "met") == met[:count]
    assert values_of(cut, "is_last") == [int(flag) for flag in met[:count]]


@pytest.mark.slow
def test_nothing_is_read_after_the_chunk_of_the_cut() -> None:
    read = []

    def steps() -> Iterator[int]:
        for i in range(1000):
            read.append(i)
            yield i

    dataset = tf.data.Dataset.from_generator(steps, output_signature=tf.TensorSpec([], tf.int64))
    wide = dataset.map(lambda i: {"x": i, "wide": tf.zeros([10_000])})
    assert values_of(truncate_after_condition(wide, lambda step: step["x"] == 6)) == [*range(7)]
    assert len(read) < 200  # tf.data itself reads ahead.
    endless = tf.data.Dataset.range(3).repeat().map(lambda i: {"x": i})
    assert values_of(truncate_after_condition(endless, lambda step: step["x"] == 2)) == [0, 1, 2]


@pytest.mark.slow
def test_datasets_of_any_structure_are_truncated() -> None:
    pairs = tf.data.Dataset.zip((tf.data.Dataset.range(4), tf.data.Dataset.range(4)))
    cut = truncate_after_condition(pairs, lambda a, b: a + b == 2)
    assert [(int(a), int(b)) for a, b in cut] == [(0, 0), (1, 1)]
    cut = truncate_after_condition(tf.data.Dataset.range(4), lambda x: x == 1)
    assert [int(x) for x in cut] == [0, 1]
    assert truncate_after_condition(np.arange(4), lambda x: x == 1).numpy().tolist() == [0, 1]


@all_kinds
def test_bad_conditions_are_refused(layout: Callable[[Any], Any]) -> None:
    steps = layout(columns(3))
    for condition in (
        lambda step: step["x"],
        lambda step: {"met": True},
        lambda step: tf.stack([True, False]),
    ):
        with pytest.raises(TypeError, match="truncate_condition must return one boolean"):
            truncate_after_condition(steps, condition)
    with pytest.raises(KeyError, match="is_lsat"):
        truncate_after_condition(steps, lambda step: step["is_lsat"])
    with pytest.raises(KeyError, match="no field 'is_last'"):
        truncate_after_condition(layout({"x": [1]}), lambda step: True, set_is_last=True)


@pytest.mark.parametrize("layout", [nested, vary_shapes])
def test_iterators_can_be_saved_and_restored(layout: Callable[[Any], Any], tmp_path: Any) -> None:
    cut = truncate_after_condition(layout(columns(6)), lambda step: step["x"] == 4)
    iterator = iter(cut)
    next(iterator)
    path = tf.train.Checkpoint(iterator=iterator).write(f"{tmp_path}/position")
    restored = iter(cut)
    tf.train.Checkpoint(iterator=restored).read(path).assert_consumed()
    assert [int(step["x"]) for step in restored] == [1, 2, 3, 4]


def test_truncated_steps_convert_to_batched_steps() -> None:
    cut = truncate_after_condition(nested(columns(5)), lambda step: step["x"] == 3)
    assert layouts.to_batched(cut)["x"].numpy().tolist() == [0, 1, 2, 3]
