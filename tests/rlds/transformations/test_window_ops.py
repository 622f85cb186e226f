"""Windows around each step."""

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
    pass_in_sections,
)

from rlds.transformations import windows


@pytest.fixture
def _tiny_sections(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nested steps pass in sections of a few steps."""
    pass_in_sections(monkeypatch, 20_000)


@pytest.mark.slow
@few_examples
@given(
    all_columns=datasets(min_length=1),
    history=st.integers(1, 4),
    horizon=st.integers(1, 4),
    padding=st.sampled_from(["edge", "zeros"]),
    unknown=st.sets(st.integers(0, 6)),
)
@pytest.mark.usefixtures("_tiny_sections")
def test_windows_equal_those_computed_by_hand_in_both_layouts(
    all_columns: list[Columns], history: int, horizon: int, padding: str, unknown: set[int]
) -> None:
    is_known = [i not in unknown for i in range(len(all_columns))]
    both = in_both_layouts(*all_columns, final_observation_known=is_known)
    nested, batched = (
        windows(data, history=history, horizon=horizon, padding=padding) for data in both
    )
    assert_same_episodes(nested, batched)
    for columns, is_final_known, episode in zip(all_columns, is_known, batched, strict=True):
        computed = as_columns(episode["steps"])
        compare_by_hand(computed, columns, history, horizon, padding, is_final_known)


def compare_by_hand(
    computed: Columns,
    columns: Columns,
    history: int,
    horizon: int,
    padding: str,
    is_final_known: bool,
) -> None:
    length = len(columns["reward"])
    num_actions = length - is_final_known
    assert len(computed["reward"]) == length
    for i in range(length):
        past = range(i - history + 1, i + 1)
        future = range(i, i + horizon)
        assert computed["timestep_pad_mask"][i].tolist() == [j >= 0 for j in past]
        assert computed["action_pad_mask"][i].tolist() == [j < num_actions for j in future]
        for k, j in enumerate(past):
            state = columns["observation"]["state"][max(j, 0)]
            is_zero = padding == "zeros" and j < 0
            np.testing.assert_array_equal(
                computed["observation"]["state"][i, k], 0 * state if is_zero else state
            )
            text = columns["observation"]["text"][max(j, 0)]
            assert computed["observation"]["text"][i, k] == (b"" if is_zero else text)
        for k, j in enumerate(future):
            action = columns["action"][max(min(j, num_actions - 1), 0)]
            is_zero = padding == "zeros" and j >= num_actions
            np.testing.assert_array_equal(
                computed["action"][i, k], 0 * action if is_zero else action
            )


def test_other_fields_stay_and_history_or_horizon_may_be_empty() -> None:
    columns = episode_columns(4)
    computed = windows(columns, history=2, history_fields=["reward"], horizon_fields=[])
    assert set(computed) == {*columns, "timestep_pad_mask"}
    assert computed["reward"].shape == (4, 2)
    assert computed["action"].shape == (4, 3)
    computed = windows(columns, horizon=5, history_fields=[])
    assert set(computed) == {*columns, "action_pad_mask"}
    assert computed["action"].shape == (4, 5, 3)


def test_shapes_and_lengths_are_static_if_possible() -> None:
    columns = episode_columns(5)
    static = tf.data.Dataset.from_tensors({"steps": columns})
    spec = windows(static, history=2, horizon=3).element_spec["steps"]
    assert spec["observation"]["state"].shape == [5, 2, 2]
    assert spec["action"].shape == [5, 3, 3]
    steps = windows(tf.data.Dataset.from_tensor_slices(columns), history=2, horizon=3)
    assert steps.element_spec["action"].shape == [3, 3]
    assert len(steps) == 5


@pytest.mark.slow
def test_empty_episodes_have_no_windows() -> None:
    for data in in_both_layouts(episode_columns(0)):
        (episode,) = windows(data, history=3, horizon=3)
        assert as_columns(episode["steps"])["action"].shape[0] == 0


@pytest.mark.slow
def test_a_long_episode_streams() -> None:
    """Windows are available while the episode is read."""
    steps = tf.data.Dataset.range(10**12).map(lambda i: {"observation": i, "action": i})
    computed = windows(steps, history=2, horizon=2)
    assert len(computed) == 10**12
    (window,) = computed.skip(9_999).take(1)
    assert window["observation"].numpy().tolist() == [9_998, 9_999]
    assert window["action"].numpy().tolist() == [9_999, 10_000]


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"history": 0}, ValueError, "windows: history must be positive, got 0"),
        ({"horizon": -1}, ValueError, "windows: horizon must be positive, got -1"),
        ({"padding": "wrap"}, ValueError, r"padding must be one of \('edge', 'zeros'\), got 'wra"),
        ({"history_fields": ["obs"]}, KeyError, "there is no field 'obs'. The fields are"),
        (
            {"history_fields": ["action"]},
            ValueError,
            r"\['action'\] are history and horizon fields at once",
        ),
    ],
)
@pytest.mark.parametrize("layout", [0, 1])
def test_bad_input_is_an_error_at_once(
    layout: int, options: dict, error: type, message: str
) -> None:
    data = in_both_layouts(episode_columns(3))[layout]
    with pytest.raises(error, match=message):
        windows(data, **options)
