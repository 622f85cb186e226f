"""The codec: supported values, their wire format, and rejected values."""

import collections
import enum
import re

import dm_env
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from envlogger import Data, Datum, StepData
from envlogger.converters import codec
from envlogger.errors import DamagedDataError, UnsupportedTypeError, UnsupportedValueError

INTEGERS = ["int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"]
DTYPES = ["bool", *INTEGERS, "float32", "float64"]


def round_trip(value):
    return codec.decode(Data.FromString(codec.encode(value).SerializeToString()))


def assert_same(actual, expected):
    """Compares value, type, dtype and shape at all levels; NaNs are equal."""
    if isinstance(expected, np.ndarray):
        assert isinstance(actual, np.ndarray)
        assert (actual.dtype, actual.shape) == (expected.dtype, expected.shape)
        np.testing.assert_array_equal(actual, expected)
        return
    assert type(actual) is type(expected)
    if isinstance(expected, list | tuple):
        assert len(actual) == len(expected)
        for item, expected_item in zip(actual, expected):
            assert_same(item, expected_item)
    elif isinstance(expected, dict):
        assert actual.keys() == expected.keys()
        for key, value in expected.items():
            assert_same(actual[key], value)
    else:
        np.testing.assert_equal(actual, expected)


# --- Round trips.

plain_scalars = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.floats().map(np.float64),
    st.text(st.characters(exclude_categories=["Cs"])),
    st.binary(),
)
numpy_scalars = st.sampled_from(DTYPES[1:]).flatmap(
    lambda dtype: hnp.from_dtype(np.dtype(dtype)).map(np.dtype(dtype).type)
)
arrays = st.sampled_from(DTYPES).flatmap(
    lambda dtype: hnp.arrays(dtype, hnp.array_shapes(min_dims=0, min_side=0, max_side=4))
)
leaves = plain_scalars | numpy_scalars | arrays
keys = st.text(st.characters(exclude_categories=["Cs"])) | st.integers() | st.binary()
values = st.recursive(
    leaves,
    lambda children: st.one_of(
        st.lists(children, max_size=1),
        st.lists(children, max_size=4).map(tuple),
        st.dictionaries(keys, children, max_size=4),
    ),
    max_leaves=8,
)


@pytest.mark.slow
@given(values)
def test_values_survive_encoding(value):
    assert_same(round_trip(value), value)


@pytest.mark.parametrize("dtype", DTYPES)
def test_extreme_numbers_survive_encoding(dtype):
    limits = {"b": lambda t: [False, True], "f": lambda t: [np.finfo(t).min, np.nan, -0.0, np.inf]}
    of_kind = limits.get(np.dtype(dtype).kind, lambda t: [np.iinfo(t).min, np.iinfo(t).max])
    array = np.array(of_kind(dtype), dtype)
    assert_same(round_trip(array), array)
    if dtype != "bool":
        for scalar in array:
            assert_same(round_trip(scalar), scalar)


def test_memory_layout_does_not_matter():
    array = np.arange(24.0).reshape(4, 6)
    for view in (array.T, array[::-1, ::2], np.asfortranarray(array), array.astype(">f8")):
        assert_same(round_trip(view), np.ascontiguousarray(view, "<f8"))
    assert_same(round_trip(np.arange(3, dtype=">i2")), np.arange(3, dtype=np.int16))


def test_decoded_arrays_are_writable_and_new():
    for dtype in DTYPES:
        data = codec.encode(np.ones(3, dtype))
        codec.decode(data)[:] = 0
        assert_same(codec.decode(data), np.ones(3, dtype))


def test_python_numbers_are_stored_as_numpy_types():
    assert_same(round_trip(1.5), np.float64(1.5))
    assert_same(round_trip(np.bool_(True)), True)
    assert_same(round_trip(-(2**200)), -(2**200))
    assert_same(round_trip(np.longlong(5)), np.int64(5))


