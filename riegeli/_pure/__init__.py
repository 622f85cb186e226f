"""The hot functions of the format in plain Python: complete, readable, and slow.

`riegeli._compiled` has the same functions, compiled. This package is the reference for their tests,
and runs if no extension was built.
"""

from riegeli._pure.blocks import interleave_block_headers, strip_block_headers
from riegeli._pure.elements import split_fields
from riegeli._pure.highway_hash import RIEGELI_KEY as RIEGELI_KEY
from riegeli._pure.highway_hash import highway_hash64
from riegeli._pure.machine import run_machine
from riegeli._pure.records import join, split_records
from riegeli._pure.transitions import count_followers, encode_transitions
from riegeli._pure.varints import encode_varints, read_varint, read_varints

__all__ = [
    "count_followers",
    "encode_transitions",
    "encode_varints",
    "highway_hash64",
    "interleave_block_headers",
    "join",
    "read_varint",
    "read_varints",
    "run_machine",
    "split_fields",
    "split_records",
    "strip_block_headers",
]
