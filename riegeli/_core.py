"""Chooses between the compiled hot functions and their plain Python twins."""

from typing import TYPE_CHECKING

from rlds_ecosystem.installation import choose_implementation

__all__ = [
    "IMPLEMENTATION",
    "count_followers",
    "encode_transitions",
    "encode_varints",
    "highway_hash64",
    "interleave_block_headers",
    "join",
    "read_varint",
    "read_varints",
    "run_machine",
    "split_records",
    "take_apart",
    "take_out_block_headers",
]

IMPLEMENTATION: str = choose_implementation("riegeli", slower="hundreds of times slower")
"""Which twin runs: "cython" or "python"."""

# The types of the twins are those of the plain ones, which also have the documentation.
if TYPE_CHECKING or IMPLEMENTATION == "python":
    from riegeli._pure import (
        count_followers,
        encode_transitions,
        encode_varints,
        highway_hash64,
        interleave_block_headers,
        join,
        read_varint,
        read_varints,
        run_machine,
        split_records,
        take_apart,
        take_out_block_headers,
    )
else:
    from riegeli._compiled import (
        count_followers,
        encode_transitions,
        encode_varints,
        highway_hash64,
        interleave_block_headers,
        join,
        read_varint,
        read_varints,
        run_machine,
        split_records,
        take_apart,
        take_out_block_headers,
    )
