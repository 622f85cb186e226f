import dm_env
import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from envlogger.backends.riegeli_files import episode_rule
from envlogger.backends.riegeli_files.episode_rule import StepKind, kind_of
from envlogger.converters import codec
from envlogger.proto.storage_pb2 import Data
from envlogger.step_data import StepData

VALUES = st.none() | st.integers(-5, 5) | st.text(max_size=200) | st.binary(max_size=200)
TYPES = st.integers(-1, 3) | st.sampled_from(dm_env.StepType) | VALUES


def make_record(step_type, value=None, mark=Data.NONE):
    timestep = dm_env.TimeStep(step_type, 0.5, 1.0, value)
    data = codec.encode(StepData(timestep, np.int32(3)))
    data.episode_mark = mark
    return data.SerializeToString()


@given(TYPES, VALUES, st.sampled_from(Data.EpisodeMark.values()))
def test_the_short_way_agrees_with_parsing(step_type, value, mark):
    record = make_record(step_type, value, mark)
    expected = StepKind(step_type if isinstance(step_type, int) else None, mark)
    assert kind_of(record) == episode_rule._kind_by_parsing(record) == expected


@given(st.binary(max_size=40), st.integers(0, 100))
@example(b"", 0)
def test_any_bytes_have_a_kind(noise, size):
    record = make_record(1, "text")
    for data in (noise, record[:size], record[:size] + noise, record[:size] + noise + record):
        assert isinstance(kind_of(data), StepKind)


def test_a_value_that_no_codec_can_read_is_no_step_type():
    data = codec.encode(StepData(dm_env.restart(1), None))
    step_type = data.tuple.values[0].tuple.values[0]
    step_type.datum.Clear()
    step_type.datum.shape.dim.add(size=7)
    step_type.datum.values.float_values.append(1.0)
    assert kind_of(data.SerializeToString()) == StepKind(None, Data.NONE)


@pytest.mark.parametrize("depth", range(5))
def test_lengths_that_never_end_take_no_time(depth):
    # With a length of that many bytes this would take minutes.
    endless = make_record(0)[: 2 * depth + 1] + b"\xff" * 3_000_000
    assert kind_of(endless) == StepKind(None, Data.NONE)
