"""HighwayHash-64 against published and recorded values."""

import pytest
from riegeli_internals import highway_hash64

# Under the key of Riegeli/records; the message is the bytes 0, 1, 2, ... modulo 256.
RIEGELI_VECTORS = {
    0: 0x72C3B1E9C0139FE1,
    1: 0x2CD57BC47907559D,
    2: 0x79F89E5C740F5E3B,
    3: 0x3BBB8DA470C80319,
    4: 0x4D9E82979AB17CE7,
    15: 0x3402CB26FB217163,
    16: 0x3E13BE3A4140F4A7,
    17: 0xA7084C614077EACA,
    31: 0x4D262A709C34AE7D,
    32: 0xB73F6DF550F9DCE4,
    33: 0xEC2F920014EAA741,
    40: 0x6A3B5B7836D4AF29,
    63: 0xBEA28B7A087E1493,
    64: 0xE34B1E100F1322AF,
    65: 0xB4125566520CE871,
    100: 0xE809487465A44F74,
    255: 0xE5E7D350ECEA57AC,
    1024: 0x1B907B8BE9C4C3B0,
}

# The key and the first results of the reference implementation's own test.
REFERENCE_KEY = (0x0706050403020100, 0x0F0E0D0C0B0A0908, 0x1716151413121110, 0x1F1E1D1C1B1A1918)
REFERENCE_VECTORS = {0: 0x907A56DE22C26E53, 1: 0x7EAB43AAC7CDDD78, 2: 0xB8D0569AB0B53D62}


@pytest.mark.parametrize(("size", "expected"), RIEGELI_VECTORS.items())
def test_hashes_with_the_key_of_riegeli_are_as_published(size, expected):
    assert highway_hash64(bytes(i % 256 for i in range(size))) == expected


@pytest.mark.parametrize(("size", "expected"), REFERENCE_VECTORS.items())
def test_hashes_with_the_reference_key_are_as_published(size, expected):
    assert highway_hash64(bytes(range(size)), REFERENCE_KEY) == expected


def test_any_buffer_of_bytes_is_hashed():
    message = bytes(range(100))
    assert highway_hash64(bytearray(message)) == highway_hash64(message)
    assert highway_hash64(memoryview(b"x" + message)[1:]) == highway_hash64(message)


@pytest.mark.parametrize("size", [1 << 14, 100_000])
def test_large_messages_are_hashed_like_small_ones(size):
    # Recorded with the plain implementation.
    expected = {1 << 14: 0xFCBA29DB779D6786, 100_000: 0xF70AB678F319470F}
    assert highway_hash64(bytes(i % 256 for i in range(size))) == expected[size]
