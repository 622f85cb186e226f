"""Chooses between the compiled hot functions and their plain Python twins."""

from typing import TYPE_CHECKING

from riegeli import _pure
from rlds_ecosystem.installation import choose_implementation

__all__ = ["IMPLEMENTATION"]
__all__ += _pure.__all__

IMPLEMENTATION: str = choose_implementation("riegeli", slowdown="hundreds of times slower")
"""The implementation in use: "cython" or "python"."""

# Type checkers and readers use the plain functions, which have the types and documentation.
if TYPE_CHECKING or IMPLEMENTATION == "python":
    from riegeli._pure import *  # noqa: F403
else:
    from riegeli._compiled import *  # noqa: F403
