"""Chooses between the compiled hot functions and their plain Python twins.

`RIEGELI_IMPLEMENTATION=python` in the environment asks for the twins, `cython` insists on the
compiled ones; without it the compiled ones are used where they were built.
"""

import os
import warnings
from collections.abc import Callable, Iterable
from types import ModuleType

from riegeli import _pure
from riegeli._pure import read_varint, run_machine, take_apart

__all__ = [
    "IMPLEMENTATION",
    "encode_varints",
    "highway_hash64",
    "read_varint",
    "run_machine",
    "split_records",
    "take_apart",
]


def _choose() -> ModuleType:
    requested = os.environ.get("RIEGELI_IMPLEMENTATION", "")
    if requested not in ("", "cython", "python"):
        raise ImportError(f"RIEGELI_IMPLEMENTATION is {requested!r}, not 'cython' or 'python'")
    if requested == "python":
        return _pure
    try:
        from riegeli import _compiled
    except ImportError as e:
        if requested == "cython":
            raise
        warnings.warn(
            f"riegeli runs in plain Python, hundreds of times slower: no compiled core ({e}). "
            "To build it, install the package with a C compiler present: pip install .",
            RuntimeWarning,
            stacklevel=2,
        )
        return _pure
    return _compiled


_functions = _choose()

IMPLEMENTATION: str = "python" if _functions is _pure else "cython"
"""Which twin runs: "cython" or "python"."""

encode_varints: Callable[[Iterable[int]], bytes] = _functions.encode_varints
highway_hash64: Callable[[bytes | bytearray | memoryview], int] = _functions.highway_hash64
split_records: Callable[[bytes, int, bytes], list[bytes]] = _functions.split_records
