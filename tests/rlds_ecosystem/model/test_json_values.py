import numpy as np
import pytest

from rlds_ecosystem.model.json_values import to_json


def test_values_become_types_of_json():
    value = {"a": np.int64(1), 2: (np.zeros((1, 2)), None), "text": b"\xc3\xbc", "x": {"y": True}}
    expected = {"a": 1, "2": [[[0.0, 0.0]], None], "text": "\u00fc", "x": {"y": True}}
    assert to_json(value, "metadata") == expected
    with pytest.raises(ValueError, match="metadata/a/0: JSON cannot hold bytes that are"):
        to_json({"a": [b"\xff"]}, "metadata")
    with pytest.raises(TypeError, match="metadata/a: JSON cannot hold a set"):
        to_json({"a": {1}}, "metadata")
