"""Games of Atari, played by the Arcade Learning Environment."""

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

__all__ = ["AtariFamily"]

_ARROWS = {"UP": "ArrowUp", "DOWN": "ArrowDown", "RIGHT": "ArrowRight", "LEFT": "ArrowLeft"}
_KEY_OF_WORD = {**_ARROWS, "FIRE": "Space"}
_ACTION_WORD = re.compile("|".join(_KEY_OF_WORD))


class AtariFamily(Family):
    """Games of Atari: arrows move, the space bar fires."""

    title = "Atari"
    requires = "ale-py"

    @override
    def identifiers(self) -> Sequence[str]:
        self._register()
        ids = list_ids(lambda module: module.startswith("ale_py"))
        return [id for id in ids if id.startswith("ALE/")]

    def make(
        self,
        *,
        id: str,
        keys: Mapping[str, Any],
        full_action_space: bool = False,
        sticky_actions: bool = True,
        frameskip: int = 4,
        mode: int | None = None,
        difficulty: int | None = None,
    ) -> GymnasiumPlayable:
        """See `Family`.

        Args:
          id: The identifier of the environment.
          keys: The actions of keys, which replace the default actions.
          full_action_space: Whether all 18 actions are allowed, or only those that the game uses.
          sticky_actions: Whether an action is repeated for a frame with a probability of 1/4.
          frameskip: The number of frames of 1/60 second that an action lasts.
          mode: The mode of the game, if it has several.
          difficulty: The difficulty of the game, if it has several.

        Raises:
          ValueError: An option, or the action of a key, is wrong; the message names it.
        """
        if not 1 <= frameskip <= 60:
            raise ValueError(f"frameskip is {frameskip}, expected 1 to 60")
        self._register()
        env = make_gymnasium(
            id,
            {
                "full_action_space": full_action_space,
                "repeat_action_probability": 0.25 if sticky_actions else 0.0,
                "frameskip": frameskip,
                "mode": mode,
                "difficulty": difficulty,
            },
        )
        names = env.unwrapped.get_action_meanings()
        keymap = key_map(
            spec_of(env),
            table={_keys_of(name): index for index, name in enumerate(names) if name != "NOOP"},
            meanings=[_describe(name) for name in names],
            idle=names.index("NOOP") if "NOOP" in names else None,
            overrides=keys,
        )
        return GymnasiumPlayable(env, keymap, ["ale-py"])

    def _register(self) -> None:
        ale_py = self.package("ale_py")
        ale_py.ALEInterface.setLoggerMode(ale_py.LoggerMode.Error)
        self.package("gymnasium").register_envs(ale_py)


def _keys_of(name: str) -> str:
    """Returns the keys of an action.

    >>> _keys_of("UPRIGHTFIRE")
    'ArrowUp+ArrowRight+Space'
    """
    return "+".join(_KEY_OF_WORD[word] for word in _ACTION_WORD.findall(name))


def _describe(name: str) -> str:
    """Describes the effect of an action.

    >>> _describe("UPRIGHTFIRE"), _describe("NOOP")
    ('up, right, fire', 'nothing')
    """
    return ", ".join(_ACTION_WORD.findall(name)).lower() or "nothing"
