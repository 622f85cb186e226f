import copy
import enum

import dm_env
import numpy as np
import pytest
from dm_env import specs
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from envlogger import StepData
from envlogger.converters.rlds_episode import to_rlds_episode

FIRST, MID, LAST = dm_env.StepType
RLDS_FIELDS = {"observation", "action", "reward", "discount", "is_first", "is_last", "is_terminal"}


def first(observation, custom_data=None):
    return StepData(dm_env.restart(observation), None, custom_data)


def mid(observation, action=0, reward=0.0, discount=1.0, custom_data=None):
    timestep = dm_env.TimeStep(MID, reward, discount, observation)
    return StepData(timestep, action, custom_data)


def last(observation, action=0, reward=0.0, discount=0.0, custom_data=None):
    timestep = dm_env.TimeStep(LAST, reward, discount, observation)
    return StepData(timestep, action, custom_data)


def flags(episode):
    return [episode[name].tolist() for name in ("is_first", "is_last", "is_terminal")]


def assert_identical(actual, expected):
    """Compares structure, types, dtypes, shapes and bits."""
    assert type(actual) is type(expected)
    if isinstance(expected, dict):
        assert actual.keys() == expected.keys()
        for key in expected:
            assert_identical(actual[key], expected[key])
    elif isinstance(expected, (list, tuple)):
        assert len(actual) == len(expected)
        for item, expected_item in zip(actual, expected):
            assert_identical(item, expected_item)
    else:
        assert actual.dtype == expected.dtype
        assert actual.shape == expected.shape
        if expected.dtype == object:
            assert list(map(type, actual.flat)) == list(map(type, expected.flat))
            assert actual.tolist() == expected.tolist()
        else:
            assert actual.tobytes() == expected.tobytes()


# --- The shift -----------------------------------------------------------------------------------


def test_results_of_an_action_move_to_the_step_it_was_taken_in():
    episode = to_rlds_episode(
        [
            first(10, custom_data={"t": 0.0}),
            mid(11, action=5, reward=1.0, discount=0.9, custom_data={"t": 0.1}),
            last(12, action=6, reward=2.0, discount=0.0, custom_data={"t": 0.2}),
        ]
    )
    assert set(episode) == {*RLDS_FIELDS, "t"}
    assert episode["observation"].tolist() == [10, 11, 12]
    assert episode["t"].tolist() == [0.0, 0.1, 0.2]
    assert episode["action"].tolist() == [5, 6, 0]
    assert episode["reward"].tolist() == [1.0, 2.0, 0.0]
    assert episode["discount"].tolist() == [0.9, 0.0, 0.0]
    assert flags(episode) == [[True, False, False], [False, False, True], [False, False, True]]


@pytest.mark.parametrize(
    ("end", "is_terminal"),
    [
        (last(1, discount=0.0), True),
        (last(1, discount=np.float32(0.0)), True),
        (last(1, discount=1.0), False),
        (mid(1, discount=0.0), False),
        (mid(1, discount=1.0), False),
        (last(1, discount={"a": 0.0, "b": np.zeros(2)}), True),
        (last(1, discount={"a": 0.0, "b": np.array([0.0, 1.0])}), False),
        (last(1, discount=None), False),
    ],
    ids=[
        "terminated",
        "terminated in float32",
        "truncated",
        "cut by a reset on a discount of zero",
        "cut by a reset",
        "all agents terminated",
        "one agent goes on",
        "no discount",
    ],
)
def test_an_episode_ends_in_a_terminal_step_only_if_its_last_discount_is_zero(end, is_terminal):
    episode = to_rlds_episode([first(0), end])
    assert flags(episode) == [[True, False], [False, True], [False, is_terminal]]


