"""Studies: participants of one study, consent, practice, and total quotas."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

__all__ = ["revision", "upgrade"]

revision = "0003"
down_revision = "0002"


def upgrade() -> None:
    """Adds the columns, and the table of consents."""
    for table, name, kind, default in (
        ("people", "study", sa.Text, ""),
        ("invites", "study", sa.Text, ""),
        ("studies", "practice", sa.Integer, "0"),
        ("studies", "consent", sa.Text, ""),
        ("episodes", "is_practice", sa.Boolean, sa.false()),
    ):
        op.add_column(table, sa.Column(name, kind, nullable=False, server_default=default))
    op.add_column("studies", sa.Column("total_quota", sa.BigInteger))
    op.create_table(
        "consents",
        sa.Column("id", sa.Text, nullable=False),
        sa.Column("study", sa.Text, nullable=False),
        sa.Column("person", sa.Text, nullable=False),
        sa.Column("text", sa.Text, nullable=False),
        sa.Column("created", sa.Double, nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_consents"),
        sa.ForeignKeyConstraint(
            ["study"], ["studies.id"], name="fk_consents_study_studies", ondelete="CASCADE"
        ),
        sa.ForeignKeyConstraint(["person"], ["people.id"], name="fk_consents_person_people"),
    )
    op.create_index("ix_consents_study_person", "consents", ["study", "person"])
