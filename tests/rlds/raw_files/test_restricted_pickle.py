import builtins
import collections
import contextlib
import os
import pickle
import shutil
import struct
import sys

import dm_env
import numpy as np
import pytest
import raw_rlds_creator as raw
from dm_env import specs
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

import envlogger
from rlds.raw_files import restricted_pickle
from rlds.raw_files.restricted_pickle import RestrictedPickleError, loads

PROTOCOLS = st.integers(0, pickle.HIGHEST_PROTOCOL)
DTYPES = st.one_of(
    hnp.boolean_dtypes(),
    hnp.integer_dtypes(),
    hnp.floating_dtypes(),
    hnp.complex_number_dtypes(),
    hnp.byte_string_dtypes(),
    hnp.unicode_string_dtypes(),
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
    """Makes a pickle that calls something when it is read."""

    def __init__(self, function, *arguments, state=None):
        self.reduced = (function, arguments) if state is None else (function, arguments, state)

    def __reduce__(self):
        return self.reduced


def assert_same(got, expected):
    assert type(got) is type(expected)
    if isinstance(expected, dict):
        assert got.keys() == expected.keys()
        for key, child in expected.items():
            assert_same(got[key], child)
    elif isinstance(expected, list | tuple):
        assert len(got) == len(expected)
        for one, other in zip(got, expected):
            assert_same(one, other)
    elif isinstance(expected, np.ndarray):
        assert (got.dtype, got.shape) == (expected.dtype, expected.shape)
        if expected.dtype == object:
            assert_same(got.ravel().tolist(), expected.ravel().tolist())
        else:
            assert got.tobytes() == expected.tobytes()
    elif isinstance(expected, float | np.generic):
        np.testing.assert_array_equal(got, expected)
    else:
        assert got == expected


# --- Plain data -----------------------------------------------------------------------------------


@settings(max_examples=60, deadline=None)
@given(PLAIN, PROTOCOLS)
def test_plain_data_comes_back(data, protocol):
    assert_same(loads(pickle.dumps(data, protocol)), data)


@settings(max_examples=100, deadline=None)
@given(hnp.arrays(DTYPES, hnp.array_shapes(min_dims=0, max_side=3)), PROTOCOLS, st.booleans())
def test_arrays_come_back(array, protocol, is_fortran):
    array = np.asfortranarray(array) if is_fortran else array
    got = loads(pickle.dumps([array, array[..., :0] if array.ndim else array], protocol))
    assert_same(got[0], array)
    assert got[0].flags.writeable
    if array.size and array.dtype.itemsize:
        assert_same(loads(pickle.dumps(array.flat[0], protocol)), array.flat[0])


@pytest.mark.parametrize("protocol", range(6))
def test_steps_and_specs_come_back(protocol):
    data = {
        "steps": [
            envlogger.StepData(dm_env.restart({"x": np.ones(2)}), None, {"é": b"\xff\0"}),
            envlogger.StepData(dm_env.termination(1.0, {"x": np.zeros(2)}), np.int64(3)),
        ],
        "specs": [
            specs.Array((2,), np.float32, "a"),
            specs.BoundedArray((2,), ">i4", [0, 1], np.array([5, 6]), "b"),
            specs.DiscreteArray(3),
            specs.StringArray((1,), bytes),
            specs.StringArray(()),
        ],
        "objects": np.array(["a", None, {"x": np.arange(3)}], object),
        "other": [{1, 2}, frozenset([3]), bytearray(b"a"), 1j, np.dtype("<U3"), b""],
    }
    got = loads(pickle.dumps(data, protocol))
    assert_same(got["steps"], data["steps"])
    assert got["specs"] == data["specs"]
    assert got["specs"][3].string_type is bytes
    assert_same(got["objects"], data["objects"])
    assert got["other"] == data["other"]


def test_ordered_dicts_are_dicts():
    data = collections.OrderedDict(b=np.ones(2), a=1)
    assert_same(loads(pickle.dumps(data)), dict(data))


def test_steps_of_rlds_creator_are_those_of_envlogger():
    episode = raw.make_episode(0, 1)
    got = loads(raw.dump(episode))
    assert all(type(step) is envlogger.StepData for step in got["steps"])
    assert got["observation_spec"] == raw.SPECS["observation_spec"]


def test_pickles_of_numpy_1():
    data = {"array": np.arange(3, dtype=np.float32), "scalar": np.float64(0.5), "o": [None]}
    data["o"] = np.array([1, "a"], object)
    # In this protocol names are lines of text. NumPy 2 has but renamed its modules.
    pickled = pickle.dumps(data, 2).replace(b"cnumpy._core.", b"cnumpy.core.")
    assert b"cnumpy.core.multiarray\nscalar\n" in pickled
    assert b"_core" not in pickled
    assert_same(loads(pickled), data)


def test_what_is_in_many_places_is_made_once():
    nest = [np.ones(3)]
    for _ in range(10):
        nest = [nest, nest]
    got = loads(pickle.dumps(nest))
    for _ in range(10):
        assert got[0] is got[1]
        got = got[0]


def test_arrays_of_objects_and_of_any_order_of_axes():
    objects = np.fromiter([{1, 2}, [3], np.dtype("f4"), [dm_env.StepType.LAST]], object)
    objects = objects.reshape(2, 2)
    array = np.arange(24).reshape(2, 3, 4).transpose(1, 2, 0)
    for protocol in range(6):
        got, set_in_tuple, axes = loads(pickle.dumps((objects, ({1},), array), protocol))
        assert_same(got, objects)
        fortran = np.asfortranarray(objects)
        assert_same(loads(pickle.dumps(fortran, protocol)), objects)
        assert set_in_tuple == ({1},)
        assert_same(axes, array)
    frombuffer = np.zeros(2).__reduce_ex__(5)[0]
    reduced = Calls(frombuffer, array.base.tobytes(), array.dtype, (2, 3, 4), "K", (1, 2, 0))
    assert_same(loads(pickle.dumps(reduced)), array)  # NumPy 2.3.


# --- Harm -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("protocol", range(6))
@pytest.mark.parametrize(
    ("function", "arguments", "name"),
    [
        (os.system, ("touch harm",), "posix.system"),
        (builtins.eval, ("open('harm', 'w')",), "builtins.eval"),
        (builtins.__import__, ("os",), "builtins.__import__"),
        (shutil.copytree, ("/etc", "harm"), "shutil.copytree"),
        (np.load, ("file",), "numpy.load"),
        (collections.defaultdict, (list,), "collections.defaultdict"),
    ],
)
def test_other_names_are_refused_and_told(
    tmp_path, monkeypatch, protocol, function, arguments, name
):
    monkeypatch.chdir(tmp_path)
    data = {"steps": [{"deep": Calls(function, *arguments)}]}
    with pytest.raises(RestrictedPickleError) as error:
        loads(pickle.dumps(data, protocol))
    found = str(error.value).replace("__builtin__", "builtins")
    assert f"the pickle names {name}, which is no plain data" in found
    assert not list(tmp_path.iterdir())


def test_harm_within_what_is_allowed():
    for data in (
        np.array([Calls(os.system, "true")], object),
        envlogger.StepData(None, Calls(os.system, "true")),
        {"x": Calls(frozenset, [Calls(os.system, "true")])},
    ):
        with pytest.raises(RestrictedPickleError, match=r"names posix\.system"):
            loads(pickle.dumps(data))


@pytest.mark.parametrize(
    ("name", "message"),
    [
        # What is reached through a name that is allowed.
        (b"cdm_env.specs\nnp.load\n", r"names dm_env\.specs\.np\.load"),
        (b"cdm_env.specs\nArray.__init__.__globals__\n", "__globals__"),
        (b"cenvlogger.step_data\nStepData.__class__\n", r"StepData\.__class__"),
        (b"cnumpy\nndarray\n", "holds a function or a class"),
        (b"cnumpy\nndarray\n)R", "calls what is only named"),
        (b"cbuiltins\nstr\n)R", "calls what is only named"),
        (b"cbuiltins\ntuple\n", "holds a function or a class"),
        (b"cenvlogger.step_data\nStepData\n(NNcnumpy\nndarray\ntR", "a function or a class"),
        (b"cdm_env._environment\nTimeStep\n(NNNcnumpy\ndtype\nt\x81", "a function or a class"),
        (
            b"ccopyreg\n_reconstructor\n(cenvlogger.step_data\nStepData\ncbuiltins\ntuple\n"
            b"(NNcnumpy\ndtype\nttR",
            "a function or a class",
        ),
    ],
)
def test_names_of_what_belongs_to_other_things(name, message):
    with pytest.raises(RestrictedPickleError, match=message):
        loads(b"\x80\x04" + name + b".")


@pytest.mark.parametrize(
    "name",
    [
        b"cdm_env._environment\nTimeStep\n",
        b"cenvlogger.step_data\nStepData\n",
        b"cdm_env.specs\nArray\n",
        b"cnumpy\ndtype\n",
        b"cbuiltins\ntuple\n",
        b"c_codecs\nencode\n",
    ],
)
def test_pickles_cannot_change_classes_and_functions(name):
    attributes = b"}U\x05firstK\x01s"  # {"first": 1}
    for state in (attributes, b"N" + attributes + b"\x86"):
        with pytest.raises(RestrictedPickleError):
            loads(b"\x80\x04" + name + state + b"b.")
    assert dm_env.restart(0).first()
    assert not hasattr(tuple, "first")


@pytest.mark.parametrize(
    ("pickled", "opcode"),
    [
        (b"\x80\x02\x84\x01\0\0\0.", "EXT4"),
        (b"Pfile\n.", "PERSID"),
        (b"\x80\x02K\x01Q.", "BINPERSID"),
        (b"\x80\x02\x82\x01.", "EXT1"),
        (b"(S'true'\nios\nsystem\n.", "INST"),
        (b"(S'true'\no.", "OBJ"),
        (b"\x80\x05\x97.", "NEXT_BUFFER"),
    ],
)
def test_opcodes_that_plain_data_does_not_need(pickled, opcode):
    with pytest.raises(RestrictedPickleError, match=f"the opcode {opcode} is not used"):
        loads(pickled)


FIRST = b"}X\x05\0\0\0firstK\7s"  # {"first": 7}


@pytest.mark.parametrize(
    "target",
    [
        b"cdm_env._environment\nStepType\n(K\0tR",
        b"cdm_env._environment\nTimeStep\n(K\0NNNtR",
        b"cenvlogger.step_data\nStepData\n(NNNtR",
        b"cdm_env.specs\nDiscreteArray\n(K\3cnumpy\ndtype\n(X\2\0\0\0i4tRNtR",
        b"cnumpy\ndtype\n(X\2\0\0\0i4tRN\x85b",  # A second state.
        b"c__builtin__\nset\n)R",
        b"]",
        b"K\1",
    ],
)
def test_pickles_cannot_change_what_they_made(target):
    with pytest.raises(RestrictedPickleError, match="the pickle changes"):
        loads(b"\x80\x02" + target + FIRST + b"b.")
    assert dm_env.StepType.FIRST.first()
    assert vars(dm_env.StepType.FIRST).keys() == vars(dm_env.StepType.LAST).keys()


# --- Lies -----------------------------------------------------------------------------------------


def array_pickle(dtype, shape, data, *, state=(3, "|", None, None, None, -1, -1, 0)):
    """The pickle of an array that need not be one."""
    reconstruct = np.zeros(0).__reduce__()[0]
    return pickle.dumps(
        Calls(
            reconstruct,
            *(np.ndarray, (0,), b"b"),
            state=(1, shape, Calls(np.dtype, *dtype, state=state), False, data),
        )
    )


def test_the_pickles_of_the_following_tests_may_tell_the_truth():
    got = loads(array_pickle(("f4", False, True), (2,), bytes(8)))
    assert_same(got, np.zeros(2, np.float32))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((("f4",), (3,), bytes(8)), "float32 of shape (3,) comes with other data"),
        ((("f4",), (1 << 60,), bytes(8)), "comes with other data"),
        ((("f4",), (-2,), bytes(8)), "(-2,) is not the shape of an array"),
        ((("f4",), (2.0,), bytes(8)), "is not the shape of an array"),
        ((("f4",), [2], bytes(8)), "is not the shape of an array"),
        ((("f4",), (2,), "text"), "comes with other data"),
        ((("f4",), (2,), [1, 2]), "comes with other data"),
        ((("S0",), (1 << 60,), b""), "comes with other data"),
        # Bytes that would be taken for the addresses of objects.
        ((("O8",), (1,), bytes(8)), "an array of 1 objects comes with other data"),
        ((("O8",), (2,), [1]), "an array of 2 objects comes with other data"),
        ((("V8",), (1,), bytes(8)), "the dtype 'V8' is not allowed"),
        ((("M8",), (1,), bytes(8)), "the dtype 'M8' is not allowed"),
        ((("f4,O",), (1,), bytes(12)), "the dtype 'f4,O' is not allowed"),
        (([("x", "O")],), "is not allowed"),
    ],
)
def test_arrays_that_lie(arguments, message):
    if len(arguments) == 1:
        arguments = (arguments, (1,), bytes(8))
    with pytest.raises(RestrictedPickleError) as error:
        loads(array_pickle(*arguments))
    assert message in str(error.value)


