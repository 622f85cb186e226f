"""Storable episodes drawn by hypothesis, and comparisons of read values."""

import collections
import enum
import math

import dm_env
import numpy as np
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from envlogger import StepData
from envlogger.converters import codec
from envlogger.proto.storage_pb2 import Data

INTEGERS = ["int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"]
NUMERIC_DTYPES = ["bool", *INTEGERS, "float32", "float64"]

Pose = collections.namedtuple("Pose", "x y")


class Gear(enum.IntEnum):
    REVERSE = -1
    NEUTRAL = 0


def canonical(record):
    """Returns equal bytes for equal protos, also with NaNs."""
    return Data.FromString(record).SerializeToString(deterministic=True)


def stored(step):
    return codec.encode(step).SerializeToString()


def assert_same(actual, expected):
    """Compares values, types, dtypes and shapes at any depth; NaNs are equal."""
    assert type(actual) is type(expected)
    if isinstance(expected, np.ndarray):
        assert (actual.dtype, actual.shape) == (expected.dtype, expected.shape)
        np.testing.assert_array_equal(actual, expected)
        if expected.dtype == object:
            assert list(map(type, actual.flat)) == list(map(type, expected.flat))
    elif isinstance(expected, list | tuple):
        assert len(actual) == len(expected)
        for one, other in zip(actual, expected):
            assert_same(one, other)
    elif isinstance(expected, dict):
        assert actual.keys() == expected.keys()
        for key, value in expected.items():
            assert_same(actual[key], value)
    elif isinstance(expected, float | np.floating) and math.isnan(expected):
        assert math.isnan(actual)
    else:
        assert actual == expected


# A field is a strategy for its values in the steps of an episode.

texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=3)


def _arrays(dtype, shape):
    return hnp.arrays(dtype, shape)


def _laid_out(arrays):
    """Draws the arrays in any memory order."""
    return st.sampled_from(
        [
            arrays,
            arrays.map(np.asfortranarray),
            arrays.map(lambda a: a.astype(a.dtype.newbyteorder(">"))),
            arrays.map(lambda a: np.repeat(a, 2, axis=-1)[..., ::2] if a.ndim else a),
        ]
    )


shapes = hnp.array_shapes(min_dims=0, max_dims=2, min_side=0, max_side=3)
number_arrays = st.builds(_arrays, st.sampled_from(NUMERIC_DTYPES), shapes).flatmap(_laid_out)
numpy_scalars = st.sampled_from(NUMERIC_DTYPES).map(lambda name: hnp.from_dtype(np.dtype(name)))
text_arrays = st.sampled_from(
    [
        st.lists(texts, min_size=2, max_size=2).map(lambda items: np.array(items, object)),
        st.lists(texts, min_size=1, max_size=1).map(np.array),
        st.just(np.array([b"a", b"b\xff"])),
        texts.map(lambda text: np.array(text, object)),
    ]
)
plain_scalars = st.sampled_from(
    [
        st.none(),
        st.booleans(),
        st.integers(),
        st.integers(-300, 300),
        st.integers(0, 3).map(np.int64),
        st.floats(),
        texts,
        st.binary(max_size=3),
        st.sampled_from(Gear),
    ]
)
leaves = number_arrays | numpy_scalars | text_arrays | plain_scalars
keys = texts | st.integers(-3, 3) | st.binary(max_size=2)


def _dicts(items):
    return st.fixed_dictionaries(items)


fields = st.recursive(
    leaves,
    lambda child: st.one_of(
        st.dictionaries(texts, child, max_size=3).map(_dicts),
        st.dictionaries(keys, child, max_size=3).map(_dicts),
        st.dictionaries(texts, child, max_size=2).map(
            lambda items: _dicts(items).map(collections.OrderedDict)
        ),
        st.lists(child, max_size=3).map(lambda items: st.tuples(*items)),
        st.tuples(child, child).map(lambda items: st.builds(Pose, *items)),
        leaves.map(lambda item: st.tuples(item, item).map(list)),
        st.just(st.just([])),
    ),
    max_leaves=5,
)


@st.composite
def episodes(draw, max_steps=5):
    """An episode whose fields mostly keep their structure."""
    observation, action, reward, discount, custom_data = (draw(fields) for _ in range(5))
    steps = []
    num_steps = draw(st.integers(1, max_steps))
    for index in range(num_steps):
        if draw(st.integers(0, 15)) == 15:
            observation = draw(fields)
        if index == 0:
            timestep = dm_env.restart(draw(observation))
            steps.append(StepData(timestep, None, draw(custom_data)))
            continue
        kind = dm_env.StepType.LAST if index == num_steps - 1 else dm_env.StepType.MID
        timestep = dm_env.TimeStep(kind, draw(reward), draw(discount), draw(observation))
        steps.append(StepData(timestep, draw(action), draw(custom_data)))
    return steps