def test_a_finished_episode_equals_that_of_tfds():
    from tensorflow_datasets.rlds import envlogger_reader

    steps = [
        first({"x": np.zeros(2)}, custom_data={"t": 0}),
        mid({"x": np.ones(2)}, action=np.int32(1), reward=0.5, custom_data={"t": 1}),
        last({"x": np.full(2, 2.0)}, action=np.int32(2), reward=1.5, custom_data={"t": 2}),
    ]
    episode = to_rlds_episode(steps)
    upstream = envlogger_reader.get_episode_dict(copy.deepcopy(steps), {})["steps"]
    assert episode.keys() == upstream.keys()
    assert np.array_equal(episode.pop("observation")["x"], upstream["observation"]["x"])
    for field, column in episode.items():
        assert column.tolist() == list(upstream[field])


# --- An episode of a single step -----------------------------------------------------------------


def test_a_single_step_takes_its_zeros_from_the_specs():
    episode = to_rlds_episode(
        [first(np.float32(7.0))],
        action_spec={
            "move": specs.BoundedArray((2,), np.float32, minimum=1, maximum=2),
            "say": (specs.StringArray(()), specs.StringArray((2,), string_type=bytes)),
            "raw": [specs.Array((), object)],
        },
        reward_spec=specs.Array((), np.float64),
        discount_spec=specs.Array((2,), np.float32),
    )
    assert_identical(
        episode,
        {
            "observation": np.array([7.0], np.float32),
            "action": {
                "move": np.zeros((1, 2), np.float32),
                "say": (np.array([""], object), np.array([[b"", b""]], object)),
                "raw": [np.array([""], object)],
            },
            "reward": np.zeros(1, np.float64),
            "discount": np.zeros((1, 2), np.float32),
            "is_first": np.array([True]),
            "is_last": np.array([True]),
            "is_terminal": np.array([False]),
        },
    )


def test_a_single_step_without_specs_is_refused():
    reward, discount = specs.Array((), float), specs.Array((), float)
    with pytest.raises(ValueError, match=r"action: .* single step.*pass action_spec"):
        to_rlds_episode([first(0)], reward_spec=reward, discount_spec=discount)


# --- Custom data ---------------------------------------------------------------------------------


def test_custom_data_cannot_replace_a_field():
    steps = [first(0, custom_data={"reward": 1}), last(1, custom_data={"reward": 1})]
    with pytest.raises(ValueError, match=r"custom_data/reward: .*taken.*another name"):
        to_rlds_episode(steps)


@pytest.mark.parametrize("custom_data", [None, {}])
def test_no_custom_data_adds_no_field(custom_data):
    episode = to_rlds_episode([first(0, custom_data=custom_data), last(1, custom_data=custom_data)])
    assert set(episode) == RLDS_FIELDS


# --- Values --------------------------------------------------------------------------------------


class Gear(enum.IntEnum):
    NEUTRAL = 0
    REVERSE = -1


class Side(enum.StrEnum):
    LEFT = "left"


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (1.5, np.array([1.5, 1.5, 0.0], np.float64)),
        (3, np.array([3, 3, 0], np.int64)),
        (Gear.REVERSE, np.array([-1, -1, 0], np.int64)),
        (True, np.array([True, True, False])),
        (np.bool_(True), np.array([True, True, False])),
        (np.float16(0.1), np.array([0.1, 0.1, 0], np.float16)),
        (np.uint64(2**64 - 1), np.array([2**64 - 1, 2**64 - 1, 0], np.uint64)),
        (1 + 2j, np.array([1 + 2j, 1 + 2j, 0], np.complex128)),
        ("go\0", np.array(["go\0", "go\0", ""], object)),
        (b"go\0", np.array([b"go\0", b"go\0", b""], object)),
        (np.str_("é"), np.array(["é", "é", ""], object)),
        (Side.LEFT, np.array(["left", "left", ""], object)),
        (np.array(["a", "b"]), np.array([["a", "b"], ["a", "b"], ["", ""]], object)),
        (np.array(["a", b"b"], object), np.array([["a", b"b"], ["a", b"b"], ["", b""]], object)),
        (np.zeros((0, 3), np.int8), np.zeros((3, 0, 3), np.int8)),
        (np.ones((2,), ">f4"), np.array([[1, 1], [1, 1], [0, 0]], np.float32)),
        (None, np.array([None, None, None], object)),
        ({}, {}),
        ((), ()),
        ([1, (2.0,)], [np.array([1, 1, 0]), (np.array([2.0, 2.0, 0.0]),)]),
        ({"b": {1: 1}, "a": 2.0}, {"b": {1: np.array([1, 1, 0])}, "a": np.array([2.0, 2.0, 0.0])}),
    ],
    ids=repr,
)
def test_an_action_keeps_its_type(value, expected):
    episode = to_rlds_episode([first(0), mid(1, action=value), last(2, action=value)])
    assert_identical(episode["action"], expected)
    if isinstance(value, dict):
        assert list(episode["action"]) == list(value)


