"""People can enter for one study."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

__all__ = ["revision", "upgrade"]

revision = "0003"
down_revision = "0002"


def upgrade() -> None:
    """Adds the columns."""
    for table in ("people", "invites"):
        op.add_column(table, sa.Column("study", sa.Text, nullable=False, server_default=""))
