"""`meta/modality.json` of GR00T: slices of states and actions, cameras and texts."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from etils import epath

import rlds
from rlds.formats.lerobot.columns import DataColumn
from rlds.formats.lerobot.language import SUBTASK_INDEX, SUBTASKS_TABLE
from rlds.formats.lerobot.layout import TABLE, LeRobotFeature
from rlds.formats.lerobot.small_files import read_bytes
from rlds.sources.text_tables import TASKS
from rlds_ecosystem.model.names import unused_name

__all__ = ["MODALITY", "find_text_tables", "make_modality", "read_modality", "rename_features"]

MODALITY = "meta/modality.json"

_ORIGINAL_KEY = "original_key"
# The default features of slices in GR00T.
_DEFAULT_FEATURES = {"state": "observation.state", "action": rlds.ACTION}
_ANNOTATION, _TASK_TEXT_KEY = "annotation", "human.action.task_description"
# Words in element names, by joint group; the default is the arm.
_GROUP_WORDS = {
    "gripper": {"gripper", "claw", "finger", "fingers", "jaw"},
    "hand": {"hand", "thumb", "palm", "pinky"},
    "head": {"head", "neck"},
    "leg": {"leg", "hip", "knee", "ankle", "foot"},
    "base": {"base", "wheel", "torso", "mobile"},
}
_ARM_GROUP, _SIDES = "arm", ("left", "right")
_WORD_PATTERN = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+")


def make_modality(features: Iterable[LeRobotFeature]) -> dict[str, Any]:
    """Returns the content of `modality.json` for features.

    >>> names = ["elbow.pos", "wrist.pos", "gripper.pos"]
    >>> action = LeRobotFeature("action", "float32", (3,), {"names": names})
    >>> make_modality([action])["action"]
    {'arm': {'start': 0, 'end': 2}, 'gripper': {'start': 2, 'end': 3}}
    """
    content: dict[str, dict[str, Any]] = {"state": {}, "action": {}, "video": {}}
    for feature in features:
        name = feature.name
        if feature.is_video:
            key = unused_name(name.rpartition(".")[2], content["video"])
            content["video"][key] = {_ORIGINAL_KEY: name}
            continue
        kind = rlds.ACTION if name.split(".")[0] == rlds.ACTION else "state"
        is_robot = kind == rlds.ACTION or name.startswith(f"{rlds.OBSERVATION}.")
        if is_robot and len(feature.shape) == 1 and feature.dtype.startswith(("float", "int")):
            source = {} if name in _DEFAULT_FEATURES.values() else {_ORIGINAL_KEY: name}
            for group, start, end in _joint_groups(feature):
                key = unused_name(group, content[kind])
                content[kind][key] = {**source, "start": start, "end": end}
    return {**content, _ANNOTATION: {_TASK_TEXT_KEY: {_ORIGINAL_KEY: "task_index"}}}


def read_modality(root: epath.Path) -> str:
    """Reads `modality.json` of a dataset; an empty object if the file is missing."""
    file = root / MODALITY
    return read_bytes(file).decode(errors="replace") if file.exists() else "{}"


def find_text_tables(
    text: str, columns: Iterable[DataColumn], features: Mapping[str, Mapping[str, Any]]
) -> dict[str, str]:
    """Returns the name of the table of texts for each column of text indices, by column.

    Args:
      text: The content of `modality.json`.
      columns: All columns.
      features: The features of `info.json`.
    """
    integers = [column.name for column in columns if column.field.column_dtype.kind in "iu"]
    try:
        named = {_source_feature(_ANNOTATION, *e) for e in json.loads(text)[_ANNOTATION].items()}
    except (ValueError, LookupError, TypeError, AttributeError, RecursionError):
        # Without annotations in the file, their names decide.
        named = {name for name in integers if name.startswith(f"{_ANNOTATION}.")}
    tables = dict.fromkeys(named, TASKS) | {"task_index": TASKS, SUBTASK_INDEX: SUBTASKS_TABLE}
    tables |= {name: str(entry[TABLE]) for name, entry in features.items() if TABLE in entry}
    return {name: tables[name] for name in integers if tables.get(name)}


def rename_features(text: str, names: Mapping[str, str | None]) -> str:
    """Returns the text of `modality.json` after features were renamed or removed.

    Args:
      text: The content of the file.
      names: The new names, by the old names; None for removed features.
    """
    try:
        modality = json.loads(text)
        kinds = {kind: dict(entries) for kind, entries in modality.items()}
        renamed = {kind: _rename_entries(kind, entries, names) for kind, entries in kinds.items()}
    except (ValueError, TypeError, AttributeError):  # An unknown form is kept.
        return text
    return text if renamed == kinds else json.dumps(renamed, indent=4, ensure_ascii=False) + "\n"


def _rename_entries(
    kind: str, entries: Mapping[str, Any], names: Mapping[str, str | None]
) -> dict[str, Any]:
    renamed = {}
    for key, entry in entries.items():
        old = _source_feature(kind, key, entry)
        new = names.get(old, old)
        if new is not None:
            renamed[key] = entry if new == old else {**entry, _ORIGINAL_KEY: new}
    return renamed


def _source_feature(kind: str, key: str, entry: Mapping[str, Any]) -> Any:
    """Returns the feature of an entry, which is a slice of it."""
    default = {"video": f"observation.images.{key}", _ANNOTATION: f"{_ANNOTATION}.{key}"}
    return entry.get(_ORIGINAL_KEY, _DEFAULT_FEATURES.get(kind, default.get(kind)))


def _joint_groups(feature: LeRobotFeature) -> Iterator[tuple[str, int, int]]:
    """Yields the joint groups of a feature: name, first element, and end."""
    names = [_joint_group(name) for name in feature.element_names or ()]
    if {*names} <= {_ARM_GROUP}:
        names = [feature.name.rpartition(".")[2]] * feature.shape[0]
    start = 0
    for end in range(1, len(names) + 1):
        if end == len(names) or names[end] != names[start]:
            yield names[start], start, end
            start = end


def _joint_group(name: str) -> str:
    """Returns the joint group of an element, such as `left_gripper`."""
    words = [word.lower() for word in _WORD_PATTERN.findall(name)]
    group = next((group for group, terms in _GROUP_WORDS.items() if terms & {*words}), _ARM_GROUP)
    side = next((word for word in words if word in _SIDES), "")
    return f"{side}_{group}" if side else group