@pytest.mark.parametrize("value", [2**63, -(2**63) - 1, 10**30])
def test_integers_beyond_int64_are_refused(value):
    with pytest.raises(ValueError, match=f"observation/n: step 1 .*{value}.*does not fit int64"):
        to_rlds_episode([first({"n": 0}), last({"n": value})])


@pytest.mark.parametrize(
    "value",
    [{1}, object(), np.array([1, "a"], object), np.ma.array([1, 2], mask=[0, 1]), bytearray(b"a")],
    ids=lambda value: type(value).__name__,
)
def test_unsupported_types_are_refused(value):
    with pytest.raises(TypeError, match=f"observation: step 0 holds {type(value).__name__} "):
        to_rlds_episode([first(value), last(value)])


# --- Steps that differ ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("one", "other", "message"),
    [
        (np.zeros(2), np.zeros(3), r"step 2 holds float64 of shape \(3,\), step 0 .*\(2,\)"),
        (np.zeros(2, "f"), np.zeros(3), r"step 2 holds float64 .*, step 0 holds float32"),
        (1.0, 2**53 + 1, r"step 2 holds int64 of shape \(\), step 0 holds float64"),
        (1, np.uint8(1), "step 2 holds uint8 .*, step 0 holds int64"),
        (True, 1, "step 2 holds int64 .*, step 0 holds bool"),
        ("a", b"a", "step 2 holds bytes .*, step 0 holds str"),
        (None, 1.0, "step 2 holds float64 .*, step 0 holds None"),
        ({"a": 1}, {"a": 1, "b": 2}, r"step 2 holds a dict with the keys \['a', 'b'\], step 0"),
        ([1], [1, 2], "step 2 holds a sequence of length 2, step 0 .* length 1"),
        ([1], 1, "step 2 holds a single value, step 0 holds a sequence of length 1"),
    ],
)
def test_steps_that_differ_are_refused(one, other, message):
    steps = [first({"x": one}), mid({"x": one}), last({"x": other})]
    with pytest.raises(ValueError, match=f"^observation/x: {message}"):
        to_rlds_episode(steps)


@pytest.mark.parametrize(
    ("one", "other", "dtype"),
    [
        (np.full(2, 0.1, "f"), np.array([0.1, np.nan]), np.float64),
        (1.5, 2**53, np.float64),
        (np.int32(-1), 2**40, np.int64),
    ],
)
def test_numbers_of_several_dtypes_keep_their_values(one, other, dtype):
    column = to_rlds_episode([first(one), mid(one), last(other)])["observation"]
    assert column.dtype == dtype
    np.testing.assert_array_equal(column, np.stack([one, one, other]).astype(dtype))


# --- Properties ----------------------------------------------------------------------------------

DTYPES = st.sampled_from([np.dtype(code) for code in "?bhiqBHIQefdFD"])
SHAPES = hnp.array_shapes(min_dims=0, max_dims=2, min_side=0, max_side=2)

