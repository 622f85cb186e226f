import itertools

import numpy as np
import pytest
from google.protobuf.internal import encoder
from hypothesis import example, given
from hypothesis import strategies as st

from tfds_files.wire import (
    WireError,
    decode_varints,
    delimited,
    encode_varint,
    encode_varints,
    fields_of,
    read_varint,
)


def varint(value):
    return encoder._VarintBytes(value % 2**64)


@given(st.lists(st.integers(-(2**63), 2**63 - 1)))
@example([0, 127, 128, 2**63 - 1, -1])
def test_packed_varints_are_decoded_and_encoded(values):
    packed = list(map(varint, values))
    actual = decode_varints(b"".join(packed))
    assert actual.dtype == np.int64
    assert actual.tolist() == values
    data, begins = encode_varints(actual)
    assert data == b"".join(packed)
    if begins is None:
        begins = np.arange(len(values) + 1)
    assert [data[begin:end] for begin, end in itertools.pairwise(begins)] == packed


@given(st.integers(0, 2**64 - 1))
def test_varints_are_encoded_and_read_back(value):
    data = encode_varint(value)
    assert data == varint(value)
    assert read_varint(data, 0, len(data)) == (value, len(data))


def test_the_bounds_of_a_delimited_field_are_returned():
    data = delimited(b"\x0a", b"x" * 300)
    assert list(fields_of(data, 0, len(data))) == [(1, 2, 3, 303)]


@pytest.mark.parametrize("data", [b"\x80", b"\x01\xff", b"\xff" * 10 + b"\x01"])
def test_packed_varints_that_do_not_end_are_refused(data):
    with pytest.raises(WireError, match="a number"):
        decode_varints(data)
    with pytest.raises(WireError, match="a number does not end"):
        read_varint(data[-11:], 1 if data[0] == 1 else 0, len(data))


def test_fields_of_every_wire_type_are_read():
    data = b"\x08\x96\x01" + b"\x12\x02hi" + b"\x1d1234" + b"\x2112345678"
    actual = [(tag, data[begin:end]) for tag, _, begin, end in fields_of(data, 0, len(data))]
    assert actual == [(1, b"\x96\x01"), (2, b"hi"), (3, b"1234"), (4, b"12345678")]


@pytest.mark.parametrize("data", [b"\x12\x05hi", b"\x1d123", b"\x0b", b"\x0e", b"\x08"])
def test_bytes_that_are_not_a_message_are_refused(data):
    with pytest.raises(WireError):
        list(fields_of(data, 0, len(data)))


def test_a_varint_has_64_bits():
    data = varint((1 << 64) - 1)
    assert read_varint(data, 0, len(data)) == ((1 << 64) - 1, 10)
    with pytest.raises(WireError, match="does not end"):
        read_varint(b"\x80" * 9 + b"\x02", 0, 10)
