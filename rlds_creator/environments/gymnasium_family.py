"""Environments of Gymnasium, with generated key maps, and better ones for well-known games."""

from __future__ import annotations

import importlib.util
import re
import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from dm_env import specs
from typing_extensions import override

from rlds_creator.environments.key_maps import KeyedPlayable, KeyMap, key_map
from rlds_creator.environments.playable import Family

__all__ = ["GymnasiumFamily", "GymnasiumPlayable", "list_ids", "make_gymnasium", "spec_of"]

# The packages that Gymnasium's own environments need, by the modules that define them.
_DEPENDENCIES = {
    "gymnasium.envs.box2d": "Box2D",
    "gymnasium.envs.classic_control": "pygame",
    "gymnasium.envs.mujoco": "mujoco",
    "gymnasium.envs.phys2d": "flax",
    "gymnasium.envs.tabular": "flax",
    "gymnasium.envs.toy_text": "pygame",
}
# The modules whose environments have families of their own.
_OTHER_FAMILIES = ("ale_py", "gymnasium.envs.mujoco", "minigrid")

_ARROWS = ("ArrowLeft", "ArrowDown", "ArrowRight", "ArrowUp")

# Arguments of `key_map` for well-known games, by the prefix of their identifiers. Longer prefixes
# come first. A table has discrete actions, or vectors.
_KEYS: Mapping[str, Mapping[str, Any]] = {
    "CartPole": {
        "table": {"ArrowLeft": 0, "ArrowRight": 1},
        "meanings": ["push left", "push right"],
    },
    "MountainCarContinuous": {
        "names": ["force"],
        "words": {"force": ("drive left", "drive right")},
    },
    "MountainCar": {
        "table": {"ArrowLeft": 0, "ArrowRight": 2},
        "meanings": ["drive left", "roll", "drive right"],
        "idle": 1,
    },
    "Acrobot": {
        "table": {"ArrowLeft": 0, "ArrowRight": 2},
        "meanings": ["turn the joint clockwise", "let it swing", "turn the joint counterclockwise"],
        "idle": 1,
    },
    "Pendulum": {
        "names": ["torque"],
        "words": {"torque": ("turn clockwise", "turn counterclockwise")},
    },
    "LunarLanderContinuous": {
        "table": {
            "ArrowUp": [1, 0],
            "ArrowLeft": [0, -1],
            "ArrowRight": [0, 1],
            "Axis0": [0, 1],
            "Axis1-": [1, 0],
            "Button0": [1, 0],
        },
        "names": ["main engine", "side engines"],
        "words": {
            "main engine": ("main engine off", "main engine"),
            "side engines": ("left engine", "right engine"),
        },
    },
    "LunarLander": {
        "table": {"ArrowLeft": 1, "ArrowUp": 2, "ArrowRight": 3},
        "meanings": ["engines off", "left engine", "main engine", "right engine"],
        "idle": 0,
    },
    "BipedalWalker": {
        "names": ["hip 1", "knee 1", "hip 2", "knee 2"],
        "words": {
            **{f"hip {leg}": (f"hip {leg} back", f"hip {leg} forward") for leg in (1, 2)},
            **{f"knee {leg}": (f"bend knee {leg}", f"stretch knee {leg}") for leg in (1, 2)},
        },
    },
    "CarRacing": {
        "table": {
            "ArrowLeft": [-1, 0, 0],
            "ArrowRight": [1, 0, 0],
            "ArrowUp": [0, 1, 0],
            "ArrowDown": [0, 0, 0.8],
            "Axis0": [1, 0, 0],
            "Button0": [0, 1, 0],
            "Button1": [0, 0, 0.8],
            "Button7": [0, 1, 0],
            "Button6": [0, 0, 0.8],
        },
        "names": ["steering", "gas", "brake"],
        "words": {
            "steering": ("steer left", "steer right"),
            "gas": ("no gas", "gas"),
            "brake": ("no brake", "brake"),
        },
    },
    "FrozenLake": {
        "table": dict(zip(_ARROWS, range(4))),
        "meanings": ["left", "down", "right", "up"],
    },
    "CliffWalking": {
        "table": dict(zip(("ArrowUp", "ArrowRight", "ArrowDown", "ArrowLeft"), range(4))),
        "meanings": ["up", "right", "down", "left"],
    },
    "Taxi": {
        "table": {
            **dict(zip(("ArrowDown", "ArrowUp", "ArrowRight", "ArrowLeft"), range(4))),
            "KeyE": 4,
            "Space": 4,
            "KeyD": 5,
            "Button1": 5,
        },
        "meanings": ["down", "up", "right", "left", "pick up", "drop off"],
    },
    "Blackjack": {"table": {"Space": 1, "KeyS": 0, "Button1": 0}, "meanings": ["stick", "hit"]},
}
# The arguments for CarRacing with discrete actions.
_CAR_CHOICES: Mapping[str, Any] = {
    "table": {"ArrowRight": 1, "ArrowLeft": 2, "ArrowUp": 3, "ArrowDown": 4},
    "meanings": ["roll", "steer right", "steer left", "gas", "brake"],
    "idle": 0,
}

