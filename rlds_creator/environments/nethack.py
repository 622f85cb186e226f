"""NetHack, as a terminal: typed keys are the actions."""

from __future__ import annotations

import functools
from collections import deque
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from typing_extensions import override

from rlds_creator.environments.gymnasium_family import (
    GymnasiumPlayable,
    list_ids,
    make_gymnasium,
    spec_of,
)
from rlds_creator.environments.key_maps import Choices
from rlds_creator.environments.playable import Control, Family, Inputs

__all__ = ["NetHackFamily", "NetHackPlayable", "TypedKeys"]

# The characters for keys that have no character of their own.
_KEY_TEXTS = {
    "ArrowUp": "k",
    "ArrowDown": "j",
    "ArrowLeft": "h",
    "ArrowRight": "l",
    "Home": "y",
    "PageUp": "u",
    "End": "b",
    "PageDown": "n",
    "Enter": "\r",
    "Backspace": "\x1b",
}
# The colors of a terminal, then the color of the background.
_COLORS = np.array(
    [
        *[(110, 110, 120), (205, 60, 60), (60, 180, 60), (190, 140, 50)],
        *[(80, 110, 230), (190, 80, 190), (60, 180, 180), (190, 190, 190)],
        *[(128, 128, 128), (255, 110, 100), (110, 240, 110), (255, 240, 100)],
        *[(130, 160, 255), (255, 120, 255), (110, 250, 250), (255, 255, 255)],
        (0, 0, 0),
    ],
    np.uint8,
)
_MODIFIERS = ("ControlLeft", "ControlRight", "AltLeft", "MetaLeft", "MetaRight")
_PIXEL_SCALE = 2
_MAX_QUEUED_KEYS = 100


class TypedKeys(Choices):
    """The key map of typed characters. Keys typed faster than steps are queued.

    Args:
      spec: The spec of the action.
      codes: The codes of the characters. Codes below 32 are typed with Control, codes from 128 on
        with Alt.
      meanings: The effects of the actions.
      overrides: See `Choices`.
    """

    def __init__(
        self, spec: Any, codes: Sequence[int], meanings: Sequence[str], overrides: Mapping[str, Any]
    ) -> None:
        actions: dict[str, int] = {}
        for index, code in enumerate(codes):
            actions.setdefault(chr(code), index)
        table = {name: actions[char] for name, char in _KEY_TEXTS.items() if char in actions}
        for character, action in actions.items():
            letter, modifier = chr(ord(character) % 128), "AltLeft"
            if ord(character) < 32:
                letter, modifier = chr(ord(character) + 96), "ControlLeft"
            if letter.isalpha() and not 32 <= ord(character) < 128:
                table[f"{modifier}+Key{letter.upper()}"] = action
        if " " not in actions and "\r" in actions:
            table["Space"] = actions["\r"]
        super().__init__(spec, table, meanings=meanings, overrides=overrides)
        self._typed_actions = {
            character: spec.dtype.type(action)
            for character, action in actions.items()
            if character.isprintable() and character.isascii()
        }
        self._queue: deque[str] = deque(maxlen=_MAX_QUEUED_KEYS)
        self.controls = [
            *self.controls,
            *(Control([char], meanings[action]) for char, action in self._typed_actions.items()),
        ]

    @override
    def action(self, inputs: Inputs) -> Any:
        if not inputs.is_held(*_MODIFIERS):
            self._queue.extend(char for char in inputs.text if char in self._typed_actions)
        # A key acts when it is pressed, not while it is held.
        pressed = {*inputs.pressed, *_MODIFIERS}
        held = {name: value for name, value in inputs.held.items() if name in pressed}
        action = super().action(Inputs(held, inputs.pressed))
        if action is not None:
            return action
        return self._typed_actions[self._queue.popleft()] if self._queue else None

    def clear_queue(self) -> None:
        """Discards queued characters."""
        self._queue.clear()