def test_dtypes_with_fields_in_their_state():
    state = (3, "|", None, ("x",), {"x": (np.dtype("O"), 0)}, 8, 1, 0)
    with pytest.raises(RestrictedPickleError, match="dtypes with fields are not allowed"):
        loads(array_pickle(("f8",), (1,), bytes(8), state=state))
    with pytest.raises(RestrictedPickleError, match="the dtype 'V4' is not allowed"):
        loads(pickle.dumps(np.zeros(1, [("x", np.float32)])))


def test_scalars_that_lie():
    scalar = np.float64(1).__reduce__()[0]
    with pytest.raises(RestrictedPickleError, match="comes with other data"):
        loads(pickle.dumps(Calls(scalar, np.dtype("f8"), bytes(4))))
    with pytest.raises(RestrictedPickleError, match="pickle of a scalar is damaged"):
        loads(pickle.dumps(Calls(scalar, np.dtype("O"), bytes(8))))


# --- Bombs ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("pickled", "message"),
    [
        (pickle.dumps(Calls(bytearray, 1 << 62)), "a bytearray of something else"),
        (pickle.dumps(Calls(bytes, 1 << 62)), "bytes of something else"),
        (b"\x80\x02Nr" + struct.pack("<I", 2**32 - 2) + b".", "fewer than 4294967294 objects"),
        (b"Np4294967294\n.", "fewer than 4294967294 objects"),
        (b"\x80\x04\x8e" + struct.pack("<Q", 1 << 60) + b"a.", "damaged"),
        (b"\x80\x04" + b"]" * 2000 + b"a" * 1999 + b".", "more than 100 deep"),
    ],
)
def test_bombs(pickled, message):
    with pytest.raises(RestrictedPickleError, match=message):
        loads(pickled)


