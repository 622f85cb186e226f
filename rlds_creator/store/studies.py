"""Database queries of studies: environments, consents and statistics."""

from __future__ import annotations

import random
import secrets
from collections.abc import Iterable
from typing import Any

import msgspec
import sqlalchemy as sa

from rlds_creator.identifiers import new_identifier
from rlds_creator.model import Assignment, Consent, Environment, EpisodeState, Study, StudyState
from rlds_creator.store import tables
from rlds_creator.store.database import Database, row_of
from rlds_creator.store.errors import (
    InUseError,
    QuotaError,
    RecordNotFoundError,
    StaleError,
    StoreError,
)
from rlds_creator.store.records import (
    ConsentPage,
    Counts,
    EnvironmentStatistics,
    PersonConsent,
    PersonStatistics,
    StudyStatistics,
    check_names,
    from_row,
    to_row,
)

__all__ = ["LIVE_STATES", "Studies"]

# The states of episodes that are running, or wait for a verdict.
LIVE_STATES = (EpisodeState.PLAYING.value, EpisodeState.ENDED.value)

_num_episodes = sa.func.count()
_is_completed = sa.and_(
    tables.episodes.c.state == EpisodeState.COMPLETED.value, sa.not_(tables.episodes.c.is_practice)
)
_num_completed = sa.func.count().filter(_is_completed)


