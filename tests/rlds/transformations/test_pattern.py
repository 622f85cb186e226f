"""Patterns over episodes: outputs of reverb, and a model of the rules."""

import json
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any
from unittest import mock

import numpy as np
import pattern_cases
import pytest
import tensorflow as tf
import tree
from fast_share import one_in
from hypothesis import given
from hypothesis import strategies as st
from random_episodes import few_examples

from rlds.transformations import PatternDataset, pattern, pattern_dataset
from rlds.transformations import structured_writer as sw

GOLDEN = Path(__file__).parents[2] / "golden" / "rlds" / "pattern_golden.json"
CASES = json.loads(GOLDEN.read_text(encoding="utf-8"))["cases"]


def make_configs(case: dict[str, Any], spec: Any) -> list[sw.Config]:
    return [pattern_cases.config_of(config, spec, sw) for config in case["configs"]]


def apply(case: dict[str, Any], episodes: tf.data.Dataset, **options: Any) -> tf.data.Dataset:
    configs = make_configs(case, pattern.step_spec(episodes))
    respect = case["respect_episode_boundaries"]
    if case.get("api") != "pattern_map_from_transform":
        return pattern.pattern_map(episodes, configs, respect, **options)
    (config,) = case["configs"]
    return pattern.pattern_map_from_transform(
        episodes,
        lambda step: pattern_cases.map_references(
            config["pattern"],
            lambda ref: pattern_cases.field(step, ref["$ref"])[pattern_cases.key_of(ref)],
        ),
        configs[0].conditions,
        respect,
        **options,
    )


def dump(dataset: tf.data.Dataset) -> list[Any]:
    return [pattern_cases.as_plain(output) for output in dataset]


def limit_chunks(max_steps: int) -> Any:
    return mock.patch.multiple(
        pattern_dataset,
        _MAX_STEPS_IN_CHUNK=max_steps,
        _MAX_BATCHED_STEPS_IN_CHUNK=max_steps,
    )


def test_the_golden_file_has_64_cases() -> None:
    assert len(CASES) == 64


@pytest.mark.slow
@pytest.mark.parametrize("layout", ["nested", pytest.param("batched", marks=pytest.mark.slow)])
@pytest.mark.parametrize("case", one_in(4, CASES), ids=lambda case: case["id"])
def test_patterns_have_the_golden_outputs(case: dict[str, Any], layout: str) -> None:
    if layout == "batched" and "variable_shape" in case["id"]:
        pytest.skip("the shape varies within an episode, which a batch cannot hold")
    world = pattern_cases.World(case)
    expected = case["expected"]
    error = expected.get("error")
    if error and error["stage"] == "construct":
        with pytest.raises(ValueError):  # noqa: PT011 (the messages have tests of their own)
            apply(case, getattr(world, layout)())
        return
    outputs = apply(case, getattr(world, layout)())
    if error:
        with pytest.raises(getattr(tf.errors, error["type"])):
            list(outputs)
        return

    assert dump(outputs) == pattern_cases.decode(expected["outputs"])
    specs = pattern_cases.decode(expected["element_spec"])
    specs = tree.map_structure_up_to(
        outputs.element_spec, lambda spec: tf.TensorSpec(spec["shape"], spec["dtype"]), specs
    )
    assert outputs.element_spec == specs
    assert int(outputs.cardinality()) == tf.data.experimental.UNKNOWN_CARDINALITY


@few_examples
@given(
    rng=st.randoms(use_true_random=False),
    max_steps=st.sampled_from([1, 2, 7, 1000]),
    block_size=st.sampled_from([1, 3, 128]),
)
def test_outputs_equal_those_of_the_model(rng: Random, max_steps: int, block_size: int) -> None:
    case = pattern_cases.random_case(rng)
    world = pattern_cases.World(case)

    with limit_chunks(max_steps), mock.patch.object(pattern_dataset, "_BLOCK_SIZE", block_size):
        nested = dump(apply(case, world.nested()))
        batched = dump(apply(case, world.batched()))

    assert nested == pattern_cases.expected_outputs(case)
    assert batched == nested


