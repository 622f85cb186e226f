import numpy as np

from rlds.sources.digests import digest_of
from tfds_files import RaggedColumn

STEPS = {
    "observation": {
        "position": np.arange(6.0).reshape(3, 2),
        "text": np.array(["a", "bc", "é"], object),
    },
    "action": np.array([1, 2, 3], np.int32),
}


def digest(**columns):
    return digest_of({**STEPS, **columns})


def test_equal_steps_have_equal_digests():
    encoded = np.array([text.encode() for text in STEPS["observation"]["text"]], object)
    other_order = {
        "action": STEPS["action"].copy(),
        "observation": {**STEPS["observation"], "text": encoded},
    }
    assert digest_of(other_order) == digest_of(STEPS)
    rows = np.array([np.array([1]), np.array([2, 3])], object)
    ragged = RaggedColumn(np.array([1, 2, 3]), np.array([1, 2]))
    assert digest_of({"x": ragged}) == digest_of({"x": rows})


def test_any_change_gives_another_digest():
    digests = {
        digest_of(STEPS),
        digest(action=np.array([1, 2, 4], np.int32)),
        digest(action=np.array([1, 2, 3], np.int64)),
        digest(action=np.array([[1], [2], [3]], np.int32)),
        digest(other=np.array([1, 2, 3], np.int32)),
        digest(observation={**STEPS["observation"], "text": np.array(["ab", "c", "é"], object)}),
        digest(observation={**STEPS["observation"], "text": np.array(["a", "bcé", ""], object)}),
        digest_of({}),
    }
    assert len(digests) == 8
