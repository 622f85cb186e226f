"""Environments that people play, with the key maps that select their actions.

`families()` lists the families that create environments. Only workers create environments.
"""

from __future__ import annotations

import functools
import importlib
import json
from collections.abc import Mapping
from importlib import metadata
from typing import Any

from rlds_creator.environments.playable import Control, Family, Inputs, Playable
from rlds_ecosystem.model.names import suggest_names

__all__ = [
    "ENTRY_POINTS",
    "Control",
    "Family",
    "Inputs",
    "Playable",
    "families",
    "family",
    "make",
    "options_of",
]

# The group of entry points under which other distributions add families.
ENTRY_POINTS = "rlds_creator.environments"

# The class of each built-in family by its name.
_FAMILIES: dict[str, str] = {
    "gymnasium": "rlds_creator.environments.gymnasium_family:GymnasiumFamily",
    "atari": "rlds_creator.environments.atari:AtariFamily",
    "minigrid": "rlds_creator.environments.minigrid_family:MiniGridFamily",
    "mujoco": "rlds_creator.environments.mujoco_family:MuJoCoFamily",
    "dm_control": "rlds_creator.environments.dm_control_family:DmControlFamily",
    "nethack": "rlds_creator.environments.nethack:NetHackFamily",
    "procgen": "rlds_creator.environments.procgen_family:ProcgenFamily",
    "vizdoom": "rlds_creator.environments.vizdoom_family:VizdoomFamily",
    "robosuite": "rlds_creator.environments.robosuite_family:RobosuiteFamily",
    "robodesk": "rlds_creator.environments.robodesk_family:RoboDeskFamily",
    "crafter": "rlds_creator.environments.crafter_family:CrafterFamily",
}


@functools.cache
def families() -> dict[str, str]:
    """Returns the class of each family as `module:Class`, by its name: built-in families first."""
    points = [*metadata.entry_points(group=ENTRY_POINTS)]
    return _FAMILIES | {point.name: point.value for point in points if point.name not in _FAMILIES}


def family(name: str) -> Family:
    """Returns a family.

    Raises:
      ValueError: There is no family of this name.
      ImportError: The family cannot be loaded.
    """
    target = families().get(name)
    if target is None:
        raise ValueError(f"no family {name!r}; {suggest_names(name, families())}")
    module, _, attribute = target.partition(":")
    loaded: Family = getattr(importlib.import_module(module), attribute)()
    return loaded


def options_of(family: Family) -> dict[str, Any]:
    """Returns the options of a family by name, each a `rlds.sources.options.Option`."""
    from rlds.sources import options

    return dict(options.options_of(type(family).make, leave_out=("id", "keys")))


def make(name: str, options: Mapping[str, Any], keys: Mapping[str, Any] | None = None) -> Playable:
    """Creates an environment of a family.

    Args:
      name: The name of the family.
      options: The `id` of the environment, and its options, in types of JSON or as JSON text.
      keys: The actions of keys instead of the default ones, by their physical codes.

    Raises:
      ValueError: The environment does not exist, or an option or a key is wrong; names it.
      ImportError: The package of the environment is missing; the message names the package.
    """
    loaded = family(name)
    allowed = options_of(loaded)
    arguments = dict(options)
    id = arguments.pop("id", None)
    if id not in loaded.identifiers():
        raise ValueError(f"{name} has no environment {id!r:.100} on this server")
    for option, value in arguments.items():
        if option not in allowed:
            raise ValueError(f"{name}: no option {option!r:.100}; {suggest_names(option, allowed)}")
        text = value if isinstance(value, str) else json.dumps(value)
        arguments[option] = allowed[option].parse(text)
    return loaded.make(id=id, keys=keys or {}, **arguments)
