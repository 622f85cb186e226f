"""Labels of recordings: their layers and rows, and the conversion of earlier releases.

A tag is a layer of flags, shared by all annotators. The layers `verdict` and `success` are choices;
the last choice is valid. The layer `note` has the notes.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Iterator
from typing import Any

import msgspec

from rlds_creator.identifiers import new_identifier
from rlds_creator.model import EpisodeState, LabelRow

__all__ = [
    "NOTE",
    "PLAY_TOOL",
    "SUCCESS",
    "TOOL",
    "VERDICT",
    "VERDICT_STATES",
    "convert_verdicts",
    "current_labels",
    "label_row",
    "layer_name",
    "retraction_row",
]

VERDICT, SUCCESS, NOTE = "verdict", "success", "note"
# The tools that set labels: the pages of episodes, and the verdict of players.
TOOL, PLAY_TOOL = "rlds create", "rlds create: play"
# The states of episodes that a verdict sets.
VERDICT_STATES = (EpisodeState.COMPLETED, EpisodeState.CANCELLED, EpisodeState.REJECTED)


def label_row(layer: str, value: bool | str, **attributes: Any) -> LabelRow:
    """Returns a new row: a tag if the value is True, else a note or a choice.

    Args:
      layer: The layer.
      value: The value.
      **attributes: Other attributes of the row.
    """
    kind: Any = "flag" if value is True else "text" if layer == NOTE else "choice"
    defaults = {"id": new_identifier(), "tool": TOOL}
    return LabelRow(layer=layer, type=kind, value=value, **{**defaults, **attributes})


def layer_name(row: LabelRow) -> str:
    """Returns the name of the layer in `rlds.labels`: letters, digits and `_` only.

    >>> layer_name(LabelRow(id="a", layer="fall", type="flag"))
    'fall'
    >>> layer_name(LabelRow(id="a", layer="Left/right?", type="flag"))
    'left_right_267c14'
    """
    if row.type != "flag":
        return row.layer
    name = re.sub("[^a-z0-9]+", "_", row.layer.lower()).strip("_")[:40]
    name = name if name[:1].isalpha() else f"tag_{name}"
    if name == row.layer and name not in (VERDICT, SUCCESS, NOTE):
        return name
    return f"{name}_{hashlib.sha256(row.layer.encode()).hexdigest()[:6]}"


def current_labels(rows: Iterable[LabelRow]) -> list[LabelRow]:
    """Returns the current labels of an episode, given all of its rows."""
    last_rows: dict[tuple[Any, ...], LabelRow] = {}
    for row in rows:
        last_rows.pop(row.target, None)
        last_rows[row.target] = row
    return [row for row in last_rows.values() if row.retracts is None]


def retraction_row(row: LabelRow, by: str, time: float) -> LabelRow:
    """Returns the row by which a person retracts a label, their own or another annotator's."""
    tool = f"{TOOL}, by {by}" if by not in ("", row.annotator) else TOOL
    changes = {"id": new_identifier(), "value": None, "retracts": row.id, "at": time, "tool": tool}
    return msgspec.structs.replace(row, **changes)


def convert_verdicts(verdicts: Iterable[Any], player: str = "") -> Iterator[LabelRow]:
    """Yields the label rows of verdicts of earlier releases.

    Args:
      verdicts: The verdicts by time; each one has an author, a state and a success.
      player: The player; only the first verdict can be their own.
    """
    rows: dict[str, list[LabelRow]] = {VERDICT: [], SUCCESS: []}
    previous_values: dict[str, str | None] = {}
    for index, verdict in enumerate(verdicts):
        author, time = verdict.author, verdict.created
        values = {
            VERDICT: verdict.state if verdict.state in VERDICT_STATES else None,
            SUCCESS: {None: None, True: "yes", False: "no"}[verdict.success],
        }
        # A verdict that changes one layer repeats the stored value of the other layer.
        changed_layers = [layer for layer in values if values[layer] != previous_values.get(layer)]
        for layer in changed_layers or [VERDICT]:
            if (value := values[layer]) is None:  # None retracts all values.
                yield from (retraction_row(row, author, time) for row in rows[layer])
                rows[layer] = []
            else:
                tool = PLAY_TOOL if index == 0 and author == player else TOOL
                row = label_row(layer, str(value), annotator=author, at=time, tool=tool)
                rows[layer].append(row)
                yield row
        previous_values = values
