"""Mean and standard deviation of the fields of a dataset."""

import math
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from fast_share import one_in

from rlds.transformations import mean_and_std, sar_fields_mask


def episodes(*all_steps: dict[str, Any], nested: bool = True) -> tf.data.Dataset:
    """A dataset of episodes, from the columns of each."""
    dataset = None
    for columns in all_steps:
        steps = tf.data.Dataset.from_tensor_slices(columns) if nested else columns
        episode = tf.data.Dataset.from_tensors({"steps": steps})
        dataset = episode if dataset is None else dataset.concatenate(episode)
    return dataset


def select_all(step: dict[str, Any]) -> tuple[dict[str, Any], dict[str, bool]]:
    return step, dict.fromkeys(step, True)


@pytest.mark.slow
@pytest.mark.parametrize("nested", [True, False])
@pytest.mark.parametrize("batch_size", one_in(2, [7, 1, -1]))
def test_mean_and_std_equal_those_of_numpy(nested: bool, batch_size: int) -> None:
    rng = np.random.default_rng(0)
    first, second = (
        {"observation": {"state": rng.normal(size=(n, 3)), "pair": (np.arange(n), np.ones(n))}}
        for n in (20, 11)
    )
    mean, std = mean_and_std(episodes(first, second, nested=nested), select_all, batch_size)

    def join(get) -> np.ndarray:
        return np.concatenate([get(first["observation"]), get(second["observation"])])

    for get in (lambda o: o["state"], lambda o: o["pair"][0], lambda o: o["pair"][1]):
        for result, expected in (
            (get(mean["observation"]), np.mean(join(get), axis=0)),
            (get(std["observation"]), np.std(join(get), axis=0, ddof=1)),
        ):
            assert isinstance(result, np.ndarray)
            assert result.dtype == np.float64
            np.testing.assert_allclose(result, expected, rtol=1e-13, atol=1e-15)


@pytest.mark.slow
@pytest.mark.parametrize("nested", one_in(2, [True, False]))
def test_values_far_from_zero_lose_no_precision(nested: bool) -> None:
    """Sums in float32 are wrong by many standard deviations here."""
    rng = np.random.default_rng(0)
    for mean_of_data, std_of_data in ((1e6, 1.0), (1000.0, 0.01), (1.0, 1e-3)):
        values = rng.normal(mean_of_data, std_of_data, size=200_000).astype(np.float32)
        mean, std = mean_and_std(episodes({"x": values}, nested=nested), select_all)
        exact = values.astype(np.float64)
        assert mean["x"] == pytest.approx(exact.mean(), rel=1e-13)
        assert std["x"] == pytest.approx(exact.std(ddof=1), rel=1e-10)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("values", "expected_mean", "expected_std"),
    [
        (np.full(10, 200, np.uint8), 200.0, 0.0),
        (np.full(4, 2**30, np.int32), 2.0**30, 0.0),
        (np.full(200, 1000, np.float16), 1000.0, 0.0),
        (1_700_000_000_000_000_000 + 10**9 * np.arange(3), 1.7e18 + 1e9, 1e9),
        (np.array([True, False, False, True]), 0.5, math.sqrt(1 / 3)),
    ],
    ids=["uint8", "int32", "float16", "timestamps", "bool"],
)
def test_mean_and_std_are_exact_for_every_dtype(
    values: np.ndarray, expected_mean: float, expected_std: float
) -> None:
    mean, std = mean_and_std(episodes({"x": values}), select_all)
    assert mean["x"] == pytest.approx(expected_mean, rel=1e-15)
    assert std["x"] == pytest.approx(expected_std, rel=1e-6)


@pytest.mark.slow
def test_undefined_results_are_nan_and_reported() -> None:
    columns = {"one": np.ones(2), "none": np.ones([2, 3]), "is_last": [False, True]}

    def fields(step):
        data = {name: step[name] for name in ("one", "none")}
        return data, {"one": step["is_last"], "none": False}

    message = (
        r"none: no valid values in 3 of its 3 elements; one: a single valid value in 1 of its 1"
    )
    with pytest.warns(RuntimeWarning, match=message) as warned:
        mean, std = mean_and_std(episodes(columns), fields)
    (ours,) = [warning for warning in warned if warning.category is RuntimeWarning]
    assert ours.filename == __file__
    assert mean["one"] == 1.0
    assert np.isnan([std["one"], *mean["none"], *std["none"]]).all()

    with pytest.warns(RuntimeWarning, match="no valid values"):
        mean, std = mean_and_std(episodes(columns).take(0), fields)
    assert np.isnan([mean["one"], std["one"]]).all()