# The arrow keys by their codes in tables of Gymnasium, which are those of pygame.
_ARROW_CODES = dict(enumerate(("ArrowRight", "ArrowLeft", "ArrowDown", "ArrowUp"), 1_073_741_903))


class GymnasiumPlayable(KeyedPlayable):
    """An environment of Gymnasium.

    Args:
      env: The environment, with the render mode `rgb_array`.
      keys: The key map.
      packages: The packages besides Gymnasium whose versions are recorded.
      **more: See `KeyedPlayable`.
    """

    def __init__(self, env: Any, keys: KeyMap, packages: Sequence[str] = (), **kwargs: Any) -> None:
        from envlogger.gymnasium_adapter import GymnasiumAdapter

        self.adapter = GymnasiumAdapter(env)
        super().__init__(self.adapter, keys, ("gymnasium", *packages), **kwargs)

    @override
    def draw(self) -> np.ndarray:
        picture: np.ndarray = self.adapter.render()
        return picture

    @override
    def seed(self, seed: int) -> None:
        self.adapter.prepare_reset(seed=seed)

    @override
    def info(self) -> Mapping[str, Any]:
        return self.adapter.info


class GymnasiumFamily(Family):
    """The environments registered with Gymnasium that have no family of their own."""

    title = "Gymnasium"
    requires = "gymnasium[box2d,classic-control]"

    @override
    def identifiers(self) -> Sequence[str]:
        self.package("gymnasium")
        return list_ids(lambda module: not _is_in(module, _OTHER_FAMILIES))

    def make(
        self,
        *,
        id: str,
        keys: Mapping[str, Any],
        arguments: Mapping[str, Any] = {},
        has_time_limit: bool = True,
        strength: float | Sequence[float] = 1.0,
        has_pointer: bool = False,
    ) -> GymnasiumPlayable:
        """See `Family`.

        Args:
          id: The identifier of the environment.
          keys: The actions of keys, which replace the default actions.
          arguments: Arguments of the environment: flags, numbers and words.
          has_time_limit: Whether episodes end at the registered number of steps.
          strength: The fraction of its bound by which a key moves an element of the action, from 0
            to 1; or a fraction for each element.
          has_pointer: Whether the first two elements of the action follow the mouse while its
            button is down; a single element follows it to the left and right.

        Raises:
          ValueError: An option, or the action of a key, is wrong; the message names it.
        """
        env = make_gymnasium(id, arguments, has_time_limit=has_time_limit)
        keymap = _create_key_map(id, env, keys, strength, has_pointer)
        # A held key does not repeat moves in turn-based games.
        is_turn_based = "toy_text" in type(env.unwrapped).__module__
        return GymnasiumPlayable(env, keymap, repeats=not is_turn_based)


def list_ids(accepts: Callable[[str], bool]) -> list[str]:
    """Returns the identifiers of registered environments whose packages are installed.

    Args:
      accepts: A predicate of the name of the module that defines an environment.
    """
    import gymnasium

    ids = []
    for id, spec in gymnasium.registry.items():
        entry = spec.entry_point
        # Entry points that are functions belong to removed environments.
        module = entry.partition(":")[0] if isinstance(entry, str) else ""
        if module and accepts(module) and _can_import(module):
            ids.append(id)
    return ids


