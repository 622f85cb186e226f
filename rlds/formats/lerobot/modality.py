"""`meta/modality.json` of GR00T: the parts of states and actions, cameras and texts."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from etils import epath

import rlds
from rlds.formats.lerobot.columns import DataColumn
from rlds.formats.lerobot.language import OF_SUBTASKS, SUBTASK_INDEX
from rlds.formats.lerobot.layout import TABLE, LeRobotFeature
from rlds.formats.lerobot.small_files import read_bytes
from rlds.sources.text_tables import TASKS
from rlds_ecosystem.model.names import unused_name

__all__ = ["MODALITY", "modality_of", "read_modality", "renamed", "tables_of"]

MODALITY = "meta/modality.json"

_ORIGINAL = "original_key"
# The default features from which GR00T takes parts.
_DEFAULTS = {"state": "observation.state", "action": rlds.ACTION}
_ANNOTATION, _TEXT = "annotation", "human.action.task_description"
# Words in element names, by the part of the robot; the default is the arm.
_PARTS = {
    "gripper": {"gripper", "claw", "finger", "fingers", "jaw"},
    "hand": {"hand", "thumb", "palm", "pinky"},
    "head": {"head", "neck"},
    "leg": {"leg", "hip", "knee", "ankle", "foot"},
    "base": {"base", "wheel", "torso", "mobile"},
}
_ARM, _SIDES = "arm", ("left", "right")
_WORDS = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+")


def modality_of(features: Iterable[LeRobotFeature]) -> dict[str, Any]:
    """Returns the content of `modality.json` for features.

    >>> names = ["elbow.pos", "wrist.pos", "gripper.pos"]
    >>> action = LeRobotFeature("action", "float32", (3,), {"names": names})
    >>> modality_of([action])["action"]
    {'arm': {'start': 0, 'end': 2}, 'gripper': {'start': 2, 'end': 3}}
    """
    content: dict[str, dict[str, Any]] = {"state": {}, "action": {}, "video": {}}
    for feature in features:
        name = feature.name
        if feature.is_video:
            key = unused_name(name.rpartition(".")[2], content["video"])
            content["video"][key] = {_ORIGINAL: name}
            continue
        kind = rlds.ACTION if name.split(".")[0] == rlds.ACTION else "state"
        is_of_robot = kind == rlds.ACTION or name.startswith(f"{rlds.OBSERVATION}.")
        if is_of_robot and len(feature.shape) == 1 and feature.dtype.startswith(("float", "int")):
            where = {} if name in _DEFAULTS.values() else {_ORIGINAL: name}
            for part, begin, end in _parts(feature):
                key = unused_name(part, content[kind])
                content[kind][key] = {**where, "start": begin, "end": end}
    return {**content, _ANNOTATION: {_TEXT: {_ORIGINAL: "task_index"}}}


def read_modality(root: epath.Path) -> str:
    """Reads `modality.json` of a dataset; an object of nothing if there is none."""
    file = root / MODALITY
    return read_bytes(file).decode(errors="replace") if file.exists() else "{}"


def tables_of(
    text: str, columns: Iterable[DataColumn], features: Mapping[str, Mapping[str, Any]]
) -> dict[str, str]:
    """Returns the tables of texts whose numbers columns hold, by the names of the columns.

    Args:
      text: The content of `modality.json`.
      columns: All columns.
      features: The features of `info.json`.
    """
    integers = [column.name for column in columns if column.field.column_dtype.kind in "iu"]
    try:
        named = {_origin(_ANNOTATION, *part) for part in json.loads(text)[_ANNOTATION].items()}
    except (ValueError, LookupError, TypeError, AttributeError, RecursionError):
        # It names no annotations.
        named = {name for name in integers if name.startswith(f"{_ANNOTATION}.")}
    tables = dict.fromkeys(named, TASKS) | {"task_index": TASKS, SUBTASK_INDEX: OF_SUBTASKS}
    tables |= {name: str(entry[TABLE]) for name, entry in features.items() if TABLE in entry}
    return {name: tables[name] for name in integers if tables.get(name)}


def renamed(text: str, names: Mapping[str, str | None]) -> str:
    """Returns the text of a `modality.json` whose features have other names, or are gone.

    Args:
      text: The content of the file.
      names: The new names, by the old ones; None of features that are gone.
    """
    try:
        modality = json.loads(text)
        kinds = {kind: dict(parts) for kind, parts in modality.items()}
        changed = {kind: _renamed(kind, parts, names) for kind, parts in kinds.items()}
    except (ValueError, TypeError, AttributeError):  # Of another form; it stays.
        return text
    return text if changed == kinds else json.dumps(changed, indent=4, ensure_ascii=False) + "\n"


def _renamed(
    kind: str, parts: Mapping[str, Any], names: Mapping[str, str | None]
) -> dict[str, Any]:
    parts_now = {}
    for key, part in parts.items():
        old = _origin(kind, key, part)
        new = names.get(old, old)
        if new is not None:
            parts_now[key] = part if new == old else {**part, _ORIGINAL: new}
    return parts_now


def _origin(kind: str, key: str, part: Mapping[str, Any]) -> Any:
    """Returns the feature that a part is a slice of."""
    default = {"video": f"observation.images.{key}", _ANNOTATION: f"{_ANNOTATION}.{key}"}
    return part.get(_ORIGINAL, _DEFAULTS.get(kind, default.get(kind)))


def _parts(feature: LeRobotFeature) -> Iterator[tuple[str, int, int]]:
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
    """Returns the part of the robot that an element belongs to, such as `left_gripper`."""
    words = [word.lower() for word in _WORDS.findall(name)]
    part = next((part for part, words_of_part in _PARTS.items() if words_of_part & {*words}), _ARM)
    side = next((word for word in words if word in _SIDES), "")
    return f"{side}_{part}" if side else part
