"""Chooses between the compiled hot functions and their plain Python twins.

`RIEGELI_IMPLEMENTATION=python` in the environment asks for the twins, `cython` insists on the
compiled ones; without it the compiled ones are used where they were built.
"""

import importlib
import os
import warnings
from pathlib import Path
from typing import TYPE_CHECKING

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


def _choose() -> str:
    requested = os.environ.get("RIEGELI_IMPLEMENTATION", "")
    if requested not in ("", "cython", "python"):
        raise ImportError(f"RIEGELI_IMPLEMENTATION is {requested!r}, not 'cython' or 'python'")
    if requested == "python":
        return requested
    try:
        importlib.import_module("riegeli._compiled")
    except ImportError as e:
        if requested == "cython":
            raise
        from rlds_ecosystem.installation import why_not_compiled

        reason = why_not_compiled(Path(__file__).parent, error=e)
        warnings.warn(
            f"riegeli runs in plain Python, hundreds of times slower: {reason}",
            RuntimeWarning,
            stacklevel=2,
        )
        return "python"
    return "cython"


IMPLEMENTATION: str = _choose()
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
