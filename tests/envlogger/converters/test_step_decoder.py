"""The step decoder equals the codec, with and without templates, also for damaged records."""

import threading

import dm_env
import numpy as np
import pytest
from google.protobuf.message import DecodeError
from hypothesis import given
from hypothesis import strategies as st
from stored_steps import NUMERIC_DTYPES, assert_same, episodes, stored

from envlogger import Data, StepData
from envlogger.converters import codec
from envlogger.converters.step_decoder import StepDecoder
from envlogger.converters.step_encoder import StepEncoder
from envlogger.converters.step_template import NoMatchError, Template
from envlogger.errors import DamagedDataError, UnsupportedTypeError
from riegeli.varints import encode_varints


def mid(observation, action=0, reward=1.0, discount=1.0, custom_data=None):
    timestep = dm_env.TimeStep(dm_env.StepType.MID, reward, discount, observation)
    return StepData(timestep, action, custom_data)


def decode_by_codec(record):
    """Returns the decoded step; None if the record is invalid."""
    try:
        value = codec.decode(Data.FromString(record))
        (step_type, reward, discount, observation), action, custom_data = value
        if not isinstance(step_type, int):
            return None
        timestep = dm_env.TimeStep(dm_env.StepType(step_type), reward, discount, observation)
        return StepData(timestep, action, custom_data)
    except (DecodeError, DamagedDataError, TypeError, ValueError):
        return None


def assert_decodes(decoder, *records):
    for record in records:
        expected = decode_by_codec(record)
        if expected is None:
            with pytest.raises((DamagedDataError, UnsupportedTypeError)):
                decoder.decode(record)
        else:
            assert_same(decoder.decode(record), expected)


def train_decoder(*records):
    decoder = StepDecoder()
    for record in records:
        decoder.decode(record)
    return decoder


@pytest.mark.slow
@given(episodes())
def test_an_episode_is_decoded_as_the_codec_does(steps):
    decoder = StepDecoder()
    encode = StepEncoder().encode
    records = [*map(encode, steps), *map(stored, steps)]
    assert_decodes(decoder, *records, *records)


@pytest.mark.slow
@given(episodes(max_steps=2), st.data())
def test_damage_is_handled_as_by_the_codec(steps, data):
    records = list(map(stored, steps))
    decoder = train_decoder(*records)
    for record in records:
        for _ in range(10):
            damaged = bytearray(record)
            for _ in range(data.draw(st.integers(1, 2))):
                damaged[data.draw(st.integers(0, len(record) - 1))] ^= data.draw(
                    st.sampled_from([1, 2, 4, 8, 16, 32, 64, 128, 255])
                )
            assert_decodes(decoder, bytes(damaged))
        assert_decodes(decoder, record[: data.draw(st.integers(0, len(record)))], record + b"\0")
        assert_decodes(decoder, record)


VALUES = {
    "text": "année",
    "blob": b"abc",
    "bool": True,
    "bools": np.array([True, False]),
    "number": 1000,
    "integer": np.int64(-1),
    "short": np.uint32(2**32 - 1),
    "integers": np.array([1, -1, 300], np.int32),
    "position": np.array([1, 2], np.int16),
    1: np.array(2.0, np.float32),
    "nothing": (None, [], {}, np.zeros((0, 2), np.int8)),
    "names": np.array(["a", "b"]),
}


def test_each_damaged_byte_is_handled_as_by_the_codec():
    for value in VALUES.items():
        record = stored(mid(dict([value]), action=3))
        decoder = train_decoder(record)
        for i in range(len(record)):
            for byte in (0, 1, 2, 3, 0x7F, 0x80, 0xFF, record[i] ^ 1, record[i] ^ 0x80):
                assert_decodes(decoder, record[:i] + bytes([byte]) + record[i + 1 :])
            assert_decodes(decoder, record[:i])


@pytest.mark.parametrize("key", [key for key in VALUES if key != "names"], ids=str)
def test_a_template_decodes_its_record(key):
    record = stored(mid(VALUES[key], action=3))
    assert_same(Template(record).decode(record), decode_by_codec(record))


@pytest.mark.slow
@pytest.mark.parametrize("dtype", NUMERIC_DTYPES)
@pytest.mark.parametrize("shape", [(), (1,), (2, 3)])
def test_a_template_decodes_other_values(dtype, shape):
    filled, zeros = np.ones(shape, dtype), np.zeros(shape, dtype)
    template = Template(stored(mid((filled, filled.flat[0]))))
    record = stored(mid((zeros, zeros.flat[0]), reward=-0.0, action=5))
    assert_same(template.decode(record), decode_by_codec(record))


