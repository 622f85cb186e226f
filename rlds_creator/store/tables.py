"""The tables. A change here needs a migration in `rlds_creator/store/migrations/`; a test compares.

A time is in seconds since 1970.
"""

from __future__ import annotations

import math
from typing import Any

import sqlalchemy as sa

from rlds_creator.store.errors import StoreError

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


def _key() -> sa.Column[str]:
    return sa.Column("id", _Text, primary_key=True)


def _column(name: str, kind: Any, *more: Any, **options: Any) -> sa.Column[Any]:
    return sa.Column(name, kind, *more, **{"nullable": False, **options})


people = sa.Table(
    "people",
    metadata,
    _key(),
    _column("name", _Text),
    _column("role", _Text),
    _column("created", sa.Double),
    _column("is_disabled", sa.Boolean),
    _column("study", _Text),
)

# Where a person is logged in: in one browser.
logins = sa.Table(
    "logins",
    metadata,
    sa.Column("token_hash", _Text, primary_key=True),
    _column("person", _Text, sa.ForeignKey("people.id", ondelete="CASCADE")),
    _column("created", sa.Double),
    _column("expires", sa.Double),
)

invites = sa.Table(
    "invites",
    metadata,
    _key(),
    _column("token_hash", _Text, unique=True),
    _column("role", _Text),
    _column("name", _Text),
    _column("creator", _Text),
    _column("created", sa.Double),
    _column("expires", sa.Double),
    _column("uses_left", sa.Integer),
    _column("study", _Text),
)

studies = sa.Table(
    "studies",
    metadata,
    _key(),
    _column("name", _Text),
    _column("description", _Text),
    _column("instructions", _Text),
    _column("state", _Text),
    _column("environments", sa.JSON),
    # Environments that are not in the study any more: their episodes still are.
    _column("removed_environments", sa.JSON),
    _column("assignment", _Text),
    sa.Column("quota", sa.BigInteger),
    sa.Column("total_quota", sa.BigInteger),
    _column("practice", sa.Integer),
    _column("consent", _Text),
    _column("labels", sa.JSON),
    _column("creator", _Text),
    _column("created", sa.Double),
    _column("version", sa.Integer),
)

# Who agreed to which text: nobody changes it, also when the study has another text.
consents = sa.Table(
    "consents",
    metadata,
    _key(),
    _column("study", _Text, sa.ForeignKey("studies.id", ondelete="CASCADE")),
    _column("person", _Text, sa.ForeignKey("people.id")),
    _column("text", _Text),
    _column("created", sa.Double),
    sa.Index(None, "study", "person"),
)

episodes = sa.Table(
    "episodes",
    metadata,
    _key(),
    _column("study", _Text, sa.ForeignKey("studies.id", ondelete="CASCADE")),
    _column("environment", _Text),
    _column("session", _Text),
    _column("person", _Text, sa.ForeignKey("people.id")),
    _column("number", sa.BigInteger),
    _column("state", _Text),
    _column("reason", _Text),
    sa.Column("success", sa.Boolean),
    _column("num_steps", sa.BigInteger),
    sa.Column("total_reward", _Number),
    _column("started", sa.Double),
    _column("seconds", sa.Double),
    _column("notes", _Text),
    _column("version", sa.Integer),
    _column("is_practice", sa.Boolean),
    _column("error", _Text),
    sa.Index(None, "study", "started"),
    sa.Index(None, "person", "study"),
    sa.Index(None, "started"),
)

# Rows are added, and none is changed, but for the mark of those that hold.
labels = sa.Table(
    "labels",
    metadata,
    _key(),
    _column("episode", _Text, sa.ForeignKey("episodes.id", ondelete="CASCADE")),
    _column("layer", _Text),
    _column("type", _Text),
    sa.Column("value", _Text),
    sa.Column("begin", sa.BigInteger),
    sa.Column("end", sa.BigInteger),
    _column("annotator", _Text),
    _column("at", sa.Double),
    _column("tool", _Text),
    sa.Column("retracts", _Text),
    _column("holds", sa.Boolean),
    sa.Index(None, "episode", "at"),
    sa.Index(None, "layer", "holds"),
)

exports = sa.Table(
    "exports",
    metadata,
    _key(),
    _column("person", _Text, sa.ForeignKey("people.id")),
    _column("request", sa.JSON),
    _column("state", _Text),
    _column("progress", sa.Double),
    _column("num_bytes", sa.BigInteger),
    _column("error", _Text),
    _column("created", sa.Double),
    sa.Index(None, "person", "created"),
)
