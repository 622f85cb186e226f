"""RLDS steps from recorded steps; recovery is tested with each writer."""

import dm_env
import numpy as np
import pytest

from envlogger import StepData
from envlogger.backends.rlds_utils import to_rlds_step


def mid(value, **kwargs):
    timestep = dm_env.transition({"x": np.float32(value)}, {"y": np.arange(value, value + 2)})
    return StepData(timestep, {"left": value, "right": [value]}, **kwargs)


def test_the_action_is_that_of_the_next_step():
    step = to_rlds_step(mid(1, custom_data={"extra": 3}), mid(5, custom_data={"extra": 7}))
    assert step["observation"]["y"].tolist() == [1, 2]
    assert step["action"] == {"left": 5, "right": [5]}
    assert step["reward"] == {"x": 5.0}
    assert step["extra"] == 3
    assert not step["is_first"]


def test_the_last_step_has_zeros():
    step = to_rlds_step(mid(1), None)
    assert step["observation"]["y"].tolist() == [1, 2]
    assert step["action"] == {"left": 0, "right": [0]}
    assert (step["reward"], step["discount"]) == ({"x": 0.0}, 0.0)


@pytest.mark.parametrize(("discount", "is_terminal"), [(0.0, True), (0.5, False), ([0, 0], True)])
def test_a_last_step_is_terminal_if_its_discounts_are_zero(discount, is_terminal):
    discount = np.array(discount)
    timestep = dm_env.TimeStep(dm_env.StepType.LAST, 1.0, discount, 2)
    step = to_rlds_step(StepData(timestep, 3), None)
    flags = (step["is_first"], step["is_last"], step["is_terminal"])
    assert flags == (False, True, is_terminal)


def test_a_first_step_is_neither_last_nor_terminal():
    step = to_rlds_step(StepData(dm_env.restart(1), None), StepData(dm_env.transition(0.0, 2), 3))
    assert (step["is_first"], step["is_last"], step["is_terminal"]) == (True, False, False)


def test_custom_data_that_is_no_dict_is_left_out():
    assert set(to_rlds_step(mid(1, custom_data=[1]), mid(2))) == set(to_rlds_step(mid(1), mid(2)))
