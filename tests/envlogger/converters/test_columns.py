"""Columns of records are the stacked columns of the decoded steps."""

import dm_env
import numpy as np
import pytest
from dm_env import specs
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from stored_steps import assert_same, episodes

from envlogger import StepData
from envlogger.converters import columns as columns_module
from envlogger.converters import step_template
from envlogger.converters.columns import StoredRecords, recorded_columns, rlds_columns
from envlogger.converters.rlds_episode import to_rlds_episode
from envlogger.converters.step_decoder import StepDecoder
from envlogger.converters.step_encoder import StepEncoder
from envlogger.errors import DamagedDataError
from riegeli import JoinedRecords
from rlds_ecosystem.model.columns import stack_values

FIRST, MID, LAST = dm_env.StepType


def step(kind, observation, action=None, reward=None, discount=None, custom_data=None):
    return StepData(dm_env.TimeStep(kind, reward, discount, observation), action, custom_data)


def encode_all(steps):
    return list(map(StepEncoder().encode, steps))


def in_chunks(records, length=1000):
    """Returns records that are stored in chunks of some length."""

    def read(stored):
        for begin in range(0, len(records), length):
            run = records[begin : begin + length]
            sizes, values = list(map(len, run)), memoryview(b"".join(run))
            into = stored.remaining()
            if into is not None and set(sizes) == {stored.record_size}:
                into[: len(values)] = values
                values = into[: len(values)]
            yield JoinedRecords(sizes, values)

    return StoredRecords(len(records), read)