@pytest.mark.slow
@few_examples
@given(rng=st.randoms(use_true_random=False), block_size=st.sampled_from([1, 3, 128]))
def test_batched_steps_give_batched_outputs(rng: Random, block_size: int) -> None:
    case = pattern_cases.random_case(rng)
    case["configs"] = case["configs"][:1] * rng.choice([1, 2])
    case["episodes"] = [[step for episode in case["episodes"] for step in episode]]
    world = pattern_cases.World(case)
    (episode,) = world.episodes
    configs = make_configs(case, world.spec)

    with mock.patch.object(pattern_dataset, "_BLOCK_SIZE", block_size):
        outputs = PatternDataset(
            world.batch(episode),
            configs,
            case["respect_episode_boundaries"],
            lambda step: step["is_last"],
        )

    assert dump(tf.data.Dataset.from_tensor_slices(outputs)) == pattern_cases.expected_outputs(case)


# A smaller world: numbered steps of one field.

SPEC = {"is_last": None, "x": None}


def make_episodes(*lengths: int, flag: bool = True) -> tf.data.Dataset:
    """Returns batched episodes; x counts the steps of all episodes."""
    starts = np.cumsum([0, *lengths])
    episodes = [
        {"x": tf.range(start, start + n), "is_last": (tf.range(n) == n - 1) & flag}
        for start, n in zip(starts, lengths)
    ]
    joined = tf.data.Dataset.from_tensors({"steps": episodes[0]})
    for episode in episodes[1:]:
        joined = joined.concatenate(tf.data.Dataset.from_tensors({"steps": episode}))
    return joined


def nest(episodes: tf.data.Dataset) -> tf.data.Dataset:
    return episodes.map(
        lambda episode: {"steps": tf.data.Dataset.from_tensor_slices(episode["steps"])}
    )


def config(transform: Callable[[Any], Any], *conditions: sw.Condition) -> sw.Config:
    return sw.create_config(sw.pattern_from_transform(SPEC, transform), "table", conditions)


PAIRS = config(lambda step: step["x"][-2:])
SINGLES = config(lambda step: step["x"][-1])
LAYOUTS = pytest.mark.parametrize(
    "layout", [nest, lambda episodes: episodes], ids=["nested", "batched"]
)
ONE_LAYOUT = pytest.mark.parametrize("layout", one_in(2, [nest, lambda episodes: episodes]))


@pytest.mark.slow
@ONE_LAYOUT
def test_episodes_end_at_boundaries_on_request(layout: Callable[..., Any]) -> None:
    unflagged = layout(make_episodes(2, 0, 1, 3, flag=False))
    at_end = config(lambda step: step["x"][-1], sw.Condition.is_end_episode())

    assert dump(pattern.pattern_map(unflagged, [PAIRS])) == [[i, i + 1] for i in range(5)]
    assert dump(pattern.pattern_map(unflagged, [at_end])) == []
    for max_steps in (1, 1000):
        with limit_chunks(max_steps):
            pairs = pattern.pattern_map(unflagged, [PAIRS], end_at_episode_boundary=True)
            ends = pattern.pattern_map(unflagged, [at_end], end_at_episode_boundary=True)
        assert dump(pairs) == [[0, 1], [3, 4], [4, 5]]
        assert dump(ends) == [1, 2, 5]


@LAYOUTS
def test_outputs_are_batched_on_request(layout: Callable[..., Any]) -> None:
    batches = pattern.pattern_map(layout(make_episodes(3, 4)), [PAIRS], batch_size=2)
    assert dump(batches) == [[[0, 1], [1, 2]], [[3, 4], [4, 5]], [[5, 6]]]
    assert batches.element_spec.shape.as_list() == [None, 2]

    triples = config(lambda step: step["x"][-3:])
    with pytest.raises(ValueError, match="Outputs of several shapes cannot be batched"):
        pattern.pattern_map(layout(make_episodes(3)), [PAIRS, triples], batch_size=2)
    with pytest.raises(ValueError, match="batch_size must be positive, got 0"):
        pattern.pattern_map(layout(make_episodes(3)), [PAIRS], batch_size=0)


@pytest.mark.slow
@LAYOUTS
@pytest.mark.parametrize(
    "configs",
    one_in(
        2,
        [
            [PAIRS],
            [PAIRS, config(lambda step: step["x"][-3:])],
            [config(lambda step: step["x"][-1], sw.Condition.steps_since_applied() >= 3)],
        ],
    ),
    ids=["dense", "one by one", "spaced"],
)
def test_iterators_can_be_saved_and_restored(
    configs: list[sw.Config], layout: Callable[..., Any], tmp_path: Path
) -> None:
    with limit_chunks(3):
        outputs = pattern.pattern_map(layout(make_episodes(5, 8, 3)), configs)
    iterator = iter(outputs)
    for _ in range(3):
        next(iterator)
    checkpoint = tf.train.Checkpoint(iterator=iterator)
    path = checkpoint.save(str(tmp_path / "checkpoint"))
    remaining = dump(iterator)
    assert remaining

    checkpoint.restore(path)
    assert dump(iterator) == remaining


@pytest.mark.slow
@LAYOUTS
def test_patterns_of_infinite_datasets_are_yielded_lazily(layout: Callable[..., Any]) -> None:
    outputs = pattern.pattern_map(layout(make_episodes(3)).repeat(), [PAIRS])
    assert dump(outputs.take(5)) == [[0, 1], [1, 2], [0, 1], [1, 2], [0, 1]]

    # Endless datasets stay endless for TensorFlow.
    steps = tf.data.Dataset.from_tensors({"x": 1, "is_last": False}).repeat()
    outputs = PatternDataset(steps, [PAIRS], True, lambda step: step["is_last"])
    assert int(outputs.cardinality()) == tf.data.experimental.INFINITE_CARDINALITY
    assert dump(outputs.take(1)) == [[1, 1]]


@pytest.mark.slow
def test_live_steps_are_read_shortly_before_their_outputs() -> None:
    num_read = 0

    def play() -> Any:
        nonlocal num_read
        for num_read in range(700):
            yield {"x": num_read, "is_last": num_read % 10 == 9}

    spec = {"x": tf.TensorSpec([], tf.int64), "is_last": tf.TensorSpec([], tf.bool)}
    stream = tf.data.Dataset.from_generator(play, output_signature=spec)
    outputs = PatternDataset(stream, [PAIRS], True, lambda s: s["is_last"], chunk_size=1)
    iterator = iter(outputs)
    next(iterator)
    assert num_read < 500  # Fewer than a chunk of 1024.
    with_large_chunks = PatternDataset(stream, [PAIRS], True, lambda step: step["is_last"])
    assert [1 + len(list(iterator)), 630] == [len(list(with_large_chunks))] * 2
    with pytest.raises(ValueError, match="chunk_size must be positive, got 0"):
        PatternDataset(stream, [PAIRS], True, lambda step: step["is_last"], chunk_size=0)


@pytest.mark.slow
@ONE_LAYOUT
def test_patterns_work_inside_map_and_flat_map(layout: Callable[..., Any]) -> None:
    def windows(episode: dict[str, Any]) -> Any:
        return PatternDataset(episode["steps"], [PAIRS], True, lambda step: step["is_last"])

    episodes = layout(make_episodes(3, 1, 4))
    nested = episodes.map(lambda episode: {"windows": windows(episode)})
    assert [np.array([*map(np.asarray, element["windows"])]).tolist() for element in nested] == [
        [[0, 1], [1, 2]],
        [],
        [[4, 5], [5, 6], [6, 7]],
    ]

    def flatten(episode: dict[str, Any]) -> tf.data.Dataset:
        outputs = windows(episode)
        if isinstance(outputs, tf.data.Dataset):
            return outputs
        return tf.data.Dataset.from_tensor_slices(outputs)

    assert dump(episodes.flat_map(flatten)) == [[0, 1], [1, 2], [4, 5], [5, 6], [6, 7]]

    @tf.function
    def list_pairs(episodes: tf.data.Dataset) -> tf.Tensor:
        return pattern.pattern_map(episodes, [PAIRS]).batch(100).get_single_element()

    assert list_pairs(episodes).numpy().tolist() == [[0, 1], [1, 2], [4, 5], [5, 6], [6, 7]]


@pytest.mark.slow
def test_configs_are_not_changed_and_are_reusable() -> None:
    triples = config(lambda step: step["x"][-3:])
    original = repr((PAIRS, triples))
    pattern.pattern_map(make_episodes(4), [triples, PAIRS])
    assert repr((PAIRS, triples)) == original
    assert len(dump(pattern.pattern_map(make_episodes(4), [PAIRS]))) == 3


def test_unused_fields_may_be_anything() -> None:
    def steps() -> Any:
        for i in range(4):
            yield {"x": i, "is_last": i == 3, "words": ["w"] * i, "more": tf.ragged.constant([[i]])}

    dataset = tf.data.Dataset.from_generator(
        steps,
        output_signature={
            "x": tf.TensorSpec([], tf.int32),
            "is_last": tf.TensorSpec([], tf.bool),
            "words": tf.TensorSpec([None], tf.string),
            "more": tf.RaggedTensorSpec([1, None], tf.int32),
        },
    )
    pairs = sw.create_config(
        sw.pattern_from_transform(dataset.element_spec, lambda step: step["x"][-2:]), "table"
    )
    outputs = PatternDataset(dataset, [pairs], True, lambda step: step["is_last"])
    assert dump(outputs) == [[0, 1], [1, 2], [2, 3]]

    used = sw.create_config(
        sw.pattern_from_transform(dataset.element_spec, lambda step: step["more"][-1]), "table"
    )
    with pytest.raises(TypeError, match=r"'more\[-1\]': field 'more' is not a dense tensor"):
        PatternDataset(dataset, [used], True, lambda step: step["is_last"])


