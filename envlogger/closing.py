"""The base class of objects that a `with` statement closes."""

from __future__ import annotations

from typing import Self

__all__ = ["Closing"]


class Closing:
    """A context manager that closes itself on exit."""

    def close(self) -> None:
        """Releases the files."""
        raise NotImplementedError

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
