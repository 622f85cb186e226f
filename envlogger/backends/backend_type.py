"""The names of the built-in storage backends."""

from __future__ import annotations

import enum

__all__ = ["BackendType"]


class BackendType(enum.IntEnum):
    """The built-in storage backends, for recording and reading."""

    RIEGELI = 0
    IN_MEMORY = 1