@pytest.mark.slow
def test_fields_of_varying_shape_are_matched() -> None:
    images = [np.full([1 + i // 2, 2], i, np.uint8) for i in range(5)]
    steps = tf.data.Dataset.from_generator(
        lambda: ({"image": image, "is_last": False} for image in images),
        output_signature={
            "image": tf.TensorSpec([None, 2], tf.uint8),
            "is_last": tf.TensorSpec([], tf.bool),
        },
    )
    episodes = tf.data.Dataset.from_tensors({"steps": steps})

    single = pattern.pattern_map_from_transform(episodes, lambda step: step["image"][-2])
    assert single.element_spec == tf.TensorSpec([None, 2], tf.uint8)
    assert dump(single) == [image.tolist() for image in images[:-1]]

    # Only output windows must fit: those of steps 0 and 1, and 2 and 3.
    is_odd = sw.Condition.step_index() % 2 == 1
    window = pattern.pattern_map_from_transform(episodes, lambda step: step["image"][-2:], [is_odd])
    assert window.element_spec == tf.TensorSpec([2, None, 2], tf.uint8)
    assert dump(window) == [[images[i].tolist(), images[i + 1].tolist()] for i in (0, 2)]


def test_batched_episodes_of_varying_shape_are_matched() -> None:
    episodes = [
        {"image": tf.fill([3, size, 2], size), "is_last": [False, False, True]} for size in (1, 4)
    ]
    joined = tf.data.Dataset.from_tensors({"steps": episodes[0]})
    joined = joined.concatenate(tf.data.Dataset.from_tensors({"steps": episodes[1]}))
    windows = pattern.pattern_map_from_transform(joined, lambda step: step["image"][-2:])
    assert windows.element_spec == tf.TensorSpec([2, None, 2], tf.int32)
    assert [window.shape.as_list() for window in windows] == [[2, 1, 2]] * 2 + [[2, 4, 2]] * 2


@pytest.mark.slow
@pytest.mark.parametrize(
    "dtype", one_in(3, ["int8", "uint8", "int32", "uint64", "uint32", "int64"])
)
def test_conditions_compare_the_whole_value(dtype: str) -> None:
    info = np.iinfo(dtype)
    values = np.array([info.min, info.min + 1, 3, info.max - 1, info.max], dtype)
    quantity = sw.Condition.data({"v": None})["v"]
    conditions, expected = [], []
    for compare in pattern_cases.OPERATORS.values():
        for bound in (-3, 3, 300, 2**63 - 1, -(2**63)):
            conditions.append(compare(quantity, bound))
            expected.append([compare(int(value), bound) for value in values])
        conditions.append(compare(quantity % 100, 27))
        expected.append([compare(abs(int(v)) % 100 * (1 if v >= 0 else -1), 27) for v in values])
    assert evaluate(conditions, values) == expected


def evaluate(conditions: list[sw.Condition], values: np.ndarray) -> list[list[bool]]:
    """Evaluates each condition at each value, by the outputs of a pattern."""
    index = np.arange(len(values))
    constants = {f"{i:02}": np.full(len(values), i) for i in range(len(conditions))}
    steps = {"v": values, "with": {"index": index, **constants}}
    names = sw.create_reference_step({"v": None, "with": dict.fromkeys(steps["with"])})["with"]
    configs = [
        sw.create_config((names["index"][-1:], names[name][-1:]), "table", [condition])
        for name, condition in zip(constants, conditions)
    ]
    indices, fired = PatternDataset(steps, configs, False, lambda step: False)
    is_true = np.zeros([len(conditions), len(values)], bool)
    is_true[fired.numpy()[:, 0], indices.numpy()[:, 0]] = True
    return is_true.tolist()


def test_conditions_compare_floats() -> None:
    values = np.array([-1.5, 0.1, 1.0, 1.5], np.float32)
    quantity = sw.Condition.data({"v": None})["v"]
    assert evaluate([quantity > 1, quantity == 0.1, quantity % 1 == 0.5], values) == [
        [False, False, False, True],
        [False, True, False, False],
        [False, False, False, True],
    ]
    assert evaluate([quantity <= 0], values.astype(np.float16)) == [[True, False, False, False]]


@pytest.mark.parametrize(
    ("condition", "message"),
    [
        (lambda data: data["text"] == 1, r"'data\('text'\) == 1' needs a number.*string"),
        (lambda data: data["vector"] == 1, r"needs one number per step.*shape \(2,\)"),
        (lambda data: data["x"] > 0.5, r"compares whole numbers \(int32\) with a float"),
        (lambda data: sw.Condition.step_index() > 0.5, r"compares whole numbers"),
    ],
)
def test_conditions_that_cannot_be_evaluated_are_refused(
    condition: Callable[..., Any], message: str
) -> None:
    steps = {"text": ["a"], "vector": [[1, 2]], "x": [1], "is_last": [True]}
    episodes = tf.data.Dataset.from_tensors({"steps": steps})
    conditions = [condition(sw.Condition.data(pattern.step_spec(episodes)))]
    with pytest.raises(ValueError, match=message):
        pattern.pattern_map_from_transform(episodes, lambda step: step["x"][-1], conditions)


def test_pattern_map_refuses_bad_episodes() -> None:
    steps = tf.data.Dataset.from_tensors({"x": 1})
    with pytest.raises(KeyError, match="no field 'steps'"):
        pattern.step_spec(steps)
    with pytest.raises(KeyError, match=r"no field 'is_last'.*They have \['x'\]"):
        pattern.pattern_map_from_transform(
            tf.data.Dataset.from_tensors({"steps": steps}), lambda step: step["x"][-1]
        )
    with pytest.raises(ValueError, match="must return one bool for a step"):
        PatternDataset(steps, [SINGLES], True, lambda step: step["x"])
    with pytest.raises(ValueError, match="'is_last' must be one bool per step"):
        pattern.pattern_map(
            tf.data.Dataset.from_tensors({"steps": {"is_last": [1], "x": [1]}}), [SINGLES]
        )
    with pytest.raises(ValueError, match="is for other steps"):
        pattern.pattern_map(
            tf.data.Dataset.from_tensors({"steps": {"is_last": [True], "y": [1]}}), [SINGLES]
        )


def test_batches_cannot_hold_outputs_of_several_shapes() -> None:
    triples = config(lambda step: step["x"][-3:])
    steps = {"x": [1, 2, 3], "is_last": [False, False, True]}
    with pytest.raises(ValueError, match="one batch cannot hold"):
        PatternDataset(steps, [PAIRS, triples], True, lambda step: step["is_last"])
