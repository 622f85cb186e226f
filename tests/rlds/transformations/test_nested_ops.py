"""Maps, sums and lengths over the steps of episodes."""

from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from fast_share import one_in

from rlds.transformations import (
    apply_nested_steps,
    episode_length,
    final_step,
    map_nested_steps,
    map_steps,
    sum_dataset,
    sum_nested_steps,
)

UNKNOWN = tf.data.experimental.UNKNOWN_CARDINALITY

REWARDS = np.array([0.0, 1.0, 5.0, -1.0], np.float32)
BATCHED = {"reward": REWARDS, "observation": np.arange(8.0, dtype=np.float32).reshape(4, 2)}


def nested(steps: Any = BATCHED) -> tf.data.Dataset:
    return tf.data.Dataset.from_tensor_slices(steps)


def hide_length(dataset: tf.data.Dataset) -> tf.data.Dataset:
    return dataset.filter(lambda *_: True)


def episodes(*all_steps: Any) -> tf.data.Dataset:
    dataset = None
    for index, steps in enumerate(all_steps):
        episode = tf.data.Dataset.from_tensors({"steps": steps, "number": index})
        dataset = episode if dataset is None else dataset.concatenate(episode)
    return dataset


def as_lists(values: Any) -> list:
    """Lists the values of steps that are single tensors, in either layout."""
    return [value.numpy().tolist() for value in values]


# Functions of one step, and their results for the steps above.


def with_if(step):
    if step["reward"] > 0:
        step["reward"] = step["reward"] * 2
    return step["reward"]


def with_while(step):
    x = step["reward"]
    while x < 10.0:
        x += 3.0
    return x


def with_dynamic_shape_inside(step):
    return tf.reduce_sum(tf.boolean_mask(step["observation"], step["observation"] > 2.0))


def with_dynamic_shape_inside_if(step):
    if step["reward"] > 0:
        return tf.reduce_sum(step["observation"][: tf.cast(step["reward"], tf.int32)])
    return step["reward"]


def with_numpy(step):
    doubled = tf.numpy_function(lambda x: x + x, [step["reward"]], tf.float32)
    return tf.ensure_shape(doubled, [])


def with_squeeze(step):
    return tf.squeeze(tf.stack([tf.norm(step["reward"])]))


def return_constant(step):
    return 7


FUNCTIONS = [
    (with_if, [0.0, 2.0, 10.0, -1.0]),
    (with_while, [12.0, 10.0, 11.0, 11.0]),
    (with_dynamic_shape_inside, [0.0, 3.0, 9.0, 13.0]),
    (with_dynamic_shape_inside_if, [0.0, 2.0, 9.0, -1.0]),
    (with_numpy, [0.0, 2.0, 10.0, -2.0]),
    (with_squeeze, [0.0, 1.0, 5.0, 1.0]),
    (return_constant, [7, 7, 7, 7]),
]


@pytest.mark.parametrize(("function", "expected"), FUNCTIONS)
@pytest.mark.parametrize("batch_size", one_in(2, [-1, 1]))
def test_map_steps_calls_the_function_for_each_step(function, expected, batch_size):
    mapped = map_steps(nested(), function, batch_size)
    assert as_lists(mapped) == expected
    assert int(mapped.cardinality()) == 4
    assert as_lists(map_steps(BATCHED, function, batch_size)) == expected


@pytest.mark.slow
@pytest.mark.parametrize("batch_size", [-1, 1])
def test_lists_behave_like_in_dataset_map(batch_size):
    def pair(step):
        return [step["reward"], -step["reward"]]

    for steps in (nested(), BATCHED):
        first, second = final_step(map_steps(steps, pair, batch_size))
        assert (float(first), float(second)) == (-1.0, 1.0)
        inside = map_steps(steps, lambda step: {"pair": pair(step)}, batch_size)
        assert final_step(inside)["pair"].numpy().tolist() == [-1.0, 1.0]


def test_map_steps_may_give_values_of_varying_shape():
    def positive(step):
        return tf.boolean_mask(step["observation"], step["observation"] > 2.0)

    expected = [[], [3.0], [4.0, 5.0], [6.0, 7.0]]
    assert as_lists(map_steps(nested(), positive)) == expected


