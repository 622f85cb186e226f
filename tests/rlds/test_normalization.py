"""Normalizing NumPy columns."""

from typing import Any

import numpy as np
import pytest

from rlds.normalization import normalize, unnormalize
from rlds.statistics import Statistics, compute_statistics


def make_steps() -> dict[str, Any]:
    return {
        "observation": (
            {"arm": np.array([[0, 5], [2, 5], [4, 5]])},
            np.array(["a", "b", "c"], object),
        ),
        "action": np.array([1.0, 3.0, 0.0], np.float32),
        "reward": np.array([1.0, 2.0, 0.0]),
        "is_last": np.array([False, False, True]),
    }


@pytest.fixture
def statistics() -> Statistics:
    return compute_statistics([{"steps": make_steps()}])


@pytest.mark.parametrize("kind", ["normal", "bounds", "bounds_q99"])
def test_unnormalize_undoes_normalize(statistics: Statistics, kind: str) -> None:
    steps = make_steps()
    output = normalize(steps, statistics, kind=kind, clip=False)
    arm = output["observation"][0]["arm"]
    assert arm.dtype == np.float32
    assert arm[:, 1].tolist() == [0.0, 0.0, 0.0]  # The values are constant.
    assert arm[1, 0] == 0.0
    assert (kind != "bounds") or arm[:, 0].tolist() == [-1.0, 0.0, 1.0]
    for name in ("reward", "is_last"):
        assert output[name] is steps[name]
    assert output["observation"][1] is steps["observation"][1]
    restored = unnormalize(output, statistics, kind=kind)
    for actual, expected in (
        (restored["observation"][0]["arm"], steps["observation"][0]["arm"]),
        (restored["action"], steps["action"]),
    ):
        np.testing.assert_allclose(actual, expected, atol=1e-6)


def test_normalize_accepts_values_of_one_field(statistics: Statistics) -> None:
    action = statistics["action"]
    assert normalize([1.0, 2.0, 9.0], action, kind="bounds").tolist() == [-1.0, 0.0, 1.0]
    assert normalize(np.float64(9.0), action, kind="bounds", clip=False) == 7.0
    assert normalize(3.0, action) == 1.0


@pytest.mark.parametrize(
    ("change", "options", "error", "message"),
    [
        ({}, {"kind": "max"}, ValueError, "kind must be one of"),
        ({}, {"fields": ["x"]}, KeyError, "no statistics of 'x'"),
        ({"action": np.zeros((3, 2))}, {"fields": "observation/0"}, None, ""),
        ({"action": np.array(["a"] * 3)}, {}, TypeError, "'action' must be numeric, got <U1"),
        ({"observation": ({"arm": np.zeros((3, 4))}, 0)}, {}, ValueError,
         "the shape of 'observation/0/arm'"),
        ({"observation": 0}, {}, KeyError, "no field 'observation/0/arm'"),
    ],
)  # fmt: skip
def test_steps_must_fit_the_selected_statistics(
    statistics: Statistics, change: Any, options: Any, error: Any, message: str
) -> None:
    steps = {**make_steps(), **change}
    if error is None:
        assert normalize(steps, statistics, **options)["action"] is steps["action"]
        return
    with pytest.raises(error, match=message):
        normalize(steps, statistics, **options)


def test_statistics_must_fit_the_kind_of_data(statistics: Statistics) -> None:
    with pytest.raises(TypeError, match="need an array of its values, got a dict"):
        normalize(make_steps(), statistics["action"])
    with pytest.raises(TypeError, match="need steps, got a list"):
        normalize([1.0], statistics)
