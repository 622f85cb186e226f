import dm_env
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from envlogger import Data, StepData
from envlogger.backends.riegeli_files.episode_rule import StepKind, parse_kind
from envlogger.converters import codec

VALUES = st.none() | st.integers(-5, 5) | st.text(max_size=200) | st.binary(max_size=200)
TYPES = st.integers(-1, 3) | st.sampled_from(dm_env.StepType) | VALUES


def make_record(step_type, value=None, mark=Data.NONE):
    timestep = dm_env.TimeStep(step_type, 0.5, 1.0, value)
    data = codec.encode(StepData(timestep, np.int32(3)))
    data.episode_mark = mark
    return data.SerializeToString()


@pytest.mark.slow
@given(TYPES, VALUES, st.sampled_from(Data.EpisodeMark.values()))
def test_a_record_has_a_type_and_a_mark(step_type, value, mark):
    expected = StepKind(step_type if isinstance(step_type, int) else None, mark)
    assert parse_kind(make_record(step_type, value, mark)) == expected


@given(st.binary(max_size=40), st.integers(0, 100))
def test_any_bytes_have_a_kind(noise, size):
    record = make_record(1, "text")
    for data in (noise, record[:size], record[:size] + noise, record[:size] + noise + record):
        assert isinstance(parse_kind(data), StepKind)


def test_a_type_that_is_no_integer_is_none():
    data = codec.encode(StepData(dm_env.restart(1), None))
    step_type = data.tuple.values[0].tuple.values[0]
    step_type.datum.Clear()
    step_type.datum.values.float_values.append(1.0)
    assert parse_kind(data.SerializeToString()) == StepKind(None, Data.NONE)
