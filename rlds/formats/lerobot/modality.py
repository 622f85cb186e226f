"""`meta/modality.json`, by which GR00T knows the parts of states and actions, cameras and texts."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import rlds
from rlds.formats.lerobot.layout import Feature

__all__ = ["MODALITY", "modality_of", "renamed"]

MODALITY = "meta/modality.json"

_ORIGINAL = "original_key"
# The features that GR00T takes parts from, unless they name another.
_DEFAULTS = {"state": "observation.state", "action": rlds.ACTION}
_TEXT = "human.action.task_description"
# Words in the names of elements, and what they are part of; all else is an arm.
_PARTS = {
    "gripper": {"gripper", "claw", "finger", "fingers", "jaw"},
    "hand": {"hand", "thumb", "palm", "pinky"},
    "head": {"head", "neck"},
    "leg": {"leg", "hip", "knee", "ankle", "foot"},
    "base": {"base", "wheel", "torso", "mobile"},
}
_ARM, _SIDES = "arm", ("left", "right")
_WORDS = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+")


def modality_of(features: Iterable[Feature]) -> dict[str, Any]:
    """Returns what `modality.json` says of features.

    >>> names = ["elbow.pos", "wrist.pos", "gripper.pos"]
    >>> action = Feature("action", "float32", (3,), {"names": names})
    >>> modality_of([action])["action"]
    {'arm': {'start': 0, 'end': 2}, 'gripper': {'start': 2, 'end': 3}}
    """
    made: dict[str, dict[str, Any]] = {"state": {}, "action": {}, "video": {}}
    for feature in features:
        name = feature.name
        if feature.is_video:
            _put(made["video"], name.rpartition(".")[2], {_ORIGINAL: name})
            continue
        kind = rlds.ACTION if name.split(".")[0] == rlds.ACTION else "state"
        is_of_robot = kind == rlds.ACTION or name.startswith(f"{rlds.OBSERVATION}.")
        if is_of_robot and len(feature.shape) == 1 and feature.dtype.startswith(("float", "int")):
            where = {} if name in _DEFAULTS.values() else {_ORIGINAL: name}
            for part, begin, end in _parts(feature):
                _put(made[kind], part, {**where, "start": begin, "end": end})
    return {**made, "annotation": {_TEXT: {_ORIGINAL: "task_index"}}}


def renamed(text: str, names: Mapping[str, str | None]) -> str:
    """Returns the text of a `modality.json` whose features have other names, or are gone.

    Args:
      text: What the file has.
      names: The new names, by the old ones; None of features that are gone.
    """
    try:
        said = json.loads(text)
        kinds = {kind: dict(parts) for kind, parts in said.items()}
        changed = {kind: _renamed(kind, parts, names) for kind, parts in kinds.items()}
    except (ValueError, TypeError, AttributeError):  # It is something else; it stays.
        return text
    return text if changed == kinds else json.dumps(changed, indent=4, ensure_ascii=False) + "\n"


def _renamed(
    kind: str, parts: Mapping[str, Any], names: Mapping[str, str | None]
) -> dict[str, Any]:
    found = {}
    for key, said in parts.items():
        default = {"video": f"observation.images.{key}", "annotation": f"annotation.{key}"}
        old = said.get(_ORIGINAL, _DEFAULTS.get(kind, default.get(kind)))
        new = names.get(old, old)
        if new is not None:
            found[key] = said if new == old else {**said, _ORIGINAL: new}
    return found


def _parts(feature: Feature) -> Iterator[tuple[str, int, int]]:
    """The parts of a feature: names, each with its first element and the one after its last."""
    groups = [_part(name) for name in feature.element_names or ()]
    if {*groups} <= {_ARM}:
        groups = [feature.name.rpartition(".")[2]] * feature.shape[0]
    begin = 0
    for end in range(1, len(groups) + 1):
        if end == len(groups) or groups[end] != groups[begin]:
            yield groups[begin], begin, end
            begin = end


def _part(name: str) -> str:
    """What an element is part of."""
    words = [word.lower() for word in _WORDS.findall(name)]
    part = next((part for part, known in _PARTS.items() if known & {*words}), _ARM)
    side = next((word for word in words if word in _SIDES), "")
    return f"{side}_{part}" if side else part


def _put(parts: dict[str, Any], name: str, value: Any) -> None:
    """Adds a part, under a name that no other has."""
    found, number = name, 1
    while found in parts:
        number += 1
        found = f"{name}_{number}"
    parts[found] = value
