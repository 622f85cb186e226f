"""The tables of the database, with a column for each field of their records, and further columns.

A change here needs a migration in `rlds_creator/store/migrations/`; a test compares tables and
migrations. Times are in seconds since 1970.
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
    """A text, checked for characters that databases cannot store."""

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


class _NanDouble(sa.TypeDecorator[float]):
    """A float that may be NaN, which is NULL in the database: SQLite cannot store NaN."""

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

_SQL_TYPES: Mapping[type[inspect.Type], Any] = {
    inspect.StrType: _Text,
    inspect.EnumType: _Text,
    inspect.LiteralType: _Text,
    inspect.BoolType: sa.Boolean,
    inspect.IntType: sa.BigInteger,
    inspect.FloatType: sa.Double,
}
_SMALL_INTS = ("practice", "uses_left", "version")


def _column(name: str, kind: Any, *items: Any, **options: Any) -> sa.Column[Any]:
    return sa.Column(name, kind, *items, **{"nullable": False, **options})


def _reference(table: str, cascades: bool = True) -> sa.Column[Any]:
    """Returns a column with the identifier of a row of another table."""
    key = sa.ForeignKey(f"{table}.id", ondelete="CASCADE" if cascades else None)
    return _column({"people": "person", "studies": "study"}.get(table, table[:-1]), _Text, key)


def _columns(record: type[msgspec.Struct], leave_out: set[str]) -> Iterator[sa.Column[Any]]:
    for field in inspect.type_info(record).fields:  # type: ignore[attr-defined]
        kinds = getattr(field.type, "types", (field.type,))
        types = [kind for kind in kinds if not isinstance(kind, inspect.NoneType)]
        kind = sa.Integer if field.name in _SMALL_INTS else _SQL_TYPES.get(type(types[0]), sa.JSON)
        if field.name not in leave_out:
            is_key, is_optional = field.name == "id", len(types) < len(kinds)
            yield _column(field.name, kind, nullable=is_optional, primary_key=is_key)


def _table(name: str, record: type[msgspec.Struct], *items: Any, leave_out: str = "") -> sa.Table:
    names = {item.name for item in items if isinstance(item, sa.Column)}
    return sa.Table(name, metadata, *_columns(record, {*names, leave_out}), *items)


people = _table("people", Person)

# A login of a person in one browser.
logins = sa.Table(
    "logins",
    metadata,
    sa.Column("token_hash", _Text, primary_key=True),
    _reference("people"),
    _column("created", sa.Double),
    _column("expires", sa.Double),
)

invites = _table("invites", Invite, _column("token_hash", _Text, unique=True))

# Removed environments are kept, because their episodes still exist.
studies = _table("studies", Study, _column("removed_environments", sa.JSON))

# The consents of people to texts. Rows stay unchanged if the text of the study changes.
consents = _table(
    "consents",
    Consent,
    _column("id", _Text, primary_key=True),
    _reference("studies"),
    _reference("people", cascades=False),
    sa.Index(None, "study", "person"),
)

episodes = _table(
    "episodes",
    EpisodeRecord,
    _reference("studies"),
    _reference("people", cascades=False),
    sa.Column("total_reward", _NanDouble),
    sa.Index(None, "study", "started"),
    sa.Index(None, "person", "study"),
    sa.Index(None, "started"),
    leave_out="labels",
)

# Rows are added, not changed, except for `is_current`, which marks the valid row of each label.
labels = _table(
    "labels",
    LabelRow,
    _reference("episodes"),
    sa.Column("value", _Text),
    _column("holds", sa.Boolean, key="is_current"),
    sa.Index(None, "episode", "at"),
    sa.Index(None, "layer", "is_current"),
)

exports = _table(
    "exports",
    ExportRecord,
    _reference("people", cascades=False),
    sa.Index(None, "person", "created"),
)