def test_map_steps_takes_steps_of_varying_shape():
    ragged = tf.data.Dataset.range(3).map(lambda n: {"x": tf.range(n)})
    assert as_lists(map_steps(ragged, lambda step: tf.reduce_sum(step["x"]))) == [0, 0, 1]


@pytest.mark.slow
def test_map_steps_takes_any_structure():
    integers = tf.data.Dataset.range(3)
    assert as_lists(map_steps(integers, lambda x: x + 1)) == [1, 2, 3]
    pairs = tf.data.Dataset.zip((integers, integers))
    for batch_size in (-1, 1):
        assert as_lists(map_steps(pairs, lambda x, y: x * y, batch_size)) == [0, 1, 4]
    assert as_lists(map_steps((np.arange(3), np.arange(3)), lambda x, y: x * y)) == [0, 1, 4]


def test_map_steps_does_not_change_its_input():
    def edit(step):
        step["reward"] += 1.0
        del step["observation"]
        return step

    steps = {"reward": REWARDS.copy(), "observation": np.zeros([4, 1])}
    assert list(map_steps(steps, edit)) == ["reward"]
    assert list(steps) == ["reward", "observation"]
    assert steps["reward"].tolist() == REWARDS.tolist()


@pytest.mark.slow
def test_map_steps_does_not_make_tensorflow_warn(caplog):
    for _ in range(8):
        map_steps(BATCHED, with_if)
    assert not caplog.records


@pytest.mark.slow
def test_map_steps_sees_tensors_around_it():
    dataset = episodes(nested(), nested())
    numbered = dataset.flat_map(
        lambda e: (
            map_steps(e["steps"], lambda step: step["reward"] * 0 + float(e["number"]))
            if False
            else map_steps(e["steps"], lambda step: e["number"])
        )
    )
    assert as_lists(numbered) == [0] * 4 + [1] * 4


def test_map_steps_traces_a_vectorized_function_once():
    traces = []

    def function(step):
        traces.append("trace")
        return step["reward"]

    assert as_lists(map_steps(nested(), function)) == REWARDS.tolist()
    assert traces == ["trace"]


@pytest.mark.slow
@pytest.mark.parametrize("length", [0, 1])
def test_map_steps_works_with_no_step_or_one(length):
    few = {name: values[:length] for name, values in BATCHED.items()}
    for function, expected in FUNCTIONS[::5]:
        assert as_lists(map_steps(few, function)) == expected[:length]
        assert as_lists(map_steps(nested(few), function)) == expected[:length]


@pytest.mark.slow
@pytest.mark.parametrize("batch_size", [-1, 1])
def test_map_nested_steps_keeps_metadata_and_cardinalities(batch_size):
    dataset = episodes(nested(), hide_length(nested()).take(2))
    mapped = list(map_nested_steps(dataset, lambda step: -step["reward"], batch_size))
    assert [int(episode["number"]) for episode in mapped] == [0, 1]
    assert as_lists(mapped[0]["steps"]) == [0.0, -1.0, -5.0, 1.0]
    assert as_lists(mapped[1]["steps"]) == [0.0, -1.0]
    # Exact cardinalities stay exact, and unknown cardinalities unknown.
    assert int(mapped[0]["steps"].cardinality()) == 4
    assert int(mapped[1]["steps"].cardinality()) == UNKNOWN


@pytest.mark.slow
def test_apply_nested_steps_passes_the_layout_on():
    (episode,) = apply_nested_steps(episodes(nested()), lambda steps: steps.take(2))
    assert len(episode["steps"]) == 2
    assert int(episode["number"]) == 0
    (episode,) = apply_nested_steps(episodes(BATCHED), lambda steps: {"r": steps["reward"][:2]})
    assert episode["steps"]["r"].numpy().tolist() == [0.0, 1.0]


def test_apply_nested_steps_refuses_results_that_are_no_dataset():
    with pytest.raises(TypeError):
        apply_nested_steps(episodes(nested()), lambda steps: 3)