def make_gymnasium(
    id: str, arguments: Mapping[str, Any], *, has_time_limit: bool = True, **other_arguments: Any
) -> Any:
    """Creates an environment of Gymnasium with the render mode `rgb_array`.

    Args:
      id: The identifier of a registered environment.
      arguments: Arguments of the environment from users on the network; they are checked.
      has_time_limit: Whether episodes end at the registered number of steps.
      **other_arguments: Arguments of the environment that need no check.

    Raises:
      ValueError: The environment does not accept the arguments.
    """
    import gymnasium

    for name, value in arguments.items():
        if name in ("render_mode", "id", "max_episode_steps"):
            raise ValueError(f"the argument {name!r} cannot be set")
        is_word = isinstance(value, str) and re.fullmatch(r"[\w .:+-]{0,64}", value)
        if not (is_word or isinstance(value, bool | int | float) or value is None):
            raise ValueError(f"argument {name!r} is {value!r:.100}, expected a number or a word")
    time_limit = {} if has_time_limit else {"max_episode_steps": -1}
    try:
        with warnings.catch_warnings():
            # If warnings are errors, the import of Box2D ends the process.
            warnings.simplefilter("ignore")
            return gymnasium.make(
                id,
                render_mode="rgb_array",
                disable_env_checker=True,
                **{**arguments, **other_arguments, **time_limit},
            )
    except gymnasium.error.DependencyNotInstalled as error:
        raise ImportError(str(error)) from error
    except (gymnasium.error.Error, TypeError, AssertionError) as error:
        raise ValueError(f"{id}: {error}") from error


def spec_of(env: Any) -> Any:
    """Returns the spec of the actions of an environment of Gymnasium."""
    from envlogger.gymnasium_adapter import spec_of_space

    return spec_of_space(env.action_space)


def _is_in(module: str, packages: Sequence[str]) -> bool:
    return any(module == package or module.startswith(f"{package}.") for package in packages)


def _can_import(module: str) -> bool:
    names = [name for package, name in _DEPENDENCIES.items() if _is_in(module, [package])]
    return all(importlib.util.find_spec(name) for name in (module.partition(".")[0], *names))


def _create_key_map(
    id: str, env: Any, overrides: Mapping[str, Any], strength: Any, has_pointer: bool
) -> KeyMap:
    spec = spec_of(env)
    is_choice = isinstance(spec, specs.DiscreteArray)
    arguments = dict(next((keys for name, keys in _KEYS.items() if id.startswith(name)), {}))
    if id.startswith("CarRacing") and is_choice:
        arguments = dict(_CAR_CHOICES)
    elif id.startswith("LunarLander") and not is_choice:
        arguments = dict(_KEYS["LunarLanderContinuous"])
    if not arguments and is_choice:
        arguments = _get_declared_arguments(env.unwrapped)
    if strength != 1.0:
        arguments.pop("table", None)
    arguments |= {"overrides": overrides, "strength": strength, "has_pointer": has_pointer}
    return key_map(spec, **arguments)


def _get_declared_arguments(env: Any) -> dict[str, Any]:
    """Returns the arguments of `key_map` that an environment declares for its actions."""
    arguments: dict[str, Any] = {}
    if hasattr(env, "get_action_meanings"):
        arguments["meanings"] = [str(meaning).lower() for meaning in env.get_action_meanings()]
    if hasattr(env, "get_keys_to_action"):
        table = {}
        for keys, action in env.get_keys_to_action().items():
            keys = keys if isinstance(keys, tuple | list | str) else (keys,)
            codes = [_key_code(key) for key in keys]
            if not codes:
                arguments["idle"] = int(action)
            elif None not in codes:
                table["+".join(map(str, codes))] = int(action)
        if table:
            arguments["table"] = table
    return arguments


def _key_code(key: Any) -> str | None:
    """Returns the physical code of a key in a table of Gymnasium; None if unknown."""
    if isinstance(key, int):
        if key in _ARROW_CODES:
            return _ARROW_CODES[key]
        key = chr(key) if 0 <= key < 128 else ""
    key = str(key)
    if len(key) == 1 and key.isascii() and key.isalnum():
        return f"Digit{key}" if key.isdigit() else f"Key{key.upper()}"
    named_keys = {" ": "Space", "space": "Space", "return": "Enter", "\r": "Enter", "tab": "Tab"}
    arrows = {arrow.removeprefix("Arrow").lower(): arrow for arrow in _ARROWS}
    return {**named_keys, **arrows}.get(key.lower())
