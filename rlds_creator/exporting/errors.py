"""What can be wrong with an export, in words for whoever asked for it."""

from __future__ import annotations

__all__ = ["ExportError"]


class ExportError(ValueError):
    """An export cannot be made.

    The message names episodes by their identifiers and holds no paths, so pages may show it.

    Attributes:
      details: What only those who run the server should see, such as a traceback; "" if there is
        nothing more.
    """

    def __init__(self, message: str, *, details: str = "") -> None:
        super().__init__(message)
        self.details = details
