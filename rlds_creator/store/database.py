"""The connection to a database: opening, migration and transactions."""

from __future__ import annotations

import contextlib
import os
import sqlite3
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Self

import msgspec
import sqlalchemy as sa
from alembic.migration import MigrationContext
from alembic.operations import Operations
from alembic.script import ScriptDirectory

from rlds_creator.store import tables
from rlds_creator.store.errors import RecordNotFoundError, StoreError
from rlds_creator.store.records import Record, from_row

__all__ = ["Database", "delete", "row_of"]

# The nouns for rows of tables in messages.
_ROW_NOUNS = {"people": "person", "studies": "study", "episodes": "episode"}
_ROW_NOUNS |= {"labels": "label", "exports": "download", "invites": "invite"}
_MIGRATIONS_FOLDER = Path(__file__).parent / "migrations"
_SQLITE_SUFFIXES = (".sqlite", ".sqlite3", ".db")
_LOCK_TIMEOUT_S = 5.0
# An arbitrary number, which must be the same in all servers.
_MIGRATION_LOCK = 7_105_318_222


class Database:
    """A database with the newest tables.

    A block of `_reading` or `_writing` is one transaction. In a block of `_writing`, no other
    transaction changes rows that were read with `with_for_update`.
    """

    def __init__(self, engine: sa.Engine, clock: Callable[[], float]) -> None:
        self._engine = engine
        self._clock = clock
        self._writer = engine.execution_options(writes=True)
        # SQLite allows one writer at a time. Waiting writers poll in SQLite, some for seconds;
        # threads that wait for this lock do not.
        is_sqlite = engine.dialect.name == "sqlite"
        self._write_lock: contextlib.AbstractContextManager[Any] = (
            threading.Lock() if is_sqlite else contextlib.nullcontext()
        )

    @classmethod
    def open(
        cls, url: str | os.PathLike[str] = "sqlite://", *, clock: Callable[[], float] = time.time
    ) -> Self:
        """Opens a database; creates it if it does not exist, and migrates its tables.

        Args:
          url: The path of an SQLite file, which must end in .sqlite, .sqlite3 or .db if it is
            new; or a URL: `sqlite:///<path>`, `sqlite://` for a temporary database in memory, or
            `postgresql://<user>:<password>@<host>/<name>`.
          clock: A function that returns the time in seconds since 1970.

        Raises:
          StoreError: `url` is neither a URL nor an SQLite file, the database cannot be opened, or
            a newer release has changed its tables.
        """
        engine = _create_engine(url)
        try:
            _make_private(engine.url)
            _migrate(engine)
        except sa.exc.DBAPIError as error:
            engine.dispose()
            text = f"the database {_format_location(engine.url)} cannot be opened: {error.orig}"
            raise StoreError(text) from error
        except BaseException:
            engine.dispose()
            raise
        return cls(engine, clock)

    @property
    def location(self) -> str:
        """The path of the SQLite file, or the URL without its password."""
        return _format_location(self._engine.url)

    def close(self) -> None:
        """Closes all connections."""
        self._engine.dispose()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _select(self, kind: type[Record], query: sa.Select[Any]) -> list[Record]:
        """Returns the records of rows."""
        with self._reading() as connection:
            return [from_row(kind, row) for row in connection.execute(query)]

    def _reading(self) -> contextlib.AbstractContextManager[sa.Connection]:
        return self._engine.begin()

    @contextlib.contextmanager
    def _writing(self) -> Iterator[sa.Connection]:
        with self._write_lock, self._writer.begin() as connection:
            yield connection


def row_of(
    connection: sa.Connection, table: sa.Table, identifier: str, *, lock: bool = False
) -> sa.Row[Any]:
    """Returns the row with an identifier.

    Args:
      connection: The connection.
      table: The table.
      identifier: The identifier.
      lock: Whether the row is locked against changes until the transaction ends.

    Raises:
      RecordNotFoundError: There is no row with the identifier.
    """
    query = sa.select(table).where(table.c.id == identifier)
    row = connection.execute(query.with_for_update() if lock else query).first()
    if row is None:
        raise RecordNotFoundError(f"this {_ROW_NOUNS[table.name]} does not exist")
    return row


def delete(connection: sa.Connection, table: sa.Table, identifier: str) -> None:
    """Deletes a row; see `row_of`."""
    row_of(connection, table, identifier, lock=True)
    connection.execute(sa.delete(table).where(table.c.id == identifier))