class Studies(Database):
    """Studies."""

    def save_study(self, study: Study, by: str = "") -> Study:
        """Adds a study, or replaces the stored one.

        Args:
          study: A new study if its `id` is empty; else an edit of its `version`. Environments
            without an identifier of this study get a new one. An edit does not change the state
            (see `set_study_state`), the creator and the time of creation.
          by: The identifier of the acting person.

        Returns:
          The stored study.

        Raises:
          StaleError: Somebody else has edited the study since that version.
          RecordNotFoundError: The study does not exist.
          StoreError: Two environments have the same identifier, a name is blank, or a field has a
            value that its type does not allow.
        """
        check_names(study.name, *(env.name for env in study.environments))
        check_names(*(label.name for label in study.labels))
        table = tables.studies
        with self._writing() as connection:
            old_envs: dict[str, Environment] = {}
            id, state, now = new_identifier(), study.state, self._clock()
            current = Study(id=id, name=study.name, state=state, creator=by, created=now)
            if study.id:
                row = _study_row(connection, study.id, lock=True)
                current, old_envs = from_row(Study, row), _environments(row)
                if current.version != study.version:
                    raise StaleError("somebody else has edited this study", current)
            environments = tuple(
                env if env.id in old_envs else msgspec.structs.replace(env, id=new_identifier())
                for env in study.environments
            )
            ids = {env.id for env in environments}
            if len(ids) < len(environments):
                raise StoreError("two environments of the study have the same identifier")
            fields = "id", "state", "creator", "created"
            constants = {name: getattr(current, name) for name in fields}
            new = msgspec.structs.replace(
                study, **constants, environments=environments, version=current.version + 1
            )
            values = to_row(new)
            removed = [env for id, env in old_envs.items() if id not in ids]
            values["removed_environments"] = msgspec.to_builtins(removed)
            if study.id:
                connection.execute(sa.update(table).where(table.c.id == new.id).values(values))
            else:
                connection.execute(sa.insert(table).values(values))
        return new

    def study(self, study_id: str) -> Study:
        """Returns a study.

        Raises:
          RecordNotFoundError: The study does not exist.
        """
        with self._reading() as connection:
            return from_row(Study, _study_row(connection, study_id))

    def studies(self) -> list[Study]:
        """Returns all studies, the newest first."""
        table = tables.studies
        return self._select(Study, sa.select(table).order_by(table.c.created.desc(), table.c.id))

    def environments(self, study_id: str) -> dict[str, Environment]:
        """Returns the environments of a study by their identifiers, including removed environments.

        Raises:
          RecordNotFoundError: The study does not exist.
        """
        with self._reading() as connection:
            return _environments(_study_row(connection, study_id))

    def set_study_state(self, study_id: str, state: StudyState) -> Study:
        """Enables or disables a study. Its version does not change.

        Raises:
          RecordNotFoundError: The study does not exist.
        """
        table = tables.studies
        with self._writing() as connection:
            change = sa.update(table).where(table.c.id == study_id)
            connection.execute(change.values(state=StudyState(state).value))
            return from_row(Study, _study_row(connection, study_id))

    def delete_study(self, study_id: str) -> list[str]:
        """Deletes a study, its episodes and their tags.

        Returns:
          The identifiers of the deleted episodes; the caller deletes their logs.

        Raises:
          RecordNotFoundError: The study does not exist.
          InUseError: Somebody is playing the study.
        """
        table = tables.episodes
        with self._writing() as connection:
            _study_row(connection, study_id, lock=True)
            query = sa.select(table.c.id, table.c.state).where(table.c.study == study_id)
            rows = connection.execute(query.order_by(table.c.started, table.c.id)).all()
            if any(row.state in LIVE_STATES for row in rows):
                raise InUseError("somebody is playing this study. Try again later.")
            connection.execute(sa.delete(tables.invites).where(tables.invites.c.study == study_id))
            connection.execute(sa.delete(tables.studies).where(tables.studies.c.id == study_id))
            return [row.id for row in rows]

    def choose_environment(
        self, study_id: str, person_id: str, environment_id: str | None = None
    ) -> Environment:
        """Chooses the environment of the next episode of a person.

        Args:
          study_id: The study.
          person_id: The person.
          environment_id: The identifier of the environment; None to let the study choose. It is
            required if the player chooses among several environments.

        Raises:
          RecordNotFoundError: The study or the environment does not exist.
          QuotaError: The quota of the person, or of the environments, is reached.
          StoreError: The player must choose an environment.
        """
        table = tables.episodes
        with self._reading() as connection:
            study = from_row(Study, _study_row(connection, study_id))
            if not study.environments:
                raise RecordNotFoundError("the study has no environments")
            full_ids = _full_environments(connection, study, person_id)
            choices = [choice for choice in study.environments if choice.id not in full_ids]
            if not choices:
                raise QuotaError("no more episodes of this study are needed from you")
            if environment_id is not None or study.assignment is Assignment.CHOICE:
                environment = _find_choice(study, environment_id)
                if environment.id in full_ids:
                    raise QuotaError("this environment has all its episodes. Choose another one.")
                return environment
            if study.assignment is Assignment.RANDOM:
                return secrets.choice(choices)
            is_own = sa.and_(table.c.person == person_id, table.c.study == study_id)
            in_practice = is_practice_next(connection, study_id, person_id)
            is_counted = is_own & (table.c.state != EpisodeState.REJECTED.value)
            is_counted &= table.c.is_practice == in_practice
            query = sa.select(table.c.environment, _num_episodes).where(is_counted)
            num_played = dict(map(tuple, connection.execute(query.group_by(table.c.environment))))
        if study.assignment is Assignment.BALANCED:
            # The order is fixed for a person, and differs among people.
            random.Random(f"{study_id} {person_id} {sum(num_played.values())}").shuffle(choices)
        return min(choices, key=lambda choice: num_played.get(choice.id, 0))

    def wants_more(self, study_id: str, person_id: str, environment_id: str) -> bool:
        """True if quotas allow a person another episode after one of an environment."""
        with self._reading() as connection:
            study = from_row(Study, _study_row(connection, study_id))
            full_ids = _full_environments(connection, study, person_id)
        has_open_environment = any(env.id not in full_ids for env in study.environments)
        return has_open_environment and (
            study.assignment is not Assignment.CHOICE or environment_id not in full_ids
        )

    def agree(self, study_id: str, person_id: str, text: str) -> Consent:
        """Stores the consent of a person to the text of a study.

        Raises:
          RecordNotFoundError: The study does not exist.
          StaleError: The text of the study has changed.
        """
        with self._writing() as connection:
            study = from_row(Study, _study_row(connection, study_id, lock=True))
            if text != study.consent:
                raise StaleError("the text has changed. Load the page again.", study)
            consent = Consent(text=text, created=self._clock())
            row = {"id": new_identifier(), "study": study_id, "person": person_id}
            connection.execute(sa.insert(tables.consents).values({**row, **to_row(consent)}))
        return consent

    def consent(self, study_id: str, person_id: str, until: float) -> Consent | None:
        """Returns the last consent of a person to a study, up to a time."""
        table = tables.consents
        is_consent = sa.and_(table.c.study == study_id, table.c.person == person_id)
        query = sa.select(table).where(is_consent, table.c.created <= until)
        with self._reading() as connection:
            row = connection.execute(query.order_by(table.c.created.desc()).limit(1)).first()
            return None if row is None else from_row(Consent, row)

    def consents(self, study_id: str, *, offset: int = 0, limit: int = 50) -> ConsentPage:
        """Returns the consents to a study, with their texts, the latest first.

        Raises:
          RecordNotFoundError: The study does not exist.
        """
        table, people = tables.consents, tables.people
        is_of_study = table.c.study == study_id
        query = sa.select(table, people.c.name).join(people).where(is_of_study)
        query = query.order_by(table.c.created.desc(), table.c.id).offset(offset).limit(limit)
        with self._reading() as connection:
            _study_row(connection, study_id)
            count = sa.select(sa.func.count()).select_from(table).where(is_of_study)
            total = connection.execute(count).scalar_one()
            consents = tuple(from_row(PersonConsent, row) for row in connection.execute(query))
        return ConsentPage(consents=consents, total=total)

    def counts(self, study_ids: Iterable[str], person_id: str = "") -> dict[str, Counts]:
        """Returns the episode counts of studies, by their identifiers.

        Args:
          study_ids: The studies.
          person_id: The person whose own counts are included.
        """
        table = tables.episodes
        ids = list(study_ids)
        mine = sa.func.count().filter(_is_completed, table.c.person == person_id)
        query = sa.select(table.c.study, _num_episodes, _num_completed, mine)
        query = query.where(table.c.study.in_(ids)).group_by(table.c.study)
        consent, study = tables.consents.c, tables.studies.c
        is_current = sa.and_(consent.study == study.id, consent.text == study.consent)
        times = sa.select(consent.study, sa.func.max(consent.created)).group_by(consent.study)
        times = times.where(is_current, consent.person == person_id, consent.study.in_(ids))
        names = ("num_episodes", "num_completed", "mine")
        with self._reading() as connection:
            agreed = dict(map(tuple, connection.execute(times)))
            counts = {id: dict(zip(names, values)) for id, *values in connection.execute(query)}
        return {id: Counts(**counts.get(id, {}), agreed=agreed.get(id)) for id in ids}

    def statistics(self, study_id: str) -> StudyStatistics:
        """Returns the statistics of the episodes of a study.

        Raises:
          RecordNotFoundError: The study does not exist.
        """
        table = tables.episodes
        with self._reading() as connection:
            row = _study_row(connection, study_id)
            steps = sa.func.sum(table.c.num_steps - 1)
            query = sa.select(
                table.c.environment.label("id"),
                _num_episodes.label("episodes"),
                _num_completed.label("completed"),
                sa.func.count().filter(_is_completed, table.c.success).label("success"),
                steps.filter(_is_completed).label("steps"),
                sa.func.avg(table.c.total_reward).filter(_is_completed).label("mean_reward"),
            ).where(table.c.study == study_id)
            rows = connection.execute(query.group_by(table.c.environment)).all()
            counts = {row.id: {**row._mapping, "steps": int(row.steps or 0)} for row in rows}
            names = {id: env.name for id, env in _environments(row).items()}
            current = [env["id"] for env in row.environments]
            environments = [
                EnvironmentStatistics(**{**counts.get(id, {"id": id}), "name": names.get(id, "")})
                for id in [*current, *sorted(counts.keys() - set(current))]
            ]
            key = table.c.person, tables.people.c.name
            episodes = _num_episodes.label("episodes"), _num_completed.label("completed")
            query = sa.select(*key, *episodes, sa.func.sum(table.c.seconds).label("seconds"))
            query = query.join(tables.people).where(table.c.study == study_id)
            query = query.group_by(*key).order_by(*reversed(key))
            people = [from_row(PersonStatistics, row) for row in connection.execute(query)]
        return StudyStatistics(environments=tuple(environments), people=tuple(people))


