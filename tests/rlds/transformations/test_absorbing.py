"""Absorbing states instead of terminal ones."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from random_episodes import (
    Columns,
    as_columns,
    assert_equal,
    assert_same_episodes,
    datasets,
    episode_columns,
    few_examples,
    in_both_layouts,
    pass_in_sections,
)

from rlds.transformations import add_absorbing_states, transitions


@pytest.mark.slow
@few_examples
@given(all_columns=datasets(), indicator=st.booleans(), keep=st.booleans(), unknown=st.booleans())
def test_absorbing_states_are_added_alike_in_both_layouts(
    all_columns: list[Columns], indicator: bool, keep: bool, unknown: bool
) -> None:
    are_known = [not unknown or i % 2 == 0 for i in range(len(all_columns))]
    with pytest.MonkeyPatch.context() as patch:
        pass_in_sections(patch, 5000)
        nested, batched = (
            add_absorbing_states(data, indicator=indicator, keep_observation=keep)
            for data in in_both_layouts(*all_columns, final_observation_known=are_known)
        )
        assert_same_episodes(nested, batched)
    for columns, is_known, episode in zip(all_columns, are_known, batched, strict=True):
        extended = as_columns(episode["steps"])
        ends = len(columns["is_terminal"]) > 0 and columns["is_terminal"][-1]
        num_added = (1 if is_known else 2) if ends else 0
        assert len(extended["is_last"]) == len(columns["is_last"]) + num_added
        index = np.arange(len(extended["is_last"]))
        assert extended["is_first"].tolist() == (index == 0).tolist()
        assert extended["is_last"].tolist() == (index == len(index) - 1).tolist()
        assert not extended["is_terminal"].any()
        if indicator:
            is_absorbing = index >= (len(index) - 2 if ends else len(index))
            assert extended["observation"]["absorbing"].tolist() == is_absorbing.tolist()


def test_terminal_episode_gets_an_absorbing_state() -> None:
    """The example of the paper: zeros, and a bit in the observation."""
    columns = {
        "observation": np.array([[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]], np.float32),
        "action": np.array([1, 2, 3], np.int32),
        "reward": np.array([0.5, 1.5, 7.0], np.float32),
        "discount": np.array([1.0, 0.0, 7.0], np.float32),
        "is_last": np.array([False, False, True]),
        "is_terminal": np.array([False, False, True]),
        "tag": np.array([b"a", b"b", b"c"]),
    }
    extended = as_columns(add_absorbing_states(columns, discount=0.75))
    assert extended["observation"].tolist() == [[1, 2, 0], [3, 4, 0], [0, 0, 1], [0, 0, 1]]
    assert extended["action"].tolist() == [1, 2, 0, 0]
    assert extended["reward"].tolist() == [0.5, 1.5, 0.0, 0.0]
    assert extended["discount"].tolist() == [1.0, 0.75, 0.75, 0.0]
    assert extended["tag"].tolist() == [b"a", b"b", b"c", b"c"]

    # Transitions have a future after the terminal state.
    assert transitions(columns)["discount"].numpy().tolist() == [1.0, 0.0]
    assert transitions(extended)["discount"].numpy().tolist() == [1.0, 0.75, 0.75]
    assert transitions(extended)["next_observation"][2].numpy().tolist() == [0, 0, 1]

    repeated = as_columns(add_absorbing_states(columns, indicator=False, keep_observation=True))
    assert repeated["observation"].tolist() == [[1, 2], [3, 4], [5, 6], [5, 6]]


def test_truncated_episode_is_unchanged() -> None:
    columns = episode_columns(4, terminal=False)
    assert_equal(add_absorbing_states(columns, indicator=False), columns)
    extended = add_absorbing_states(columns)
    assert extended["observation"]["absorbing"].numpy().tolist() == [0.0] * 4


def test_an_unobserved_end_keeps_the_last_action() -> None:
    """The absorbing state follows the last step."""
    columns = {
        "observation": np.array([[1.0], [2.0]]),
        "action": np.array([1, 2]),
        "is_last": np.array([False, True]),
        "is_terminal": np.array([False, True]),
    }
    extended = as_columns(add_absorbing_states(columns, final_observation_known=False))
    assert extended["observation"].tolist() == [[1, 0], [2, 0], [0, 1], [0, 1]]
    assert extended["action"].tolist() == [1, 2, 0, 0]

    both = in_both_layouts(columns, final_observation_known=[False])
    for data in both:
        (episode,) = add_absorbing_states(data)
        assert episode["final_observation_known"]
    for data in in_both_layouts(
        {**columns, "is_terminal": np.array([False, False])}, final_observation_known=[False]
    ):
        (episode,) = add_absorbing_states(data)
        assert not episode["final_observation_known"]


@pytest.mark.parametrize(
    ("changes", "error", "message"),
    [
        ({"is_terminal": None}, KeyError, "there is no field 'is_terminal'"),
        ({"observation": np.zeros([3, 2, 2])}, ValueError, "indicator can be added to .* a vector"),
        ({"observation": {"absorbing": np.zeros(3)}}, ValueError, "already has a field 'absorb"),
    ],
)
@pytest.mark.parametrize("layout", [0, 1])
def test_bad_input_is_an_error_at_once(
    layout: int, changes: dict, error: type, message: str
) -> None:
    columns = {k: v for k, v in {**episode_columns(3), **changes}.items() if v is not None}
    with pytest.raises(error, match=f"add_absorbing_states: .*{message}"):
        add_absorbing_states(in_both_layouts(columns)[layout])


def test_absorbing_states_get_nested_discounts() -> None:
    is_last = [False, False, True]
    steps = {
        "observation": [[1.0], [2.0], [3.0]],
        "discount": {"a": [0.5, 0.0, 0.0], "b": [[0.5], [0.25], [0.0]]},
        "is_last": is_last,
        "is_terminal": is_last,
    }
    extended = as_columns(add_absorbing_states(steps, discount=0.75))["discount"]
    assert extended["a"].tolist() == [0.5, 0.75, 0.75, 0.0]
    assert extended["b"].tolist() == [[0.5], [0.75], [0.75], [0.0]]
