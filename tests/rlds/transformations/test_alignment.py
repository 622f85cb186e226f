"""Fields shifted in time."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from fast_share import one_in
from hypothesis import given
from hypothesis import strategies as st
from random_episodes import few_examples

from rlds.transformations import (
    AlignmentType,
    add_alignment_to_step,
    episode_length,
    final_step,
    map_steps,
    shift_keys,
)

UNKNOWN = tf.data.experimental.UNKNOWN_CARDINALITY


def columns(n: int) -> dict[str, Any]:
    index = np.arange(n)
    return {
        "observation": {"x": index, "pair": (index, np.stack([index, -index], 1))},
        "action": index,
        "is_first": index == 0,
        "is_last": index == n - 1,
    }


def nested(steps: Any) -> tf.data.Dataset:
    return tf.data.Dataset.from_tensor_slices(steps)


def as_lists(steps: Any, *names: str) -> list[tuple[Any, ...]]:
    """Lists the values of some fields, step by step, from either layout."""
    if not isinstance(steps, tf.data.Dataset):
        steps = nested(steps)
    return [tuple(step[name].numpy().tolist() for name in names) for step in steps]


@pytest.mark.parametrize("layout", [nested, dict])
def test_step_i_gets_the_field_of_step_i_plus_shift(layout: Callable[[Any], Any]) -> None:
    steps = layout({"a": np.arange(5), "b": np.arange(5)})
    pairs = [(0, 1), (1, 2), (2, 3), (3, 4)]
    assert as_lists(shift_keys(steps, ["a"], -1), "a", "b") == pairs
    assert as_lists(shift_keys(steps, ["b"], 1), "a", "b") == pairs
    assert as_lists(shift_keys(steps, ["a"], 1), "b", "a") == pairs
    assert as_lists(shift_keys(steps, [], 1), "a", "b") == [(i, i) for i in range(4)]
    assert as_lists(shift_keys(steps, [], -1), "a", "b") == [(i, i) for i in range(1, 5)]


@pytest.mark.parametrize("layout", [nested, dict])
def test_shift_by_zero_is_the_identity(layout: Callable[[Any], Any]) -> None:
    steps = layout({"a": np.arange(3)})
    assert as_lists(shift_keys(steps, ["a"], 0), "a") == [(0,), (1,), (2,)]


@pytest.mark.slow
@few_examples
@given(
    n=st.integers(0, 9),
    shift=st.integers(-5, 5),
    keys=st.sets(st.sampled_from(["observation", "action", "is_first", "is_last"])),
    extra_size=st.integers(1, 4),
)
def test_shifted_keys_are_slices_of_the_arrays(
    n: int, shift: int, keys: set[str], extra_size: int
) -> None:
    steps = columns(n)
    count = max(n - abs(shift), 0)

    def expected(name: str, field: Any) -> Any:
        start = abs(shift) if (name in keys) == (shift > 0) else 0
        return tf.nest.map_structure(lambda leaf: leaf[start : start + count].tolist(), field)

    shifted = shift_keys(nested(steps), sorted(keys), shift, batch_size=abs(shift) + extra_size)
    assert int(shifted.cardinality()) == count
    batched = shift_keys(steps, sorted(keys), shift)
    for name, field in steps.items():
        as_list = tf.nest.map_structure(lambda leaf: leaf.numpy().tolist(), batched[name])
        assert as_list == expected(name, field)
    rows = [tf.nest.map_structure(lambda leaf: leaf.numpy().tolist(), step) for step in shifted]
    rows_of_batched = [
        tf.nest.map_structure(lambda leaf: leaf.numpy().tolist(), step) for step in nested(batched)
    ]
    assert rows == rows_of_batched


@pytest.mark.slow
def test_large_steps_need_no_batch_size_for_either_direction() -> None:
    """An automatic batch size of one step used to be too small for negative shifts."""
    steps = {"image": np.zeros([3, 300, 300, 3], np.uint8), "action": np.arange(3)}
    assert as_lists(shift_keys(nested(steps), ["image"], -1), "action") == [(1,), (2,)]
    assert as_lists(shift_keys(nested(steps), ["image"], 1), "action") == [(0,), (1,)]


@pytest.mark.parametrize(("shift", "first"), [(1, [1, 2, 3]), (-1, [0, 1, 2])])
def test_fields_may_differ_in_shape_from_step_to_step(shift: int, first: list[int]) -> None:
    steps = tf.data.Dataset.range(4).map(lambda n: {"x": tf.fill([n], n), "n": n})
    shifted = shift_keys(steps, ["x"], shift)
    assert int(shifted.cardinality()) == 3
    assert as_lists(shifted, "x", "n") == [([i] * i, i - shift) for i in first]


@pytest.mark.slow
def test_shifted_steps_keep_their_known_length() -> None:
    """So `episode_length` and `final_step` need not read everything."""
    shifted = shift_keys(nested(columns(4)), ["action"], -1)
    assert int(shifted.cardinality()) == int(episode_length(shifted)) == 3
    assert int(final_step(shifted)["action"]) == 2
    unknown = shift_keys(nested(columns(4)).filter(lambda _: True), ["action"], -1)
    assert int(unknown.cardinality()) == UNKNOWN
    assert as_lists(unknown, "action") == [(0,), (1,), (2,)]
    assert shift_keys(columns(4), ["action"], -1)["action"].shape == [3]


@pytest.mark.parametrize("layout", [nested, dict])
def test_a_misspelt_field_is_an_error(layout: Callable[[Any], Any]) -> None:
    """It used to be ignored: nothing was shifted, and the last step lost."""
    message = r"shift_keys: there is no field 'acton'. The fields are \['action', 'is_first'"
    with pytest.raises(KeyError, match=message):
        shift_keys(layout(columns(3)), ["acton"], -1)
    with pytest.raises(TypeError, match="got the string 'action'"):
        shift_keys(layout(columns(3)), "action", -1)


def test_steps_that_are_not_dicts_have_no_fields() -> None:
    for steps in (nested(np.arange(3)), np.arange(3)):
        with pytest.raises(TypeError, match="shift_keys: each step must be a dict"):
            shift_keys(steps, ["action"], -1)


@pytest.mark.parametrize("layout", [nested, dict])
def test_a_small_batch_size_is_named_in_the_error(layout: Callable[[Any], Any]) -> None:
    with pytest.raises(ValueError, match="cannot shift -3 positions with a batch size of 2, "):
        shift_keys(layout(columns(4)), ["action"], -3, 2)


def test_alignment_types_keep_their_numbers() -> None:
    assert {kind.name: kind.value for kind in AlignmentType} == {
        "UNKNOWN": 1,
        "SAR": 2,
        "ARS": 3,
        "RSA": 4,
    }


def test_alignment_is_written_into_the_step() -> None:
    step = {"reward": 1.0}
    assert add_alignment_to_step(step, AlignmentType.RSA) is step
    assert step == {"reward": 1.0, "alignment": 4}
    with pytest.raises(TypeError, match="must be an AlignmentType, got 4"):
        add_alignment_to_step(step, 4)


@pytest.mark.slow
@pytest.mark.parametrize("layout", one_in(2, [dict, nested]))
def test_every_step_gets_its_alignment(layout: Callable[[Any], Any]) -> None:
    aligned = map_steps(
        layout({"r": [1.0, 2.0]}), lambda step: add_alignment_to_step(step, AlignmentType.SAR)
    )
    assert as_lists(aligned, "alignment") == [(2,), (2,)]
