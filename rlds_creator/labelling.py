"""Labels of recordings: the layers that there are, and rows of earlier releases.

Tags are layers of flags, of which an episode has one for all people. The layers `verdict` and
`success` are choices, of which the last one counts. The layer `note` has the notes.
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
    "JUDGED",
    "NOTE",
    "PLAY",
    "SUCCESS",
    "TOOL",
    "VERDICT",
    "holding",
    "label_row",
    "layer_of",
    "retraction_of",
    "rows_of_verdicts",
]

VERDICT, SUCCESS, NOTE = "verdict", "success", "note"
# The tools that set labels: the pages of episodes, and the verdict of players.
TOOL, PLAY = "rlds create", "rlds create: play"
# What people say that episodes are.
JUDGED = (EpisodeState.COMPLETED, EpisodeState.CANCELLED, EpisodeState.REJECTED)


def label_row(layer: str, value: bool | str, **more: Any) -> LabelRow:
    """Returns a new row: a tag if the value is True, else a note, or a choice.

    Args:
      layer: The layer.
      value: The value.
      **more: Other attributes of the row.
    """
    kind: Any = "flag" if value is True else "text" if layer == NOTE else "choice"
    attributes = {"id": new_identifier(), "tool": TOOL, **more}
    return LabelRow(layer=layer, type=kind, value=value, **attributes)


def layer_of(row: LabelRow) -> str:
    """Returns the name of the layer in `rlds.labels`, which has letters, digits and `_` only.

    >>> layer_of(LabelRow(id="a", layer="fall", type="flag"))
    'fall'
    >>> layer_of(LabelRow(id="a", layer="Left/right?", type="flag"))
    'left_right_267c14'
    """
    if row.type != "flag":
        return row.layer
    name = re.sub("[^a-z0-9]+", "_", row.layer.lower()).strip("_")[:40]
    name = name if name[:1].isalpha() else f"tag_{name}"
    if name == row.layer and name not in (VERDICT, SUCCESS, NOTE):
        return name
    return f"{name}_{hashlib.sha256(row.layer.encode()).hexdigest()[:6]}"


def holding(rows: Iterable[LabelRow]) -> list[LabelRow]:
    """Returns the labels that hold of the rows of an episode, in the order of their rows."""
    last: dict[tuple[Any, ...], LabelRow] = {}
    for row in rows:
        last.pop(row.target, None)
        last[row.target] = row
    return [row for row in last.values() if row.retracts is None]


def retraction_of(row: LabelRow, by: str, at: float) -> LabelRow:
    """Returns the row by which somebody takes a label back, which may be that of another."""
    tool = f"{TOOL}, by {by}" if by not in ("", row.annotator) else TOOL
    changes = {"id": new_identifier(), "value": None, "retracts": row.id, "at": at, "tool": tool}
    return msgspec.structs.replace(row, **changes)


def rows_of_verdicts(verdicts: Iterable[Any], player: str = "") -> Iterator[LabelRow]:
    """Yields the rows that verdicts of earlier releases are.

    Args:
      verdicts: The verdicts, the first ones first: answers to two questions, by one person.
      player: The player, whose verdict comes first if there is one of them.
    """
    words: dict[str, list[LabelRow]] = {VERDICT: [], SUCCESS: []}
    before: dict[str, str | None] = {}
    for number, one in enumerate(verdicts):
        values = {
            VERDICT: one.state if one.state in JUDGED else None,
            SUCCESS: {None: None, True: "yes", False: "no"}[one.success],
        }
        # An answer to one question repeats the stored answer to the other one.
        answered = [layer for layer in values if values[layer] != before.get(layer)] or [VERDICT]
        for layer in answered:
            if (value := values[layer]) is None:  # No word counted any more.
                yield from (retraction_of(r, one.author, one.created) for r in words.pop(layer))
                words[layer] = []
            else:
                tool = PLAY if number == 0 and one.author == player else TOOL
                facts = {"annotator": one.author, "at": one.created, "tool": tool}
                words[layer].append(label_row(layer, str(value), **facts))
                yield words[layer][-1]
        before = values