def test_what_contains_itself():
    loop = [1]
    loop.append({"x": loop})
    with pytest.raises(RestrictedPickleError, match="an object contains itself"):
        loads(pickle.dumps(loop))


def numbers_with_equal_hashes(count):
    return [number * sys.hash_info.modulus for number in range(count)]


@pytest.mark.parametrize("protocol", [2, 4])
@pytest.mark.parametrize(
    "make",
    [
        set,
        frozenset,
        dict.fromkeys,
        lambda keys: {(frozenset([key]), "a"): None for key in keys},
    ],
)
def test_keys_with_equal_hashes_are_refused(make, protocol):
    loads(pickle.dumps(make(numbers_with_equal_hashes(10)), protocol))
    with pytest.raises(RestrictedPickleError, match="have the same hash"):
        loads(pickle.dumps(make(numbers_with_equal_hashes(100)), protocol))


def doubled(times, *, kind=b"\x86", leaf=b"K\1"):
    """Pairs of pairs, of which each is there once."""
    return b"\x80\x02" + leaf + (b"2" + kind) * times


@pytest.mark.parametrize(
    "pickled",
    [
        doubled(60) + b".",
        b"\x80\x02}" + doubled(60)[2:] + b"Ns.",  # As a key.
        doubled(40, kind=b"\x86\x85") + b".",
        # A long string that is referred to often.
        pickle.dumps([["a" * (1 << 20)] * 2000]),
    ],
)
def test_what_would_not_end_when_it_is_walked(pickled):
    with pytest.raises(RestrictedPickleError, match="would be"):
        loads(pickled)