class NetHackPlayable(GymnasiumPlayable):
    """A game of NetHack."""

    keys: TypedKeys

    @override
    def seed(self, seed: int) -> None:
        self.keys.clear_queue()
        try:
            # `reset(seed=...)` does not seed the game.
            self.adapter.unwrapped.seed(core=seed, disp=seed, reseed=False)
        except RuntimeError as error:
            raise NotImplementedError(str(error)) from error

    @override
    def draw(self) -> np.ndarray:
        game = self.adapter.unwrapped
        screen = dict(zip(game._observation_keys, game.last_observation))
        return draw_terminal(*(screen[f"tty_{name}"] for name in ("chars", "colors", "cursor")))


class NetHackFamily(Family):
    """NetHack: keys have their meaning in the game, and the arrows move."""

    title = "NetHack"
    requires = "nle"

    @override
    def identifiers(self) -> Sequence[str]:
        self.package("nle.env")  # Registers the environments.
        return list_ids(lambda module: module.startswith("nle"))

    def make(
        self,
        *,
        id: str,
        keys: Mapping[str, Any],
        character: str = "mon-hum-neu-mal",
        has_time_limit: bool = True,
    ) -> NetHackPlayable:
        """See `Family`.

        Args:
          id: The identifier of the environment.
          keys: The actions of keys, which replace the default actions.
          character: The role, race, alignment and gender of the hero, or "@" for any.
          has_time_limit: Whether episodes end at the registered number of steps.

        Raises:
          ValueError: An option, or the action of a key, is wrong; the message names it.
        """
        self.package("nle.env")
        can_choose = not id.startswith("NetHackChallenge")  # The challenge chooses the character.
        env = make_gymnasium(
            id, {"character": character} if can_choose else {}, has_time_limit=has_time_limit
        )
        actions = env.unwrapped.actions
        maps = TypedKeys(spec_of(env), [int(a) for a in actions], _meanings(actions), keys)
        return NetHackPlayable(env, maps, ["nle"], repeats=False)


def draw_terminal(characters: np.ndarray, colors: np.ndarray, cursor: np.ndarray) -> np.ndarray:
    """Returns the picture of a terminal.

    Args:
      characters: The characters, `[rows, columns]`.
      colors: The colors of the characters, from 0 to 15.
      cursor: The row and the column of the cursor, which is drawn inverted.
    """
    cells = _glyphs()[characters]  # [rows, columns, height, width]
    row, column = (int(coordinate) for coordinate in cursor)
    if 0 <= row < cells.shape[0] and 0 <= column < cells.shape[1]:
        cells[row, column] ^= True
    inks = np.where(cells, (colors & 15)[:, :, np.newaxis, np.newaxis], len(_COLORS) - 1)
    rows, columns, height, width = inks.shape
    picture = _COLORS[inks.transpose(0, 2, 1, 3).reshape(rows * height, columns * width)]
    return picture.repeat(_PIXEL_SCALE, 0).repeat(_PIXEL_SCALE, 1)


@functools.cache
def _glyphs() -> np.ndarray:
    """Returns the bitmaps of the characters, `[256, height, width]`."""
    from PIL import Image, ImageDraw, ImageFont

    font = ImageFont.load_default_imagefont()  # A font of equal widths.
    _, _, width, height = font.getbbox("M")
    bitmaps = []
    for code in range(256):
        image = Image.new("1", (int(width), int(height)))
        if 32 < code < 127:
            ImageDraw.Draw(image).text((0, 0), chr(code), 1, font)
        bitmaps.append(np.asarray(image))
    return np.array(bitmaps)


def _meanings(actions: Sequence[Any]) -> list[str]:
    """Returns the effects of actions, from their names in NetHack."""
    compass = {"N": "north", "E": "east", "S": "south", "W": "west"}
    meanings = []
    for action in actions:
        kind, name = type(action).__name__, action.name
        if kind.startswith("CompassDirection"):
            direction = "".join(compass[letter] for letter in name)
            meanings.append(f"far {direction}" if kind.endswith("Longer") else direction)
        else:
            meanings.append(name.lower().replace("_", " "))
    return meanings
