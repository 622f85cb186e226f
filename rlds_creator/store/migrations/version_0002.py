"""The history of verdicts, with authors and times."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

__all__ = ["revision", "upgrade"]

revision = "0002"
down_revision = "0001"


def upgrade() -> None:
    """Adds the table of verdicts."""
    op.create_table(
        "verdicts",
        sa.Column("id", sa.Text, nullable=False),
        sa.Column("episode", sa.Text, nullable=False),
        sa.Column("state", sa.Text, nullable=False),
        sa.Column("success", sa.Boolean),
        sa.Column("author", sa.Text, nullable=False),
        sa.Column("created", sa.Double, nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_verdicts"),
        sa.ForeignKeyConstraint(
            ["episode"], ["episodes.id"], name="fk_verdicts_episode_episodes", ondelete="CASCADE"
        ),
    )
    op.create_index("ix_verdicts_episode_created", "verdicts", ["episode", "created"])
