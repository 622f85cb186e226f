"""The scenarios of ViZDoom, and the levels of Freedoom."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from typing_extensions import override

from rlds_creator.environments.gymnasium_family import (
    GymnasiumPlayable,
    list_ids,
    make_gymnasium,
    spec_of,
)
from rlds_creator.environments.key_maps import key_map
from rlds_creator.environments.playable import Family

__all__ = ["VizdoomFamily"]

# The module whose import registers the environments.
_MODULE = "vizdoom.gymnasium_wrapper"
# The turn in a frame by a fully pushed stick.
_MAX_TURN_DEGREES = 5.0
# Levels of Doom need files that are not free; the other names are duplicates.
_EXCLUDED_IDS = re.compile(r"VizdoomDoom(2MAP|E)\d|.*-MultiBinary-")
_KEYS = {
    "MOVE_FORWARD": ("ArrowUp", "KeyW"),
    "MOVE_BACKWARD": ("ArrowDown", "KeyS"),
    "TURN_LEFT": ("ArrowLeft",),
    "TURN_RIGHT": ("ArrowRight",),
    "MOVE_LEFT": ("KeyA",),
    "MOVE_RIGHT": ("KeyD",),
    "ATTACK": ("Space", "Button7"),
    "USE": ("KeyE", "Button1"),
    "SPEED": ("ShiftLeft",),
    "STRAFE": ("AltLeft",),
    "SELECT_NEXT_WEAPON": ("KeyX", "Button5"),
    "SELECT_PREV_WEAPON": ("KeyZ", "Button4"),
    **{f"SELECT_WEAPON{digit}": (f"Digit{digit}",) for digit in range(10)},
    # Buttons whose action is an amount, not a press.
    "TURN_LEFT_RIGHT_DELTA": ("Axis2",),
    "LOOK_UP_DOWN_DELTA": ("Axis3",),
}


class VizdoomFamily(Family):
    """Doom: arrows go and turn, the space bar attacks."""

    title = "ViZDoom"
    requires = "vizdoom"

    @override
    def identifiers(self) -> Sequence[str]:
        self.package(_MODULE)
        ids = list_ids(lambda module: module.startswith("vizdoom"))
        return [id for id in ids if not _EXCLUDED_IDS.match(id)]

    def make(self, *, id: str, keys: Mapping[str, Any], frame_skip: int = 1) -> GymnasiumPlayable:
        """See `Family`.

        Args:
          id: The identifier of the environment.
          keys: The actions of keys, which replace the default actions.
          frame_skip: The number of frames of 1/35 second that an action lasts.

        Raises:
          ValueError: An option, or the action of a key, is wrong; the message names it.
        """
        if not 1 <= frame_skip <= 35:
            raise ValueError(f"frame_skip is {frame_skip}, expected 1 to 35")
        self.package(_MODULE)
        # All buttons can be held together.
        env = make_gymnasium(id, {"frame_skip": frame_skip}, max_buttons_pressed=0)
        buttons = [button.name for button in env.unwrapped.game.get_available_buttons()]
        deltas = [button for button in buttons if button.endswith("_DELTA")]
        switches = [button for button in buttons if button not in deltas]
        has_turns = {"TURN_LEFT", "TURN_LEFT_RIGHT_DELTA"} & {*buttons}
        table: dict[str, Any] = {}
        for button in buttons:
            effect: Any = {_describe(button): _MAX_TURN_DEGREES if button in deltas else 1}
            if deltas:
                effect = {"continuous" if button in deltas else "binary": effect}
            for key in _KEYS.get(button, ()):
                table[key] = effect
            if button in ("MOVE_LEFT", "MOVE_RIGHT") and not has_turns:
                table[f"Arrow{button[5:].capitalize()}"] = effect
        names: Any = list(map(_describe, switches))
        if deltas:
            names = {"binary": names, "continuous": list(map(_describe, deltas))}
        keymap = key_map(spec_of(env), table=table, names=names, overrides=keys)
        return GymnasiumPlayable(env, keymap, ["vizdoom"])


def _describe(button: str) -> str:
    """Describes the effect of a button.

    >>> _describe("MOVE_LEFT"), _describe("TURN_LEFT_RIGHT_DELTA")
    ('move left', 'turn left right')
    """
    return button.removesuffix("_DELTA").replace("_", " ").lower()
