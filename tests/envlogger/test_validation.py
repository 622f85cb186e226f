import dm_env
import numpy as np
import pytest
from dm_env import specs

from envlogger.errors import InvalidStepError
from envlogger.testing.catch_env import Catch
from envlogger.validation import StepValidator


class Arm(Catch):
    def observation_spec(self):
        return {
            "camera": specs.BoundedArray((2, 2), np.uint8, 0, 255),
            "joints": (specs.Array((), np.float32), [specs.Array((3,), np.float64)]),
        }


def observation(**changes):
    return {
        "camera": np.zeros((2, 2), np.uint8),
        "joints": (np.float32(1.0), [np.zeros(3)]),
        **changes,
    }


def test_valid_nested_observations_are_accepted():
    StepValidator(Arm()).validate(dm_env.restart(observation()), None)
    StepValidator(Arm()).validate(dm_env.transition(0.5, observation()), 1)


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (observation(camera=np.zeros((2, 3), np.uint8)), r"observation\['camera'\]: .*shape"),
        (observation(joints=(np.float32(1), [np.zeros(2)])), r"\['joints'\]\[1\]\[0\]: .*shape"),
        (observation(joints=(np.float32(1),)), r"\['joints'\]: expected 2 items"),
        (observation(joints=3), r"\['joints'\]: expected 2 items in a list or tuple, got 3"),
        (observation(extra=1), r"expected the keys \['camera', 'joints'\], got \['camera', 'ex"),
        (np.zeros(3), "timestep.observation: expected a dict, got ndarray"),
    ],
)
def test_invalid_observations_are_refused(value, message):
    with pytest.raises(InvalidStepError, match=message):
        StepValidator(Arm()).validate(dm_env.restart(value), None)


@pytest.mark.parametrize(
    ("dtype", "value", "is_valid"),
    [
        *[(np.int32, 7, True), (np.uint8, 255, True), (np.uint8, 256, False)],
        *[(np.float32, 0.1, True), (np.float32, 7, True), (np.bool_, True, True)],
        *[(np.int32, 1.0, False), (np.int32, True, False), (np.int32, np.int64(7), False)],
    ],
)
def test_python_numbers_are_validated_by_value(dtype, value, is_valid):
    class Scalars(Catch):
        def observation_spec(self):
            return specs.Array((), dtype)

    validator = StepValidator(Scalars())
    if is_valid:
        validator.validate(dm_env.restart(value), None)
    else:
        with pytest.raises(InvalidStepError, match="dtype"):
            validator.validate(dm_env.restart(value), None)
