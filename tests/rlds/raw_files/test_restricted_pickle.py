import builtins
import collections
import contextlib
import os
import pickle
import shutil
import struct
import sys

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from rlds.raw_files import restricted_pickle
from rlds.raw_files.restricted_pickle import Record, RestrictedPickleError, loads

PROTOCOLS = st.integers(0, pickle.HIGHEST_PROTOCOL)
DTYPES = st.one_of(
    hnp.boolean_dtypes(),
    hnp.integer_dtypes(endianness="="),
    hnp.floating_dtypes(endianness="="),
    hnp.complex_number_dtypes(endianness="="),
    hnp.byte_string_dtypes(),
    hnp.unicode_string_dtypes(endianness="="),
)
SCALARS = st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), st.text(), st.binary())
PLAIN = st.recursive(
    SCALARS,
    lambda children: st.one_of(
        st.lists(children, max_size=3),
        st.dictionaries(st.text(), children, max_size=3),
        st.tuples(children, children),
    ),
    max_leaves=8,
)


class Calls:
    """Object whose pickle calls a function when it is loaded."""

    def __init__(self, function, *arguments, state=None):
        self.reduced = (function, arguments) if state is None else (function, arguments, state)

    def __reduce__(self):
        return self.reduced


def assert_same(actual, expected):
    assert type(actual) is type(expected)
    if isinstance(expected, dict):
        assert actual.keys() == expected.keys()
        for key, child in expected.items():
            assert_same(actual[key], child)
    elif isinstance(expected, list | tuple):
        assert len(actual) == len(expected)
        for actual_child, child in zip(actual, expected):
            assert_same(actual_child, child)
    elif isinstance(expected, np.ndarray) and expected.dtype == object:
        assert_same(actual.tolist(), expected.tolist())
    elif isinstance(expected, float | np.ndarray | np.generic):
        np.testing.assert_array_equal(actual, expected, strict=True)
    else:
        assert actual == expected


@pytest.mark.slow
@settings(max_examples=60, deadline=None)
@given(PLAIN, PROTOCOLS)
def test_plain_data_survives_a_round_trip(data, protocol):
    assert_same(loads(pickle.dumps(data, protocol)), data)


@pytest.mark.slow
@settings(max_examples=100, deadline=None)
@given(hnp.arrays(DTYPES, hnp.array_shapes(min_dims=0, max_side=3)), PROTOCOLS, st.booleans())
def test_arrays_survive_a_round_trip(array, protocol, is_fortran):
    array = np.asfortranarray(array) if is_fortran else array
    data = [array, array[..., :0] if array.ndim else array, *array.flat[:1]]
    assert_same(loads(pickle.dumps(data, protocol)), data)


@pytest.mark.parametrize("protocol", range(6))
def test_plain_data_of_every_protocol_is_read(protocol):
    objects = np.fromiter([["a", None], {"x": np.arange(3)}, {1, 2}, np.dtype("f4")], object)
    data = {
        "objects": objects.reshape(2, 2),
        "axes": np.arange(24).reshape(2, 3, 4).transpose(1, 2, 0),
        "other": [{1, 2}, frozenset([3]), bytearray(b"a"), 1j, np.dtype("<U3"), b""],
    }
    assert_same(loads(pickle.dumps(data, protocol)), data)
    assert_same(loads(pickle.dumps(collections.OrderedDict(b=1, a=2), protocol)), {"b": 1, "a": 2})
    frombuffer = np.zeros(2).__reduce_ex__(5)[0]
    reduced = Calls(frombuffer, bytes(24), np.dtype("u1"), (2, 3, 4), "K", (1, 2, 0))
    assert loads(pickle.dumps(reduced)).shape == (3, 4, 2)  # NumPy 2.3.


def test_pickles_of_numpy_1_are_read():
    data = [np.arange(3, dtype=np.float32), np.float64(0.5), np.array([1, "a"], object)]
    # In this protocol names are lines of text. NumPy 2 only renamed its modules.
    pickled = pickle.dumps(data, 2).replace(b"cnumpy._core.", b"cnumpy.core.")
    assert b"_core" not in pickled
    assert_same(loads(pickled), data)


def test_allowed_names_become_records_instead_of_objects(monkeypatch):
    class Space:
        def __init__(self):
            self.low = np.zeros(2)

    monkeypatch.setattr(sys.modules[__name__], "Space", Space, raising=False)
    Space.__qualname__ = "Space"
    name = f"{__name__}.Space"
    actual = loads(pickle.dumps(Space()), {name: lambda *arguments: Record(name, arguments)})
    assert (actual.name, actual.arguments) == (name, ())
    assert actual.state["low"].tolist() == [0, 0]


# --- Attacks --------------------------------------------------------------------------------------