@pytest.mark.parametrize(
    "function", [map_nested_steps, apply_nested_steps, sum_nested_steps], ids=lambda f: f.__name__
)
def test_datasets_of_steps_are_refused_as_episodes(function):
    name = function.__name__
    with pytest.raises(KeyError, match=rf"{name}: .*no field 'steps'.*'observation', 'reward'"):
        function(nested(), lambda step: step)
    with pytest.raises(TypeError, match=rf"{name}: expected a tf.data.Dataset.*got a dict"):
        function({"steps": nested()}, lambda step: step)


def test_a_misspelt_field_is_an_error_at_construction():
    for steps in (nested(), BATCHED):
        with pytest.raises(KeyError, match="rewrad"):
            map_steps(steps, lambda step: step["rewrad"])


def test_a_negative_batch_size_is_an_error():
    for steps in (nested(), BATCHED):
        for function in (map_steps, sum_dataset):
            with pytest.raises(ValueError, match="must not be negative, got -3"):
                function(steps, lambda step: step, -3)


@pytest.mark.slow
def test_parallel_calls_keep_the_order():
    steps = nested({"x": np.arange(20)})
    dataset = tf.data.Dataset.range(4).map(lambda i: {"number": i, "steps": steps})
    for batch_size in (-1, 1):
        mapped = map_steps(steps, lambda step: -step["x"], batch_size, num_parallel_calls=2)
        assert as_lists(mapped) == [-i for i in range(20)]
    for result in (
        map_nested_steps(dataset, lambda step: step["x"], num_parallel_calls=tf.data.AUTOTUNE),
        apply_nested_steps(dataset, lambda s: s.map(lambda step: step["x"]), num_parallel_calls=2),
    ):
        assert [int(episode["number"]) for episode in result] == [0, 1, 2, 3]
        assert [as_lists(episode["steps"]) for episode in result] == [[*range(20)]] * 4


# Sums


@pytest.mark.parametrize("batch_size", one_in(3, [-1, 0, 3]))
@pytest.mark.parametrize(
    ("values", "total", "dtype"),
    one_in(
        3,
        [
            (np.full(10, 200, np.uint8), 2000, tf.int64),
            (np.full(4, 2**30, np.int32), 2**32, tf.int64),
            (np.full(3, 2**53 + 1, np.int64), 3 * (2**53 + 1), tf.int64),
            (np.full(3, 2**61, np.uint64), 3 * 2**61, tf.uint64),
            (np.array([True, False, True]), 2, tf.int64),
            (np.full(200, 1000, np.float16), 200_000.0, tf.float32),
            (np.full(3, 0.5, np.float32), 1.5, tf.float32),
            (np.full(3, 0.5, np.float64), 1.5, tf.float64),
            (np.full(3, 1 + 1j, np.complex64), 3 + 3j, tf.complex64),
        ],
    ),
    ids=lambda value: None,
)
def test_sums_are_exact_and_wide_enough(values, total, dtype, batch_size):
    for steps in (nested({"x": values}), {"x": values}):
        result = sum_dataset(steps, lambda step: step["x"], batch_size)
        assert result.dtype == dtype
        assert result.numpy() == total


@pytest.mark.slow
def test_sums_of_floats_do_not_depend_on_the_batch_size():
    terms = tf.data.Dataset.from_tensors(tf.ones([], tf.float32)).repeat(1000)
    steps = tf.data.Dataset.from_tensors(2.0**24).concatenate(terms)
    for batch_size in (1, 10, -1):
        assert float(sum_dataset(steps, lambda x: x, batch_size)) == 2.0**24 + 1000


@pytest.mark.slow
def test_sums_run_over_all_episodes():
    def data(step):
        return {"reward": step["reward"], "pair": (step["observation"], 1)}

    for dataset in (
        episodes(nested(), nested().take(2)),
        episodes(BATCHED, {name: values[:2] for name, values in BATCHED.items()}),
    ):
        total = sum_nested_steps(dataset, data)
        assert float(total["reward"]) == 6.0
        assert total["pair"][0].numpy().tolist() == [14.0, 20.0]
        assert int(total["pair"][1]) == 6


def test_sum_of_nothing_is_zero():
    empty = {"reward": np.zeros([0, 2], np.float32)}
    assert sum_dataset(empty, lambda step: step["reward"]).numpy().tolist() == [0.0, 0.0]
    assert sum_dataset(nested(empty), lambda step: step["reward"]).numpy().tolist() == [0.0, 0.0]