def _create_engine(location: str | os.PathLike[str]) -> sa.Engine:
    text = os.fspath(location)
    if "://" in text:
        try:
            url = sa.make_url(text)
        except (sa.exc.ArgumentError, ValueError):
            problem = "--database: expected a URL: postgresql://USER:PASSWORD@HOST/NAME"
            raise StoreError(problem) from None
    elif text.endswith(_SQLITE_SUFFIXES) or os.path.isfile(text):
        url = sa.URL.create("sqlite", database=text)
    else:
        raise StoreError(
            f"--database: {text!r:.200} is neither a URL, such as postgresql://USER:PASSWORD@HOST/"
            f"NAME, nor a file that ends in {', '.join(_SQLITE_SUFFIXES)}"
        )
    options: dict[str, Any] = {
        "json_serializer": lambda value: msgspec.json.encode(value).decode(),
        "json_deserializer": msgspec.json.decode,
    }
    match url.get_backend_name():
        case "sqlite":
            url = url.set(drivername="sqlite+pysqlite")
            options["connect_args"] = {"timeout": _LOCK_TIMEOUT_S, "check_same_thread": False}
            if url.database in (None, "", ":memory:"):
                # All threads share the only connection that has the database in memory.
                options |= {"poolclass": sa.QueuePool, "pool_size": 1, "max_overflow": 0}
        case "postgresql":
            url = url.set(drivername="postgresql+psycopg")
            options["pool_pre_ping"] = True  # Finds connections lost in a restart.
        case other:
            raise StoreError(f"--database: expected sqlite or postgresql, got {other}")
    engine = sa.create_engine(url, **options)
    if engine.dialect.name == "sqlite":
        sa.event.listen(engine, "connect", _set_up_sqlite)
        sa.event.listen(engine, "begin", _begin_in_sqlite)
    return engine


def _format_location(url: sa.URL) -> str:
    if url.get_backend_name() == "sqlite":
        return os.path.abspath(url.database) if url.database else "sqlite://"
    # The query of a URL may have a password, too.
    public_url = url.set(drivername=url.get_backend_name(), query={})
    return public_url.render_as_string(hide_password=True)


def _make_private(url: sa.URL) -> None:
    """Restricts the permissions of an SQLite file to its owner, before it is opened."""
    file = url.database if url.get_backend_name() == "sqlite" else None
    if not file or file == ":memory:":
        return
    with contextlib.suppress(OSError):  # `sqlite3` raises a better error later.
        os.close(os.open(file, os.O_RDWR | os.O_CREAT, 0o600))
    for path in (file, f"{file}-wal", f"{file}-shm"):  # Old files may be public.
        with contextlib.suppress(OSError):
            os.chmod(path, 0o600)


def _set_up_sqlite(connection: Any, record: Any) -> None:
    connection.isolation_level = None  # Transactions begin in `_begin_in_sqlite`.
    _switch_to_wal(connection)
    for pragma in ("synchronous = FULL", "foreign_keys = ON"):
        connection.execute(f"PRAGMA {pragma}")


def _switch_to_wal(connection: sqlite3.Connection) -> None:
    # SQLite ignores its timeout here while another connection is about to write, so this retries.
    deadline = time.monotonic() + _LOCK_TIMEOUT_S
    while True:
        try:
            connection.execute("PRAGMA journal_mode = WAL")
            return
        except sqlite3.OperationalError as error:
            if error.sqlite_errorcode != sqlite3.SQLITE_BUSY or time.monotonic() > deadline:
                raise
            time.sleep(0.01)


def _begin_in_sqlite(connection: sa.Connection) -> None:
    # A transaction that reads first cannot write after a write of another transaction.
    writes = connection.get_execution_options().get("writes", False)
    connection.exec_driver_sql("BEGIN IMMEDIATE" if writes else "BEGIN")


@contextlib.contextmanager
def _begin_migration(engine: sa.Engine) -> Iterator[sa.Connection]:
    """Runs a transaction that can replace tables; other processes wait with their migrations."""
    if engine.dialect.name == "sqlite":
        with engine.execution_options(writes=True).connect() as connection:
            # SQLite replaces tables to change them. With foreign keys on, the drop of a table would
            # delete the rows that refer to it. The pragma has no effect in a transaction.
            driver: Any = connection.connection.dbapi_connection
            driver.execute("PRAGMA foreign_keys = OFF")
            with connection.begin():
                yield connection
            driver.execute("PRAGMA foreign_keys = ON")
    else:
        with engine.begin() as connection:
            connection.execute(sa.select(sa.func.pg_advisory_xact_lock(_MIGRATION_LOCK)))
            yield connection


def _migrate(engine: sa.Engine) -> None:
    scripts = ScriptDirectory(str(_MIGRATIONS_FOLDER), version_locations=[str(_MIGRATIONS_FOLDER)])
    newest = scripts.get_current_head()
    with _begin_migration(engine) as connection:
        context = MigrationContext.configure(connection)
        current = context.get_current_revision()
        if current == newest:
            return
        if current not in {None, *(script.revision for script in scripts.walk_revisions())}:
            raise StoreError(
                f"the database is of a newer release: its version is {current}, this release reads "
                f"up to {newest}. Install a newer release."
            )
        if current is None:
            tables.metadata.create_all(connection, checkfirst=False)
        else:
            with Operations.context(context):
                for script in reversed(list(scripts.iterate_revisions("head", current))):
                    script.module.upgrade()
        context.stamp(scripts, "head")
