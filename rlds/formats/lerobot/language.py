"""The language columns of LeRobot 0.6: texts about the steps of an episode.

`language_persistent` has the same list in each row of an episode: texts that apply until the next
text of their style. `language_events` has texts that apply to a single row. Steps have both as JSON
text, and the texts of each style in a field below `language`. In older datasets, this field has the
texts of `subtask_index`.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Collection, Iterable, Mapping
from typing import Any

import numpy as np

from rlds_ecosystem import import_extra

__all__ = [
    "EVENTS",
    "FEATURE",
    "LANGUAGE",
    "PERSISTENT",
    "STYLES",
    "SUBTASKS",
    "SUBTASKS_TABLE",
    "SUBTASK_INDEX",
    "arrow_type",
    "decode_texts",
    "drop_rows",
    "find_labels",
    "find_styles",
    "replace_texts",
]

PERSISTENT, EVENTS = "language_persistent", "language_events"
# The group of step fields with texts by style.
LANGUAGE = "language"
STYLES = ("subtask", "plan", "memory", "motion", "task_aug")
_EVENT_STYLES = ("interjection", "vqa", "trace", "tool_calls")
SUBTASK_INDEX, SUBTASKS = "subtask_index", "meta/subtasks.parquet"
# The `Field.table` of indices of subtasks.
SUBTASKS_TABLE = "subtasks"
FEATURE: Mapping[str, Any] = {"dtype": "language", "shape": [1], "names": None}

# The group of labels of steps; see `rlds.labels.labelled`.
_LABEL_GROUP = "label"
# The tolerance between times of texts and times of rows, in seconds.
_TIME_TOLERANCE_S = 1e-4


def arrow_type() -> Any:
    """Returns the Arrow type of `language_persistent`."""
    arrow = import_extra("pyarrow")
    texts = [(name, arrow.string()) for name in ("content", "style")]
    return arrow.list_(
        arrow.struct(
            [
                arrow.field("role", arrow.string(), nullable=False),
                *texts,
                arrow.field("timestamp", arrow.float32(), nullable=False),
                ("camera", arrow.string()),
                ("tool_calls", arrow.list_(arrow.string())),
            ]
        )
    )


def find_styles(columns: Collection[str]) -> list[str]:
    """Returns the styles of texts in steps, from the names of columns."""
    styles = [
        *(STYLES if PERSISTENT in columns else ()),
        *(_EVENT_STYLES if EVENTS in columns else ()),
    ]
    return styles or (["subtask"] if SUBTASK_INDEX in columns else [])


def find_labels(fields: Iterable[str]) -> dict[str, str]:
    """Returns the styles of label fields that become language texts, by field path.

    >>> find_labels(["label/subtask", "label/slip", "action"])
    {'label/subtask': 'subtask'}
    """
    styles = {f"{_LABEL_GROUP}/{style}": style for style in STYLES}
    return {path: styles[path] for path in fields if path in styles}


def decode_texts(columns: Mapping[str, np.ndarray], times: np.ndarray) -> dict[str, np.ndarray]:
    """Returns the text of each row, by style; empty if there is no text.

    Several texts at the same time become lines of one text.

    Args:
      columns: The language columns, in JSON.
      times: The time of each row.
    """
    texts_by_style: dict[str, np.ndarray] = {}
    if PERSISTENT in columns:
        texts_by_style |= {style: np.full(len(times), "", object) for style in STYLES}
        for text, rows in _runs(columns[PERSISTENT]):
            events = json.loads(text) or []
            for style in STYLES:
                starts, texts = _sort_texts(events, style)
                indices = np.searchsorted(starts, times[rows] + _TIME_TOLERANCE_S, side="right") - 1
                texts_by_style[style][rows] = np.array(["", *texts], object)[indices + 1]
    if EVENTS in columns:
        texts_by_style |= {style: np.full(len(times), "", object) for style in _EVENT_STYLES}
        for row, text in enumerate(columns[EVENTS]):
            events = json.loads(text) or []
            for style in _EVENT_STYLES if events else ():
                texts_by_style[style][row] = "\n".join(
                    _event_text(event, style) for event in events
                ).strip("\n")
    return texts_by_style


def replace_texts(
    content: str, texts: Mapping[str, np.ndarray], times: np.ndarray
) -> list[dict[str, Any]]:
    """Returns `language_persistent` of an episode with new texts of some styles.

    Args:
      content: The stored value, in JSON.
      texts: The texts in each row, by style.
      times: The time of each row.
    """
    result = [row for row in json.loads(content) or [] if row["style"] not in texts]
    for style, column in texts.items():
        role = "user" if style == "task_aug" else "assistant"
        for text, rows in _runs(column):
            for line in text.split("\n") if style == "task_aug" else [text]:
                if rows.start or line:  # Empty rows before the first text have no entry.
                    entry = {"role": role, "content": line, "style": style}
                    time = float(times[rows.start])
                    result.append({**entry, "timestamp": time, "camera": None, "tool_calls": None})
    return sorted(result, key=lambda row: row["timestamp"])


def drop_rows(content: str, start: float, length: float) -> list[dict[str, Any]]:
    """Returns `language_persistent` of an episode after its first rows were dropped.

    Args:
      content: The stored value, in JSON.
      start: The old time of the first row.
      length: The new time of the last row.
    """
    kept_rows: list[dict[str, Any]] = []
    latest: dict[tuple[Any, ...], float] = {}
    rows = json.loads(content) or []
    for row in rows:
        if row["timestamp"] <= start + _TIME_TOLERANCE_S:
            key = _row_key(row)
            latest[key] = max(row["timestamp"], latest.get(key, 0.0))
    for row in rows:
        time = row["timestamp"] - start
        if time > _TIME_TOLERANCE_S or row["timestamp"] == latest.get(_row_key(row)):
            kept_rows.append({**row, "timestamp": max(time, 0.0)})
    return [row for row in kept_rows if row["timestamp"] <= length + _TIME_TOLERANCE_S]


def _row_key(row: Mapping[str, Any]) -> tuple[Any, ...]:
    """Returns the key of a row (style, role, camera); a later row replaces an equal key."""
    return row["style"], row["role"], row.get("camera")


def _runs(column: np.ndarray) -> Iterable[tuple[str, slice]]:
    """Yields runs of equal texts in a column: the text, and its rows."""
    start = 0
    for text, rows in itertools.groupby(column.tolist()):
        end = start + len([*rows])
        yield text, slice(start, end)
        start = end


def _sort_texts(rows: Iterable[Mapping[str, Any]], style: str) -> tuple[list[float], list[str]]:
    """Returns the start times of the texts of a style, and the texts, sorted by time."""
    texts: dict[float, list[str]] = {}
    for row in rows:
        if row["style"] == style:
            texts.setdefault(row["timestamp"], []).append(row["content"] or "")
    starts = sorted(texts)
    return starts, ["\n".join(texts[start]) for start in starts]


def _event_text(row: Mapping[str, Any], style: str) -> str:
    """Returns the text of an event; empty for a different style."""
    if style == "tool_calls":
        calls = row.get("tool_calls")
        return json.dumps(calls, ensure_ascii=False) if row["style"] is None and calls else ""
    return row["content"] or "" if row["style"] == style else ""
