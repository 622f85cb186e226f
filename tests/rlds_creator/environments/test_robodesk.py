"""How the hand follows keys; RoboDesk itself needs an interpreter of its own."""

from typing import Any

import numpy as np
from dm_env import specs

from rlds_creator.environments.playable import Inputs
from rlds_creator.environments.robodesk_family import RoboDeskPlayable, _key_map_of


class Still:
    """A hand that nobody moves, drawn by nothing."""

    cameras = ("free",)


def playable(**overrides: Any) -> RoboDeskPlayable:
    still: Any = Still()
    spec = specs.BoundedArray((5,), np.float32, -1.0, 1.0)
    return RoboDeskPlayable(still, _key_map_of(spec, overrides, 0.5), still)


def press(*names: str) -> Inputs:
    return Inputs(dict.fromkeys(names, 1.0), names)


def test_the_hand_moves_turns_and_stays_open_until_it_is_told() -> None:
    hand = playable(KeyG={"wrist": 1})
    assert hand.idle_action.tolist() == [0, 0, 0, 0, 1]
    assert hand.action(press("ArrowRight", "KeyS", "KeyQ")).tolist() == [0.5, 0, -0.5, -0.5, 1]
    assert hand.action(press("Space", "ArrowUp")).tolist() == [0, 0.5, 0, 0, -1]
    assert hand.action(press("KeyG")).tolist() == [0, 0, 0, 1, -1]
    assert hand.action(Inputs()) is None
    assert hand.idle_action.tolist() == [0, 0, 0, 0, -1]
    hand.seed(3)
    assert hand.idle_action.tolist() == [0, 0, 0, 0, 1]


def test_sticks_and_a_spacemouse_move_the_hand() -> None:
    hand = playable()
    axes = {f"Space{place}": 0.125 * (place + 1) for place in range(6)}
    assert hand.action(Inputs(axes)).tolist() == [0.125, -0.25, -0.375, 0.75, 1]
    assert hand.action(Inputs({"Axis1": -1.0, "Axis3": 0.5})).tolist() == [0, 1, -0.5, 0, 1]
    names = [name for control in hand.controls for name in control.inputs]
    assert len(names) == len({*names})