def test_a_template_refuses_records_of_another_structure():
    template = Template(stored(mid({"a": 1.0}, action=3)))
    for step in [mid({"b": 1.0}, 3), mid({"a": 1.0}, 300), mid({"a": 1.0}, b"\3"), mid([1.0], 3)]:
        with pytest.raises(NoMatchError):
            template.decode(stored(step))


def test_arrays_are_writable_and_own_their_memory():
    values = {f"{dtype} {n}": np.ones((n, 1), dtype) for dtype in NUMERIC_DTYPES for n in (0, 1, 2)}
    values |= {dtype: np.array(1, dtype) for dtype in NUMERIC_DTYPES}
    values["wide"] = np.array([300, -300])
    record = stored(mid(values))
    decoder = train_decoder(record)
    for _ in range(2):
        for name, array in decoder.decode(record).timestep.observation.items():
            assert array.flags.writeable, name
            assert array.flags.c_contiguous, name
            assert array.flags.aligned, name
            array[...] = 0
    assert_decodes(decoder, record)


def test_float32_arrays_of_older_versions_are_decoded():
    data = Data()
    for value in (1.5, 2.5):
        data = codec.encode(mid(np.zeros(3, np.float32)))
        datum = data.tuple.values[0].tuple.values[3].datum
        del datum.values.float_values[:]
        datum.values.float_values_buffer = np.full(3, value, ">f4").tobytes()
        record = data.SerializeToString()
        template = Template(record)
        for decode in (template.decode, StepDecoder().decode):
            assert_same(decode(record).timestep.observation, np.full(3, value, np.float32))


@pytest.mark.parametrize("mark", [Data.BEGINS, Data.CONTINUES])
def test_templates_ignore_episode_marks(mark):
    data = codec.encode(mid(1.5))
    data.episode_mark = mark
    record = data.SerializeToString()
    assert_same(Template(record).decode(record), mid(np.float64(1.5), 0, *map(np.float64, (1, 1))))


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (1, "not a step"),
        (((3, 1.0, 1.0, 0), 0, None), "3 is not a valid StepType"),
        (((0, 1.0, 1.0), 0, None), "not a step"),
        (((0.5, 1.0, 1.0, 0), 0, None), "not a step"),
        (None, "not a step"),
    ],
)
def test_records_that_are_no_steps_are_refused(value, message):
    decoder = train_decoder(stored(mid(0)))
    with pytest.raises(DamagedDataError, match=message):
        decoder.decode(codec.encode(value).SerializeToString())


def test_bytes_that_are_no_record_are_refused():
    with pytest.raises(DamagedDataError, match=r"a record is not a envlogger\.Data"):
        StepDecoder().decode(b"\xff")


@pytest.mark.parametrize("step_type", [1, np.int64(1), True, 200, -1])
def test_unusual_step_types_are_decoded_as_the_codec_does(step_type):
    record = stored(StepData((step_type, 1.0, 1.0, 0), 0))
    assert_decodes(train_decoder(stored(mid(0))), record, record)


def test_fields_in_another_order_or_twice_are_parsed():
    step = mid({"a": 1, "b": 2.0})
    record = stored(step)
    mark = Data(episode_mark=Data.BEGINS).SerializeToString()
    for variant in (record + record, mark + record, record + b"\x28\x01"):
        assert_decodes(train_decoder(record), variant, variant, record)


@pytest.mark.slow
def test_records_of_endless_variety_are_decoded():
    decoder = StepDecoder()
    assert_decodes(decoder, *[stored(mid("a" * n, custom_data=b"" * (n % 3))) for n in range(300)])
    texts = [mid(("a" * n, "b" * (20 - n))) for n in range(20)]
    assert_decodes(decoder, *map(stored, texts), *map(stored, texts))


def test_a_step_of_very_many_values_is_decoded():
    record = StepEncoder().encode(mid(tuple(range(2000))))
    assert_decodes(StepDecoder(), record, record)


def test_nesting_too_deep_for_parsers_is_refused():
    content = b""
    for _ in range(100):
        size = encode_varints([len(content)])
        item = b"\x0a" + size + content
        content = b"\x1a" + encode_varints([len(item)]) + item
    step = b"".join(
        b"\x0a" + encode_varints([len(field)]) + field
        for field in (codec.encode((1, 1.0, 1.0, 0)).SerializeToString(), b"", content)
    )
    record = b"\x1a" + encode_varints([len(step)]) + step
    with pytest.raises(NoMatchError):
        Template(record)
    assert_decodes(StepDecoder(), record)


def test_threads_may_share_a_decoder():
    decoder = StepDecoder()
    records = [stored(mid("a" * (i % 5), action=i)) for i in range(300)]
    expected = list(map(decode_by_codec, records))
    failures = []

    def work(seed):
        for i in range(len(records)):
            j = (i + 50 * seed) % len(records)
            if decoder.decode(records[j]) != expected[j]:
                failures.append(j)

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures
