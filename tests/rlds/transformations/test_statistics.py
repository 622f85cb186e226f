"""Statistics of the fields of a dataset."""

import functools
import itertools
import json
import re
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given
from hypothesis import strategies as st
from random_episodes import Columns, datasets, episode_columns, few_examples, in_both_layouts

from rlds.statistics import compute_statistics as compute_with_numpy
from rlds.transformations import FieldStatistics, Statistics, mean_and_std, sar_fields_mask
from rlds.transformations import statistics as module

# Episodes here have an action in the last step, too, which a test would notice if it counted.
compute_statistics = functools.partial(module.compute_statistics, include_last_action=False)


def assert_same(one: FieldStatistics, other: FieldStatistics) -> None:
    assert one.count.tolist() == other.count.tolist()
    assert one.ddof == other.ddof
    assert one.mask.tolist() == other.mask.tolist()
    assert one.quantiles.keys() == other.quantiles.keys()
    for name in ("mean", "std", "min", "max"):
        np.testing.assert_allclose(getattr(one, name), getattr(other, name), rtol=1e-12, atol=1e-14)
    for q, values in one.quantiles.items():
        np.testing.assert_allclose(values, other.quantiles[q], rtol=1e-12)


def join_valid(all_columns: list[Columns], is_final_known: list[bool], field: str) -> np.ndarray:
    def select(columns: Columns, is_known: bool) -> np.ndarray:
        if field == "observation/state":
            return columns["observation"]["state"]
        return columns[field][: len(columns[field]) - is_known]

    return np.concatenate([select(c, k) for c, k in zip(all_columns, is_final_known)]).astype(
        np.float64
    )


@pytest.mark.slow
@few_examples
@given(
    all_columns=datasets(min_length=1), unknown=st.sets(st.integers(0, 6)), ddof=st.integers(0, 1)
)
def test_statistics_equal_those_of_numpy_in_both_layouts(
    all_columns: list[Columns], unknown: set[int], ddof: int
) -> None:
    is_final_known = [i not in unknown for i in range(len(all_columns))]
    both = in_both_layouts(*all_columns, final_observation_known=is_final_known)
    options = {"quantiles": (0.01, 0.5), "ddof": ddof}
    nested, batched = (compute_statistics(data, **options) for data in both)
    from_numpy = compute_with_numpy(
        [
            {"steps": columns, "final_observation_known": is_known}
            for columns, is_known in zip(all_columns, is_final_known)
        ],
        **options,
    )
    assert set(nested) == set(batched) == {"observation/state", "action", "reward"}
    for statistics in (nested, batched, from_numpy):
        assert statistics.num_trajectories == len(all_columns)
        assert statistics.num_transitions == sum(
            len(columns["action"]) - is_known
            for columns, is_known in zip(all_columns, is_final_known)
        )
    for name in nested:
        assert_same(nested[name], batched[name])
        assert_same(nested[name], from_numpy[name])
        values = join_valid(all_columns, is_final_known, name)
        field = nested[name]
        assert (field.count == len(values)).all()
        np.testing.assert_allclose(field.mean, values.mean(0), rtol=1e-12, atol=1e-14)
        np.testing.assert_allclose(field.std, values.std(0, ddof=ddof), rtol=1e-12)
        assert field.min.tolist() == values.min(0).tolist()
        assert field.max.tolist() == values.max(0).tolist()
        for q in (0.01, 0.5):
            np.testing.assert_allclose(
                field.quantiles[q], np.quantile(values, q, axis=0), rtol=1e-6, atol=1e-6
            )


@pytest.mark.slow
def test_statistics_agree_with_mean_and_std() -> None:
    columns = episode_columns(50)
    columns["observation"] = columns["observation"]["state"]
    for data in in_both_layouts(columns):
        mean, std = mean_and_std(data, sar_fields_mask)
        statistics = compute_statistics(data, sar_fields_mask, ddof=1)
        assert set(statistics) == {"observation", "action", "reward"}
        for name, field in statistics.fields.items():
            np.testing.assert_allclose(field.mean, mean[name], rtol=1e-12)
            np.testing.assert_allclose(field.std, std[name], rtol=1e-12)


@pytest.mark.slow
def test_statistics_far_from_zero_are_exact() -> None:
    values = np.random.default_rng(0).normal(1e6, 1.0, size=200_000).astype(np.float32)
    flags = {"is_first": np.zeros(200_000, np.bool_), "is_last": np.zeros(200_000, np.bool_)}
    for data in in_both_layouts({"x": values, **flags}):
        field = compute_statistics(data, ["x"])["x"]
        exact = values.astype(np.float64)
        assert field.mean == pytest.approx(exact.mean(), rel=1e-13)
        assert field.std == pytest.approx(exact.std(), rel=1e-10)
        assert 0 < field.quantile_error < 0.001
        for q in (0.01, 0.99):
            low, high = np.quantile(exact, [q - field.quantile_error, q + field.quantile_error])
            assert low <= field.quantiles[q] <= high


def test_names_select_nested_fields() -> None:
    columns = episode_columns(4)
    columns["observation"] = {"arm": {"joints": np.ones([4, 2]), "grip": np.zeros(4)}, "x": [1] * 4}
    columns["observation"]["image"] = np.zeros([4, 2, 2, 3], np.uint8)
    data = tf.data.Dataset.from_tensors({"steps": columns})
    assert set(compute_statistics(data, ["observation/arm"])) == {
        "observation/arm/joints",
        "observation/arm/grip",
    }
    by_default = set(compute_statistics(data))
    assert by_default == {
        "observation/arm/joints",
        "observation/arm/grip",
        "observation/x",
        "action",
        "reward",
    }
    # Images are left out by default.
    image = compute_statistics(data, ["observation/image"], quantiles=())["observation/image"]
    assert image.mean.shape == (2, 2, 3)
    assert not image.quantiles


def test_masks_leave_out_single_elements() -> None:
    columns = {
        "x": np.array([[1.0, np.nan], [3.0, 4.0], [5.0, 8.0]]),
        "is_first": [True, False, False],
        "is_last": [False, False, True],
    }

    def select_finite(step: dict[str, Any]) -> tuple[Any, Any]:
        return {"x": step["x"]}, {"x": tf.math.is_finite(step["x"])}

    data = tf.data.Dataset.from_tensors({"steps": columns})
    field = compute_statistics(data, select_finite, quantiles=[0.5])["x"]
    assert field.count.tolist() == [3, 2]
    assert field.mean.tolist() == [3.0, 6.0]
    assert field.min.tolist() == [1.0, 4.0]
    assert field.quantiles[0.5].tolist() == [3.0, 6.0]
    both = field.merge(field)
    assert both.count.tolist() == [6, 4]
    assert both.quantiles[0.5].tolist() == [3.0, 6.0]

    with pytest.warns(RuntimeWarning, match="x: NaN or infinite values in 1 of its 2 elements"):
        field = compute_statistics(data, ["x"])["x"]
    assert np.isnan([field.mean[1], field.max[1], field.quantiles[0.01][1]]).all()
    assert field.max[0] == 5.0


def test_missing_values_are_reported() -> None:
    data = in_both_layouts(episode_columns(3))[0].take(0)
    with pytest.warns(RuntimeWarning, match="action: no valid values in 3 of its 3 elements"):
        statistics = compute_statistics(data)
    assert statistics.num_trajectories == 0
    assert np.isnan(statistics["action"].mean).all()
    full = compute_statistics(in_both_layouts(episode_columns(3))[0])
    for merged in (statistics + full, full + statistics):
        assert_same(merged["action"], full["action"])


@pytest.mark.slow
def test_merged_statistics_equal_statistics_of_all_episodes() -> None:
    groups = [[episode_columns(n, seed=n + k) for n in (2, 30, 7)] for k in range(3)]
    first, second, third = (compute_statistics(in_both_layouts(*group)[1]) for group in groups)
    direct = compute_statistics(in_both_layouts(*itertools.chain(*groups))[1])
    merged = first.merge(second) + third
    assert merged.num_trajectories == direct.num_trajectories == 9
    assert merged.num_transitions == direct.num_transitions
    for name in direct:
        assert_same(merged[name], direct[name])


def make_statistics(**options: Any) -> Statistics:
    return compute_statistics(in_both_layouts(episode_columns(20))[1], **options)


def test_statistics_of_different_fields_or_options_are_not_merged() -> None:
    statistics = make_statistics()
    with pytest.raises(ValueError, match=r"have the fields \['action', .*\] and \['action'\]"):
        statistics + make_statistics(fields=["action"])
    with pytest.raises(ValueError, match=r"Field 'action': .* ddof 0 and 1"):
        statistics + make_statistics(ddof=1)
    with pytest.raises(ValueError, match=r"Field 'action': .* different normalization masks"):
        statistics + make_statistics(masks={"action": [True, True, False]})


def test_statistics_survive_json() -> None:
    statistics = make_statistics(masks={"action": [True, True, False]}, quantiles=(0.01, 0.99, 0.5))
    for name in (None, "toy"):
        loaded = Statistics.from_json(statistics.to_json(dataset_name=name))
        assert set(loaded) == set(statistics)
        assert loaded.num_transitions == 19
        assert loaded.num_trajectories == 1
        for field in loaded:
            assert_same(loaded[field], statistics[field])
    # Quantiles of merged statistics are unknown without the values.
    merged = loaded + loaded
    assert merged["action"].count[0] == 38
    assert merged["action"].quantiles == {}


def test_json_has_the_keys_of_octo_and_openvla() -> None:
    statistics = make_statistics(masks={"action": [True, True, False]})
    names = {"observation/state": "proprio"}
    octo = json.loads(statistics.to_json(rename=names))
    assert {"action", "proprio", "num_transitions", "num_trajectories"} <= octo.keys()
    for key in ("mean", "std", "max", "min", "p01", "p99"):
        assert len(octo["action"][key]) == 3
    assert octo["action"]["p99"] == octo["action"]["q99"]
    assert octo["action"]["mask"] == [True, True, False]
    openvla = json.loads(statistics.to_json(rename=names, dataset_name="toy"))
    assert openvla == {"toy": octo}


def test_json_of_other_projects_is_read() -> None:
    field = {"mean": [0.5], "std": [2.0], "max": [3.0], "min": [-1.0], "q01": [-0.9], "q99": [2.9]}
    file = {
        "bridge": {"action": field, "num_transitions": 10, "num_trajectories": 2},
        "other": {"action": {**field, "mask": [False]}, "num_transitions": 5},
    }
    loaded = Statistics.from_json(json.dumps(file), dataset_name="bridge")
    assert loaded["action"].std.tolist() == [2.0]
    assert loaded["action"].count.tolist() == [10]
    assert loaded["action"].quantiles[0.99].tolist() == [2.9]
    assert loaded["action"].mask.tolist() == [True]
    with pytest.raises(ValueError, match=r"of the datasets \['bridge', 'other'\], not of None"):
        Statistics.from_json(json.dumps(file))
    with pytest.raises(ValueError, match="no field has 'mean' and 'std'"):
        Statistics.from_json('{"a": {"b": 1}}')


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"quantiles": [1.5]}, ValueError, "quantiles must be between 0 and 1, got 1.5"),
        ({"ddof": -1}, ValueError, "ddof must not be negative, got -1"),
        ({"fields": ["obs"]}, KeyError, "there is no field 'obs'. The fields are"),
        ({"fields": ["instruction"]}, TypeError, "'instruction' must be numeric"),
        ({"masks": {"act": True}}, ValueError, r"masks for \['act'\], but the fields are"),
        ({"masks": {"action": [True]*2}}, ValueError, r"'action' has shape \(3,\), its mask has"),
    ],
)  # fmt: skip
@pytest.mark.parametrize("layout", [0, 1])
def test_bad_input_is_an_error_at_once(
    layout: int, options: dict, error: type, message: str
) -> None:
    data = in_both_layouts(episode_columns(3))[layout]
    with pytest.raises(error, match=f"compute_statistics: .*{message}"):
        compute_statistics(data, **options)


def test_steps_without_flags_or_static_shapes_are_refused() -> None:
    data = tf.data.Dataset.from_tensors({"steps": {"action": [1.0, 2.0], "is_last": [False, True]}})
    with pytest.raises(KeyError, match=r"no field 'is_first'.*This flag .* keep it"):
        compute_statistics(data)
    columns = episode_columns(3)
    spec = tf.nest.map_structure(lambda x: tf.TensorSpec([None] * x.ndim, x.dtype), columns)
    data = tf.data.Dataset.from_generator(lambda: [columns], output_signature=spec)
    data = data.map(lambda steps: {"steps": steps})
    message = re.escape("field 'action' has the shape (None,), expected a fully defined shape")
    with pytest.raises(ValueError, match=message):
        compute_statistics(data, ["action"])


