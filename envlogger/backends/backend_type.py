"""The names of the built-in storage backends."""

from __future__ import annotations

import enum

__all__ = ["BackendType"]


class BackendType(enum.IntEnum):
    """Which storage backend records or is read."""

    RIEGELI = 0
    IN_MEMORY = 1
