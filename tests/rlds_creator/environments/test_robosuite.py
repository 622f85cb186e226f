"""How an arm and its gripper follow keys; robosuite itself needs an interpreter of its own."""

from typing import Any

import numpy as np
import pytest
from dm_env import specs

from rlds_creator.environments.playable import Inputs
from rlds_creator.environments.robosuite_family import RobosuitePlayable, _key_map_of


class Still:
    """An arm that nobody moves, drawn by nothing."""

    cameras = ("agentview",)

    def __init__(self, size: int) -> None:
        self.rng, self.task = np.random.default_rng(), self
        self.spec = specs.BoundedArray((size,), np.float64, -1.0, 1.0)


def playable(size: int = 7, **overrides: Any) -> RobosuitePlayable:
    arm: Any = Still(size)
    maps, grippers = _key_map_of(arm.spec, overrides, 0.5)
    return RobosuitePlayable(arm, maps, arm, grippers)


def press(*names: str) -> Inputs:
    return Inputs(dict.fromkeys(names, 1.0), names)


def test_the_gripper_stays_as_it_was_told() -> None:
    arm = playable()
    assert arm.idle_action.tolist() == [0, 0, 0, 0, 0, 0, -1]
    assert arm.action(press("ArrowUp")).tolist() == [-0.5, 0, 0, 0, 0, 0, -1]
    assert arm.action(press("Space")).tolist() == [0, 0, 0, 0, 0, 0, 1]
    assert arm.action(Inputs({"Space": 1.0})) is None  # It is still held.
    assert arm.action(press("KeyW", "ArrowRight")).tolist() == [0, 0.5, 0.5, 0, 0, 0, 1]
    assert arm.idle_action[6] == 1
    assert arm.action(press("Space", "Space"))[6] == 1
    assert arm.action(press("Button0"))[6] == -1
    arm.action(press("Space"))
    arm.seed(3)
    assert arm.idle_action[6] == -1
    assert arm.action(Inputs()) is None


def test_a_spacemouse_moves_and_turns_the_hand() -> None:
    arm = playable()
    axes = {f"Space{place}": 0.25 * (place + 1) / 2 for place in range(6)}
    moved = arm.action(Inputs(axes))
    assert np.abs(moved[:6]).min() > 0
    assert moved.tolist() == [0.25, 0.125, -0.375, 0.625, 0.5, -0.75, -1]
    names = [name for control in arm.controls for name in control.inputs]
    assert {"Space", *axes} <= {*names}
    assert len(names) == len({*names})


def test_two_arms_have_keys_like_any_numbers() -> None:
    arm = playable(14)
    assert not np.any(arm.idle_action)
    assert arm.action(press("Space")) is None
    assert arm.action(press("ArrowRight"))[0] == 0.5


def test_keys_can_be_changed() -> None:
    arm = playable(KeyG={"z": -1})
    assert arm.action(press("KeyG"))[2] == -1
    with pytest.raises(ValueError, match="cannot move 'up'"):
        playable(KeyG={"up": 1})