def _study_row(connection: sa.Connection, study_id: str, *, lock: bool = False) -> sa.Row[Any]:
    return row_of(connection, tables.studies, study_id, lock=lock)


def is_practice_next(connection: sa.Connection, study_id: str, person_id: str) -> bool:
    """True if the next episode of a person is practice; rejected episodes do not count."""
    table = tables.episodes
    quota_query = sa.select(tables.studies.c.practice).where(tables.studies.c.id == study_id)
    query = sa.select(_num_episodes).where(
        table.c.study == study_id,
        table.c.person == person_id,
        table.c.is_practice,
        table.c.state.in_([EpisodeState.COMPLETED.value, EpisodeState.CANCELLED.value]),
    )
    num_practice = connection.scalar(quota_query) or 0
    return num_practice > 0 and (connection.scalar(query) or 0) < num_practice


def _full_environments(connection: sa.Connection, study: Study, person_id: str) -> set[str]:
    """Returns the identifiers of the environments whose quota a person has reached."""
    table = tables.episodes
    mine = sa.func.count().filter(table.c.person == person_id)
    query = sa.select(table.c.environment, _num_episodes, mine)
    query = query.where(table.c.study == study.id, _is_completed).group_by(table.c.environment)
    rows = connection.execute(query).all()
    completed = {environment: total for environment, total, _ in rows}
    counts = sum(num_own for _, _, num_own in rows), sum(completed.values())
    for quota, count in zip((study.quota, study.total_quota), counts):
        if quota is not None and count >= quota:
            return {env.id for env in study.environments}
    quotas = {env.id: env.quota for env in study.environments if env.quota is not None}
    return {id for id, quota in quotas.items() if completed.get(id, 0) >= quota}


def _environments(row: sa.Row[Any]) -> dict[str, Environment]:
    rows = [*row.environments, *row.removed_environments]
    return {env.id: env for env in msgspec.convert(rows, list[Environment])}


def _find_choice(study: Study, environment_id: str | None) -> Environment:
    if environment_id is None:
        if len(study.environments) > 1:
            raise StoreError("choose one of the environments of the study")
        return study.environments[0]
    for env in study.environments:
        if env.id == environment_id:
            return env
    raise RecordNotFoundError("the study does not have this environment")
