"""The grid worlds of MiniGrid and BabyAI."""

from __future__ import annotations

import functools
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
from rlds_creator.environments.key_maps import key_map
from rlds_creator.environments.playable import Family

__all__ = ["MiniGridFamily"]

_ACTION_OF_KEY = {
    "ArrowLeft": 0,
    "ArrowRight": 1,
    "ArrowUp": 2,
    "KeyA": 3,
    "Button2": 3,
    "KeyD": 4,
    "Button1": 4,
    "Space": 5,
    "KeyE": 6,
    "Button3": 6,
}
_MEANINGS = ["turn left", "turn right", "go forward", "pick up", "drop", "toggle", "done"]


_PADDING = 6


class MiniGridFamily(Family):
    """Grid worlds: arrows turn and go forward; there are keys to pick up, drop and open things."""

    title = "MiniGrid"
    requires = "minigrid"

    @override
    def identifiers(self) -> Sequence[str]:
        self.package("minigrid")  # Registers the environments.
        # The environments of wfc need images that the package does not contain.
        return list_ids(lambda name: name.startswith("minigrid") and ".wfc" not in name)

    def make(
        self,
        *,
        id: str,
        keys: Mapping[str, Any],
        agent_pov: bool = False,
        highlight: bool = True,
        tile_size: int = 32,
    ) -> MiniGridPlayable:
        """See `Family`.

        Args:
          id: The identifier of the environment.
          keys: The actions of keys, which replace the default actions.
          agent_pov: Whether to draw only the field of view of the agent.
          highlight: Whether the field of view of the agent is brighter.
          tile_size: The side of a field, in pixels.

        Raises:
          ValueError: An option, or the action of a key, is wrong; the message names it.
        """
        if not 4 <= tile_size <= 100:
            raise ValueError(f"tile_size is {tile_size}, expected 4 to 100")
        self.package("minigrid")
        arguments = {"agent_pov": agent_pov, "highlight": highlight, "tile_size": tile_size}
        env = make_gymnasium(id, arguments)
        keymap = key_map(spec_of(env), table=_ACTION_OF_KEY, meanings=_MEANINGS, overrides=keys)
        return MiniGridPlayable(env, keymap, ["minigrid"], repeats=False)


class MiniGridPlayable(GymnasiumPlayable):
    """A grid world, with its mission text below the picture."""

    @override
    def draw(self) -> np.ndarray:
        picture = super().draw()
        caption = _draw_caption(str(self.adapter.unwrapped.mission), picture.shape[1])
        return np.concatenate([picture, caption])


@functools.lru_cache(maxsize=16)
def _draw_caption(text: str, width: int) -> np.ndarray:
    """Returns a picture of wrapped text with the width of the picture above it."""
    from PIL import Image, ImageDraw, ImageFont

    font = ImageFont.load_default(size=max(12, width // 24))
    lines = [""]
    for word in text.split():
        line = f"{lines[-1]} {word}".strip()
        if lines[-1] and font.getlength(line) > width - 2 * _PADDING:
            line = word
            lines.append("")
        lines[-1] = line
    text = "\n".join(lines)
    height = ImageDraw.Draw(Image.new("L", (1, 1))).textbbox((0, 0), text, font)[3] + 2 * _PADDING
    strip = Image.new("RGB", (width, int(height)))
    ImageDraw.Draw(strip).text((_PADDING, _PADDING), text, "white", font)
    return np.asarray(strip)