def test_what_is_refused_is_not_spelled_out():
    for refused in (b"}b.", b"Na.", b"2R."):
        with pytest.raises(RestrictedPickleError, match=r"the pickle (changes|calls)") as error:
            loads(doubled(60) + refused)
        assert len(str(error.value)) < 200


def test_keys_are_hashed_within_bounds():
    key = doubled(16)
    pickled = key + b"q\0" + b"0" + b"(" + b"}h\0Ns" * 5000 + b"t."
    with pytest.raises(RestrictedPickleError, match="would be"):
        loads(pickled)


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        (Calls(specs.Array, (10**12,), np.dtype("f4"), None), "values at most"),
        (
            Calls(specs.BoundedArray, (10**12,), np.dtype("f4"), np.zeros(1), np.ones(1), None),
            "values at most",
        ),
        (Calls(specs.StringArray, (1 << 40,), str, None), "values at most"),
        (Calls(specs.Array, (-1,), np.dtype("f4"), None), "shape of a spec Array"),
        (Calls(specs.Array, "12", np.dtype("f4"), None), "shape of a spec Array"),
        (Calls(specs.Array, (1,), "f4,O", None), "dtype of a spec Array"),
        (Calls(specs.Array, (1,), np.dtype("f4"), [1]), "name of a spec Array"),
        (Calls(specs.DiscreteArray, "3", np.dtype("i4"), None), "number of values"),
        (Calls(specs.DiscreteArray, 10**30, np.dtype("i4"), None), "damaged"),
        (Calls(specs.StringArray, (), int, None), "names builtins.int"),
        (
            Calls(specs.BoundedArray, (1,), np.dtype("f4"), np.array([{}], object), 1, None),
            "bound of a spec BoundedArray",
        ),
    ],
)
def test_specs_that_lie(spec, message):
    with pytest.raises(RestrictedPickleError, match=message):
        loads(pickle.dumps(spec, 3))