# Strategies for the values of a field.
FIELDS = st.one_of(
    st.builds(hnp.arrays, DTYPES, SHAPES),
    st.builds(hnp.from_dtype, DTYPES),
    st.just(st.floats()),
    st.just(st.booleans()),
    st.just(st.integers(-(2**63), 2**63 - 1)),
    st.just(st.text(max_size=3)),
    st.just(st.binary(max_size=3)),
)
NESTS = st.recursive(
    FIELDS,
    lambda child: st.one_of(
        st.dictionaries(st.text(max_size=2), child, max_size=3),
        st.lists(child, max_size=2),
        st.lists(child, max_size=2).map(tuple),
    ),
    max_leaves=3,
)


def values_of(nest):
    """Turns a nest of strategies into a strategy for nests."""
    if isinstance(nest, dict):
        return st.fixed_dictionaries({key: values_of(child) for key, child in nest.items()})
    if isinstance(nest, list):
        return st.tuples(*map(values_of, nest)).map(list)
    if isinstance(nest, tuple):
        return st.tuples(*map(values_of, nest))
    return nest


@st.composite
def episodes(draw):
    observation, action, reward, discount = (values_of(draw(NESTS)) for _ in range(4))
    custom_data = values_of(draw(st.just(st.none()) | st.fixed_dictionaries({"x": NESTS})))
    length = draw(st.integers(2, 4))
    types = [FIRST, *[MID] * (length - 2), draw(st.sampled_from([MID, LAST]))]
    steps = [StepData(dm_env.restart(draw(observation)), None, draw(custom_data))]
    for step_type in types[1:]:
        timestep = dm_env.TimeStep(step_type, draw(reward), draw(discount), draw(observation))
        steps.append(StepData(timestep, draw(action), draw(custom_data)))
    return steps


def column(values):
    """Returns the values of the steps as one column, the oracle."""
    head = values[0]
    if isinstance(head, dict):
        return {key: column([value[key] for value in values]) for key in head}
    if isinstance(head, (list, tuple)):
        return type(head)(column([value[i] for value in values]) for i in range(len(head)))
    if isinstance(head, (str, bytes)):
        result = np.empty(len(values), object)
    else:
        result = np.empty((len(values), *np.shape(head)), np.asarray(head).dtype)
    for index, value in enumerate(values):
        result[index] = value
    return result


def zero(value):
    if isinstance(value, dict):
        return {key: zero(child) for key, child in value.items()}
    if isinstance(value, (list, tuple)):
        return type(value)(zero(child) for child in value)
    return type(value)() if isinstance(value, (str, bytes)) else np.zeros_like(value)


def oracle(steps):
    rows = []
    for index, step in enumerate(steps):
        is_last = index == len(steps) - 1
        follower = steps[-1] if is_last else steps[index + 1]
        results = (follower.action, follower.timestep.reward, follower.timestep.discount)
        action, reward, discount = map(zero, results) if is_last else results
        row = {
            "observation": step.timestep.observation,
            "action": action,
            "reward": reward,
            "discount": discount,
            "is_first": index == 0,
            "is_last": is_last,
        }
        rows.append({**row, **(step.custom_data or {})})
    return column(rows)


@pytest.mark.slow
@given(episodes())
@settings(max_examples=60, deadline=None)
def test_an_episode_equals_the_oracle_and_shares_no_memory(steps):
    original_steps = copy.deepcopy(steps)
    episode = to_rlds_episode(steps)
    expected = oracle(original_steps)
    is_terminal = episode.pop("is_terminal")
    assert is_terminal.dtype == bool
    assert not is_terminal[:-1].any()
    assert_identical(episode, expected)
    for array in arrays_in(episode):
        if array.dtype != object:
            array[...] = 1
    assert_identical(column(observations(steps)), column(observations(original_steps)))


def observations(steps):
    return [step.timestep.observation for step in steps]


def arrays_in(nest):
    if isinstance(nest, dict):
        nest = list(nest.values())
    if isinstance(nest, (list, tuple)):
        return [array for child in nest for array in arrays_in(child)]
    return [nest]
