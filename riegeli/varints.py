"""Varints of Protocol Buffers: integers as bytes of seven bits each, the lowest bits first.

The last byte of a varint is below 0x80. Google's API lacks this module.

>>> encode_varints([5, 300]).hex()
'05ac02'
>>> read_varint(bytes.fromhex("05ac02"), 1)
(300, 3)
"""

from riegeli._core import encode_varints, read_varint

__all__ = ["encode_varints", "read_varint"]
