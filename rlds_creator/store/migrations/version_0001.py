"""The first tables."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

__all__ = ["revision", "upgrade"]

revision = "0001"
down_revision = None


def upgrade() -> None:
    """Makes the tables."""
    op.create_table(
        "people",
        sa.Column("id", sa.Text, nullable=False),
        sa.Column("name", sa.Text, nullable=False),
        sa.Column("role", sa.Text, nullable=False),
        sa.Column("created", sa.Double, nullable=False),
        sa.Column("is_disabled", sa.Boolean, nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_people"),
    )
    op.create_table(
        "logins",
        sa.Column("token_hash", sa.Text, nullable=False),
        sa.Column("person", sa.Text, nullable=False),
        sa.Column("created", sa.Double, nullable=False),
        sa.Column("expires", sa.Double, nullable=False),
        sa.PrimaryKeyConstraint("token_hash", name="pk_logins"),
        sa.ForeignKeyConstraint(
            ["person"], ["people.id"], name="fk_logins_person", ondelete="CASCADE"
        ),
    )
    op.create_table(
        "invites",
        sa.Column("id", sa.Text, nullable=False),
        sa.Column("token_hash", sa.Text, nullable=False),
        sa.Column("role", sa.Text, nullable=False),
        sa.Column("name", sa.Text, nullable=False),
        sa.Column("creator", sa.Text, nullable=False),
        sa.Column("created", sa.Double, nullable=False),
        sa.Column("expires", sa.Double, nullable=False),
        sa.Column("uses_left", sa.Integer, nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_invites"),
        sa.UniqueConstraint("token_hash", name="uq_invites_token_hash"),
    )
    op.create_table(
        "studies",
        sa.Column("id", sa.Text, nullable=False),
        sa.Column("name", sa.Text, nullable=False),
        sa.Column("description", sa.Text, nullable=False),
        sa.Column("instructions", sa.Text, nullable=False),
        sa.Column("state", sa.Text, nullable=False),
        sa.Column("environments", sa.JSON, nullable=False),
        sa.Column("removed_environments", sa.JSON, nullable=False),
        sa.Column("assignment", sa.Text, nullable=False),
        sa.Column("quota", sa.BigInteger),
        sa.Column("labels", sa.JSON, nullable=False),
        sa.Column("creator", sa.Text, nullable=False),
        sa.Column("created", sa.Double, nullable=False),
        sa.Column("version", sa.Integer, nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_studies"),
    )
    op.create_table(
        "episodes",
        sa.Column("id", sa.Text, nullable=False),
        sa.Column("study", sa.Text, nullable=False),
        sa.Column("environment", sa.Text, nullable=False),
        sa.Column("session", sa.Text, nullable=False),
        sa.Column("person", sa.Text, nullable=False),
        sa.Column("number", sa.BigInteger, nullable=False),
        sa.Column("state", sa.Text, nullable=False),
        sa.Column("reason", sa.Text, nullable=False),
        sa.Column("success", sa.Boolean),
        sa.Column("num_steps", sa.BigInteger, nullable=False),
        sa.Column("total_reward", sa.Double),
        sa.Column("started", sa.Double, nullable=False),
        sa.Column("seconds", sa.Double, nullable=False),
        sa.Column("notes", sa.Text, nullable=False),
        sa.Column("version", sa.Integer, nullable=False),
        sa.Column("error", sa.Text, nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_episodes"),
        sa.ForeignKeyConstraint(
            ["study"], ["studies.id"], name="fk_episodes_study", ondelete="CASCADE"
        ),
        sa.ForeignKeyConstraint(["person"], ["people.id"], name="fk_episodes_person"),
    )
    op.create_index("ix_episodes_study_started", "episodes", ["study", "started"])
    op.create_index("ix_episodes_person_study", "episodes", ["person", "study"])
    op.create_index("ix_episodes_started", "episodes", ["started"])
    op.create_table(
        "tags",
        sa.Column("id", sa.Text, nullable=False),
        sa.Column("episode", sa.Text, nullable=False),
        sa.Column("label", sa.Text, nullable=False),
        sa.Column("first", sa.BigInteger),
        sa.Column("last", sa.BigInteger),
        sa.Column("author", sa.Text, nullable=False),
        sa.Column("created", sa.Double, nullable=False),
        sa.Column("removed", sa.Double),
        sa.Column("removed_by", sa.Text),
        sa.PrimaryKeyConstraint("id", name="pk_tags"),
        sa.ForeignKeyConstraint(
            ["episode"], ["episodes.id"], name="fk_tags_episode", ondelete="CASCADE"
        ),
    )
    op.create_index("ix_tags_episode_label", "tags", ["episode", "label"])
    op.create_index("ix_tags_label", "tags", ["label"])
    op.create_table(
        "exports",
        sa.Column("id", sa.Text, nullable=False),
        sa.Column("person", sa.Text, nullable=False),
        sa.Column("request", sa.JSON, nullable=False),
        sa.Column("state", sa.Text, nullable=False),
        sa.Column("progress", sa.Double, nullable=False),
        sa.Column("num_bytes", sa.BigInteger, nullable=False),
        sa.Column("error", sa.Text, nullable=False),
        sa.Column("created", sa.Double, nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_exports"),
        sa.ForeignKeyConstraint(["person"], ["people.id"], name="fk_exports_person"),
    )
    op.create_index("ix_exports_person_created", "exports", ["person", "created"])