@pytest.fixture(scope="module", autouse=True)
def no_record_is_small():
    """Runs stay apart, as those of images do."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(columns_module, "_SMALL_RECORD_BYTES", 0)
        yield


def decode_all(records):
    return list(map(StepDecoder().decode, records))


def attempt(function, *args):
    """Returns the result of a function, or its error as text."""
    try:
        return function(*args)
    except (ValueError, TypeError) as e:
        return f"{type(e).__name__}: {e}"


def assert_same_outcome(actual, expected):
    if isinstance(expected, str) or isinstance(actual, str):
        assert actual == expected
    else:
        assert_same(actual, expected)


@pytest.mark.slow
@given(episodes(), st.integers(1, 8))
def test_an_rlds_episode_is_that_of_the_decoded_steps(steps, length):
    records = encode_all(steps)
    expected = attempt(to_rlds_episode, decode_all(records))
    actual = attempt(rlds_columns, in_chunks(records, length), StepDecoder())
    assert_same_outcome(actual, expected)


@pytest.mark.slow
@given(episodes(), st.integers(1, 4), st.integers(1, 8))
def test_columns_in_recorded_order_are_those_of_the_decoded_steps(steps, num_episodes, length):
    records = encode_all(steps) * num_episodes
    steps = decode_all(records)
    actual = attempt(recorded_columns, in_chunks(records, length), StepDecoder())
    if isinstance(actual, str):
        with pytest.raises((ValueError, TypeError)):
            to_rlds_episode([*steps, *steps])
        return
    timestep, action, custom_data = actual
    assert_same(timestep.step_type, np.array([int(s.timestep.step_type) for s in steps]))
    assert_same(timestep.observation, stack_values([s.timestep.observation for s in steps]))
    assert_same(custom_data, stack_values([s.custom_data for s in steps]))
    for column, values in [
        (action, [s.action for s in steps]),
        (timestep.reward, [s.timestep.reward for s in steps]),
        (timestep.discount, [s.timestep.discount for s in steps]),
    ]:
        indices = [index for index, s in enumerate(steps) if not s.timestep.first()]
        if indices and any(value is not None for value in values):
            expected = stack_values([values[index] for index in indices])
            assert_same(select_rows(column, indices), expected)


def select_rows(columns, indices):
    if isinstance(columns, dict):
        return {key: select_rows(child, indices) for key, child in columns.items()}
    if isinstance(columns, list | tuple):
        return type(columns)([select_rows(child, indices) for child in columns])
    return columns[indices]


@pytest.fixture
def by_slices(monkeypatch):
    """Fails the test if a step other than the last, which tells the end, is decoded alone."""
    decode = StepDecoder.decode
    records = []

    def record_and_decode(self, record):
        records.append(record)
        return decode(self, record)

    monkeypatch.setattr(StepDecoder, "decode", record_and_decode)
    monkeypatch.setattr(columns_module, "to_rlds_episode", None)
    monkeypatch.setattr(columns_module, "stacked_columns", None)
    yield
    assert len(set(records)) <= 1


def an_episode(num_steps, value_of):
    return [
        step(FIRST, value_of(0), custom_data=value_of(0)),
        *[
            step(MID, value_of(i), value_of(i), 0.5 * i, 1.0, value_of(i))
            for i in range(1, num_steps)
        ],
        step(LAST, value_of(0), value_of(1), 1.5, 0.0, value_of(0)),
    ]


@pytest.mark.parametrize(
    "value_of",
    [
        lambda i: np.full(17, i, np.float32),
        lambda i: np.full((2, 3), i, ">f8"),
        lambda i: np.full((2, 3), i, np.uint8),
        lambda i: np.full(3, -i, np.int16),
        lambda i: np.full((2, 2), (-i) ** 7),
        lambda i: np.array([i, -i, 100 * i], np.int32),
        lambda i: np.uint64(2**64 - 1 - i),
        lambda i: np.array([i % 2, 0], bool),
        lambda i: np.array(i, np.float32),
        lambda i: np.zeros((0, 2), np.int8),
        lambda i: {"a": i - 3, "b": (np.int64(i * 1000), [1.5 * i]), 0: np.float32(i)},
        lambda i: i**9 - 300,
        lambda i: bool(i % 2),
        lambda i: np.uint8(i),
        lambda i: "é" * (i % 3),
        lambda i: b"\0" * (i % 3),
        lambda i: ((), [], {}, None),
    ],
    ids=lambda value_of: repr(value_of(5)),
)
def test_usual_recordings_are_sliced_into_columns(by_slices, value_of):
    steps = an_episode(30, value_of)
    for length in (100, 7):
        records = in_chunks(encode_all(steps), length)
        assert_same(rlds_columns(records, StepDecoder()), to_rlds_episode(steps))


def test_placeholders_stand_in_the_first_step_of_each_episode(by_slices):
    steps = [
        step(FIRST, 1),
        step(MID, 2, action="go", reward=1.0, discount={"a": np.ones(2)}),
        step(LAST, 3, action="stop", reward=2.0, discount={"a": np.zeros(2)}),
        step(FIRST, 4),
        step(MID, 5, action="é", reward=3.0, discount={"a": np.ones(2)}),
    ]
    timestep, action, custom_data = recorded_columns(in_chunks(encode_all(steps)), StepDecoder())
    assert timestep.step_type.tolist() == [0, 1, 2, 0, 1]
    assert timestep.observation.tolist() == [1, 2, 3, 4, 5]
    assert timestep.reward.tolist() == [0.0, 1.0, 2.0, 0.0, 3.0]
    assert timestep.discount["a"].tolist() == [[0, 0], [1, 1], [0, 0], [0, 0], [1, 1]]
    assert action.tolist() == ["", "go", "stop", "", "é"]
    assert custom_data.tolist() == [None] * 5


def test_actions_and_rewards_recorded_with_a_first_step_are_kept(by_slices):
    steps = [step(FIRST, 1, 7, 0.5, 1.0), step(FIRST, 1), step(LAST, 2, 8, 1.5, 0.0)]
    timestep, action, _ = recorded_columns(in_chunks(encode_all(steps)), StepDecoder())
    assert action.tolist() == [7, 0, 8]
    assert timestep.reward.tolist() == [0.5, 0.0, 1.5]


def test_a_single_step_takes_specs():
    records = encode_all([step(FIRST, 1)])
    given_specs = {
        "action_spec": specs.Array((2,), np.float32),
        "reward_spec": specs.Array((), float),
        "discount_spec": specs.Array((), float),
    }
    assert_same(
        rlds_columns(in_chunks(records), StepDecoder(), **given_specs),
        to_rlds_episode(decode_all(records), **given_specs),
    )


@pytest.mark.parametrize(
    ("steps", "message"),
    [
        ([], "at least one step"),
        ([step(FIRST, 1)], "pass action_spec"),
        ([step(FIRST, 1), step(FIRST, 1)], "step 1 of 2 is a FIRST step"),
        ([step(LAST, 1), step(MID, 1, 0)], "step 0 of 2 is a LAST step"),
        ([step(FIRST, 1), step(MID, True, 0)], "^observation: step 1 holds bool"),
        ([step(MID, 1, 0), step(MID, 1, 0), step(MID, 1, None)], "^action: step 2 holds None"),
        ([step(FIRST, 2**63), step(MID, 1, 0)], "does not fit int64"),
        ([step(FIRST, 1, custom_data={"action": 1})] * 1 + [step(LAST, 1, 0)], "custom_data"),
    ],
)
def test_steps_that_form_no_episode_are_refused_with_the_same_message(steps, message):
    records = encode_all(steps)
    with pytest.raises(ValueError, match=message) as expected:
        to_rlds_episode(decode_all(records))
    with pytest.raises(ValueError, match=message) as caught:
        rlds_columns(in_chunks(records), StepDecoder())
    assert str(caught.value) == str(expected.value)


def test_errors_name_the_step_as_recorded():
    steps = [step(FIRST, 1), step(MID, 1, 0), step(FIRST, 1), step(MID, 1, 0), step(MID, 1, "a")]
    with pytest.raises(ValueError, match=r"^action: step 4 holds str of .*, step 1 holds int64"):
        recorded_columns(in_chunks(encode_all(steps)), StepDecoder())


@pytest.mark.parametrize("function", [recorded_columns, rlds_columns])
def test_a_damaged_record_is_named(function):
    records = encode_all(an_episode(5, lambda i: i))
    records[3] = records[3][:-1]
    with pytest.raises(DamagedDataError, match=r"^step 3 of 6 is damaged: a record is not"):
        function(in_chunks(records, 2), StepDecoder())


@given(episodes(), st.data())
def test_damage_is_handled_as_by_the_step_decoder(steps, data):
    records = encode_all(steps)
    index = data.draw(st.integers(0, len(records) - 1))
    damaged = bytearray(records[index])
    damaged[data.draw(st.integers(0, len(damaged) - 1))] ^= 1 << data.draw(st.integers(0, 7))
    decoder = StepDecoder()
    attempt(rlds_columns, in_chunks(records), decoder)
    records[index] = bytes(damaged)
    try:
        steps = decode_all(records)
    except DamagedDataError:
        with pytest.raises(DamagedDataError, match=rf"^step {index} of "):
            rlds_columns(in_chunks(records, 3), decoder)
        return
    except TypeError:
        assume(False)
    actual = attempt(rlds_columns, in_chunks(records, 3), decoder)
    assert_same_outcome(actual, attempt(to_rlds_episode, steps))


def test_runs_of_small_records_are_joined(monkeypatch):
    monkeypatch.setattr(columns_module, "_SMALL_RECORD_BYTES", 2048)
    monkeypatch.setattr(columns_module, "_MAX_JOINED_BYTES", 20_000)
    steps = an_episode(60, lambda i: np.full((2000 if 20 < i < 30 else 900) // 8, i, np.int8))
    large = an_episode(5, lambda i: np.full(3000, i, np.uint8))
    for run in (steps[:20], large):
        records = encode_all(run)
        expected = to_rlds_episode(run)
        assert_same(rlds_columns(in_chunks(records, 2), StepDecoder()), expected)
    with pytest.raises(ValueError, match=r"^observation: step 21 holds"):
        rlds_columns(in_chunks(encode_all(steps), 4), StepDecoder())


@given(st.data())
@settings(max_examples=2 * settings().max_examples)
def test_columns_of_images_are_those_of_the_decoded_steps(data):
    texts = st.sampled_from(data.draw(st.sampled_from([[""], ["a", "b"], ["", "a", 60 * "b"]])))
    size = data.draw(st.sampled_from([200, 300]))
    is_action = data.draw(st.booleans())

    def value(i):
        image = np.random.default_rng(i).integers(0, 100, (size // 2, 2))
        image = image.astype(np.uint8 if i % 7 < 6 or data.draw(st.booleans()) else np.int8)
        if data.draw(st.integers(0, 20)) == 20:
            image = image[1:]
        return {"a": data.draw(texts), "image": image, "x": 1.5 * i, "b": data.draw(texts)}

    steps = an_episode(data.draw(st.integers(1, 12)), value)
    steps = [
        s._replace(action=None if s.timestep.first() else 1, custom_data=data.draw(texts))
        for s in steps
    ]
    if is_action:
        steps = [
            s._replace(
                timestep=s.timestep._replace(observation=1),
                action=None if s.timestep.first() else s.timestep.observation,
            )
            for s in steps
        ]
    records = encode_all(steps)
    length = data.draw(st.integers(1, 5))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(step_template, "_MIN_RECORD_BYTES", 0)
        patch.setattr(step_template, "_MAX_MAIN_RATIO", 2)
        actual = attempt(rlds_columns, in_chunks(records, length), StepDecoder())
        expected = attempt(to_rlds_episode, decode_all(records))
        assert_same_outcome(actual, expected)
        recorded = attempt(recorded_columns, in_chunks(records * 2, length), StepDecoder())
    if not isinstance(actual, str):
        image = recorded.action["image"] if is_action else recorded.timestep.observation["image"]
        images = [(s.action if is_action else s.timestep.observation) for s in steps * 2]
        for row, value in zip(image, images, strict=True):
            assert_same(row, np.zeros_like(image[0]) if value is None else value["image"])


@pytest.mark.parametrize("length", [1, 4, 100])
def test_images_are_not_copied_after_decompression(by_slices, length):
    steps = an_episode(20, lambda i: np.full((90, 80, 1), i, np.uint8))
    steps = [s._replace(action=None if s.timestep.first() else i) for i, s in enumerate(steps)]
    steps = [s._replace(custom_data=1.5) for s in steps]
    records = encode_all(steps)
    columns = rlds_columns(in_chunks(records, length), StepDecoder())
    assert_same(columns, to_rlds_episode(steps))
    images = columns.pop("observation")
    assert images.strides == (len(records[-1]), 80, 1, 1)
    assert images.flags.writeable
    assert not images.flags.owndata
    for column in columns.values():
        assert not np.may_share_memory(column, images.base)
    images[:] = 7
    assert columns["action"].tolist() == [*range(1, 21), 0]


def test_columns_are_writable_and_alias_nothing():
    records = encode_all(an_episode(5, lambda i: {"a": np.full(2, i, ">f4"), "b": i, "c": None}))
    copies = list(map(bytes, records))
    columns = recorded_columns(in_chunks(records, 4), StepDecoder())
    arrays = [
        columns.timestep.step_type,
        columns.timestep.reward,
        columns.timestep.observation["a"],
        columns.timestep.observation["b"],
        columns.action["a"],
    ]
    for value, array in enumerate(arrays):
        assert array.flags.c_contiguous
        assert array.dtype.isnative
        array[:] = value
    assert [np.unique(array).tolist() for array in arrays] == [[0], [1], [2], [3], [4]]
    assert records == copies


def test_images_at_other_offsets_of_equally_large_records_stay_intact():
    def value(i):
        text = 60 * "b"
        image = np.full((120, 100), i, np.uint8)
        return {"a": text * (i < 4), "image": image, "x": 1.5 * i, "b": text * (i >= 4)}

    steps = [step(MID, value(i), i, 0.5, 1.0) for i in range(12)]
    columns = recorded_columns(in_chunks(encode_all(steps), 2), StepDecoder())
    assert_same(columns.timestep.observation, stack_values([value(i) for i in range(12)]))
