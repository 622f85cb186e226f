"""The tables, with a column for each field of their records, unless they are said to have others.

A change here needs a migration in `rlds_creator/store/migrations/`; a test compares. A time is in
seconds since 1970.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any

import msgspec
import sqlalchemy as sa
from msgspec import inspect

from rlds_creator.model import Consent, EpisodeRecord, ExportRecord, LabelRow, Person, Study
from rlds_creator.store.errors import StoreError
from rlds_creator.store.records import Invite

__all__ = [
    "consents",
    "episodes",
    "exports",
    "invites",
    "labels",
    "logins",
    "metadata",
    "people",
    "studies",
]


class _Text(sa.TypeDecorator[str]):
    """A text that every database can keep."""

    impl = sa.Text
    cache_ok = True

    def process_bind_param(self, value: str | None, dialect: Any) -> str | None:
        if value is not None:
            try:
                encoded = value.encode()
            except UnicodeEncodeError:
                raise StoreError("the text has half a character (a lone surrogate)") from None
            if b"\0" in encoded:
                raise StoreError("the text has a NUL character")
        return value


class _Number(sa.TypeDecorator[float]):
    """A number that may be NaN, which SQLite cannot keep: NULL in the database."""

    impl = sa.Double
    cache_ok = True

    def process_bind_param(self, value: float | None, dialect: Any) -> float | None:
        return None if value is None or math.isnan(value) else value

    def process_result_value(self, value: float | None, dialect: Any) -> float:
        return math.nan if value is None else value


metadata = sa.MetaData(
    naming_convention={
        "ix": "ix_%(table_name)s_%(column_0_N_name)s",
        "uq": "uq_%(table_name)s_%(column_0_N_name)s",
        "fk": "fk_%(table_name)s_%(column_0_N_name)s",
        "pk": "pk_%(table_name)s",
    }
)

_KINDS: Mapping[type[inspect.Type], Any] = {
    inspect.StrType: _Text,
    inspect.EnumType: _Text,
    inspect.LiteralType: _Text,
    inspect.BoolType: sa.Boolean,
    inspect.IntType: sa.BigInteger,
    inspect.FloatType: sa.Double,
}
_SMALL_INTEGERS = ("practice", "uses_left", "version")


def _column(name: str, kind: Any, *more: Any, **options: Any) -> sa.Column[Any]:
    return sa.Column(name, kind, *more, **{"nullable": False, **options})


def _of(table: str, cascades: bool = True) -> sa.Column[Any]:
    """The row of another table that a row is of."""
    key = sa.ForeignKey(f"{table}.id", ondelete="CASCADE" if cascades else None)
    return _column({"people": "person", "studies": "study"}.get(table, table[:-1]), _Text, key)


def _columns(record: type[msgspec.Struct], given: set[str]) -> Iterator[sa.Column[Any]]:
    for field in inspect.type_info(record).fields:  # type: ignore[attr-defined]
        kinds = getattr(field.type, "types", (field.type,))
        needed = [kind for kind in kinds if not isinstance(kind, inspect.NoneType)]
        kind = sa.Integer if field.name in _SMALL_INTEGERS else _KINDS.get(type(needed[0]), sa.JSON)
        if field.name not in given:
            is_key, is_optional = field.name == "id", len(needed) < len(kinds)
            yield _column(field.name, kind, nullable=is_optional, primary_key=is_key)


def _table(name: str, record: type[msgspec.Struct], *more: Any, leave_out: str = "") -> sa.Table:
    given = {item.name for item in more if isinstance(item, sa.Column)}
    return sa.Table(name, metadata, *_columns(record, {*given, leave_out}), *more)


people = _table("people", Person)

# Where a person is logged in: in one browser.
logins = sa.Table(
    "logins",
    metadata,
    sa.Column("token_hash", _Text, primary_key=True),
    _of("people"),
    _column("created", sa.Double),
    _column("expires", sa.Double),
)

invites = _table("invites", Invite, _column("token_hash", _Text, unique=True))

# Environments that are not in the study any more: their episodes still are.
studies = _table("studies", Study, _column("removed_environments", sa.JSON))

# The consents of people to texts; never changed, also if the text of the study changes.
consents = _table(
    "consents",
    Consent,
    _column("id", _Text, primary_key=True),
    _of("studies"),
    _of("people", cascades=False),
    sa.Index(None, "study", "person"),
)

episodes = _table(
    "episodes",
    EpisodeRecord,
    _of("studies"),
    _of("people", cascades=False),
    sa.Column("total_reward", _Number),
    sa.Index(None, "study", "started"),
    sa.Index(None, "person", "study"),
    sa.Index(None, "started"),
    leave_out="labels",
)

# Rows are only added; the mark of the current ones is the only column that changes.
labels = _table(
    "labels",
    LabelRow,
    _of("episodes"),
    sa.Column("value", _Text),
    _column("holds", sa.Boolean),
    sa.Index(None, "episode", "at"),
    sa.Index(None, "layer", "holds"),
)

exports = _table(
    "exports", ExportRecord, _of("people", cascades=False), sa.Index(None, "person", "created")
)