@pytest.mark.parametrize("protocol", [0, 2, 4])
@pytest.mark.parametrize(
    ("function", "arguments", "name"),
    [
        (os.system, ("touch harm",), "posix.system"),
        (builtins.eval, ("open('harm', 'w')",), "builtins.eval"),
        (shutil.copytree, ("/etc", "harm"), "shutil.copytree"),
        (np.load, ("file",), "numpy.load"),
        (collections.defaultdict, (list,), "collections.defaultdict"),
    ],
)
def test_names_of_other_objects_are_refused_and_reported(
    tmp_path, monkeypatch, protocol, function, arguments, name
):
    monkeypatch.chdir(tmp_path)
    harm = Calls(function, *arguments)
    for data in ({"steps": [{"deep": harm}]}, np.array([harm], object)):
        with pytest.raises(RestrictedPickleError) as error:
            loads(pickle.dumps(data, protocol))
        actual = str(error.value).replace("__builtin__", "builtins")
        assert f"the pickle names {name}, which is not plain data" in actual
    assert not list(tmp_path.iterdir())


NAMES = [
    "{}\n{}".format(*name.rsplit(".", 1)).encode()
    for name in sorted(restricted_pickle._ALLOWED_NAMES)
]
ATTRIBUTES = b"}X\5\0\0\0firstK\7s"  # {"first": 7}


@pytest.mark.parametrize("name", NAMES, ids=bytes.decode)
def test_allowed_names_are_not_a_way_to_read_or_change_attributes(name):
    with pytest.raises(RestrictedPickleError, match="__globals__"):
        loads(b"\x80\x04c" + name + b".__globals__\n.")
    for state in (ATTRIBUTES, b"N" + ATTRIBUTES + b"\x86"):
        with pytest.raises(RestrictedPickleError, match="the pickle changes"):
            loads(b"\x80\x04c" + name + b"\n" + state + b"b.")


@pytest.mark.parametrize("target", [b"K\1", b"]", b"}", b"cbuiltins\ncomplex\n)R"])
def test_pickles_cannot_change_attributes_of_their_objects(target):
    with pytest.raises(RestrictedPickleError, match="the pickle changes"):
        loads(b"\x80\x02" + target + ATTRIBUTES + b"b.")


@pytest.mark.parametrize(
    "pickled",
    [
        *(b"\x80\x02\x84\x01\0\0\0.", b"\x80\x02\x82\x01."),  # Codes of the extension registry.
        *(b"Pfile\n.", b"\x80\x02K\x01Q.", b"\x80\x05\x97."),  # Objects outside the pickle.
        *(b"(S'true'\nios\nsystem\n.", b"(S'true'\no."),  # Old ways to make instances.
        *(b"", b".", b"PK\x03\x04", b"\x80\x63."),
    ],
)
def test_opcodes_that_plain_data_does_not_need_are_refused(pickled):
    with pytest.raises(RestrictedPickleError):
        loads(pickled)


# --- False headers and bombs ----------------------------------------------------------------------


def pickle_array(dtype, shape, data, *, state=(3, "|", None, None, None, -1, -1, 0)):
    """Returns the pickle of an array whose header may be false."""
    reconstruct = np.zeros(0).__reduce__()[0]
    return pickle.dumps(
        Calls(
            reconstruct,
            *(np.ndarray, (0,), b"b"),
            state=(1, shape, Calls(np.dtype, *dtype, state=state), False, data),
        )
    )


def test_array_pickle_with_true_header_is_read():
    actual = loads(pickle_array(("f4", False, True), (2,), bytes(8)))
    assert_same(actual, np.zeros(2, np.float32))


WITH_FIELDS = (3, "|", None, ("x",), {"x": (np.dtype("O"), 0)}, 8, 1, 0)
SCALAR = np.float64(1).__reduce__()[0]


@pytest.mark.parametrize(
    "pickled",
    [
        pickle_array(("f4",), (3,), bytes(8)),
        pickle_array(("f4",), (1 << 60,), bytes(8)),
        pickle_array(("f4",), (-2,), bytes(8)),
        pickle_array(("f4",), (2.0,), bytes(8)),
        pickle_array(("f4",), [2], bytes(8)),
        pickle_array(("f4",), (2,), "text"),
        pickle_array(("S0",), (1 << 60,), b""),
        # Bytes that NumPy would read as addresses of objects, and fewer objects than declared.
        pickle_array(("O8",), (1,), bytes(8)),
        pickle_array(("O8",), (1,), bytes(8), state=(3, "|", None, None, None, 8, 8, 0)),
        pickle_array(("O8",), (2,), [1]),
        pickle_array(("V8",), (1,), bytes(8)),
        pickle_array(("f4,O",), (1,), bytes(12)),
        pickle_array(("f8",), (1,), bytes(8), state=WITH_FIELDS),
        pickle.dumps(np.zeros(1, [("x", np.float32)])),
        pickle.dumps(Calls(SCALAR, np.dtype("f8"), bytes(4))),
        pickle.dumps(Calls(SCALAR, np.dtype("O"), bytes(8))),
        pickle.dumps(Calls(bytearray, 1 << 62)),
        pickle.dumps(Calls(bytes, 1 << 62)),
        b"\x80\x05\x96" + struct.pack("<Q", 1 << 40) + b"a.",
        b"\x80\x04\x8e" + struct.pack("<Q", 1 << 60) + b"a.",
        b"\x80\x04" + b"]" * 2000 + b"a" * 1999 + b".",
    ],
)
def test_malicious_pickles_are_rejected(pickled):
    with pytest.raises(RestrictedPickleError):
        loads(pickled)


