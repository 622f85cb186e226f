"""The step encoder returns the bytes of the codec, for all values and in any order."""

import collections
import pickle
import threading

import dm_env
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from stored_steps import Gear, Pose, canonical, episodes, fields, stored

from envlogger import StepData
from envlogger.converters import codec
from envlogger.converters.step_decoder import StepDecoder
from envlogger.converters.step_encoder import StepEncoder
from envlogger.errors import UnsupportedValueError


def mid(observation, action=0, reward=1.0, discount=1.0, custom_data=None):
    timestep = dm_env.TimeStep(dm_env.StepType.MID, reward, discount, observation)
    return StepData(timestep, action, custom_data)


def assert_encodes(encoder, *steps):
    for step in steps:
        assert canonical(encoder.encode(step)) == canonical(stored(step))


@pytest.mark.slow
@given(episodes())
def test_an_episode_is_encoded_as_the_codec_does(steps):
    encoder = StepEncoder()
    assert_encodes(encoder, *steps, *steps)


@pytest.mark.slow
@given(fields.flatmap(lambda field: st.tuples(field, field)), fields.flatmap(lambda field: field))
def test_structures_may_alternate(pair, other):
    one, two = pair
    encoder = StepEncoder()
    assert_encodes(encoder, mid(one), mid(other), mid(two), mid(other), mid(one, custom_data=two))


def test_bytes_are_those_of_the_codec():
    encoder = StepEncoder()
    for value in range(3):
        step = mid({"x": np.full(3, value, np.float32)}, action=value, reward=-0.0)
        assert encoder.encode(step) == stored(step)


A, B = np.arange(6, dtype=np.float32).reshape(2, 3), np.ones((2, 3), np.float32)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (A, A.T.copy().T),
        (A, A.astype(">f4")),
        (A, A.astype("f8")),
        (A, A.view(np.int32)),
        (A, A.ravel()),
        (A, A.reshape(3, 2)),
        (A, A[:, ::2]),
        (A, np.zeros((0, 3), np.float32)),
        (np.zeros((0, 3), np.float32), np.zeros((0, 3), np.float64)),
        (np.zeros((0, 3)), np.zeros((3, 0))),
        (A, A.tolist()),
        (A, pickle.loads(pickle.dumps(A))),
        (A, A.view(type("Sub", (np.ndarray,), {}))),
        (np.array(1), np.int64(1)),
        (np.array(1), np.array([1])),
        (np.array([-1, 2**40]), np.array([1, 2])),
        (np.int32([-1, 1]), np.int32([5, 300])),
        (np.array([True, False]), np.array([1, 2], np.uint8).view(bool)),
        (np.array(["a"]), np.array([b"a"])),
        (np.array(["a"]), np.array(["ab"])),
        (np.array(["a", "b"], object), np.array([b"a", b"b"], object)),
        (True, 1),
        (1, True),
        (1, np.int64(1)),
        (np.int64(1), np.longlong(1)),
        (1, Gear.REVERSE),
        (Gear.REVERSE, Gear.NEUTRAL),
        (1, 2**70),
        (127, 128),
        (-128, -129),
        (1.5, np.float64(1.5)),
        (1.5, np.float32(1.5)),
        (0.0, -0.0),
        (1.5, None),
        ("a", b"a"),
        ("a", np.str_("b")),
        ("", "\0"),
        ("a" * 127, "a" * 128),
        ((1, 2), [1, 2]),
        ((1, 2), (1, 2, 3)),
        ((1, 2), Pose(1, 2)),
        ((), []),
        ([1], []),
        ([], [1]),
        ((), None),
        ({}, None),
        ({}, {"a": 1}),
        ({"a": 1, "b": 2}, {"b": 1, "a": 2}),
        ({"a": 1}, {"b": 1}),
        ({"a": 1}, {"a": 1, "b": 1}),
        ({"a": 1}, {1: 1}),
        ({"a\0b": 1, "c": 2}, {"a": 1, "b\0c": 2}),
        ({"a": 1, "b": 2}, {"a\0b": 1}),
        ({1: 1}, {1.0: 1}),
        ({1: 1}, {True: 1}),
        ({1: 1, "a": 2}, {1: 3, "a": 4}),
        ({"a": 1}, {Gear.NEUTRAL: 1}),
        ({"a": 1}, collections.OrderedDict(a=2)),
        ({"a": 1}, collections.defaultdict(int, a=2)),
        ({"a": 1}, {np.str_("a"): 2}),
        (dm_env.StepType.LAST, 2),
    ],
    ids=repr,
)
def test_values_that_look_alike_are_told_apart(one, other):
    encoder = StepEncoder()
    assert_encodes(encoder, *[mid(x) for x in (one, other, one, other)])