@pytest.mark.parametrize(
    ("dtype", "data"), [("U1", b"\xff\xff\xff\x7f"), ("S1000000", b""), ("U1000000", b"")]
)
def test_strings_that_lie(dtype, data):
    with pytest.raises(RestrictedPickleError, match=r"no characters|larger than the pickle"):
        loads(array_pickle((dtype,), (len(data) // 4,), data))


def test_truth_is_zero_or_one():
    got = loads(array_pickle(("b1",), (3,), b"\0\1\7"))
    assert_same(got, np.array([False, True, True]))
    assert got.view(np.uint8).tolist() == [0, 1, 1]


# --- Damage ---------------------------------------------------------------------------------------


@settings(max_examples=4 * settings().max_examples)
@given(st.data())
def test_damage_is_told_as_such_or_changes_plain_data_only(data):
    pickled = bytearray(raw.dump(raw.make_episode(0, 1), data.draw(PROTOCOLS)))
    for _ in range(data.draw(st.integers(1, 3))):
        pickled[data.draw(st.integers(0, len(pickled) - 1))] = data.draw(st.integers(0, 255))
    pickled = pickled[: data.draw(st.integers(0, len(pickled)))]
    with contextlib.suppress(RestrictedPickleError):  # All other errors are wrong.
        assert_plain(loads(bytes(pickled)))


# Parts of programs, of which hypothesis makes programs that mean something, or almost.
PARTS = st.sampled_from(
    [
        *(bytes([code]) for code in b"]}()t.a2sueld0Rb\x81\x85\x86\x87\x8f\x90\x91\x92\x93\x94"),
        *(b"N", b"\x88", b"K\1", b"I-5\n", b"G?\xf0\0\0\0\0\0\0", b"X\1\0\0\0a", b"C\2ab"),
        *(b"h\0", b"h\1", b"h\2", b"q\0", b"q\1", b"q\2", b"\x8a\x09" + bytes(8) + b"\1"),
        *(b"C\10" + bytes(8), b"K\1\x85", b"K\0K\2\x86", b"(K\0NNNt", b"(K\1X\1\0\0\0<NNNt"),
        *(f"c{module}\n{name}\n".encode() for module, name in restricted_pickle._ALLOWED),
        *(f"cnumpy\ndtype\n(X\2\0\0\0{name}tR".encode() for name in ("f4", "O8", "U2", "b1")),
        b"cnumpy.core.multiarray\n_reconstruct\n(cnumpy\nndarray\nK\0\x85C\1btR",
        b"cdm_env._environment\nStepType\nK\1\x85R",
    ]
)
PLAIN_TYPES = {
    *(type(None), bool, int, float, complex, str, bytes, bytearray, list, tuple, dict, set),
    *(frozenset, np.ndarray, dm_env.StepType, dm_env.TimeStep, envlogger.StepData),
    *(specs.Array, specs.BoundedArray, specs.DiscreteArray, specs.StringArray),
}


def assert_plain(value):
    """Walks through all of a value, which must end."""
    if isinstance(value, np.generic | np.dtype):
        assert np.dtype(getattr(value, "dtype", value)).kind in "biufcSUO"
        return
    assert type(value) in PLAIN_TYPES
    if isinstance(value, dict):
        for pair in value.items():
            assert_plain(pair)
    elif isinstance(value, list | tuple | set | frozenset):
        for child in value:
            assert_plain(child)
    elif isinstance(value, np.ndarray) and value.dtype == object:
        assert_plain(value.ravel().tolist())


@settings(max_examples=6 * settings().max_examples)
@given(st.lists(PARTS, max_size=30).map(b"".join))
def test_any_program_makes_plain_data_or_is_refused(program):
    with contextlib.suppress(RestrictedPickleError):  # All other errors are wrong.
        assert_plain(loads(b"\x80\x04" + program + b"."))
    assert vars(dm_env.StepType.FIRST).keys() == vars(dm_env.StepType.LAST).keys()


def test_other_bytes():
    for data in (b"", b".", b"PK\x03\x04", b"\x80\x63."):
        with pytest.raises(RestrictedPickleError, match="the pickle is damaged"):
            loads(data)


@pytest.mark.parametrize("protocol", range(6))
def test_types_of_steps_by_their_names(protocol):
    """As the first releases of Python 3.11 write them."""
    mid = Calls(getattr, dm_env.StepType, "MID")
    assert loads(pickle.dumps([mid], protocol)) == [dm_env.StepType.MID]


@pytest.mark.parametrize("protocol", range(6))
@pytest.mark.parametrize(
    "arguments",
    [
        ((), "__class__"),
        (dm_env.StepType, "__class__"),
        (dm_env.StepType, "mro"),
        (dm_env.TimeStep, "_make"),
        ("text", "format"),
    ],
    ids=str,
)
def test_other_attributes_are_refused(arguments, protocol):
    with pytest.raises(RestrictedPickleError, match="attribute of something else than a type of"):
        loads(pickle.dumps([Calls(getattr, *arguments)], protocol))
