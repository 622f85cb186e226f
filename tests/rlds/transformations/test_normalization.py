"""Normalizes fields by the statistics of a dataset, and back."""

import functools

import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given
from hypothesis import strategies as st
from random_episodes import (
    Columns,
    as_columns,
    assert_same_episodes,
    datasets,
    episode_columns,
    few_examples,
    in_both_layouts,
)

from rlds.transformations import Statistics, normalize, unnormalize
from rlds.transformations import statistics as module

# The episodes of these tests have an action in the last step too.
compute_statistics = functools.partial(module.compute_statistics, include_last_action=False)


def statistics_of(*all_columns: Columns, **options) -> Statistics:
    return compute_statistics(in_both_layouts(*all_columns)[1], **options)


@few_examples
@given(all_columns=datasets(), kind=st.sampled_from(["normal", "bounds", "bounds_q99"]))
def test_unnormalize_undoes_normalize_in_both_layouts(
    all_columns: list[Columns], kind: str
) -> None:
    statistics = statistics_of(episode_columns(30), masks={"action": [True, True, False]})
    nested, batched = (
        normalize(data, statistics, kind=kind, clip=False) for data in in_both_layouts(*all_columns)
    )
    assert_same_episodes(nested, batched)
    restored = unnormalize(batched, statistics, kind=kind)
    assert_same_episodes(unnormalize(nested, statistics, kind=kind), restored)
    for columns, episode in zip(all_columns, restored, strict=True):
        normalized = as_columns(episode["steps"])
        np.testing.assert_allclose(normalized["action"], columns["action"], rtol=1e-5, atol=1e-6)
        np.testing.assert_array_equal(normalized["action"][:, 2], columns["action"][:, 2])
        assert normalized["action"].dtype == np.float32
        np.testing.assert_array_equal(normalized["reward"], columns["reward"])
        assert normalized["instruction"].tolist() == columns["instruction"].tolist()


def test_normalize_applies_the_formula_of_each_kind() -> None:
    columns = {
        "action": np.array([[0.0], [1.0], [5.0]]),
        "is_first": [True, False, False],
        "is_last": [False, False, False],
    }
    data = tf.data.Dataset.from_tensors({"steps": columns})
    field = compute_statistics(data)["action"]
    values = columns["action"]
    normalized = normalize(values, field)
    np.testing.assert_allclose(normalized, (values - 2.0) / np.std(values), rtol=1e-15)
    assert normalize(values, field, kind="bounds")[:, 0].tolist() == [-1.0, -0.6, 1.0]
    low, high = np.quantile(values, [0.01, 0.99])
    expected = 2 * (1.0 - low) / (high - low) - 1
    normalized = normalize(values, field, kind="bounds_q99")[:, 0]
    assert normalized.tolist() == [-1.0, pytest.approx(expected), 1.0]


def test_values_outside_the_range_are_clipped_by_default() -> None:
    field = statistics_of(episode_columns(9))["action"]
    far = field.max + 1.0
    for kind in ("bounds", "bounds_q99"):
        assert normalize(far, field, kind=kind).tolist() == [1.0, 1.0, 1.0]
        unclipped = normalize(far, field, kind=kind, clip=False)
        assert (unclipped > 1.0).all()
        np.testing.assert_allclose(unnormalize(unclipped, field, kind=kind), far)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["normal", "bounds", "bounds_q99"])
def test_elements_with_a_single_value_are_normalized_to_zero(kind: str) -> None:
    columns = episode_columns(9)
    columns["action"][:, 1] = 7.0
    field = statistics_of(columns)["action"]
    normalized = normalize(columns["action"], field, kind=kind)
    assert np.isfinite(normalized).all()
    assert normalized[:, 1].tolist() == [0.0] * 9
    # Unseen values are equally uninformative.
    assert normalize(np.array([0.0, 100.0, 0.0]), field, kind=kind)[1] == 0.0
    assert unnormalize(np.array([0.0, 0.3, 0.0]), field, kind=kind)[1] == 7.0


def test_arrays_and_tensors_may_have_any_leading_axes() -> None:
    """Such as action chunks at inference."""
    field = statistics_of(episode_columns(9))["action"]
    chunk = np.random.default_rng(0).normal(size=(4, 16, 3)).astype(np.float32)
    as_array = unnormalize(chunk, field)
    as_tensor = unnormalize(tf.constant(chunk), field)
    assert isinstance(as_array, np.ndarray)
    assert isinstance(as_tensor, tf.Tensor)
    assert as_array.dtype == as_tensor.dtype == np.float32
    np.testing.assert_array_equal(as_array, as_tensor)
    np.testing.assert_allclose(normalize(as_array, field), chunk, rtol=1e-5, atol=1e-6)
    # Loaded statistics give the same result.
    loaded = Statistics.from_json(statistics_of(episode_columns(9)).to_json())["action"]
    np.testing.assert_allclose(unnormalize(chunk, loaded), as_array, rtol=1e-6)


def test_only_named_fields_are_normalized() -> None:
    columns = episode_columns(9)
    statistics = statistics_of(columns)
    both = as_columns(normalize(columns, statistics))
    only = as_columns(normalize(columns, statistics, fields=["observation"]))
    np.testing.assert_array_equal(only["action"], columns["action"])
    np.testing.assert_array_equal(only["observation"]["state"], both["observation"]["state"])
    reward = as_columns(normalize(columns, statistics, fields=["reward"]))["reward"]
    assert reward[:-1].mean() == pytest.approx(0.0, abs=1e-6)
    nested = {**columns, "reward": {"a": columns["reward"]}}
    normalized = as_columns(normalize(nested, statistics_of(nested)))["reward"]["a"]
    np.testing.assert_array_equal(normalized, columns["reward"])
    with pytest.raises(KeyError, match=r"no statistics of 'discount', only of \['action'"):
        normalize(columns, statistics, fields=["discount"])


def test_bad_input_is_an_error_at_once() -> None:
    columns = episode_columns(9)
    statistics = statistics_of(columns, quantiles=())
    for data in in_both_layouts(columns):
        with pytest.raises(ValueError, match=r"normalize: kind must be one of .*got 'norm'"):
            normalize(data, statistics, kind="norm")
        with pytest.raises(ValueError, match=r"needs the quantiles 0.01 and 0.99 of .*are \[\]"):
            unnormalize(data, statistics, kind="bounds_q99")
        episodes = data.map(lambda e: {"steps": 0 if False else e["steps"]})
        with pytest.raises(TypeError, match=r"Pass the Statistics of all fields"):
            normalize(episodes, statistics["action"])
    with pytest.raises(KeyError, match="unnormalize: there is no field 'action'"):
        unnormalize({"observation": {"state": np.zeros([2, 2])}}, statistics)
    with pytest.raises(ValueError, match=r"shape of 'action' is \(4,\), but .* of shape \(3,\)"):
        normalize({**columns, "action": np.zeros([9, 4])}, statistics)
    with pytest.raises(ValueError, match=r"shape of the values is \(4,\), but .* \(3,\)"):
        normalize(np.zeros(4), statistics["action"])
    with pytest.raises(TypeError, match=r"Pass the statistics of one field: statistics"):
        normalize(np.zeros(3), statistics)
