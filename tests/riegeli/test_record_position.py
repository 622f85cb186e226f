"""Record positions: order, text and binary forms."""

import pickle

import pytest
from hypothesis import given
from hypothesis import strategies as st

from riegeli import RecordPosition

positions = st.builds(RecordPosition, st.integers(0, 2**62), st.integers(0, 2**62))


@pytest.mark.parametrize(
    ("begin", "index", "encoded"),
    [
        (0, 0, "0000"),
        (64, 5, "4005"),
        (127, 128, "7f8080"),
        (16383, 16384, "bfffc04000"),
        (2**28, 2**35, "f010000000f80800000000"),
        (2**56 - 1, 2**56, "feffffffffffffffff0100000000000000"),
    ],
)
def test_the_binary_form_of_a_position_is_read_back(begin, index, encoded):
    position = RecordPosition(begin, index)
    assert position.to_bytes().hex() == encoded
    assert RecordPosition.from_bytes(bytes.fromhex(encoded)) == position


def test_the_old_binary_form_is_read():
    old = (64).to_bytes(8, "big") + (5).to_bytes(8, "big")
    assert RecordPosition.from_bytes(old) == RecordPosition(64, 5)


@given(positions)
def test_text_bytes_and_pickles_are_read_back(position):
    assert RecordPosition.from_str(str(position)) == position
    assert RecordPosition.from_str(str(position).encode()) == position
    assert pickle.loads(pickle.dumps(position)) == position
    encoded = position.to_bytes()
    if len(encoded) != 16:  # Then the old form has precedence, as in Google's implementation.
        assert RecordPosition.from_bytes(encoded) == position


@given(positions, positions)
def test_the_binary_form_is_ordered_like_the_positions(a, b):
    assert (a.to_bytes() < b.to_bytes()) == (a < b)


def test_text_may_have_blanks_and_leading_zeros():
    assert RecordPosition.from_str(" +064/05 ") == RecordPosition(64, 5)


@pytest.mark.parametrize("text", ["", "64", "64/", "/5", "a/b", "-1/5", "64/5/6", f"{2**64}/0"])
def test_invalid_text_is_refused(text):
    with pytest.raises(ValueError, match="no record position"):
        RecordPosition.from_str(text)


@pytest.mark.parametrize("data", ["", "00", "000000", "800000", "ff0000", "c000", "fe01"])
def test_invalid_bytes_are_refused(data):
    with pytest.raises(ValueError, match="no record position"):
        RecordPosition.from_bytes(bytes.fromhex(data))


@pytest.mark.parametrize(("begin", "index"), [(-1, 0), (0, -1), (2**64, 0), (2**63, 2**63)])
def test_positions_out_of_range_are_refused(begin, index):
    with pytest.raises(OverflowError):
        RecordPosition(begin, index)


def test_positions_of_other_types_are_refused():
    with pytest.raises(TypeError):
        RecordPosition("64", 5)
    with pytest.raises(TypeError, match="expected str or bytes, got 64"):
        RecordPosition.from_str(64)


def test_positions_are_immutable():
    with pytest.raises(AttributeError):
        RecordPosition(64, 5).chunk_begin = 65
    assert len({RecordPosition(64, 5), RecordPosition(64, 5), RecordPosition(64, 6)}) == 2
    with pytest.raises(TypeError):
        _ = RecordPosition(64, 5) < (64, 6)


def test_equal_positions_have_equal_hashes_and_a_repr():
    assert repr(RecordPosition(64, 5)) == "RecordPosition(64, 5)"
    assert RecordPosition(64, 5) != (64, 5)
    assert len({RecordPosition(64, 5), RecordPosition(64, 5)}) == 1
