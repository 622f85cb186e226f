"""Chooses between the compiled hot functions and their twins in NumPy."""

from typing import TYPE_CHECKING

from rlds_ecosystem.installation import choose_implementation

__all__ = ["IMPLEMENTATION", "Buffers", "hash_many", "locate", "permute", "unpermute"]

IMPLEMENTATION: str = choose_implementation("rlds.feeds", slower="up to a hundred times slower")
"""The implementation in use: "cython" or "python"."""

# The types of the twins are those of the plain ones, which also have the documentation.
if TYPE_CHECKING or IMPLEMENTATION == "python":
    from rlds.feeds._pure import Buffers, hash_many, locate, permute, unpermute
else:
    from rlds.feeds._compiled import Buffers, hash_many, locate, permute, unpermute
