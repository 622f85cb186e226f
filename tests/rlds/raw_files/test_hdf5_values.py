import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as st_numpy

from rlds.raw_files.hdf5_values import decode_value, encode_value

DTYPES = st_numpy.boolean_dtypes() | st_numpy.integer_dtypes() | st_numpy.floating_dtypes()
VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text()
    | st.binary()
    | st_numpy.arrays(DTYPES, st_numpy.array_shapes())
    | st.lists(st.text()).map(lambda texts: np.array([*texts, None], object)[:-1]),
    lambda children: st.dictionaries(st.text(), children, max_size=3),
    max_leaves=4,
)


@given(VALUES)
def test_json_round_trip_restores_any_value(value):
    actual = decode_value(json.loads(json.dumps(encode_value(value))))
    if isinstance(value, np.ndarray) and value.dtype != object:
        assert (actual.dtype, actual.shape) == (value.dtype, value.shape)
        assert actual.tobytes() == value.tobytes()
    else:
        assert repr(actual) == repr(value)


def test_structured_dtypes_are_refused():
    with pytest.raises(ValueError, match="not supported"):
        encode_value(np.zeros(2, [("a", "f4"), ("b", "i4")]))