@pytest.mark.slow
@pytest.mark.parametrize("batch_size", [1, 3, -1])
def test_sums_and_last_steps_of_a_graph_join_many_chunks(batch_size):
    # A thousand sums at batch size 1, of an unknown number of steps.
    values = np.arange(1000)
    steps = hide_length(nested({"x": values}))
    results = tf.data.Dataset.range(1).map(
        lambda _: (
            sum_dataset(steps, lambda step: step["x"], batch_size),
            final_step(steps)["x"],
        )
    )

    assert [tuple(map(int, result)) for result in results] == [(values.sum(), 999)]


@pytest.mark.slow
def test_values_of_varying_shape_are_summed():
    steps = tf.data.Dataset.range(1, 4).map(lambda n: {"n": n, "pair": tf.fill([2 + 0 * n], n)})
    assert sum_dataset(steps, lambda step: step["pair"]).numpy().tolist() == [6, 6]


def test_values_that_cannot_be_summed_are_refused():
    for steps in (nested({"text": [b"a"]}), {"text": [b"a"]}):
        with pytest.raises(TypeError, match=r"sum_dataset: field 'text'.*got tf.string"):
            sum_dataset(steps, lambda step: step)
    with pytest.raises(TypeError, match=r"sum_nested_steps: the value to sum must be a numeric"):
        sum_nested_steps(episodes({"text": [b"a"]}), lambda step: step["text"])


# Final steps and lengths


@pytest.mark.slow
@pytest.mark.parametrize("steps", [nested(), hide_length(nested()), BATCHED])
def test_final_step_returns_the_last_step(steps):
    assert float(final_step(steps)["reward"]) == -1.0
    (inside,) = tf.data.Dataset.from_tensors(steps).map(final_step)
    assert inside["observation"].numpy().tolist() == [6.0, 7.0]


def test_final_step_works_with_any_structure():
    texts = hide_length(tf.data.Dataset.from_tensor_slices([b"a", b"b"]))
    assert final_step(texts).numpy() == b"b"
    ragged = tf.data.Dataset.range(4).map(lambda n: (n, tf.range(n)))
    assert final_step(ragged)[1].numpy().tolist() == [0, 1, 2]


@pytest.mark.slow
@pytest.mark.parametrize(
    "steps",
    [
        nested().take(0),
        hide_length(nested()).take(0),
        {"reward": np.zeros(0)},
    ],
)
def test_final_step_refuses_an_episode_without_steps(steps):
    message = "final_step: the episode has no steps"
    with pytest.raises(tf.errors.InvalidArgumentError, match=message):
        final_step(steps)
    with pytest.raises(tf.errors.InvalidArgumentError, match=message):
        list(tf.data.Dataset.from_tensors(steps).map(final_step))


@pytest.mark.slow
@pytest.mark.parametrize("function", [final_step, episode_length])
def test_endless_steps_are_refused(function):
    with pytest.raises(tf.errors.InvalidArgumentError, match=f"{function.__name__}: .*infinite"):
        function(nested().repeat())
    with pytest.raises(tf.errors.InvalidArgumentError, match="infinite"):
        list(tf.data.Dataset.from_tensors(nested().repeat()).map(function))


@pytest.mark.slow
@pytest.mark.parametrize(
    "steps",
    [
        nested(),
        hide_length(nested()),
        hide_length(nested({"observation": {"deep": np.zeros([4, 0])}})),
        hide_length(tf.data.Dataset.from_tensor_slices([b"a", b"b", b"c", b"d"])),
        hide_length(tf.data.Dataset.range(4).map(lambda n: (tf.range(n), n))),
        BATCHED,
    ],
)
@pytest.mark.parametrize("batch_size", one_in(3, [-1, 0, 3]))
def test_episode_length_counts_the_steps(steps, batch_size):
    length = episode_length(steps, batch_size)
    assert int(length) == 4
    assert length.dtype == tf.int32
    inside = tf.data.Dataset.from_tensors(steps).map(lambda steps: episode_length(steps))
    if type(steps) is not tuple:
        assert [int(length) for length in inside] == [4]