def test_subclasses_are_stored_as_their_base_types():
    class Color(enum.IntEnum):
        RED = 3

    class Name(str, enum.Enum):  # noqa: UP042 (its `str` is not its value)
        BLUE = "blue"

    Point = collections.namedtuple("Point", "x y")
    assert_same(round_trip(Color.RED), 3)
    assert_same(round_trip(Name.BLUE), "blue")
    assert_same(round_trip({Name.BLUE: 1}), {"blue": 1})
    assert_same(round_trip(Point(1, "two")), (1, "two"))
    assert_same(round_trip(collections.OrderedDict(a=1)), {"a": 1})
    assert_same(round_trip(np.str_("s")), "s")
    assert_same(round_trip(np.bytes_(b"s")), b"s")


def test_dicts_with_keys_of_several_types_are_read_back():
    value = {"a": 1, 1: "b", b"c": None, (1, "x"): 2, None: 3, np.int64(7): 4, 2.5: 5}
    assert_same(round_trip(value), value)


def test_entries_of_dicts_come_in_the_order_of_their_keys():
    assert list(round_trip(dict.fromkeys("zyxwvutsrqponmlkjihgfedcba", 1))) == [
        *"abcdefghijklmnopqrstuvwxyz"
    ]


@pytest.mark.parametrize("dtype", ["U", "S", object])
def test_arrays_of_strings_become_arrays_of_objects(dtype):
    words = [b"a", b"bcd", b""] if dtype == "S" else ["a", "bcd", ""]
    expected = np.array(words, dtype=object)
    assert_same(round_trip(np.array(words, dtype)), expected)
    assert_same(round_trip(np.array(words, dtype).reshape(3, 1)), expected.reshape(3, 1))
    assert_same(round_trip(np.array(words[1], dtype)), np.array(words[1], object))
    assert_same(round_trip(np.empty((0, 2), dtype)), np.empty((0, 2), object))


def test_trailing_zeros_of_objects_are_kept():
    array = np.array([b"a\0", b"\0"], dtype=object)
    assert_same(round_trip(array), array)


# --- The wire format of published versions of EnvLogger.


def field(field_number, content):
    return bytes([field_number << 3 | 2, len(content)]) + content


def datum(dims, values):
    shape = b"".join(field(2, dim) for dim in dims)
    return field(1, (field(1, shape) if shape else b"") + field(2, values))


def scalar(values):
    return datum([b"\x08\xca\xfc\xff\xff\xff\xff\xff\xff\xff\x01"], values)  # The size is -438.


@pytest.mark.parametrize(
    ("value", "wire"),
    [
        (None, b""),
        (True, scalar(b"\x3a\x01\x01")),
        (3, scalar(b"\x52\x01\x03")),
        (128, scalar(b"\x52\x02\x00\x80")),
        (-129, scalar(b"\x52\x02\xff\x7f")),
        (1.0, scalar(b"\x12\x08\0\0\0\0\0\0\xf0\x3f")),
        (np.float32(1), scalar(b"\x0a\x04\0\0\x80\x3f")),
        (np.int8(-3), scalar(b"\x5a\x01\xfd")),
        (np.int16(-300), scalar(b"\x62\x02\xfe\xd4")),
        (np.uint8(251), scalar(b"\x6a\x01\xfb")),
        (np.uint16(1000), scalar(b"\x72\x02\x03\xe8")),
        (np.int32(-1), scalar(b"\x1a\x0a" + b"\xff" * 9 + b"\x01")),
        (np.int64(300), scalar(b"\x22\x02\xac\x02")),
        (np.uint32(1), scalar(b"\x2a\x01\x01")),
        (np.uint64(1), scalar(b"\x32\x01\x01")),
        ("pi", scalar(b"\x42\x02pi")),
        (b"pi", scalar(b"\x4a\x02pi")),
        (np.array(1, np.float32), datum([], b"\x0a\x04\0\0\x80\x3f")),
        (np.array([1, 2], np.float32), datum([b"\x08\x02"], b"\x0a\x08\0\0\x80\x3f\0\0\0\x40")),
        (np.array([1.0]), datum([b"\x08\x01"], b"\x12\x08\0\0\0\0\0\0\xf0\x3f")),
        (np.array([True, False]), datum([b"\x08\x02"], b"\x3a\x02\x01\x00")),
        (np.array([[1, 300]], np.uint16), datum([b"\x08\x01", b"\x08\x02"], b"\x72\x04\0\1\1\x2c")),
        (np.array([1, 300]), datum([b"\x08\x02"], b"\x22\x03\x01\xac\x02")),
        (np.array(["a", "b"]), datum([b"\x08\x02"], b"\x42\x01a\x42\x01b")),
        ([True], field(2, field(1, scalar(b"\x3a\x01\x01")))),
        ((True, None), field(3, field(1, scalar(b"\x3a\x01\x01")) + field(1, b""))),
        ({"k": "v"}, field(4, field(1, field(1, b"k") + field(2, scalar(b"\x42\x01v"))))),
        (
            {1: "v"},
            field(
                4,
                field(
                    2,
                    field(
                        1,
                        field(
                            3, field(1, scalar(b"\x52\x01\x01")) + field(1, scalar(b"\x42\x01v"))
                        ),
                    ),
                ),
            ),
        ),
        ([], field(2, b"")),
        ((), field(3, b"")),
        ({}, field(4, b"")),
    ],
)
def test_values_have_the_documented_proto_bytes(value, wire):
    assert codec.encode(value).SerializeToString() == wire