class Odd(int):
    def __int__(self):
        return 7


class Shout(str):
    def __str__(self):
        return self.upper()


class Double(float):
    def __float__(self):
        return 2 * super().__float__()


@pytest.mark.parametrize("value", [Odd(3), Shout("a"), Double(1.5)], ids=repr)
def test_subclasses_are_stored_as_the_codec_does(value):
    assert_encodes(StepEncoder(), *[mid(x) for x in (value, type(value).__base__(value), value)])


@pytest.mark.parametrize(
    ("dtype", "bits"), [("float32", 0x7FA0_0001), ("float64", 0x7FF4_0000_0000_0001)]
)
def test_every_bit_of_a_nan_is_kept(dtype, bits):
    array = np.array([bits], f"u{np.dtype(dtype).itemsize}").view(dtype)
    assert np.isnan(array).all()
    encoder, decoder = StepEncoder(), StepDecoder()
    for _ in range(2):  # By the codec, and by a plan or a template.
        record = encoder.encode(mid({"array": array, "scalar": array[0]}))
        assert record.count(array.tobytes()) == 2
        decoded = decoder.decode(record).timestep.observation
        assert decoded["array"].tobytes() == decoded["scalar"].tobytes() == array.tobytes()
        assert codec.decode(codec.encode((array[0], array)))[0].tobytes() == array.tobytes()
    columns = decoder.get_templates(len(record))[-1].columns(record * 2).timestep.observation
    assert columns["scalar"].tobytes() == columns["array"].tobytes() == array.tobytes() * 2


@pytest.mark.parametrize("is_planned", [False, True])
def test_steps_too_large_for_protobuf_are_refused_with_the_path_of_the_value(
    is_planned, monkeypatch
):
    monkeypatch.setattr(codec, "MAX_SIZE", 10_000)
    encoder = StepEncoder()
    for observation, path in [
        ({"a": np.zeros(2), "frames": np.zeros(20_000, np.uint8)}, r"\['frames'\]"),
        ({"a": np.zeros(2), "frames": b"x" * 20_000}, r"\['frames'\]"),
        ({"a": np.zeros(1000, np.uint8), "b": ["x" * 4000, "y" * 6000]}, r"\['b'\]\[1\]"),
    ]:
        if is_planned:
            values = {"a": np.zeros_like(observation["a"]), "frames": b"", "b": ["x", "y"]}
            encoder.encode(mid({name: values[name] for name in observation}))
        with pytest.raises(UnsupportedValueError, match=f"timestep.observation{path}") as error:
            encoder.encode(mid(observation))
        assert "10,000" in str(error.value)
    assert len(encoder.encode(mid({"a": np.zeros(1000)}))) < 10_000


@pytest.mark.parametrize(
    "value",
    [
        {1},
        object(),
        1j,
        np.zeros(2, complex),
        np.zeros(2, np.float16),
        np.array([1, "a"], object),
        np.ma.array([1.0, 2.0]),
        "\ud800",
        {"\ud800": 1},
        np.array(["\ud800"], object),
        [1, "a"],
    ],
    ids=lambda value: type(value).__name__,
)
@pytest.mark.parametrize("previous", [1, np.array(["a"], object)])
def test_values_that_the_codec_refuses_are_refused_with_the_same_message(value, previous):
    encoder = StepEncoder()
    encoder.encode(mid({"x": previous}))
    with pytest.raises(Exception, match="cannot store") as expected:
        codec.encode(mid({"x": value}), name="step")
    for _ in range(2):
        with pytest.raises(expected.type) as caught:
            encoder.encode(mid({"x": value}))
        assert str(caught.value) == str(expected.value)
    assert_encodes(encoder, mid({"x": previous}))


def test_steps_and_records_share_no_memory():
    array = np.zeros((64, 64), np.float32)
    step = mid(array)
    encoder = StepEncoder()
    records = [encoder.encode(step), encoder.encode(step)]
    array[:] = 1
    assert records == [stored(mid(np.zeros((64, 64), np.float32)))] * 2


def test_steps_of_endless_variety_are_encoded():
    encoder = StepEncoder()
    assert_encodes(encoder, *[mid(np.zeros(n % 40)) for n in range(80)])
    assert_encodes(encoder, *[mid("a" * (n % 300), action="b" * (n % 7)) for n in range(600)])


def test_threads_may_share_an_encoder():
    encoder = StepEncoder()
    failures = []

    def work(seed):
        for i in range(200):
            step = mid([1, 1.5, "a", np.zeros(seed)][(i + seed) % 4], action=i)
            if encoder.encode(step) != stored(step):
                failures.append(step)

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures
