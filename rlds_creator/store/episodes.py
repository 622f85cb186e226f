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

# The maximum number of values in a statement, below the limits of databases.
_MAX_STATEMENT_VALUES = 5_000
_label = tables.labels.c  # The columns of labels, for queries.
_is_tag = sa.and_(_label.type == "flag", _label.is_current)
# The minimum time between labels of an episode, which keeps their order if the clock is set back.
_LABEL_INTERVAL_S = 1e-6
_SUCCESS_CHOICES = {None: None, True: "yes", False: "no"}
# The fields that reports of the worker do not change: constants, and the fields of annotators.
_FIXED = {"id", "study", "environment", "session", "person", "notes", "version", "is_practice"}


class EpisodeDatabase(Database):
    """Episodes and labels."""

    def save_episode(self, episode: EpisodeRecord) -> EpisodeRecord:
        """Adds an episode, or updates it with the report of the worker.

        The notes, the labels, the study and the person of a stored episode stay unchanged. A new
        episode is practice if the study still requires practice of the person.

        Returns:
          The stored episode.

        Raises:
          RecordNotFoundError: The study or the person does not exist.
          StoreError: A field has a value that its type does not allow.
        """
        values = to_row(episode)
        del values["labels"]
        if not is_identifier(episode.id):
            raise StoreError("the identifier of the episode is invalid")
        table = tables.episodes
        changes = {name: value for name, value in values.items() if name not in _FIXED}
        with self._writing() as connection:
            change = sa.update(table).where(table.c.id == episode.id).values(changes)
            if not connection.execute(change).rowcount:
                row = {**values, "notes": "", "version": 0}
                if episode.state is EpisodeState.PLAYING:
                    is_practice = is_practice_next(connection, episode.study, episode.person)
                    row["is_practice"] = is_practice
                try:
                    connection.execute(sa.insert(table).values(row))
                except sa.exc.IntegrityError:
                    raise RecordNotFoundError("the study or the person was deleted") from None
            if episode.state in VERDICT_STATES:
                _add_player_verdict(connection, episode)
            return _read_episode(connection, episode.id)

    def episode(self, episode_id: str) -> EpisodeRecord:
        """Returns an episode.

        Raises:
          RecordNotFoundError: The episode does not exist.
        """
        with self._reading() as connection:
            return _read_episode(connection, episode_id)

    def episodes(self, query: EpisodeQuery | None = None) -> tuple[list[EpisodeRecord], int]:
        """Returns a page of the episodes of a query, and the total number of its episodes.

        Raises:
          StoreError: A field of the query has a value that its type does not allow.
        """
        query = query or EpisodeQuery()
        conditions = _conditions(query)
        table = tables.episodes
        page = sa.select(table).where(*conditions).order_by(*_order_by(query.sort))
        with self._reading() as connection:
            count = sa.select(sa.func.count()).select_from(table).where(*conditions)
            total = connection.scalar(count)
            rows = connection.execute(page.offset(query.offset).limit(query.limit)).all()
            return _with_labels(connection, rows), total or 0

    def episode_ids(self, query: EpisodeQuery) -> list[str]:
        """Returns the identifiers of all episodes of a query, not only of its page.

        Raises:
          StoreError: A field of the query has a value that its type does not allow.
        """
        ids = sa.select(tables.episodes.c.id).where(*_conditions(query))
        with self._reading() as connection:
            return list(connection.scalars(ids.order_by(*_order_by(query.sort))))

    def playing(self) -> list[EpisodeRecord]:
        """Returns the running episodes and those without a verdict, the oldest first.

        After a restart of the server, nobody can continue them.
        """
        table = tables.episodes
        query = sa.select(table).where(table.c.state.in_(LIVE_STATES))
        with self._reading() as connection:
            rows = connection.execute(query.order_by(table.c.started, table.c.id)).all()
            return _with_labels(connection, rows)

    def delete_episodes(self, ids: Iterable[str]) -> list[str]:
        """Deletes episodes and their labels, or nothing if an error occurs.

        Returns:
          The identifiers of the deleted episodes; the caller deletes their logs.

        Raises:
          InUseError: An episode is being played.
        """
        table = tables.episodes
        sorted_ids = sorted(set(ids))
        deleted: list[str] = []
        with self._writing() as connection:
            for start in range(0, len(sorted_ids), _MAX_STATEMENT_VALUES):
                is_in_batch = table.c.id.in_(sorted_ids[start : start + _MAX_STATEMENT_VALUES])
                query = sa.select(table.c.id, table.c.state).where(is_in_batch).order_by(table.c.id)
                rows = connection.execute(query.with_for_update()).all()
                if any(row.state in LIVE_STATES for row in rows):
                    raise InUseError("an episode that is being played cannot be deleted")
                connection.execute(sa.delete(table).where(is_in_batch))
                deleted += [row.id for row in rows]
        return deleted

    def set_notes(self, episode_id: str, notes: str, version: int, by: str = "") -> EpisodeRecord:
        """Replaces the notes on an episode.

        Args:
          episode_id: The episode.
          notes: The new notes.
          version: The version of the episode that was edited.
          by: The identifier of the acting person.

        Raises:
          RecordNotFoundError: The episode does not exist.
          StaleError: Somebody else has edited the notes since that version.
          StoreError: The notes are too long.
        """
        table = tables.episodes
        with self._writing() as connection:
            stored_episode = _read_episode(connection, episode_id, lock=True)
            if stored_episode.version != version:
                raise StaleError("somebody else has edited these notes", stored_episode)
            new_episode = msgspec.structs.replace(stored_episode, notes=notes, version=version + 1)
            to_row(new_episode)
            change = sa.update(table).where(table.c.id == episode_id)
            connection.execute(change.values(notes=notes, version=version + 1))
            rows = _read_labels(connection, episode_id)
            now = self._time_after(rows)
            note = label_row(NOTE, notes, annotator=by, at=now + _LABEL_INTERVAL_S)
            for label in current_labels(rows):
                if label.type == "text" and (label.target != note.target or not notes):
                    _add_row(connection, episode_id, retraction_row(label, by, now))
            if notes:
                _add_row(connection, episode_id, note)
        return new_episode

    def labels(self, episode_id: str, *, history: bool = False) -> list[LabelRow]:
        """Returns the current labels of an episode, in the order in which they were set.

        Args:
          episode_id: The episode.
          history: Whether to return all rows instead.

        Raises:
          RecordNotFoundError: The episode does not exist.
        """
        with self._reading() as connection:
            rows = _read_labels(connection, episode_id)
            if not rows:
                _read_episode(connection, episode_id)
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
          layer: The name of the tag; or "verdict" or "success".
          value: True for a tag; one of `VERDICT_STATES` for a verdict; "yes" or "no" for a success.
          begin: The first step; None for the episode as a whole.
          end: The step after the last one.
          by: The identifier of the acting person.

        Returns:
          The label; the existing one if the episode already has the same tag.

        Raises:
          RecordNotFoundError: The episode does not exist.
          InUseError: The label is a verdict or a success, and the verdict of the player is missing.
          StoreError: The episode does not have the steps, the layer is blank or too long, or does
            not allow the value.
        """
        check_names(layer)
        with self._writing() as connection:
            episode = _read_episode(connection, episode_id, lock=True)
            rows = _read_labels(connection, episode_id)
            steps = {"begin": begin, "end": end}
            label = label_row(layer, value, annotator=by, at=self._time_after(rows), **steps)
            _check_label(label, episode)
            equal_rows = [row for row in current_labels(rows) if row.target[1:] == label.target[1:]]
            if label.type == "flag" and equal_rows:
                return equal_rows[0]
            _add_row(connection, episode_id, label)
        return label

    def retract_label(self, label_id: str, by: str = "") -> str:
        """Retracts a label; `restore_label` restores it. Does nothing if it is not current.

        Args:
          label_id: The label.
          by: The identifier of the acting person.

        Returns:
          The identifier of the episode.

        Raises:
          RecordNotFoundError: The label never existed.
        """
        with self._writing() as connection:
            episode, row = _read_label(connection, label_id)
            rows = _read_labels(connection, episode)
            if row in current_labels(rows):
                _add_row(connection, episode, retraction_row(row, by, self._time_after(rows)))
        return episode

    def restore_label(self, label_id: str) -> tuple[str, LabelRow]:
        """Restores a retracted label by a new row.

        Returns:
          The identifier of the episode, and the label; the current one if it is the same.

        Raises:
          RecordNotFoundError: The label never existed.
        """
        with self._writing() as connection:
            episode, row = _read_label(connection, label_id)
            rows = _read_labels(connection, episode)
            current = [label for label in current_labels(rows) if label.target == row.target]
            if current and current[0].value == row.value:
                return episode, current[0]
            changes = {"id": new_identifier(), "at": self._time_after(rows), "tool": TOOL}
            new = msgspec.structs.replace(row, **changes)
            _add_row(connection, episode, new)
        return episode, new

    def replace_labels(self, episode_id: str, rows: Iterable[LabelRow]) -> None:
        """Restores the label rows of a recovered episode.

        Raises:
          StoreError: A row is invalid.
        """
        with self._writing() as connection:
            connection.execute(sa.delete(tables.labels).where(_label.episode == episode_id))
            for row in rows:
                _add_row(connection, episode_id, row)

    def _time_after(self, rows: Iterable[LabelRow]) -> float:
        return max(self._clock(), max((row.at for row in rows), default=0.0) + _LABEL_INTERVAL_S)


def _conditions(query: EpisodeQuery) -> list[sa.ColumnElement[bool]]:
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
    tagged_ids = sa.select(_label.episode).where(_is_tag)
    if query.label is not None:
        tagged_ids = tagged_ids.where(_label.layer == query.label)
    if query.queue == "unlabelled":
        conditions.append(table.c.id.not_in(tagged_ids))
    elif query.label is not None:
        conditions.append(table.c.id.in_(tagged_ids))
    if query.queue == "unreviewed":
        reviews = sa.select(_label.episode).where(_label.type == "choice", _label.tool != PLAY_TOOL)
        conditions += [table.c.state.in_(VERDICT_STATES), table.c.id.not_in(reviews)]
    elif query.queue == "disagreement":  # A person has one current label per layer.
        choices = sa.select(_label.episode).where(_label.type == "choice", _label.is_current)
        choices = choices.group_by(_label.episode, _label.layer)
        num_values = sa.func.count(sa.distinct(_label.value))
        conditions.append(table.c.id.in_(choices.having(num_values > 1)))
    if query.since is not None:
        conditions.append(table.c.started >= query.since)
    if query.until is not None:
        conditions.append(table.c.started < query.until)
    return conditions


def _order_by(sort: str) -> list[sa.UnaryExpression[Any]]:
    table = tables.episodes
    name = sort.removeprefix("-")
    column: Any = table.c[name]
    if name == "person":
        is_player = tables.people.c.id == table.c.person
        column = sa.select(tables.people.c.name).where(is_player).scalar_subquery()
    is_descending = sort.startswith("-")
    order = column.desc() if is_descending else column.asc()
    if name in ("total_reward", "success"):
        order = order.nulls_last()
    return [order, table.c.id.desc() if is_descending else table.c.id.asc()]


def _read_episode(
    connection: sa.Connection, episode_id: str, *, lock: bool = False
) -> EpisodeRecord:
    row = row_of(connection, tables.episodes, episode_id, lock=lock)
    return _with_labels(connection, [row])[0]


def _read_labels(connection: sa.Connection, episode_id: str) -> list[LabelRow]:
    query = sa.select(tables.labels).where(_label.episode == episode_id)
    rows = connection.execute(query.order_by(_label.at, _label.id))
    return [_from_row(row) for row in rows]


def _read_label(connection: sa.Connection, label_id: str) -> tuple[str, LabelRow]:
    row = row_of(connection, tables.labels, label_id)
    if row.retracts is not None:
        raise RecordNotFoundError("this row retracts a label and cannot be retracted")
    return row.episode, _from_row(row)


def _from_row(row: Any) -> LabelRow:
    is_flag = row.type == "flag" and row.value is not None
    return from_row(LabelRow, row, **({"value": True} if is_flag else {}))


def _check_label(label: LabelRow, episode: EpisodeRecord) -> None:
    """Raises an error if a label does not fit the steps of an episode."""
    if (label.begin is None) != (label.end is None):
        raise StoreError("a range of steps needs a first and a last step")
    if label.begin is not None and label.end is not None:
        first, last = label.begin, label.end - 1
        if not 0 <= first <= last < episode.num_steps:
            raise StoreError(f"steps {first} to {last}: the episode has {episode.num_steps} steps")
    if label.type == "choice":
        choices = {VERDICT: VERDICT_STATES, SUCCESS: ("yes", "no")}.get(label.layer, ())
        if label.value not in choices or label.begin is not None:
            raise StoreError(f"{label.layer}: expected one of {', '.join(choices)}")
        if episode.state in LIVE_STATES:
            raise InUseError("the player has not kept or discarded this episode yet")


def _add_row(connection: sa.Connection, episode_id: str, row: LabelRow) -> None:
    """Adds a label row; a verdict or success also replaces the value of the episode."""
    columns = ("begin", "end", "type", "layer", "annotator")
    is_same_label = [_label[name].is_not_distinct_from(getattr(row, name)) for name in columns]
    previous = sa.update(tables.labels).where(_label.episode == episode_id, *is_same_label)
    connection.execute(previous.values(is_current=False))
    values = {**to_row(row), "episode": episode_id, "is_current": row.retracts is None}
    values["value"] = "true" if row.value is True else row.value
    connection.execute(sa.insert(tables.labels).values(values))
    if row.type != "choice":
        return
    is_choice = sa.and_(_label.layer == row.layer, _label.type == "choice", _label.is_current)
    choices = sa.select(_label.value).where(_label.episode == episode_id, is_choice)
    choice = connection.scalar(choices.order_by(_label.at.desc()).limit(1))
    change = sa.update(tables.episodes).where(tables.episodes.c.id == episode_id)
    if row.layer == SUCCESS:
        connection.execute(change.values(success=None if choice is None else choice == "yes"))
    elif choice is not None:
        connection.execute(change.values(state=choice))


def _add_player_verdict(connection: sa.Connection, episode: EpisodeRecord) -> None:
    """Adds the verdict and the success of the player at the end of an episode, if changed."""
    rows = _read_labels(connection, episode.id)
    values = {VERDICT: episode.state.value, SUCCESS: _SUCCESS_CHOICES[episode.success]}
    time = max([episode.started + episode.seconds, *(row.at + _LABEL_INTERVAL_S for row in rows)])
    for layer, value in values.items():
        stored_values = [row.value for row in rows if (row.layer, row.tool) == (layer, PLAY_TOOL)]
        if value is not None and stored_values[-1:] != [value]:
            new = label_row(layer, value, at=time, annotator=episode.person, tool=PLAY_TOOL)
            _add_row(connection, episode.id, new)
            time += _LABEL_INTERVAL_S


def _with_labels(connection: sa.Connection, rows: list[Any] | Any) -> list[EpisodeRecord]:
    query = sa.select(_label.episode, _label.layer).distinct()
    query = query.where(_label.episode.in_([row.id for row in rows]), _is_tag)
    labels: dict[str, list[str]] = {}
    for episode, label in connection.execute(query):
        labels.setdefault(episode, []).append(label)
    return [from_row(EpisodeRecord, row, labels=sorted(labels.get(row.id, ()))) for row in rows]
