"""Key maps of arms and grippers; their packages need their own interpreters."""

from typing import Any

import numpy as np
import pytest
from dm_env import specs

from rlds_creator import Inputs
from rlds_creator.environments import robodesk_family, robosuite_family
from rlds_creator.environments.arms import ArmPlayable


class StillArm:
    """An arm without simulation and pictures."""

    cameras = ("free",)

    def __init__(self, spec: specs.Array) -> None:
        self.spec = spec

    def action_spec(self) -> specs.Array:
        return self.spec

    def seed(self, seed: int) -> None:
        pass


def robosuite(size: int = 7, **overrides: Any) -> ArmPlayable:
    environment: Any = StillArm(specs.BoundedArray((size,), np.float64, -1.0, 1.0))
    return robosuite_family._create_playable(environment, environment, overrides, 0.5)


def robodesk(**overrides: Any) -> ArmPlayable:
    environment: Any = StillArm(specs.BoundedArray((5,), np.float32, -1.0, 1.0))
    return robodesk_family._create_playable(environment, environment, overrides, 0.5)


def press(*names: str) -> Inputs:
    return Inputs(dict.fromkeys(names, 1.0), names)


def test_gripper_keeps_its_last_command() -> None:
    arm = robosuite()
    assert arm.idle_action.tolist() == [0, 0, 0, 0, 0, 0, -1]
    assert arm.action(press("ArrowUp")).tolist() == [-0.5, 0, 0, 0, 0, 0, -1]
    assert arm.action(press("Space")).tolist() == [0, 0, 0, 0, 0, 0, 1]
    assert arm.action(Inputs({"Space": 1.0})) is None  # It is still held.
    assert arm.action(press("KeyW", "ArrowRight")).tolist() == [0, 0.5, 0.5, 0, 0, 0, 1]
    assert arm.action(press("Space", "Space"))[6] == 1
    assert arm.action(press("Button0"))[6] == -1
    arm.action(press("Space"))
    arm.seed(3)
    assert arm.idle_action[6] == -1
    assert arm.action(Inputs()) is None

    hand = robodesk(KeyG={"wrist": 1})
    assert hand.idle_action.tolist() == [0, 0, 0, 0, 1]
    assert hand.action(press("ArrowRight", "KeyS", "KeyQ")).tolist() == [0.5, 0, -0.5, -0.5, 1]
    assert hand.action(press("Space", "ArrowUp")).tolist() == [0, 0.5, 0, 0, -1]
    assert hand.action(press("KeyG")).tolist() == [0, 0, 0, 1, -1]
    hand.seed(3)
    assert hand.idle_action.tolist() == [0, 0, 0, 0, 1]


def test_sticks_and_a_spacemouse_move_and_turn_the_hand() -> None:
    axes = {f"Space{index}": 0.125 * (index + 1) for index in range(6)}
    arm, hand = robosuite(), robodesk()
    expected = [0.25, 0.125, -0.375, 0.625, 0.5, -0.75, -1]
    assert arm.action(Inputs(axes)).tolist() == expected
    assert hand.action(Inputs(axes)).tolist() == [0.125, -0.25, -0.375, 0.75, 1]
    assert hand.action(Inputs({"Axis1": -1.0, "Axis3": 0.5})).tolist() == [0, 1, -0.5, 0, 1]
    for playable in (arm, hand):
        names = [name for control in playable.controls for name in control.inputs]
        assert len(names) == len({*names})


def test_two_arms_have_the_keys_of_plain_arrays() -> None:
    arm = robosuite(14)
    assert not np.any(arm.idle_action)
    assert arm.action(press("Space")) is None
    assert arm.action(press("ArrowRight"))[0] == 0.5


def test_arms_accept_key_overrides() -> None:
    assert robosuite(KeyG={"z": -1}).action(press("KeyG"))[2] == -1
    with pytest.raises(ValueError, match="cannot move 'up'"):
        robosuite(KeyG={"up": 1})