def test_nan_spoils_its_own_element_only_and_is_reported() -> None:
    values = np.array([[1.0, np.nan], [3.0, 4.0]])
    with pytest.warns(RuntimeWarning, match="x: NaN or infinite values .* in 1 of its 2"):
        mean, std = mean_and_std(episodes({"x": values}), select_all)
    assert mean["x"][0] == 2.0
    assert std["x"][0] == pytest.approx(math.sqrt(2))
    assert np.isnan([mean["x"][1], std["x"][1]]).all()


@pytest.mark.slow
@pytest.mark.parametrize("nested", [True, False])
def test_masks_may_select_elements(nested: bool) -> None:
    columns = {"x": {"a": np.array([[1.0, np.nan], [3.0, 4.0], [5.0, 8.0]]), "b": np.arange(3)}}

    def fields(step):
        return step, {"x": {"a": tf.math.is_finite(step["x"]["a"]), "b": step["x"]["b"] > 0}}

    mean, std = mean_and_std(episodes(columns, nested=nested), fields)
    assert mean["x"]["a"].tolist() == [3.0, 6.0]
    assert std["x"]["a"] == pytest.approx([2.0, math.sqrt(8)])
    assert mean["x"]["b"] == 1.5


@pytest.mark.slow
@pytest.mark.parametrize("nested", one_in(2, [True, False]))
def test_mean_and_std_can_be_traced_in_graphs(nested: bool) -> None:
    """A graph cannot contain square roots by NumPy."""
    dataset = episodes({"x": [1.0, 3.0, 5.0]}, nested=nested)
    mean, std = tf.function(lambda: mean_and_std(dataset, select_all))()
    assert (float(mean["x"]), float(std["x"])) == (3.0, 2.0)
    (result,) = tf.data.Dataset.range(1).map(lambda _: mean_and_std(dataset, select_all))
    mean, std = result
    assert (float(mean["x"]), float(std["x"])) == (3.0, 2.0)


@pytest.mark.slow
def test_data_is_read_once() -> None:
    reads = []

    def steps() -> Iterator[float]:
        reads.append("read")
        yield from (1.0, 2.0, 3.0)

    def all_episodes() -> Iterator[dict[str, Any]]:
        dataset = tf.data.Dataset.from_generator(steps, output_signature=tf.TensorSpec([]))
        yield {"steps": dataset}

    spec = {"steps": tf.data.DatasetSpec(tf.TensorSpec([]))}
    dataset = tf.data.Dataset.from_generator(all_episodes, output_signature=spec)
    mean, std = mean_and_std(dataset, lambda x: (x, True))
    assert (mean, std) == (2.0, 1.0)
    assert reads == ["read"]


@pytest.mark.slow
def test_the_function_of_a_step_may_use_python_control_flow() -> None:
    def fields(step):
        if step["is_last"]:
            mask = {"action": False}
        else:
            mask = {"action": True}
        return {"action": step["action"]}, mask

    columns = {"action": [1, 3, 99], "is_last": [False, False, True]}
    mean, _ = mean_and_std(episodes(columns), fields)
    assert mean["action"] == 2.0


def test_fields_of_varying_shape_have_statistics() -> None:
    columns = {"x": np.arange(6.0).reshape(3, 2)}
    steps = tf.data.Dataset.from_tensor_slices(columns).map(
        lambda step: {"x": tf.boolean_mask(step["x"], [True, True])}
    )
    mean, _ = mean_and_std(tf.data.Dataset.from_tensors({"steps": steps}), select_all)
    assert mean["x"].tolist() == [2.0, 3.0]


def test_fields_without_a_mean_are_refused() -> None:
    texts = episodes({"x": {"text": [b"a"]}})
    with pytest.raises(TypeError, match=r"mean_and_std: field 'x/text' must be a numeric tensor"):
        mean_and_std(texts, select_all)


