"""The language columns of LeRobot 0.6: texts about the steps of an episode.

`language_persistent` has the same list in each row of an episode: texts that hold from a time on
until the next one of their style. `language_events` has what is said at its row only. Steps have
both as text in JSON, and the texts of each style as a field below `language`; so older datasets
have the texts that `subtask_index` numbers.
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
    "OF_SUBTASKS",
    "PERSISTENT",
    "STYLES",
    "SUBTASKS",
    "SUBTASK_INDEX",
    "arrow_type",
    "labels_in",
    "rows_after",
    "styles_of",
    "texts_of",
    "with_texts",
]

PERSISTENT, EVENTS = "language_persistent", "language_events"
# The group of step fields with a text of each style.
LANGUAGE = "language"
STYLES = ("subtask", "plan", "memory", "motion", "task_aug")
_EVENT_STYLES = ("interjection", "vqa", "trace", "tool_calls")
SUBTASK_INDEX, SUBTASKS = "subtask_index", "meta/subtasks.parquet"
# The `Field.table` of numbers of subtasks.
OF_SUBTASKS = "subtasks"
FEATURE: Mapping[str, Any] = {"dtype": "language", "shape": [1], "names": None}

# The labels of steps that become texts, see `rlds.labels.labelled`.
_LABEL = "label"
# The tolerance of times of other writers against the times of rows, in seconds.
_TIME_TOLERANCE_S = 1e-4


def arrow_type() -> Any:
    """Returns the type of Arrow of the column of texts that hold."""
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


def styles_of(columns: Collection[str]) -> list[str]:
    """Returns the styles of which steps have texts, by the names of columns."""
    styles = [
        *(STYLES if PERSISTENT in columns else ()),
        *(_EVENT_STYLES if EVENTS in columns else ()),
    ]
    return styles or (["subtask"] if SUBTASK_INDEX in columns else [])


def labels_in(fields: Iterable[str]) -> dict[str, str]:
    """Returns the styles of label fields that become language texts, by path of the field.

    >>> labels_in(["label/subtask", "label/slip", "action"])
    {'label/subtask': 'subtask'}
    """
    styles = {f"{_LABEL}/{style}": style for style in STYLES}
    return {path: styles[path] for path in fields if path in styles}


def texts_of(columns: Mapping[str, np.ndarray], times: np.ndarray) -> dict[str, np.ndarray]:
    """Returns the texts of each style in each row; empty where there is none.

    Several that are said at a time are lines of one text.

    Args:
      columns: The columns of language, in JSON.
      times: The time of each row.
    """
    by_style: dict[str, np.ndarray] = {}
    if PERSISTENT in columns:
        by_style |= {style: np.full(len(times), "", object) for style in STYLES}
        for text, rows in _runs(columns[PERSISTENT]):
            stored = json.loads(text) or []
            for style in STYLES:
                begins, texts = _in_order(stored, style)
                text_of_row = (
                    np.searchsorted(begins, times[rows] + _TIME_TOLERANCE_S, side="right") - 1
                )
                by_style[style][rows] = np.array(["", *texts], object)[text_of_row + 1]
    if EVENTS in columns:
        by_style |= {style: np.full(len(times), "", object) for style in _EVENT_STYLES}
        for row, text in enumerate(columns[EVENTS]):
            stored = json.loads(text) or []
            for style in _EVENT_STYLES if stored else ():
                by_style[style][row] = "\n".join(_event(each, style) for each in stored).strip("\n")
    return by_style


def with_texts(
    stored: str, texts: Mapping[str, np.ndarray], times: np.ndarray
) -> list[dict[str, Any]]:
    """Returns `language_persistent` of an episode with new texts of some styles.

    Args:
      stored: The stored value, in JSON.
      texts: The texts in each row, by style.
      times: The time of each row.
    """
    result = [row for row in json.loads(stored) or [] if row["style"] not in texts]
    for style, column in texts.items():
        role = "user" if style == "task_aug" else "assistant"
        for text, rows in _runs(column):
            for line in text.split("\n") if style == "task_aug" else [text]:
                if rows.start or line:  # There is no text before the first one.
                    entry = {"role": role, "content": line, "style": style}
                    time = float(times[rows.start])
                    result.append({**entry, "timestamp": time, "camera": None, "tool_calls": None})
    return sorted(result, key=lambda row: row["timestamp"])


def rows_after(stored: str, begin: float, length: float) -> list[dict[str, Any]]:
    """Returns `language_persistent` of an episode whose first rows were cut off.

    Args:
      stored: The stored value, in JSON.
      begin: The time that is 0 from now on.
      length: The time of the last row from now on.
    """
    remaining: list[dict[str, Any]] = []
    newest: dict[tuple[Any, ...], float] = {}
    rows = json.loads(stored) or []
    for row in rows:
        if row["timestamp"] <= begin + _TIME_TOLERANCE_S:
            kind = _kind(row)
            newest[kind] = max(row["timestamp"], newest.get(kind, 0.0))
    for row in rows:
        time = row["timestamp"] - begin
        last = newest.get(_kind(row))
        if time > _TIME_TOLERANCE_S or row["timestamp"] == last:
            remaining.append({**row, "timestamp": max(time, 0.0)})
    return [row for row in remaining if row["timestamp"] <= length + _TIME_TOLERANCE_S]


def _kind(row: Mapping[str, Any]) -> tuple[Any, ...]:
    """Returns the key of a row (style, role, camera); a later row replaces an equal key."""
    return row["style"], row["role"], row.get("camera")


def _runs(column: np.ndarray) -> Iterable[tuple[str, slice]]:
    """Yields runs of equal texts in a column: the text, and its rows."""
    begin = 0
    for text, rows in itertools.groupby(column.tolist()):
        end = begin + len([*rows])
        yield text, slice(begin, end)
        begin = end


def _in_order(stored: Iterable[Mapping[str, Any]], style: str) -> tuple[list[float], list[str]]:
    """Returns the start times of the texts of a style, and the texts, in order."""
    texts: dict[float, list[str]] = {}
    for row in stored:
        if row["style"] == style:
            texts.setdefault(row["timestamp"], []).append(row["content"] or "")
    begins = sorted(texts)
    return begins, ["\n".join(texts[begin]) for begin in begins]


def _event(row: Mapping[str, Any], style: str) -> str:
    """Returns the text of an event; empty if it has another style."""
    if style == "tool_calls":
        calls = row.get("tool_calls")
        return json.dumps(calls, ensure_ascii=False) if row["style"] is None and calls else ""
    return row["content"] or "" if row["style"] == style else ""