def test_float32_arrays_of_envlogger_before_1_3_are_decoded():
    data = Data.FromString(datum([b"\x08\x02"], b"\x7a\x08\x3f\x80\0\0\x40\0\0\0"))
    assert_same(codec.decode(data), np.array([1, 2], np.float32))
    data = Data.FromString(scalar(b"\x7a\x04\x3f\x80\0\0"))
    assert_same(codec.decode(data), np.float32(1))


def test_arrays_without_elements_as_other_versions_store_them_are_none():
    assert codec.decode(Data.FromString(datum([], b""))) is None
    assert codec.decode(Data.FromString(datum([b"\x08\x03"], b""))) is None


def test_of_several_filled_fields_the_one_of_upstream_counts():
    values = Datum.Values(float_values=[1], int8_values=b"\2", uint8_values=b"\3")
    shape = Datum.Shape(dim=[Datum.Shape.Dim(size=-438)])
    assert_same(codec.decode_datum(Datum(shape=shape, values=values)), np.float32(1))
    assert_same(codec.decode_datum(Datum(values=values)), np.array(3, np.uint8))
    values.string_values.append("s")
    assert_same(codec.decode_datum(Datum(shape=shape, values=values)), np.float32(1))
    assert_same(codec.decode_datum(Datum(values=values)), np.array("s", object))


# --- Refused values.


def step_with(observation):
    return StepData(dm_env.restart(observation), action=None)


def test_an_unsupported_value_is_named_with_its_path_in_the_step():
    with pytest.raises(UnsupportedTypeError) as caught:
        codec.encode(step_with({"camera": (1, 2, {3})}), name="step")
    message = str(caught.value)
    assert "cannot store step.timestep.observation['camera'][2]: builtins.set is not" in message
    assert "supported are None, bool, int" in message
    assert isinstance(caught.value, TypeError)


@pytest.mark.parametrize(
    "value",
    [np, set, map, type(int), {1}, 1j, range(3), bytearray(b"x"), np.float16(1), np.complex64(1)],
)
def test_unsupported_types_are_refused_with_their_path(value):
    with pytest.raises(UnsupportedTypeError, match=r"cannot store value\[0\]: \w+\.\w+ is not"):
        codec.encode((value,))


@pytest.mark.parametrize(
    "array",
    [
        np.zeros(2, np.float16),
        np.zeros(2, np.complex64),
        np.zeros(2, "datetime64[s]"),
        np.zeros(2, [("a", "i4")]),
        np.zeros(0, np.float16),
    ],
)
def test_unsupported_dtypes_are_refused(array):
    with pytest.raises(
        UnsupportedTypeError, match=re.escape(f"an array of dtype {array.dtype} is")
    ):
        codec.encode(array)


