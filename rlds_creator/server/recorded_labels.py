"""The labels of a recorded episode: its tags, and what people say it is worth."""

from __future__ import annotations

import functools
from contextlib import AbstractContextManager

from typing_extensions import override

from rlds_creator.model import AnnotatedRange, Episode, EpisodeState, Person, Verdict
from rlds_creator.server.errors import BadRequestError
from rlds_creator.server.permissions import May, may
from rlds_creator.server.recordings import Recordings
from rlds_creator.server.requests import refusals
from rlds_creator.store import Store
from rlds_creator.store.episodes import JUDGED
from rlds_creator.viewing.labels import EpisodeLabels, Said, ShownLabel, ShownLayer

__all__ = ["RecordedLabels"]

_VERDICT = ShownLayer(
    name="verdict",
    type="choice",
    choices=tuple(JUDGED),
    whole=True,
    doc="Quality of the episode. The player gives the first verdict, and the last one counts.",
)
_SUCCESS = ShownLayer(name="success", type="choice", choices=("yes", "no"), whole=True)


class RecordedLabels(EpisodeLabels):
    """The labels of a recorded episode. Flags are its tags; two choices are its verdict.

    Args:
      store: Has them.
      recordings: Write what is said beside the log.
      person: Who looks at them.
      episode: The episode.
    """

    adds = "tag"

    def __init__(
        self, store: Store, recordings: Recordings, person: Person, episode: Episode
    ) -> None:
        self._store, self._recordings = store, recordings
        self._person, self._episode = person, episode
        self.may_label = may(person, May.TAG)

    @override
    def refusals(self) -> AbstractContextManager[None]:
        return refusals()

    @override
    def layers(self) -> list[ShownLayer]:
        labels = self._store.study(self._episode.study).labels
        tags = [
            ShownLayer(
                name=one.name, type="flag", keys=(one.key,) * bool(one.key), doc=one.description
            )
            for one in labels
        ]
        return [_VERDICT, _SUCCESS, *tags]

    @override
    def labels(self) -> list[ShownLabel]:
        tags = [self._tag(tag) for tag in self._store.tags(self._episode.id)]
        return [*self._verdict(), *tags]

    @override
    def add(self, said: Said) -> ShownLabel:
        id, by = self._episode.id, self._person.id
        if said.type == "flag" and said.value is True:
            tag = self._store.add_tag(id, said.layer, said.first, said.last, by=by)
            self._recordings.annotate(id)
            return self._tag(tag)
        if (said.layer, said.first) == ("success", None) and said.value in ("yes", "no"):
            self._store.judge_episode(id, success=said.value == "yes", by=by)
        elif (said.layer, said.first) == ("verdict", None) and said.value in tuple(JUDGED):
            self._store.judge_episode(id, EpisodeState(said.value), by=by)
        else:
            raise BadRequestError("Recordings have only tags, a verdict and a success.")
        self._recordings.annotate(id)
        return next(one for one in self._verdict() if one.layer == said.layer)

    @override
    def retract(self, label: str) -> None:
        by = self._person.id
        if label.startswith("verdict:"):
            raise BadRequestError("A verdict cannot be removed. Change it instead.")
        if label.startswith("success:"):
            changed = self._store.judge_episode(self._episode.id, success=None, by=by).id
        else:
            changed = self._store.remove_tag(label, by=by).episode
        self._recordings.annotate(changed)

    @override
    def restore(self, label: str) -> ShownLabel:
        layer, *said = label.split(":")
        if said:
            return self.add(Said(layer=layer, type="choice", value=said[0]))
        tag = self._store.restore_tag(label, by=self._person.id)
        self._recordings.annotate(tag.episode)
        return self._tag(tag)

    @functools.cached_property
    def _people(self) -> dict[str, str]:
        if not may(self._person, May.SEE):
            return {self._person.id: self._person.name}
        return {one.id: one.name for one in self._store.people()}

    def _tag(self, tag: AnnotatedRange) -> ShownLabel:
        return ShownLabel(
            id=tag.id,
            layer=tag.label,
            type="flag",
            value=True,
            first=tag.first,
            last=tag.last,
            author=self._people.get(tag.author, ""),
            created=tag.created,
            is_mine=True,  # There is one of each, whoever sets it.
            may_remove=self.may_label,
        )

    def _verdict(self) -> list[ShownLabel]:
        """The last word of each person on what the episode is worth; what decides comes first."""
        episode = self._store.episode(self._episode.id)
        verdicts = self._store.verdicts(episode.id)
        by_player = Verdict(
            state=episode.state,
            success=episode.success,
            author=episode.person,
            created=episode.started + episode.seconds,
        )
        sees_all, me = may(self._person, May.SEE), self._person.id
        return [
            ShownLabel(
                id=f"{layer}:{value}:{one.author}",
                layer=layer,
                type="choice",
                value=value,
                author=self._people.get(one.author, ""),
                created=one.created,
                # Who says the same again after a player has looked at it.
                is_mine=bool(verdicts) and one.author == me,
                may_remove=layer == "success" and number == 0 and self.may_label,
                decides=number == 0,
            )
            for layer, words in _last_words(verdicts or [by_player]).items()
            for number, one in enumerate(words)
            if (value := _value(layer, one)) and (sees_all or number == 0 or one.author == me)
        ]


def _last_words(verdicts: list[Verdict]) -> dict[str, list[Verdict]]:
    """The last word of each person on each of two questions, the newest first."""
    latest: dict[str, dict[str, Verdict]] = {"verdict": {}, "success": {}}
    before: dict[str, str] = {}
    for one in verdicts:
        values = {name: _value(name, one) for name in latest}
        # Who answers one question repeats what is known of the other.
        answered = [name for name in latest if values[name] != before.get(name)] or ["verdict"]
        for name in answered:
            latest[name].pop(one.author, None)
            latest[name][one.author] = one
        before = values
    return {name: [*reversed(words.values())] for name, words in latest.items()}


def _value(layer: str, verdict: Verdict) -> str:
    if layer == "verdict":
        return verdict.state.value if verdict.state in JUDGED else ""
    return {None: "", True: "yes", False: "no"}[verdict.success]
