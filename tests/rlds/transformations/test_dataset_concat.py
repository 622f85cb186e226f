"""Steps appended to steps."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from fast_share import one_in

from rlds.transformations import (
    concat_if_terminal,
    concatenate,
    layouts,
    zero_dataset_like,
)

UNKNOWN = tf.data.experimental.UNKNOWN_CARDINALITY


def nested(steps: Any) -> tf.data.Dataset:
    return tf.data.Dataset.from_tensor_slices(steps)


def to_lists(steps: Any) -> Any:
    return tf.nest.map_structure(lambda leaf: leaf.numpy().tolist(), layouts.to_batched(steps))


both_layouts = pytest.mark.parametrize("layout", [nested, dict], ids=["nested", "batched"])


@pytest.mark.slow
@both_layouts
def test_fields_of_one_side_become_zeros_on_the_other(layout: Callable[[Any], Any]) -> None:
    one = layout({"a": [1, 2], "text": [b"x", b"y"]})
    other = layout({"a": [3], "flag": [True], "vector": [[1.0, 2.0]]})
    joined = concatenate(one, other)
    assert to_lists(joined) == {
        "a": [1, 2, 3],
        "text": [b"x", b"y", b""],
        "flag": [False, False, True],
        "vector": [[0.0, 0.0], [0.0, 0.0], [1.0, 2.0]],
    }


@both_layouts
def test_fields_are_filled_at_every_level(layout: Callable[[Any], Any]) -> None:
    """Missing nested fields used to be a TypeError."""
    one = layout({"observation": {"a": [1], "pair": ([2], {"x": [3]})}})
    other = layout({"observation": {"b": [1.0], "pair": ([4], {"y": [5]})}})
    assert to_lists(concatenate(one, other)) == {
        "observation": {
            "a": [1, 0],
            "b": [0.0, 1.0],
            "pair": ([2, 4], {"x": [3, 0], "y": [0, 5]}),
        }
    }


def test_fields_of_unknown_length_are_filled_with_empty_arrays() -> None:
    """They used to be filled with one invented element."""
    one = nested({"a": [1]})
    other = tf.data.Dataset.range(2, 4).map(lambda n: {"a": 7, "x": tf.range(n)})
    joined = concatenate(one, other)
    assert [step["x"].numpy().tolist() for step in joined] == [[], [0, 1], [0, 1, 2]]
    assert joined.element_spec["x"].shape.as_list() == [None]


@pytest.mark.slow
def test_lengths_stay_known() -> None:
    joined = concatenate(nested({"a": [1, 2]}), nested({"b": [3]}))
    assert int(joined.cardinality()) == 3
    unknown = nested({"a": [1, 2]}).filter(lambda _: True)
    assert int(concatenate(unknown, nested({"b": [3]})).cardinality()) == UNKNOWN
    assert concatenate({"a": [1, 2]}, {"b": [3]})["b"].shape == [3]


def test_shapes_may_differ_in_the_nested_layout_only() -> None:
    one, other = {"x": [[1, 2]]}, {"x": [[3]]}
    joined = concatenate(nested(one), nested(other))
    assert [step["x"].numpy().tolist() for step in joined] == [[1, 2], [3]]
    with pytest.raises(ValueError, match=r"field 'x'.*\(2,\) in the first.*\(1,\).*to_nested"):
        concatenate(one, other)


@both_layouts
def test_errors_name_fields_that_differ(layout: Callable[[Any], Any]) -> None:
    def with_observation(value: Any) -> Any:
        return layout({"observation": {"x": value}})

    with pytest.raises(TypeError, match=r"field 'observation/x' differs in dtype: .*int32.*float"):
        concatenate(with_observation([1]), with_observation([1.0]))
    with pytest.raises(TypeError, match="field 'observation/x' differs in structure"):
        concatenate(with_observation([1]), with_observation({"deeper": [1]}))
    with pytest.raises(TypeError, match="field 'observation/x' differs in structure"):
        concatenate(with_observation(([1],)), with_observation(([1], [1])))


def test_layouts_do_not_mix() -> None:
    with pytest.raises(TypeError, match=r"one of the steps is nested.*to_nested or to_batched"):
        concatenate(nested({"a": [1]}), {"a": [1]})


@pytest.mark.slow
@both_layouts
def test_datasets_without_steps_add_fields(layout: Callable[[Any], Any]) -> None:
    empty = layout({"a": np.zeros(0, np.int32)})
    assert to_lists(concatenate(empty, layout({"b": [1.0]}))) == {"a": [0], "b": [1.0]}
    assert to_lists(concatenate(layout({"b": [1.0]}), empty)) == {"a": [0], "b": [1.0]}


# Extra steps after a terminal one


def episode(is_terminal: bool) -> dict[str, Any]:
    return {"reward": [1.0, 2.0], "is_terminal": [False, is_terminal]}


def make_absorbing(layout: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """Returns a function that makes two steps with an extra field."""

    def make(last: dict[str, Any]) -> Any:
        return layout(
            {"reward": tf.stack([last["reward"], 0.0]), "extra": tf.constant([True, True])}
        )

    return make


@pytest.mark.slow
@both_layouts
@pytest.mark.parametrize("is_terminal", one_in(2, [True, False]))
def test_extra_steps_may_have_fields_of_their_own(
    layout: Callable[[Any], Any], is_terminal: bool
) -> None:
    """They used to be a TypeError, although `concatenate` fills missing fields."""
    steps = layout(episode(is_terminal))
    joined = concat_if_terminal(steps, make_absorbing(layout))
    n = 2 if is_terminal else 0
    expected = {
        "reward": [1.0, 2.0, 2.0, 0.0][: 2 + n],
        "is_terminal": [False, is_terminal] + [False] * n,
        "extra": [False, False, True, True][: 2 + n],
    }
    assert to_lists(joined) == expected
    if layout is nested:
        assert int(joined.cardinality()) == 2 + n

    traced = tf.function(lambda steps: concat_if_terminal(steps, make_absorbing(layout)))(steps)
    assert to_lists(traced) == expected
    (inside,) = tf.data.Dataset.from_tensors(steps).map(
        lambda steps: concat_if_terminal(steps, make_absorbing(layout))
    )
    assert to_lists(inside) == expected


def test_steps_of_unknown_length_are_joined() -> None:
    steps = nested(episode(True)).filter(lambda _: True)
    joined = concat_if_terminal(steps, lambda _: zero_dataset_like(steps))
    assert to_lists(joined)["reward"] == [1.0, 2.0, 0.0]


def test_functions_are_not_traced_and_cached() -> None:
    """A `tf.function` around it would cache one more graph for each lambda."""
    assert not hasattr(concat_if_terminal, "get_concrete_function")
    eager = []

    def make_extra(last: dict[str, Any]) -> Any:
        eager.append(float(last["reward"]))
        return {"reward": [0.0]}

    for _ in range(3):
        concat_if_terminal(episode(True), lambda last: make_extra(last))
    assert eager == [2.0, 2.0, 2.0]


@both_layouts
def test_bad_input_is_refused(layout: Callable[[Any], Any]) -> None:
    with pytest.raises(KeyError, match=r"no field 'is_terminal'. The fields are \['reward'\]"):
        concat_if_terminal(layout({"reward": [1.0]}), make_absorbing(layout))
    with pytest.raises(tf.errors.InvalidArgumentError, match="the episode has no steps"):
        concat_if_terminal(layout({"is_terminal": np.zeros(0, bool)}), lambda last: layout({}))
    other = dict if layout is nested else nested
    with pytest.raises(TypeError, match=r"concat_if_terminal: the steps are .* returned a"):
        concat_if_terminal(layout(episode(True)), make_absorbing(other))
