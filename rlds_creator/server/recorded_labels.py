"""The labels of a recorded episode: tags, and verdicts of people."""

from __future__ import annotations

import functools
from contextlib import AbstractContextManager

from typing_extensions import override

from rlds_creator.labelling import PLAY_TOOL, SUCCESS, VERDICT, VERDICT_STATES
from rlds_creator.model import EpisodeRecord, LabelRow, Person
from rlds_creator.server.errors import BadRequestError
from rlds_creator.server.permissions import May, may
from rlds_creator.server.recordings import Recordings
from rlds_creator.server.requests import error_responses
from rlds_creator.store import Store
from rlds_creator.viewing.labels import EpisodeLabels, LabelValue, ShownLabel, ShownLayer

__all__ = ["RecordedLabels"]

_CHOICES = (
    ShownLayer(
        name=VERDICT,
        type="choice",
        choices=tuple(VERDICT_STATES),
        whole=True,
        doc="Quality of the episode. The player gives the first verdict, and the last one counts.",
    ),
    ShownLayer(name=SUCCESS, type="choice", choices=("yes", "no"), whole=True),
)


class RecordedLabels(EpisodeLabels):
    """The labels of a recorded episode: tags are flags, verdict and success are choices.

    Args:
      store: The store of labels.
      recordings: The logs, which get a copy of the labels.
      person: The person who views or changes labels.
      episode: The episode.
    """

    adds = "tag"

    def __init__(
        self, store: Store, recordings: Recordings, person: Person, episode: EpisodeRecord
    ) -> None:
        self._store, self._recordings = store, recordings
        self._person, self._episode = person, episode
        self.may_label = may(person, May.TAG)

    @override
    def error_responses(self) -> AbstractContextManager[None]:
        return error_responses()

    @override
    def layers(self) -> list[ShownLayer]:
        labels = self._store.study(self._episode.study).labels
        tags = [
            ShownLayer(
                name=tag.name, type="flag", keys=(tag.key,) * bool(tag.key), doc=tag.description
            )
            for tag in labels
        ]
        return [*_CHOICES, *tags]

    @override
    def labels(self) -> list[ShownLabel]:
        rows = self._store.labels(self._episode.id)
        sees_all, me = may(self._person, May.SEE), self._person.id
        visible = []
        for layer in _CHOICES:
            choices = [row for row in rows if (row.type, row.layer) == ("choice", layer.name)]
            visible += [
                self._show_label(row, decides=row is choices[-1])
                for row in reversed(choices)
                if sees_all or row is choices[-1] or row.annotator == me
            ]
        tags = [row for row in rows if row.type == "flag"]
        tags.sort(key=lambda row: (row.begin is not None, row.begin, row.end or 0, row.layer))
        return [*visible, *map(self._show_label, tags)]

    @override
    def add(self, label: LabelValue) -> ShownLabel:
        if isinstance(label.value, float) or (label.type == "flag") != (label.value is True):
            raise BadRequestError("Recordings have only tags, a verdict and a success.")
        row = self._store.add_label(
            self._episode.id, label.layer, label.value, label.first, label.end, by=self._person.id
        )
        self._recordings.annotate(self._episode.id)
        return self._show_label(row, decides=True if row.type == "choice" else None)

    @override
    def retract(self, label: str) -> None:
        rows = self._store.labels(self._episode.id)
        if any((row.id, row.layer, row.type) == (label, VERDICT, "choice") for row in rows):
            raise BadRequestError("A verdict cannot be removed. Change it instead.")
        self._recordings.annotate(self._store.retract_label(label, by=self._person.id))

    @override
    def restore(self, label: str) -> ShownLabel:
        episode, row = self._store.restore_label(label)
        self._recordings.annotate(episode)
        return self._show_label(row, decides=True if row.type == "choice" else None)

    @functools.cached_property
    def _people(self) -> dict[str, str]:
        if not may(self._person, May.SEE):
            return {self._person.id: self._person.name}
        return {person.id: person.name for person in self._store.people()}

    def _show_label(self, row: LabelRow, decides: bool | None = None) -> ShownLabel:
        """Converts a label for pages.

        Annotators share tags, so each tag counts as a label of the user. The verdict of a player
        does not, so that a reviewer may confirm the verdict.
        """
        is_tag = row.type == "flag"
        return ShownLabel.from_row(
            row,
            author=self._people.get(row.annotator, ""),
            created=row.at,
            is_mine=is_tag or (row.annotator == self._person.id and row.tool != PLAY_TOOL),
            may_remove=self.may_label and (is_tag or (row.layer == SUCCESS and bool(decides))),
            decides=decides,
        )