# Printing


def test_statistics_are_printed_as_a_table() -> None:
    is_last = np.arange(5) == 4
    steps = {
        "observation": np.arange(5.0) - 2.0,
        "action": np.arange(100.0).reshape(5, 20),
        "nothing": np.zeros([5, 0]),
        "is_first": np.arange(5) == 0,
        "is_last": is_last,
    }
    episodes = tf.data.Dataset.from_tensors({"steps": steps})
    statistics = compute_statistics(
        episodes, ["observation", "action", "nothing"], quantiles=(0.25, 0.5, 0.75)
    )
    lines = str(statistics).splitlines()
    assert lines[0] == "4 transitions, 1 trajectories"
    assert [line.split() for line in lines[1:4]] == [
        ["count", "mean", "std", "min", "q25", "q75", "max"],
        ["observation", "5", "0", "1.414", "-2", "-1", "1", "2"],
        ["action[0]", "4", "30", "22.36", "0", "15", "45", "60"],
    ]
    assert [line.split()[0] for line in lines[9:12]] == ["action[6]", "action:", "action[19]"]
    assert lines[10:] == ["action: 12 more", lines[11], "nothing: no elements"]
    assert len({len(line) for line in (*lines[1:4], lines[11])}) == 1
    assert str(statistics["action"]).splitlines()[1].startswith("[0]")
    assert repr(statistics) == (
        "Statistics(4 transitions, 1 trajectories, ['observation', 'action', 'nothing'])"
    )
    assert repr(statistics["action"]) == "FieldStatistics(shape=(20,), count=4, ddof=0)"


def test_the_table_fits_a_terminal() -> None:
    tiny = np.full([2, 2], -1.2345e-300)
    count, quantiles = np.full([2, 2], 10**9), {0.001: tiny, 0.999: tiny}
    field = FieldStatistics(count, tiny, -tiny, tiny, tiny, tiny > 0, quantiles)
    text = str(Statistics({"observation/" + "deep/" * 20 + "x": field}, 1, 1))
    assert max(map(len, text.splitlines())) <= 100
    assert "/x[1, 1]" in text


# --- The last action -----------------------------------------------------------------------------


@few_examples
@given(all_columns=datasets(min_length=1))
def test_last_action_counts_like_in_octo(all_columns: list[Columns]) -> None:
    is_final_known = [i % 2 == 0 for i in range(len(all_columns))]
    for data in in_both_layouts(*all_columns, final_observation_known=is_final_known):
        actual = module.compute_statistics(data, quantiles=(), include_last_action=True)
        values = np.concatenate([columns["action"] for columns in all_columns]).astype(np.float64)
        assert actual.num_transitions == len(values)
        np.testing.assert_allclose(actual["action"].mean, values.mean(0), rtol=1e-12, atol=1e-14)
        np.testing.assert_allclose(actual["action"].std, values.std(0), rtol=1e-12, atol=1e-14)


@pytest.mark.slow
def test_unmarked_real_last_action_is_reported() -> None:
    columns = [episode_columns(n, seed=n) for n in range(1, 11)]
    for steps in columns[1:]:
        steps["action"][-1] = np.nan
        steps["reward"][-1] = 0
    for data in in_both_layouts(*columns):
        with pytest.warns(UserWarning, match="in 1 of 10 episodes the last action") as warned:
            statistics = module.compute_statistics(data)
        assert warned[0].filename == __file__
        assert statistics.num_unmarked_last_actions == 1
        assert (statistics + statistics).num_unmarked_last_actions == 2
        module.compute_statistics(data, ["observation/state"])
        module.compute_statistics(data, include_last_action=False)
    columns[0]["action"][-1] = 0  # Now no last action is real.
    columns[0]["reward"][-1] = 0
    for data in in_both_layouts(*columns):
        assert module.compute_statistics(data).num_unmarked_last_actions == 0
    for data in in_both_layouts(*columns, final_observation_known=[False] * 10):
        with pytest.warns(RuntimeWarning, match="NaN"):
            module.compute_statistics(data)
