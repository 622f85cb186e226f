"""The labels of an episode on its page, independent of their storage."""

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

__all__ = ["DatasetLabels", "EpisodeLabels", "LabelValue", "ShownLabel", "ShownLayer"]

_Value = bool | float | Text
_Type = Literal["flag", "choice", "text", "number"]
_Step = Annotated[int, msgspec.Meta(ge=0, lt=2**31)]
_Key = Annotated[str, msgspec.Meta(max_length=32)]


class ShownLayer(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A layer of labels on a page, see `rlds.labels.Layer`."""

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
        last_step = self.first if self.last is None else self.last
        return None if last_step is None else last_step + 1


class ShownLabel(LabelValue, frozen=True, kw_only=True):
    """A label on a page.

    Attributes:
      id: The identifier.
      author: The annotator.
      created: The time, in seconds since 1970.
      is_mine: Whether the user is the annotator.
      may_remove: Whether the user may retract the label.
      decides: Whether the label is the valid one of several choices; None for other types.
    """

    id: str
    author: str
    created: float
    is_mine: bool
    may_remove: bool
    decides: bool | None = None

    @classmethod
    def from_row(cls, row: Label | LabelRow, **attributes: Any) -> ShownLabel:
        """Converts a row of labels; `attributes` are the attributes that the row lacks."""
        return cls(
            id=row.id,
            layer=row.layer,
            type=row.type,  # type: ignore[arg-type]  # Its type was checked before.
            value=row.value,  # type: ignore[arg-type]  # The row is not a retraction.
            first=row.begin,
            last=None if row.end is None else row.end - 1,
            **attributes,
        )


prepare(ShownLayer, LabelValue, ShownLabel)


class EpisodeLabels(abc.ABC):
    """The labels of an episode for a user.

    Attributes:
      adds: The kind of new labels: declare a "layer", or add a "tag".
      may_label: Whether the user may label the episode.
      why_not: The reason if nobody may.
    """

    adds: ClassVar[Literal["layer", "tag"]]
    may_label: bool
    why_not: str = ""

    def error_responses(self) -> AbstractContextManager[None]:
        """Returns a context for calls of methods, which converts their errors."""
        return contextlib.nullcontext()

    @abc.abstractmethod
    def layers(self) -> list[ShownLayer]:
        """Returns the label layers."""

    @abc.abstractmethod
    def labels(self) -> list[ShownLabel]:
        """Returns the labels of the episode."""

    @abc.abstractmethod
    def add(self, label: LabelValue) -> ShownLabel:
        """Adds a label, which replaces the label of the same person for the same steps."""

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
      episode: The index of the episode.
      user: The name of the annotator.
      may_label: Whether labeling is enabled.
    """

    adds = "layer"

    def __init__(self, labels: Labels, episode: int, user: str, *, may_label: bool = True) -> None:
        self._labels, self._episode, self._user = labels, episode, user
        self.may_label = may_label and labels.can_be_written()
        if may_label and not self.may_label:
            self.why_not = "The folders of the data and of the cache are read-only."

    @override
    def layers(self) -> list[ShownLayer]:
        layers = self._labels.all_layers()
        return [ShownLayer(**dataclasses.asdict(layer)) for layer in layers]

    @override
    def labels(self) -> list[ShownLabel]:
        return [self._show_label(row) for row in self._labels.of_episode(self._episode)]

    def _show_label(self, row: Label) -> ShownLabel:
        try:
            created = datetime.datetime.fromisoformat(row.at).timestamp()
        except ValueError:  # Other programs may write other formats.
            created = 0.0
        is_mine = row.annotator == self._user
        return ShownLabel.from_row(
            row, author=row.annotator, created=created, is_mine=is_mine, may_remove=is_mine
        )

    @override
    def add(self, label: LabelValue) -> ShownLabel:
        values = self._episode, label.value, label.first, label.end
        tool = "rlds view"
        row = self._labels.add(label.layer, *values, by=self._user, type=label.type, tool=tool)
        return self._show_label(row)

    @override
    def retract(self, label: str) -> None:
        row = self._find_own_label(label, self._labels.of_episode(self._episode))
        steps = row.begin, row.end
        self._labels.retract(row.layer, self._episode, *steps, by=self._user, tool="rlds view")

    @override
    def restore(self, label: str) -> ShownLabel:
        row = self._find_own_label(label, self._labels.history(self._episode))
        return self.add(self._show_label(row))

    def _find_own_label(self, label: str, rows: list[Label]) -> Label:
        for row in rows:
            if (row.id, row.annotator) == (label, self._user) and not row.retracts:
                return row
        raise LookupError("You have no such label.")

    @override
    def declare(self, layer: ShownLayer) -> None:
        self._labels.declare(Layer(**msgspec.structs.asdict(layer)))
