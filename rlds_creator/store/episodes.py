"""Episodes and their tags."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import msgspec
import sqlalchemy as sa

from rlds_creator.identifiers import is_identifier, new_identifier
from rlds_creator.model import AnnotatedRange, Episode, EpisodeState, Verdict
from rlds_creator.store import tables
from rlds_creator.store.database import Database
from rlds_creator.store.errors import InUseError, NotFoundError, StaleError, StoreError
from rlds_creator.store.records import EpisodeQuery, check_names, from_row, to_row
from rlds_creator.store.studies import LIVE, is_practice_next

__all__ = ["JUDGED", "Episodes"]

# What people say that episodes are.
JUDGED = (EpisodeState.COMPLETED, EpisodeState.CANCELLED, EpisodeState.REJECTED)
# How many values a statement has; there is a limit in each database.
_AT_ONCE = 5_000
_there = tables.tags.c.removed.is_(None)
# What is set once, and what annotators change: not what the worker says.
_KEPT = {"id", "study", "environment", "session", "person", "notes", "version", "is_practice"}


class Episodes(Database):
    """Episodes and tags."""

    def save_episode(self, episode: Episode) -> Episode:
        """Adds an episode, or changes it to what the worker says of it now.

        Its notes and tags stay as they are, and what it is an episode of. One that begins is
        practice if the study has practice left for the person.

        Returns:
          What is stored.

        Raises:
          NotFoundError: The study or the person is not there.
          StoreError: A field has a value that its type does not allow.
        """
        values = to_row(episode)
        del values["labels"]
        if not is_identifier(episode.id):
            raise StoreError("the identifier of the episode is invalid")
        table = tables.episodes
        said = {name: value for name, value in values.items() if name not in _KEPT}
        with self._writing() as connection:
            change = sa.update(table).where(table.c.id == episode.id).values(said)
            if not connection.execute(change).rowcount:
                new = {**values, "notes": "", "version": 0}
                if episode.state is EpisodeState.PLAYING:
                    next_is = is_practice_next(connection, episode.study, episode.person)
                    new["is_practice"] = next_is
                try:
                    connection.execute(sa.insert(table).values(new))
                except sa.exc.IntegrityError:
                    raise NotFoundError("the study or the person was deleted") from None
            return _episode(connection, episode.id)

    def episode(self, episode_id: str) -> Episode:
        """Returns an episode.

        Raises:
          NotFoundError: There is none of this identifier.
        """
        with self._reading() as connection:
            return _episode(connection, episode_id)

    def episodes(self, query: EpisodeQuery | None = None) -> tuple[list[Episode], int]:
        """Returns a page of the episodes that a query asks for, and how many there are in all.

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

    def playing(self) -> list[Episode]:
        """Returns the episodes that somebody plays or has yet to judge, the oldest first.

        After a restart of the server these are the ones that nobody can go on with.
        """
        table = tables.episodes
        query = sa.select(table).where(table.c.state.in_(LIVE))
        with self._reading() as connection:
            rows = connection.execute(query.order_by(table.c.started, table.c.id)).all()
            return _with_labels(connection, rows)

    def delete_episodes(self, ids: Iterable[str]) -> list[str]:
        """Deletes episodes and their tags: all of them, or none if it raises.

        Returns:
          The identifiers of those that were there, for their logs to be deleted.

        Raises:
          InUseError: One is being played.
        """
        table = tables.episodes
        wanted = sorted(set(ids))
        found: list[str] = []
        with self._writing() as connection:
            for first in range(0, len(wanted), _AT_ONCE):
                some = table.c.id.in_(wanted[first : first + _AT_ONCE])
                query = sa.select(table.c.id, table.c.state).where(some).order_by(table.c.id)
                rows = connection.execute(query.with_for_update()).all()
                if any(row.state in LIVE for row in rows):
                    raise InUseError("an episode that is being played cannot be deleted")
                connection.execute(sa.delete(table).where(some))
                found += [row.id for row in rows]
        return found

    def judge_episode(
        self,
        episode_id: str,
        state: EpisodeState | None = None,
        *,
        success: bool | msgspec.UnsetType | None = msgspec.UNSET,
        by: str = "",
    ) -> Episode:
        """Says what an episode is worth, after its player; `verdicts` has what was said before.

        Args:
          episode_id: The episode.
          state: What it is; None for what it is already.
          success: Whether it worked, if that is said.
          by: Who says it: the identifier of a person.

        Raises:
          NotFoundError: There is none of this identifier.
          InUseError: It is being played, or its player has yet to judge it.
          StoreError: The state says nothing of its worth.
        """
        table = tables.episodes
        with self._writing() as connection:
            current = _episode(connection, episode_id, lock=True)
            if current.state in LIVE:
                raise InUseError("the player has not kept or discarded this episode yet")
            if state not in (None, current.state, *JUDGED):
                raise StoreError(f"verdict: expected one of {', '.join(JUDGED)}")
            new = msgspec.structs.replace(
                current,
                state=current.state if state is None else state,
                success=current.success if success is msgspec.UNSET else success,
            )
            said = _verdicts(connection, episode_id)
            players = Verdict(
                state=current.state,
                success=current.success,
                author=current.person,
                created=current.started + current.seconds,
            )
            first = [] if said or current.state not in JUDGED else [players]
            # Later than what was said before, whatever the clock says.
            latest = max((one.created for one in (*said, *first)), default=0.0)
            now = max(self._clock(), latest + 1e-6)
            mine = Verdict(state=new.state, success=new.success, author=by, created=now)
            _add_verdicts(connection, episode_id, [*first, mine])
            change = sa.update(table).where(table.c.id == episode_id)
            connection.execute(change.values(state=new.state.value, success=new.success))
        return new

    def verdicts(self, episode_id: str) -> list[Verdict]:
        """Returns what was said an episode is worth, in that order; that of its player first.

        There are none as long as nobody but the player said so.
        """
        with self._reading() as connection:
            return _verdicts(connection, episode_id)

    def add_verdicts(self, episode_id: str, verdicts: Iterable[Verdict]) -> None:
        """Adds verdicts as they are, of an episode that is brought back."""
        with self._writing() as connection:
            _add_verdicts(connection, episode_id, verdicts)

    def set_notes(self, episode_id: str, notes: str, version: int) -> Episode:
        """Replaces the notes on an episode.

        Args:
          episode_id: The episode.
          notes: What they are now.
          version: The version of the episode whose notes were edited.

        Raises:
          NotFoundError: There is none of this identifier.
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
        return new

    def tags(self, episode_id: str) -> list[AnnotatedRange]:
        """Returns the tags of an episode: of the whole of it first, then by their first step.

        Raises:
          NotFoundError: There is no episode of this identifier.
        """
        table = tables.tags
        of = sa.and_(table.c.episode == episode_id, _there)
        first = table.c.first.asc().nulls_first()
        order = (first, table.c.last, table.c.label, table.c.created, table.c.id)
        with self._reading() as connection:
            rows = connection.execute(sa.select(table).where(of).order_by(*order)).all()
            if not rows:
                _episode(connection, episode_id)
            return [from_row(AnnotatedRange, row) for row in rows]

    def add_tag(
        self,
        episode_id: str,
        label: str,
        first: int | None = None,
        last: int | None = None,
        by: str = "",
    ) -> AnnotatedRange:
        """Tags an episode or steps of it.

        Args:
          episode_id: The episode.
          label: The tag.
          first: The first step; None for the episode as a whole.
          last: The last step, included; the first one by default.
          by: Who does it: the identifier of a person.

        Returns:
          The tag; the one that is there if it has the same already.

        Raises:
          NotFoundError: There is no episode of this identifier.
          StoreError: The episode has no such steps, or the label is blank or too long.
        """
        check_names(label)
        last = first if last is None else last
        table = tables.tags
        with self._writing() as connection:
            episode = _episode(connection, episode_id, lock=True)
            if (first is None) != (last is None):
                raise StoreError("a range of steps needs a first step")
            if first is not None and last is not None:
                num_steps = episode.num_steps
                if not 0 <= first <= last < num_steps:
                    raise StoreError(f"steps {first} to {last}: the episode has {num_steps} steps")
            new = AnnotatedRange(
                id=new_identifier(),
                episode=episode_id,
                label=label,
                first=first,
                last=last,
                author=by,
                created=self._clock(),
            )
            values = to_row(new)
            same = [table.c[name].is_not_distinct_from(values[name]) for name in ("first", "last")]
            same += [table.c.episode == episode_id, table.c.label == label, _there]
            row = connection.execute(sa.select(table).where(*same)).first()
            if row is not None:
                return from_row(AnnotatedRange, row)
            connection.execute(sa.insert(table).values(values))
        return new

    def remove_tag(self, tag_id: str, by: str = "") -> AnnotatedRange:
        """Takes a tag away; `restore_tag` brings it back. Does nothing if it is away.

        Args:
          tag_id: The tag.
          by: Who does it: the identifier of a person.

        Raises:
          NotFoundError: There is none of this identifier, and was none.
        """
        return self._mark_tag(tag_id, _there, removed=self._clock(), removed_by=by)

    def restore_tag(self, tag_id: str, by: str = "") -> AnnotatedRange:
        """Brings a tag back as it was. Does nothing if it is there.

        Args:
          tag_id: The tag.
          by: Who does it: the identifier of a person.

        Raises:
          NotFoundError: There is none of this identifier, and was none.
        """
        return self._mark_tag(tag_id, sa.not_(_there), removed=None, removed_by=None)

    def _mark_tag(self, tag_id: str, if_: sa.ColumnElement[bool], **marks: Any) -> AnnotatedRange:
        table = tables.tags
        with self._writing() as connection:
            this = table.c.id == tag_id
            connection.execute(sa.update(table).where(this, if_).values(marks))
            row = connection.execute(sa.select(table).where(this)).first()
            if row is None:
                raise NotFoundError("this tag does not exist")
            return from_row(AnnotatedRange, row)


def _where(query: EpisodeQuery) -> list[sa.ColumnElement[bool]]:
    to_row(query)
    table = tables.episodes
    found = [
        table.c[name] == value
        for name in ("study", "environment", "person", "success", "is_practice")
        if (value := getattr(query, name)) is not None
    ]
    if isinstance(query.state, EpisodeState):
        found.append(table.c.state == query.state.value)
    elif query.state is not None:
        found.append(table.c.state.in_([state.value for state in query.state]))
    if query.label is not None and query.queue != "unlabelled":
        tagged = sa.select(tables.tags.c.episode).where(tables.tags.c.label == query.label, _there)
        found.append(table.c.id.in_(tagged))
    if query.queue == "unlabelled":
        tagged = sa.select(tables.tags.c.episode).where(_there)
        if query.label is not None:
            tagged = tagged.where(tables.tags.c.label == query.label)
        found.append(table.c.id.not_in(tagged))
    elif query.queue is not None:
        found += [
            table.c.state.in_(JUDGED),
            table.c.id.not_in(sa.select(tables.verdicts.c.episode)),
        ]
        if query.queue == "disagreement":
            found[-2:] = [table.c.id.in_(_disputed())]
    if query.since is not None:
        found.append(table.c.started >= query.since)
    if query.until is not None:
        found.append(table.c.started < query.until)
    return found


def _disputed() -> sa.Select[Any]:
    """The episodes of whose worth the last words of two people differ."""
    one, later = tables.verdicts, tables.verdicts.alias()
    is_theirs = sa.and_(later.c.episode == one.c.episode, later.c.author == one.c.author)
    is_last = ~sa.exists().where(is_theirs, later.c.created > one.c.created)
    success = sa.case((one.c.success.is_(None), "?"), (one.c.success, "+"), else_="-")
    said = sa.func.count(sa.distinct(one.c.state + success))
    return sa.select(one.c.episode).where(is_last).group_by(one.c.episode).having(said > 1)


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


def _episode(connection: sa.Connection, episode_id: str, *, lock: bool = False) -> Episode:
    query = sa.select(tables.episodes).where(tables.episodes.c.id == episode_id)
    row = connection.execute(query.with_for_update() if lock else query).first()
    if row is None:
        raise NotFoundError("this episode does not exist")
    return _with_labels(connection, [row])[0]


def _verdicts(connection: sa.Connection, episode_id: str) -> list[Verdict]:
    table = tables.verdicts
    query = sa.select(table).where(table.c.episode == episode_id).order_by(table.c.created)
    return [from_row(Verdict, row) for row in connection.execute(query)]


def _add_verdicts(connection: sa.Connection, episode_id: str, verdicts: Iterable[Verdict]) -> None:
    for one in verdicts:
        row = {"id": new_identifier(), "episode": episode_id, **to_row(one)}
        connection.execute(sa.insert(tables.verdicts).values(row))


def _with_labels(connection: sa.Connection, rows: list[Any] | Any) -> list[Episode]:
    table = tables.tags
    query = sa.select(table.c.episode, table.c.label).distinct()
    query = query.where(table.c.episode.in_([row.id for row in rows]), _there)
    labels: dict[str, list[str]] = {}
    for episode, label in connection.execute(query):
        labels.setdefault(episode, []).append(label)
    return [from_row(Episode, row, labels=sorted(labels.get(row.id, ()))) for row in rows]
