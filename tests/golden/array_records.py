"""The records of the golden array_record files; needs only Python.

They are encoded field by field here, independently of the code under test.
"""

import hashlib

VARINT, FIXED64, LENGTH, BEGIN_GROUP, END_GROUP, FIXED32 = range(6)


def varint(value):
    encoded = bytearray()
    while value > 127:
        encoded.append(value & 127 | 128)
        value >>= 7
    return bytes([*encoded, value])


def field(field_id, wire_type, content=b""):
    return varint(field_id << 3 | wire_type) + content


def with_length(content):
    return varint(len(content)) + content


def text(field_id, content):
    return field(field_id, LENGTH, with_length(content))


def noise(seed, size):
    """Deterministic bytes that do not compress."""
    blocks = (hashlib.sha256(f"{seed} {i}".encode()).digest() for i in range(size // 32 + 1))
    return b"".join(blocks)[:size]


def nested(depth):
    message = field(1, VARINT, varint(7))
    for _ in range(depth):
        message = text(1, message)
    return message


def group(field_id, content):
    return field(field_id, BEGIN_GROUP) + content + field(field_id, END_GROUP)


NOT_PROTOS = [
    b"\xff",
    b"hello",
    b"\x08",  # A tag without a value.
    b"\x08\x80\x00",  # A zero with a superfluous byte.
    b"\x00\x01",  # Field 0.
    b"\x0b",  # A group without an end.
    b"\x0b\x14",  # A group with the end of another one.
    b"\x0a\x05abc",  # A length beyond the end.
    b"\x0e",  # An undefined wire type.
    b"\x08" + b"\xff" * 9 + b"\x02",  # Over 64 bits.
    noise("not a proto", 300),
]

PROTOS = [
    b"",
    *[field(1, VARINT, varint(value)) for value in (0, 1, 3, 4, 127)],
    *[field(1, VARINT, varint(1 << 7 * i)) for i in range(10)],
    field(2, VARINT, varint((1 << 64) - 1)),
    field(3, FIXED32, b"\x01\x02\x03\x04") + field(4, FIXED64, b"\x00" * 7 + b"\x80"),
    text(5, b"") + text(5, b"no message") + text(5, "déjà vu".encode()),
    text(6, field(1, VARINT, varint(5))) + text(6, field(1, VARINT, varint(6))),
    text(7, text(7, text(7, b"\xff") + field(1, FIXED32, b"abcd")) + text(8, b"")),
    text(9, b"".join(varint(300 * i) for i in range(40))),  # Packed.
    group(10, field(1, VARINT, varint(5))) + group(10, b""),
    group(11, group(11, text(1, group(12, b"")))),
    text(13, group(10, field(2, FIXED64, b"12345678"))),
    field(2**29 - 1, VARINT, varint(150)) + field(2**28, FIXED32, b"last"),
    text(14, noise("in a proto", 500)),
    *[nested(depth) for depth in (1, 30, 99, 100, 101)],
]

WIDE = [  # More kinds of fields than one transition reaches.
    b"".join(field(n, VARINT, varint(n * i)) for n in range(1 + i % 7, 300, 1 + i % 5))
    for i in range(40)
]

ALIKE = [  # The usual case: many of one type.
    field(1, VARINT, varint(i))
    + text(2, b"%d " % i * (i % 9))
    + text(3, field(1, FIXED32, b"same"))
    for i in range(400)
]

LONG = [b"no proto \xff" * 7000, text(1, b"a block is 65536 bytes. " * 2900)]

RECORDS = [*NOT_PROTOS, *PROTOS, *ALIKE, *WIDE, *NOT_PROTOS[::-1], *LONG, *PROTOS[::-1]]
