"""Database queries of people, invites and logins."""

from __future__ import annotations

import secrets

import msgspec
import sqlalchemy as sa

from rlds_creator.identifiers import hash_token, new_identifier
from rlds_creator.model import Person, Role
from rlds_creator.store import tables
from rlds_creator.store.database import Database, delete, row_of
from rlds_creator.store.errors import InUseError, RecordNotFoundError
from rlds_creator.store.records import Invite, from_row, to_row

__all__ = ["People"]

_DAY_S = 86_400.0
# The random bytes of tokens in links and cookies.
_TOKEN_BYTES = 16
_LOGIN_SECONDS = 30 * _DAY_S


class People(Database):
    """People, invites and logins."""

    def add_person(self, name: str, role: Role) -> Person:
        """Adds a person."""
        with self._writing() as connection:
            return self._add_person(connection, name, role)

    def _add_person(
        self, connection: sa.Connection, name: str, role: Role, study: str = ""
    ) -> Person:
        now = self._clock()
        person = Person(id=new_identifier(), name=name, role=role, created=now, study=study)
        connection.execute(sa.insert(tables.people).values(to_row(person)))
        return person

    def people(self) -> list[Person]:
        """Returns all people, in the order in which they joined."""
        table = tables.people
        return self._select(Person, sa.select(table).order_by(table.c.created, table.c.id))

    def change_person(
        self, person_id: str, role: Role | None = None, is_disabled: bool | None = None
    ) -> Person:
        """Changes the permissions of a person; None leaves an attribute unchanged.

        Raises:
          RecordNotFoundError: The person does not exist.
          InUseError: The person is the last owner.
        """
        table = tables.people
        with self._writing() as connection:
            # All owners are locked, so that two owners cannot disable each other.
            is_owner = sa.and_(table.c.role == Role.OWNER, sa.not_(table.c.is_disabled))
            query = sa.select(table.c.id).where(is_owner).order_by(table.c.id).with_for_update()
            owners = set(connection.scalars(query))
            person = from_row(Person, row_of(connection, table, person_id, lock=True))
            new = msgspec.structs.replace(
                person,
                role=person.role if role is None else role,
                is_disabled=person.is_disabled if is_disabled is None else is_disabled,
            )
            if owners == {person_id} and (new.role != Role.OWNER or new.is_disabled):
                raise InUseError(f"{person.name} is the only owner. Add another owner first.")
            changes = {"role": new.role.value, "is_disabled": new.is_disabled}
            connection.execute(sa.update(table).where(table.c.id == person_id).values(changes))
        return new

    def invite(
        self,
        role: Role,
        name: str = "",
        uses: int = 1,
        expires: float | None = None,
        by: str = "",
        study: str = "",
    ) -> tuple[str, str]:
        """Creates an invite.

        Args:
          role: The role of people who accept it.
          name: The name of the invited person.
          uses: The number of people who can accept it.
          expires: The time at which it expires; a week from now by default.
          by: The identifier of the person who creates the invite.
          study: The only study that the invited people see; "" for all enabled studies.

        Returns:
          The identifier and the token of the invite. Only a hash of the token is stored.
        """
        token, now = secrets.token_urlsafe(_TOKEN_BYTES), self._clock()
        invite = Invite(
            id=new_identifier(),
            role=role,
            name=name,
            creator=by,
            created=now,
            expires=now + 7 * _DAY_S if expires is None else expires,
            uses_left=uses,
            study=study,
        )
        table = tables.invites
        with self._writing() as connection:
            connection.execute(sa.delete(table).where(table.c.expires <= now))
            row = {**to_row(invite), "token_hash": hash_token(token)}
            connection.execute(sa.insert(table).values(row))
        return invite.id, token

    def invites(self) -> list[Invite]:
        """Returns the invites that can still be used, the newest first."""
        table = tables.invites
        query = sa.select(table).where(table.c.expires > self._clock())
        return self._select(Invite, query.order_by(table.c.created.desc(), table.c.id))

    def revoke_invite(self, invite_id: str) -> None:
        """Revokes an invite; people who have accepted it stay.

        Raises:
          RecordNotFoundError: The invite does not exist; it may be used up.
        """
        with self._writing() as connection:
            delete(connection, tables.invites, invite_id)

    def accept_invite(self, token: str, name: str = "") -> tuple[Person, str]:
        """Adds a person by an invite, and logs them in.

        Args:
          token: The token of the invite.
          name: The name of the person; the name in the invite by default.

        Returns:
          A new person, and the token of their login.

        Raises:
          RecordNotFoundError: The invite is used up, has expired, was revoked or never existed.
        """
        table = tables.invites
        with self._writing() as connection:
            is_invite = table.c.token_hash == hash_token(token)
            is_usable = sa.and_(is_invite, table.c.expires > self._clock())
            row = connection.execute(sa.select(table).where(is_usable).with_for_update()).first()
            if row is None:
                raise RecordNotFoundError("this link was used or has expired. Ask for a new one.")
            is_invite = table.c.id == row.id
            if row.uses_left > 1:
                changes = {"uses_left": table.c.uses_left - 1}
                connection.execute(sa.update(table).where(is_invite).values(changes))
            else:
                connection.execute(sa.delete(table).where(is_invite))
            person = self._add_person(connection, name or row.name, Role(row.role), row.study)
            return person, self._start_login(connection, person.id)

    def _start_login(self, connection: sa.Connection, person_id: str) -> str:
        token, now, table = secrets.token_urlsafe(_TOKEN_BYTES), self._clock(), tables.logins
        connection.execute(sa.delete(table).where(table.c.expires <= now))
        row = {"token_hash": hash_token(token), "person": person_id}
        times = {"created": now, "expires": now + _LOGIN_SECONDS}
        connection.execute(sa.insert(table).values(row | times))
        return token

    def person_of(self, token: str) -> Person | None:
        """Returns the person of a login token, and extends the login by 30 days.

        Returns:
          None if the token is invalid, the login has ended, or the person is disabled.
        """
        now = self._clock()
        table = tables.logins
        is_login = table.c.token_hash == hash_token(token)
        is_usable = sa.and_(is_login, table.c.expires > now, sa.not_(tables.people.c.is_disabled))
        query = sa.select(tables.people, table.c.expires).join(table).where(is_usable)
        with self._reading() as connection:
            row = connection.execute(query).first()
        if row is None:
            return None
        if row.expires < now + _LOGIN_SECONDS - _DAY_S:  # Once a day saves writes.
            with self._writing() as connection:
                changes = {"expires": now + _LOGIN_SECONDS}
                connection.execute(sa.update(table).where(is_login).values(changes))
        return from_row(Person, row)

    def end_login(self, token: str) -> None:
        """Ends a login; does nothing if the token is invalid."""
        table = tables.logins
        with self._writing() as connection:
            connection.execute(sa.delete(table).where(table.c.token_hash == hash_token(token)))
