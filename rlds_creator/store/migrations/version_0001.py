"""The tables of the first release."""

from __future__ import annotations

__all__ = ["revision", "upgrade"]

revision = "0001"
down_revision = None


def upgrade() -> None:
    """Does nothing: there is no older version."""
