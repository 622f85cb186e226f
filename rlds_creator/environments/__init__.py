"""Environments that people play, and how their keys become actions.

A family makes them; `families()` lists those that are known. Only workers make any.
"""

from __future__ import annotations

import functools
import importlib
import os
from importlib import metadata

from rlds_creator.environments.playable import Control, Family, Inputs, Playable

__all__ = ["ENTRY_POINTS", "Control", "Family", "Inputs", "Playable", "families", "family"]

# The group of entry points under which other distributions add families.
ENTRY_POINTS = "rlds_creator.environments"

# A family is a line here: its name, and its class.
_FAMILIES: dict[str, str] = {}


@functools.cache
def families() -> dict[str, str]:
    """Returns the class of each family as `module:Class`, by its name."""
    added = {point.name: point.value for point in metadata.entry_points(group=ENTRY_POINTS)}
    if "RLDS_CREATOR_TESTING" in os.environ:
        added["drawn"] = "rlds_creator.testing.drawn:DrawnFamily"
    return {**added, **_FAMILIES}


def family(name: str) -> Family:
    """Returns a family.

    Raises:
      ValueError: There is none of this name.
      ImportError: It cannot be loaded.
    """
    found = families().get(name)
    if found is None:
        raise ValueError(f"there is no family {name!r}, only {', '.join(families())}")
    module, _, attribute = found.partition(":")
    made: Family = getattr(importlib.import_module(module), attribute)()
    return made