def test_declared_sizes_of_a_dtype_are_ignored():
    false_state = (3, "<", None, None, None, 1 << 20, 1, 63)
    actual = loads(pickle_array(("U1",), (1,), b"a\0\0\0", state=false_state))
    assert_same(actual, np.array(["a"]))


@pytest.mark.parametrize("protocol", [2, 4])
@pytest.mark.parametrize(
    "make", [set, frozenset, dict.fromkeys, lambda keys: {(key,): None for key in keys}]
)
def test_keys_with_equal_hashes_are_refused(make, protocol):
    keys = [factor * sys.hash_info.modulus for factor in range(3)]
    with pytest.raises(RestrictedPickleError, match="a key of the type"):
        loads(pickle.dumps(make(keys), protocol))


@pytest.mark.parametrize("pair", [b"2\x86", b"2\x86\x85"])
def test_data_that_contains_itself_is_refused(pair):
    with pytest.raises(RestrictedPickleError, match="too many references"):
        loads(b"\x80\x02K\1" + pair * 60 + b".")
    assert loads(b"\x80\x02K\1" + pair * 10 + b".")
    loop = [1]
    loop.append({"x": loop})
    with pytest.raises(RestrictedPickleError, match="contains itself"):
        loads(pickle.dumps(loop))


# Fragments from which hypothesis assembles valid and almost valid pickles.
FRAGMENTS = st.sampled_from(
    [
        *(bytes([code]) for code in b"]}()t.a2sueld0Rb\x81\x85\x86\x87\x8f\x90\x91\x92\x93\x94"),
        *(b"N", b"\x88", b"K\1", b"I-5\n", b"G?\xf0\0\0\0\0\0\0", b"X\1\0\0\0a", b"C\2ab"),
        *(b"h\0", b"h\1", b"h\2", b"q\0", b"q\1", b"q\2", b"\x8a\x09" + bytes(8) + b"\1"),
        *(b"C\10" + bytes(8), b"K\1\x85", b"K\0K\2\x86", b"(K\0NNNt", b"(K\1X\1\0\0\0<NNNt"),
        *(b"c" + name + b"\n" for name in NAMES),
        *(f"cnumpy\ndtype\n(X\2\0\0\0{name}tR".encode() for name in ("f4", "O8", "U2", "b1")),
        b"cnumpy.core.multiarray\n_reconstruct\n(cnumpy\nndarray\nK\0\x85C\1btR",
    ]
)


def assert_plain(value):
    """Asserts that a value is plain data without cycles."""
    if isinstance(value, np.generic | np.dtype):
        assert np.dtype(getattr(value, "dtype", value)).kind in "biufcSUO"
    elif isinstance(value, dict):
        for pair in value.items():
            assert_plain(pair)
    elif isinstance(value, list | tuple | set | frozenset):
        for child in value:
            assert_plain(child)
    elif isinstance(value, np.ndarray) and value.dtype == object:
        assert_plain(value.ravel().tolist())
    elif value is not None and not callable(value):  # Allowed names are callables.
        assert type(value) in (bool, int, float, complex, str, bytes, bytearray, np.ndarray)


@pytest.mark.slow
@settings(max_examples=6 * settings().max_examples)
@given(st.lists(FRAGMENTS, max_size=30).map(b"".join))
def test_any_pickle_yields_plain_data_or_is_refused(program):
    with contextlib.suppress(RestrictedPickleError):  # Any other error is a bug.
        assert_plain(loads(b"\x80\x04" + program + b"."))


def test_object_arrays_are_not_readable_as_addresses():
    """Writing to such arrays would write anywhere in memory."""
    objects = pickle.dumps(np.array([None, "x"], object), protocol=2)[:-1]
    dtype = pickle.dumps(np.dtype("i8"), protocol=2)[2:-1]
    name = b"cnumpy._core.numeric\n_frombuffer\n"
    begin = b"\x80\x02" + name + b"(" + objects[2:]
    for program in (
        begin + dtype + b"K\x02\x85X\x01\x00\x00\x00CtR.",
        objects + b"K\x00K\x01s.",  # An item of an array.
        objects + b"K\x00a.",
        objects + b"(K\x00e.",
        objects + b"(K\x00K\x01u.",
    ):
        with pytest.raises(RestrictedPickleError, match=r"is damaged|changes an object"):
            loads(program)


@pytest.mark.parametrize("protocol", [2, 5])
def test_boolean_bytes_other_than_zero_and_one_are_refused(protocol):
    pickled = pickle.dumps(np.array([True, False, True]), protocol=protocol)
    assert loads(pickled).tolist() == [True, False, True]
    with pytest.raises(RestrictedPickleError, match="other values than 0 and 1"):
        loads(pickled.replace(b"\x01\x00\x01", b"\x01\x00\x07"))
