"""Evaluation sets of episodes with every kind of end."""

import evaluation_problems as problems
import numpy as np
import pytest

from rlds.evaluation import collect


def columns(n, *, terminal=False, **changes):
    flags = {
        "is_first": np.arange(n) == 0,
        "is_last": np.arange(n) == n - 1,
        "is_terminal": (np.arange(n) == n - 1) & terminal,
    }
    defaults = {
        "observation": np.arange(n) * 10.0,
        "action": np.arange(n),
        "reward": np.arange(n) * 0.5,
        **flags,
    }
    return {**defaults, **changes}


def test_ends_of_episodes_decide_which_steps_count():
    data = collect(
        [
            {"steps": columns(3, terminal=True)},
            {"steps": columns(2, terminal=True), "final_observation_known": False},
            {"steps": columns(2), "final_observation_known": False},
            {"steps": columns(1)},
        ]
    )
    assert data.num_transitions.tolist() == [2, 2, 2, 0]
    assert data.rewards.tolist() == [0, 0.5] * 3
    assert data.actions.tolist() == [0, 1] * 3
    assert data.observations.tolist() == [0, 10, 20, 0, 10, 0, 10, 0]
    assert data.rows.tolist() == [0, 1, 3, 4, 5, 6]
    assert data.next_is_terminal.tolist() == [False, True, False, True, False, False]
    assert data.next_is_known.tolist() == [True, True, True, False, True, False]
    assert data.initial_observations.tolist() == [0, 0, 0, 0]
    selected = data.select([2, 0])
    assert selected.observations.tolist() == [0, 10, 0, 10, 20]
    assert selected.is_terminal.tolist() == [False, True]


def test_log_probs_may_be_stored_in_the_next_step():
    """A `step_fn` records them in the step that follows the action."""
    steps = columns(4, log_prob=np.array([np.nan, -0.1, -0.2, -0.3]))
    data = collect([{"steps": steps}], log_prob="log_prob", log_prob_in_next_step=True)
    assert data.log_probs.tolist() == [-0.1, -0.2, -0.3]
    unknown = {"steps": steps, "final_observation_known": False}
    with pytest.raises(ValueError, match="final observation of episode 1 is unknown"):
        collect([{"steps": steps}, unknown], log_prob="log_prob", log_prob_in_next_step=True)
    with pytest.raises(ValueError, match="episode 0, step 0, field 'log_prob' must be finite"):
        collect([{"steps": steps}], log_prob="log_prob")


def test_sets_are_compared_by_identity():
    data, other = problems.four_episodes()[0], problems.four_episodes()[0]
    assert (data == data, data == other, len({data, other})) == (True, False, 2)
