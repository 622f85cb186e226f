"""Chooses between the compiled hot functions and the same functions in NumPy."""

from typing import TYPE_CHECKING

from rlds_ecosystem.installation import choose_implementation

__all__ = ["IMPLEMENTATION", "Buffers", "hash_many", "locate", "permute", "unpermute"]

IMPLEMENTATION: str = choose_implementation("rlds.feeds", slowdown="up to a hundred times slower")
"""The implementation in use: "cython" or "python"."""

# The types and the documentation are those of the pure Python implementation.
if TYPE_CHECKING or IMPLEMENTATION == "python":
    from rlds.feeds._pure import Buffers, hash_many, locate, permute, unpermute
else:
    from rlds.feeds._compiled import Buffers, hash_many, locate, permute, unpermute