def test_object_arrays_of_anything_but_str_or_bytes_are_refused():
    for items in ([1, "a"], [None], ["a", b"b"], [2**70]):
        with pytest.raises(UnsupportedTypeError, match="all str or all bytes, but they are"):
            codec.encode(np.array(items, dtype=object))


def test_a_mask_is_not_dropped_silently():
    with pytest.raises(UnsupportedTypeError, match=r"lose its mask; store value\.filled"):
        codec.encode(np.ma.masked_array([1, 2], mask=[True, False]))


@pytest.mark.parametrize(
    "items", [[1, 1.5], [True, 1], [1, None], [np.float64(1), 1.0], [np.int64(1), np.int32(1)]]
)
def test_lists_hold_items_of_one_type(items):
    with pytest.raises(
        UnsupportedTypeError, match=r"cannot store value\['a'\]: the items of a list.*but item 1 is"
    ):
        codec.encode({"a": items})


def nested_list(levels):
    value = None
    for _ in range(levels):
        value = [value]
    return value


def test_nesting_is_refused_before_it_cannot_be_read_back():
    deepest = StepData(dm_env.restart(0), None, custom_data=nested_list(47))
    assert codec.decode(Data.FromString(codec.encode(deepest).SerializeToString()))
    too_deep = StepData(dm_env.restart(0), None, custom_data=nested_list(48))
    with pytest.raises(UnsupportedValueError, match=r"step\.custom_data\[0\].*nested too deeply"):
        codec.encode(too_deep, name="step")


@pytest.mark.parametrize("wrap", [lambda x: (x,), lambda x: {"k": x}, lambda x: {0: x}])
def test_values_nested_as_deep_as_accepted_are_read_back(wrap):
    value = "leaf"
    with pytest.raises(UnsupportedValueError, match="nested too deeply"):
        while True:
            assert codec.decode(Data.FromString(codec.encode(value).SerializeToString()))
            value = wrap(value)


@pytest.mark.parametrize("value", ["\ud800", {"\ud800": 1}, np.array(["\ud800"], object)])
def test_invalid_unicode_is_refused(value):
    with pytest.raises(UnsupportedValueError, match=r"\\ud800' is not valid Unicode; store it as"):
        codec.encode(value)


# --- Damaged data.


def dims(*sizes):
    return Datum.Shape(dim=[Datum.Shape.Dim(size=size) for size in sizes])


@pytest.mark.parametrize(
    ("damaged", "message"),
    [
        (Datum(shape=dims(3), values=Datum.Values(int64_values=[1, 2])), r"2 stored values.*\[3\]"),
        (Datum(shape=dims(-1), values=Datum.Values(int64_values=[1, 2])), r"shape \[-1\]"),
        (Datum(shape=dims(2), values=Datum.Values(uint16_values=b"abc")), "cannot be decoded"),
        (Datum(shape=dims(-438), values=Datum.Values(uint16_values=b"abc")), "cannot be decoded"),
        (Datum(shape=dims(1 << 40), empty_dtype="int8"), "no values for an array of shape"),
        (Datum(shape=dims(0), empty_dtype="V8"), "no values for an array of .* dtype 'V8'"),
    ],
)
def test_damaged_data_raises_an_error(damaged, message):
    with pytest.raises(DamagedDataError, match=message):
        codec.decode_datum(damaged)


def test_damaged_dict_entries_are_reported():
    data = Data()
    data.dict.kvs.values.add()
    with pytest.raises(DamagedDataError, match="must be a key and a value, got 0 items"):
        codec.decode(data)
    pair = data.dict.kvs.values[0].tuple.values
    pair.add().CopyFrom(codec.encode([1]))
    pair.add()
    with pytest.raises(DamagedDataError, match="the key of an entry of a dict is a list"):
        codec.decode(data)


def test_arrays_of_big_integers_are_not_decoded():
    with pytest.raises(TypeError, match="an array of 1 integers of any size is not supported"):
        codec.decode_datum(Datum(shape=dims(1), values=Datum.Values(bigint_values=[b"\1"])))
