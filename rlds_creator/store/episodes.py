"""Database queries of episodes and their labels."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import msgspec
import sqlalchemy as sa

from rlds_creator.identifiers import is_identifier, new_identifier
from rlds_creator.labelling import (
    NOTE,
    PLAY_TOOL,
    SUCCESS,
    TOOL,
    VERDICT,
    VERDICT_STATES,
    current_labels,
    label_row,
    retraction_row,
)
from rlds_creator.model import EpisodeRecord, EpisodeState, LabelRow
from rlds_creator.store import tables
from rlds_creator.store.database import Database, row_of
from rlds_creator.store.errors import InUseError, RecordNotFoundError, StaleError, StoreError
from rlds_creator.store.records import EpisodeQuery, check_names, from_row, to_row
from rlds_creator.store.studies import LIVE_STATES, is_practice_next

__all__ = ["EpisodeDatabase"]

# The maximum number of values in a statement; databases have a limit.
_MAX_STATEMENT_VALUES = 5_000
_of = tables.labels.c  # The columns of labels, for queries.
_is_tag = sa.and_(_of.type == "flag", _of.holds)
# The minimum time between labels of an episode, also if the clock is set back.
_MIN_INTERVAL_S = 1e-6
_ANSWERS = {None: None, True: "yes", False: "no"}
# The fields that the worker does not change: fixed ones, and those of annotators.
_FIXED = {
    "id",
    "study",
    "environment",
    "session",
    "person",
    "notes",
    "version",
    "is_practice",
}


class EpisodeDatabase(Database):
    """Episodes and labels."""

    def save_episode(self, episode: EpisodeRecord) -> EpisodeRecord:
        """Adds an episode, or updates it with the report of the worker.

        Its notes and labels stay as they are, and what it is an episode of. One that begins is
        practice if the study has practice left for the person.

        Returns:
          What is stored.

        Raises:
          RecordNotFoundError: The study or the person is not there.
          StoreError: A field has a value that its type does not allow.
        """
        values = to_row(episode)
        del values["labels"]
        if not is_identifier(episode.id):
            raise StoreError("the identifier of the episode is invalid")
        table = tables.episodes
        changed = {name: value for name, value in values.items() if name not in _FIXED}
        with self._writing() as connection:
            change = sa.update(table).where(table.c.id == episode.id).values(changed)
            if not connection.execute(change).rowcount:
                new = {**values, "notes": "", "version": 0}
                if episode.state is EpisodeState.PLAYING:
                    next_is = is_practice_next(connection, episode.study, episode.person)
                    new["is_practice"] = next_is
                try:
                    connection.execute(sa.insert(table).values(new))
                except sa.exc.IntegrityError:
                    raise RecordNotFoundError("the study or the person was deleted") from None
            if episode.state in VERDICT_STATES:
                _add_words_of_player(connection, episode)
            return _episode(connection, episode.id)

    def episode(self, episode_id: str) -> EpisodeRecord:
        """Returns an episode.

        Raises:
          RecordNotFoundError: There is none of this identifier.
        """
        with self._reading() as connection:
            return _episode(connection, episode_id)

    def episodes(self, query: EpisodeQuery | None = None) -> tuple[list[EpisodeRecord], int]:
        """Returns a page of the episodes of a query, and the number of all of them.

        Raises:
          StoreError: A field of the query has a value that its type does not allow.
        """
        query = query or EpisodeQuery()
        where = _where(query)
        table = tables.episodes
        page = sa.select(table).where(*where).order_by(*_order(query.sort))
        with self._reading() as connection:
            total = connection.scalar(sa.select(sa.func.count()).select_from(table).where(*where))
            rows = connection.execute(page.offset(query.offset).limit(query.limit)).all()
            return _with_labels(connection, rows), total or 0

    def episode_ids(self, query: EpisodeQuery) -> list[str]:
        """Returns the identifiers of all episodes that a query asks for, whatever its page.

        Raises:
          StoreError: A field of the query has a value that its type does not allow.
        """
        ids = sa.select(tables.episodes.c.id).where(*_where(query))
        with self._reading() as connection:
            return list(connection.scalars(ids.order_by(*_order(query.sort))))

    def playing(self) -> list[EpisodeRecord]:
        """Returns the episodes being played or without a verdict, the oldest first.

        After a restart of the server these are the ones that nobody can go on with.
        """
        table = tables.episodes
        query = sa.select(table).where(table.c.state.in_(LIVE_STATES))
        with self._reading() as connection:
            rows = connection.execute(query.order_by(table.c.started, table.c.id)).all()
            return _with_labels(connection, rows)

    def delete_episodes(self, ids: Iterable[str]) -> list[str]:
        """Deletes episodes and their labels: all of them, or none if it raises.

        Returns:
          The identifiers of the deleted episodes; the caller deletes their logs.

        Raises:
          InUseError: An episode is being played.
        """
        table = tables.episodes
        sorted_ids = sorted(set(ids))
        deleted: list[str] = []
        with self._writing() as connection:
            for first in range(0, len(sorted_ids), _MAX_STATEMENT_VALUES):
                some = table.c.id.in_(sorted_ids[first : first + _MAX_STATEMENT_VALUES])
                query = sa.select(table.c.id, table.c.state).where(some).order_by(table.c.id)
                rows = connection.execute(query.with_for_update()).all()
                if any(row.state in LIVE_STATES for row in rows):
                    raise InUseError("an episode that is being played cannot be deleted")
                connection.execute(sa.delete(table).where(some))
                deleted += [row.id for row in rows]
        return deleted

    def set_notes(self, episode_id: str, notes: str, version: int, by: str = "") -> EpisodeRecord:
        """Replaces the notes on an episode.

        Args:
          episode_id: The episode.
          notes: The new notes.
          version: The version of the episode whose notes were edited.
          by: Who does it: the identifier of a person.

        Raises:
          RecordNotFoundError: There is none of this identifier.
          StaleError: Somebody else has edited them since that version.
          StoreError: They are too long.
        """
        table = tables.episodes
        with self._writing() as connection:
            current = _episode(connection, episode_id, lock=True)
            if current.version != version:
                raise StaleError("somebody else has edited these notes", current)
            new = msgspec.structs.replace(current, notes=notes, version=version + 1)
            to_row(new)
            change = sa.update(table).where(table.c.id == episode_id)
            connection.execute(change.values(notes=notes, version=version + 1))
            rows = _labels(connection, episode_id)
            now = self._after(rows)
            note = label_row(NOTE, notes, annotator=by, at=now + _MIN_INTERVAL_S)
            for old in current_labels(rows):
                if old.type == "text" and (old.target != note.target or not notes):
                    _add(connection, episode_id, retraction_row(old, by, now))
            if notes:
                _add(connection, episode_id, note)
        return new

    def labels(self, episode_id: str, *, history: bool = False) -> list[LabelRow]:
        """Returns the labels of an episode that hold, in the order in which they were set.

        Args:
          episode_id: The episode.
          history: Whether to return all rows.

        Raises:
          RecordNotFoundError: There is no episode of this identifier.
        """
        with self._reading() as connection:
            rows = _labels(connection, episode_id)
            if not rows:
                _episode(connection, episode_id)
        return rows if history else current_labels(rows)

    def add_label(
        self,
        episode_id: str,
        layer: str,
        value: bool | str = True,
        begin: int | None = None,
        end: int | None = None,
        *,
        by: str = "",
    ) -> LabelRow:
        """Adds a label: a tag of an episode or of its steps, or a verdict.

        Args:
          episode_id: The episode.
          layer: The tag; "verdict" or "success" for a text.
          value: True for a tag; one of `VERDICT_STATES`; "yes" or "no".
          begin: The first step; None for the episode as a whole.
          end: The step after the last one.
          by: Who does it: the identifier of a person.

        Returns:
          The label; of a tag, the one that is there if the episode has the same already.

        Raises:
          RecordNotFoundError: There is no episode of this identifier.
          InUseError: It is to be judged, and its player has not judged it yet.
          StoreError: The episode has no such steps, the layer is blank or too long, or it has no
            such value.
        """
        check_names(layer)
        with self._writing() as connection:
            episode = _episode(connection, episode_id, lock=True)
            rows = _labels(connection, episode_id)
            where = {"begin": begin, "end": end}
            new = label_row(layer, value, annotator=by, at=self._after(rows), **where)
            _check(new, episode)
            same = [row for row in current_labels(rows) if row.target[1:] == new.target[1:]]
            if new.type == "flag" and same:
                return same[0]
            _add(connection, episode_id, new)
        return new

    def retract_label(self, label_id: str, by: str = "") -> str:
        """Retracts a label; `restore_label` restores it. Does nothing if it is not active.

        Args:
          label_id: The label.
          by: Who does it: the identifier of a person.

        Returns:
          The identifier of the episode.

        Raises:
          RecordNotFoundError: There is none of this identifier, and was none.
        """
        with self._writing() as connection:
            episode, row = _label(connection, label_id)
            rows = _labels(connection, episode)
            if row in current_labels(rows):
                _add(connection, episode, retraction_row(row, by, self._after(rows)))
        return episode

    def restore_label(self, label_id: str) -> tuple[str, LabelRow]:
        """Restores a retracted label, by a new row.

        Returns:
          The identifier of the episode, and the label; the one that is there if there is one.

        Raises:
          RecordNotFoundError: There is none of this identifier, and was none.
        """
        with self._writing() as connection:
            episode, row = _label(connection, label_id)
            rows = _labels(connection, episode)
            there = [one for one in current_labels(rows) if one.target == row.target]
            if there and there[0].value == row.value:
                return episode, there[0]
            new = msgspec.structs.replace(row, id=new_identifier(), at=self._after(rows), tool=TOOL)
            _add(connection, episode, new)
        return episode, new

    def replace_labels(self, episode_id: str, rows: Iterable[LabelRow]) -> None:
        """Restores the label rows of a recovered episode.

        Raises:
          StoreError: One is invalid.
        """
        with self._writing() as connection:
            connection.execute(sa.delete(tables.labels).where(_of.episode == episode_id))
            for row in rows:
                _add(connection, episode_id, row)

    def _after(self, rows: Iterable[LabelRow]) -> float:
        return max(self._clock(), max((row.at for row in rows), default=0.0) + _MIN_INTERVAL_S)


def _where(query: EpisodeQuery) -> list[sa.ColumnElement[bool]]:
    to_row(query)
    table = tables.episodes
    conditions = [
        table.c[name] == value
        for name in ("study", "environment", "person", "success", "is_practice")
        if (value := getattr(query, name)) is not None
    ]
    if isinstance(query.state, EpisodeState):
        conditions.append(table.c.state == query.state.value)
    elif query.state is not None:
        conditions.append(table.c.state.in_([state.value for state in query.state]))
    tagged = sa.select(_of.episode).where(_is_tag)
    if query.label is not None:
        tagged = tagged.where(_of.layer == query.label)
    if query.queue == "unlabelled":
        conditions.append(table.c.id.not_in(tagged))
    elif query.label is not None:
        conditions.append(table.c.id.in_(tagged))
    if query.queue == "unreviewed":
        reviewed = sa.select(_of.episode).where(_of.type == "choice", _of.tool != PLAY_TOOL)
        conditions += [table.c.state.in_(VERDICT_STATES), table.c.id.not_in(reviewed)]
    elif query.queue == "disagreement":  # Between people, not between labels of one person.
        words = sa.select(_of.episode).where(_of.type == "choice", _of.holds)
        words = words.group_by(_of.episode, _of.layer)
        conditions.append(table.c.id.in_(words.having(sa.func.count(sa.distinct(_of.value)) > 1)))
    if query.since is not None:
        conditions.append(table.c.started >= query.since)
    if query.until is not None:
        conditions.append(table.c.started < query.until)
    return conditions


def _order(sort: str) -> list[sa.UnaryExpression[Any]]:
    table = tables.episodes
    name = sort.removeprefix("-")
    column: Any = table.c[name]
    if name == "person":
        of = tables.people.c.id == table.c.person
        column = sa.select(tables.people.c.name).where(of).scalar_subquery()
    falls = sort.startswith("-")
    first = column.desc() if falls else column.asc()
    if name in ("total_reward", "success"):
        first = first.nulls_last()
    return [first, table.c.id.desc() if falls else table.c.id.asc()]


def _episode(connection: sa.Connection, episode_id: str, *, lock: bool = False) -> EpisodeRecord:
    row = row_of(connection, tables.episodes, episode_id, lock=lock)
    return _with_labels(connection, [row])[0]


def _labels(connection: sa.Connection, episode_id: str) -> list[LabelRow]:
    query = sa.select(tables.labels).where(_of.episode == episode_id).order_by(_of.at, _of.id)
    return [_from_row(row) for row in connection.execute(query)]


def _label(connection: sa.Connection, label_id: str) -> tuple[str, LabelRow]:
    row = row_of(connection, tables.labels, label_id)
    if row.retracts is not None:
        raise RecordNotFoundError("this label is the end of another")
    return row.episode, _from_row(row)


def _from_row(row: Any) -> LabelRow:
    is_flag = row.type == "flag" and row.value is not None
    return from_row(LabelRow, row, **({"value": True} if is_flag else {}))


def _check(label: LabelRow, episode: EpisodeRecord) -> None:
    """Raises an error if a label does not fit the steps of an episode."""
    if (label.begin is None) != (label.end is None):
        raise StoreError("a range of steps needs a first and a last step")
    if label.begin is not None and label.end is not None:
        first, last = label.begin, label.end - 1
        if not 0 <= first <= last < episode.num_steps:
            text = f"steps {first} to {last}: the episode has {episode.num_steps} steps"
            raise StoreError(text)
    if label.type == "choice":
        choices = {VERDICT: VERDICT_STATES, SUCCESS: ("yes", "no")}.get(label.layer, ())
        if label.value not in choices or label.begin is not None:
            raise StoreError(f"{label.layer}: expected one of {', '.join(choices)}")
        if episode.state in LIVE_STATES:
            raise InUseError("the player has not kept or discarded this episode yet")


def _add(connection: sa.Connection, episode_id: str, row: LabelRow) -> None:
    """Adds a label row; the last verdict becomes the state of the episode."""
    same = [_of[name].is_not_distinct_from(getattr(row, name)) for name in ("begin", "end")]
    same += [_of.episode == episode_id, _of.type == row.type, _of.layer == row.layer]
    before = sa.update(tables.labels).where(*same, _of.annotator == row.annotator)
    connection.execute(before.values(holds=False))
    values = {**to_row(row), "episode": episode_id, "holds": row.retracts is None}
    values["value"] = "true" if row.value is True else row.value
    connection.execute(sa.insert(tables.labels).values(values))
    if row.type != "choice":
        return
    of_layer = sa.and_(_of.episode == episode_id, _of.layer == row.layer, _of.type == row.type)
    words = sa.select(_of.value).where(of_layer, _of.holds).order_by(_of.at.desc()).limit(1)
    word = connection.scalar(words)
    change = sa.update(tables.episodes).where(tables.episodes.c.id == episode_id)
    if row.layer == SUCCESS:
        connection.execute(change.values(success=None if word is None else word == "yes"))
    elif word is not None:
        connection.execute(change.values(state=word))


def _add_words_of_player(connection: sa.Connection, episode: EpisodeRecord) -> None:
    """Adds the verdict and the success of the player at the end of an episode, if changed."""
    rows = _labels(connection, episode.id)
    words = {VERDICT: episode.state.value, SUCCESS: _ANSWERS[episode.success]}
    at = max([episode.started + episode.seconds, *(row.at + _MIN_INTERVAL_S for row in rows)])
    for layer, value in words.items():
        stored_values = [row.value for row in rows if (row.layer, row.tool) == (layer, PLAY_TOOL)]
        if value is not None and stored_values[-1:] != [value]:
            who = {"annotator": episode.person, "tool": PLAY_TOOL}
            _add(connection, episode.id, label_row(layer, value, at=at, **who))
            at += _MIN_INTERVAL_S


def _with_labels(connection: sa.Connection, rows: list[Any] | Any) -> list[EpisodeRecord]:
    query = sa.select(_of.episode, _of.layer).distinct()
    query = query.where(_of.episode.in_([row.id for row in rows]), _is_tag)
    labels: dict[str, list[str]] = {}
    for episode, label in connection.execute(query):
        labels.setdefault(episode, []).append(label)
    return [from_row(EpisodeRecord, row, labels=sorted(labels.get(row.id, ()))) for row in rows]
