"""Varints, as Protocol Buffers have them: seven bits a byte, the lowest first.

The last byte of a number is below 0x80. This is not part of Google's API.

>>> encode_varints([5, 300]).hex()
'05ac02'
>>> read_varint(bytes.fromhex("05ac02"), 1)
(300, 3)
"""

from riegeli._core import encode_varints, read_varint

__all__ = ["encode_varints", "read_varint"]
