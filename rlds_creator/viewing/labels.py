"""Labels of an episode as pages show and change them, wherever they are kept."""

from __future__ import annotations

import abc
import contextlib
import dataclasses
import datetime
from contextlib import AbstractContextManager
from typing import Annotated, Any, ClassVar, Literal

import msgspec
from typing_extensions import override

from rlds.labels import Label, Labels, Layer
from rlds_creator.model import LabelRow, Name, Text, prepare

__all__ = [
    "DatasetLabels",
    "EpisodeLabels",
    "LabelValue",
    "ShownLabel",
    "ShownLayer",
    "to_shown_label",
]

_Value = bool | float | Text
_Type = Literal["flag", "choice", "text", "number"]
_Step = Annotated[int, msgspec.Meta(ge=0, lt=2**31)]
_Key = Annotated[str, msgspec.Meta(max_length=32)]


class ShownLayer(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A layer of labels, as pages show it; see `rlds.labels.Layer`."""

    name: Name
    type: _Type
    choices: Annotated[tuple[Name, ...], msgspec.Meta(max_length=100)] = ()
    keys: Annotated[tuple[_Key, ...], msgspec.Meta(max_length=100)] = ()
    whole: bool = False
    doc: Text = ""
    title: Annotated[str, msgspec.Meta(max_length=200)] = ""


class LabelValue(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The value of a label, of an episode or of a range of steps."""

    layer: Name
    type: _Type
    value: _Value
    first: _Step | None = None
    last: _Step | None = None

    @property
    def end(self) -> int | None:
        """The step after the last one."""
        last = self.first if self.last is None else self.last
        return None if last is None else last + 1


class ShownLabel(LabelValue, frozen=True, kw_only=True):
    """A label.

    Attributes:
      id: The identifier.
      author: The annotator.
      created: The time, in seconds since 1970.
      is_mine: Whether the user is the annotator.
      may_remove: Whether the user may retract it.
      decides: Whether it is the deciding label of several annotators; None without a decision.
    """

    id: str
    author: str
    created: float
    is_mine: bool
    may_remove: bool
    decides: bool | None = None


prepare(ShownLayer, LabelValue, ShownLabel)


def to_shown_label(row: Label | LabelRow, **more: Any) -> ShownLabel:
    """Returns a row of labels as pages show it.

    Args:
      row: The row.
      **more: Further attributes of a `ShownLabel`.
    """
    return ShownLabel(
        id=row.id,
        layer=row.layer,
        type=row.type,  # type: ignore[arg-type]  # It was checked.
        value=row.value,  # type: ignore[arg-type]  # No retraction.
        first=row.begin,
        last=None if row.end is None else row.end - 1,
        **more,
    )


class EpisodeLabels(abc.ABC):
    """The labels of an episode, as a user sees them.

    Attributes:
      adds: Further labels: in another "layer", which is declared first; by another "tag".
      may_label: Whether who looks at it may label it.
      why_not: Why nobody may.
    """

    adds: ClassVar[Literal["layer", "tag"]]
    may_label: bool
    why_not: str = ""

    def error_responses(self) -> AbstractContextManager[None]:
        """Returns a context for calls of the other methods; it may translate their errors."""
        return contextlib.nullcontext()

    @abc.abstractmethod
    def layers(self) -> list[ShownLayer]:
        """Returns the label layers."""

    @abc.abstractmethod
    def labels(self) -> list[ShownLabel]:
        """Returns the labels of the episode."""

    @abc.abstractmethod
    def add(self, label: LabelValue) -> ShownLabel:
        """Adds a label; it replaces the label of the same person for the same steps."""

    @abc.abstractmethod
    def retract(self, label: str) -> None:
        """Retracts a label."""

    @abc.abstractmethod
    def restore(self, label: str) -> ShownLabel:
        """Restores a retracted label."""

    def declare(self, layer: ShownLayer) -> None:
        """Declares a layer."""
        raise ValueError("recordings have the tags of their study. Edit the study to add tags.")


class DatasetLabels(EpisodeLabels):
    """The labels of an episode of any dataset, in its sidecar.

    Args:
      labels: The labels of all episodes.
      episode: The number of the episode.
      by: The name of the annotator.
      may_label: Whether anybody may.
    """

    adds = "layer"

    def __init__(self, labels: Labels, episode: int, by: str, *, may_label: bool = True) -> None:
        self._labels, self._episode, self._by = labels, episode, by
        self.may_label = may_label and labels.can_be_written()
        if may_label and not self.may_label:
            self.why_not = "The folders of the data and of the cache are read-only."

    @override
    def layers(self) -> list[ShownLayer]:
        layers = self._labels.described()
        return [ShownLayer(**dataclasses.asdict(layer)) for layer in layers]

    @override
    def labels(self) -> list[ShownLabel]:
        return [self._to_shown_label(row) for row in self._labels.of(self._episode)]

    def _to_shown_label(self, row: Label) -> ShownLabel:
        try:
            created = datetime.datetime.fromisoformat(row.at).timestamp()
        except ValueError:  # Of a program that writes times in another way.
            created = 0.0
        is_mine = row.annotator == self._by
        return to_shown_label(
            row, author=row.annotator, created=created, is_mine=is_mine, may_remove=is_mine
        )

    @override
    def add(self, label: LabelValue) -> ShownLabel:
        where = self._episode, label.value, label.first, label.end
        tool = "rlds view"
        row = self._labels.add(label.layer, *where, by=self._by, type=label.type, tool=tool)
        return self._to_shown_label(row)

    @override
    def retract(self, label: str) -> None:
        row = self._mine(label, self._labels.of(self._episode))
        steps = row.begin, row.end
        self._labels.retract(row.layer, self._episode, *steps, by=self._by, tool="rlds view")

    @override
    def restore(self, label: str) -> ShownLabel:
        row = self._mine(label, self._labels.history(self._episode))
        return self.add(self._to_shown_label(row))

    def _mine(self, label: str, rows: list[Label]) -> Label:
        mine = [r for r in rows if (r.id, r.annotator) == (label, self._by) and not r.retracts]
        if not mine:
            raise LookupError("You have no such label.")
        return mine[0]

    @override
    def declare(self, layer: ShownLayer) -> None:
        self._labels.declare(Layer(**msgspec.structs.asdict(layer)))
