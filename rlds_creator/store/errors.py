"""Errors of a store, whose messages are shown to users, and contain no paths or addresses."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sqlalchemy.exc import DontWrapMixin

if TYPE_CHECKING:
    from rlds_creator.model import EpisodeRecord, Study

__all__ = ["InUseError", "QuotaError", "RecordNotFoundError", "StaleError", "StoreError"]


class StoreError(DontWrapMixin, Exception):
    """The operation failed; nothing has changed."""


class RecordNotFoundError(StoreError):
    """The record does not exist, or was deleted."""


class StaleError(StoreError):
    """Somebody else has edited the record in the meantime.

    Attributes:
      current: The current record.
    """

    def __init__(self, message: str, current: Study | EpisodeRecord) -> None:
        super().__init__(message)
        self.current = current


class QuotaError(StoreError):
    """The person has reached the quota of the study."""


class InUseError(StoreError):
    """A record cannot be deleted: it is in use, or is the last of its kind."""