@pytest.mark.parametrize(
    ("mask", "error", "message"),
    [
        ({"a": True}, ValueError, "one boolean per top-level field"),
        ({"a": True, "c": True}, ValueError, "one boolean per top-level field"),
        ({"a": True, "b": {"deeper": True}}, ValueError, "one boolean per top-level field"),
        ({"a": True, "b": 1}, TypeError, "field 'b' must have a boolean mask"),
        ({"a": True, "b": [True, False]}, ValueError, r"mask of shape \(2,\) does not"),
    ],
)
def test_masks_must_fit(mask: Any, error: type[Exception], message: str) -> None:
    dataset = episodes({"a": np.ones(2), "b": np.ones([2, 3])})
    with pytest.raises(error, match=message):
        mean_and_std(dataset, lambda step: (step, mask))


def test_function_must_return_fields_and_mask() -> None:
    with pytest.raises(ValueError, match=r"must return \(data, mask\)"):
        mean_and_std(episodes({"a": np.ones(2)}), lambda step: step)


@pytest.mark.slow
@pytest.mark.parametrize("nested", one_in(2, [False, True]))
def test_results_are_arrays_with_a_numpy_method(nested: bool) -> None:
    dataset = episodes({"x": {"y": np.array([[1, 2], [3, 6]], np.float32)}}, nested=nested)
    for result, expected in zip(mean_and_std(dataset, select_all), ([2, 4], [2**0.5, 8**0.5])):
        values = result["x"]["y"]
        assert type(values.numpy()) is np.ndarray
        assert values.numpy() == pytest.approx(expected)
        assert values.dtype == np.asarray(values).dtype == np.float64
        assert (-values).numpy() == pytest.approx([-x for x in expected])
        assert np.maximum(values, 3).tolist() == pytest.approx([3, max(3, expected[1])])
        assert tf.cast(values, tf.float32).numpy() == pytest.approx(expected)


def test_a_single_result_is_a_number() -> None:
    mean, _ = mean_and_std(episodes({"x": [1.0, 3.5]}), select_all)
    assert type(mean["x"].numpy()) is np.float64
    assert round(mean["x"].numpy(), 1) == round(mean["x"], 1) == 2.2
    assert (round(mean["x"]), float(mean["x"])) == (2, 2.25)


@pytest.mark.slow
def test_results_normalise_the_steps_they_came_from() -> None:
    dataset = episodes({"x": np.array([1.0, 3.0], np.float32)})
    mean, std = mean_and_std(dataset, select_all)
    normalised = dataset.flat_map(lambda episode: episode["steps"]).map(
        lambda step: (step["x"] - mean["x"]) / std["x"]
    )
    assert [float(x) for x in normalised] == pytest.approx([-math.sqrt(0.5), math.sqrt(0.5)])


# SAR


def test_sar_fields_mask_leaves_out_the_placeholders_of_the_last_step() -> None:
    step = {"observation": 1.0, "action": 2.0, "reward": 3.0, "is_last": False, "extra": 1}
    data, mask = sar_fields_mask(step)
    assert data == {"observation": 1.0, "action": 2.0, "reward": 3.0}
    assert all(mask.values())
    data, mask = sar_fields_mask({**step, "is_last": True})
    assert {name: bool(valid) for name, valid in mask.items()} == {
        "observation": True,
        "action": False,
        "reward": False,
    }


@pytest.mark.slow
@pytest.mark.parametrize("nested", one_in(2, [True, False]))
def test_sar_fields_mask_uses_available_fields(nested: bool) -> None:
    columns = {"observation": [1.0, 3.0], "reward": [5.0, 77.0], "is_last": [False, True]}
    with pytest.warns(RuntimeWarning, match="reward: a single valid value"):
        mean, _ = mean_and_std(episodes(columns, nested=nested), sar_fields_mask)
    assert mean == {"observation": 2.0, "reward": 5.0}
    mean, _ = mean_and_std(episodes({"observation": [1.0, 3.0]}), sar_fields_mask)
    assert mean == {"observation": 2.0}


def test_sar_fields_mask_refuses_steps_without_its_fields() -> None:
    with pytest.raises(KeyError, match=r"none of .*'action'.* only \['obs'\]"):
        sar_fields_mask({"obs": 1.0})
    with pytest.raises(KeyError, match="no field 'is_last'"):
        sar_fields_mask({"action": 1.0})
