"""Statistics of episodes of NumPy columns."""

from typing import Any

import numpy as np
import pytest

from rlds.statistics import Statistics, compute_statistics


def episode(length: int, seed: int = 0, **fields: Any) -> dict[str, Any]:
    rng = np.random.default_rng(seed)
    steps = {
        "observation": {"state": rng.normal(size=(length, 2)), "mode": np.arange(length) % 2 == 0},
        "action": rng.normal(size=(length, 3)).astype(np.float32),
        "reward": rng.integers(1, 9, length),
        "instruction": np.array(["go"] * length, object),
        "camera": np.zeros((length, 4, 4, 3), np.uint8),
        "is_last": np.arange(length) == length - 1,
    }
    for name in ("action", "reward"):
        steps[name][-1] = 0
    return {"steps": {**steps, **fields}}


def test_statistics_equal_those_of_the_concatenated_episodes() -> None:
    episodes = [episode(length, seed=length) for length in (3000, 1, 2000, 40, 9000, 500)]
    statistics = compute_statistics(iter(episodes), quantiles=(0.1, 0.5))
    assert list(statistics) == ["observation/state", "observation/mode", "action", "reward"]
    assert (statistics.num_transitions, statistics.num_trajectories) == (14541 - 6, 6)
    columns = [one["steps"] for one in episodes]
    expected = {
        "observation/state": np.concatenate([steps["observation"]["state"] for steps in columns]),
        "action": np.concatenate([steps["action"][:-1] for steps in columns]),
        "reward": np.concatenate([steps["reward"][:-1] for steps in columns]),
    }
    for name, values in expected.items():
        field = statistics[name]
        assert (field.count == len(values)).all()
        np.testing.assert_allclose(field.mean, values.mean(0, dtype=np.float64), rtol=1e-12)
        np.testing.assert_allclose(field.std, values.std(0, dtype=np.float64), rtol=1e-12)
        assert field.min.tolist() == values.min(0).tolist()
        assert 0 < field.quantile_error < 0.001
        low, high = (
            np.quantile(values, 0.5 + error, axis=0)
            for error in (-field.quantile_error, field.quantile_error)
        )
        assert (low <= field.quantiles[0.5]).all()
        assert (field.quantiles[0.5] <= high).all()
    halves = [compute_statistics(half) for half in (episodes[:3], episodes[3:])]
    np.testing.assert_allclose((halves[0] + halves[1])["action"].std, statistics["action"].std)
    restored = Statistics.from_json(statistics.to_json())
    assert restored["action"].mean.tolist() == statistics["action"].mean.tolist()


def test_last_actions_count_unless_they_are_placeholders() -> None:
    real = [episode(3, action=np.array([1.0, 2.0, 3.0])) for _ in range(2)]
    with pytest.warns(UserWarning, match="in 2 of 2 episodes the last action") as warned:
        assert compute_statistics(real)["action"].mean == 1.5
    assert warned[0].filename == __file__
    assert compute_statistics(real, include_last_action=False)["action"].mean == 1.5
    assert compute_statistics(real, include_last_action=True)["action"].mean == 2.0
    mixed = [{**real[0], "final_observation_known": False}, episode(2, action=np.array([8.0, 0.0]))]
    statistics = compute_statistics(mixed, ["action"], masks={"action": False})
    assert (statistics["action"].mean, statistics.num_transitions) == (3.5, 4)
    assert statistics["action"].mask.tolist() is False


def test_only_requested_fields_have_statistics() -> None:
    statistics = compute_statistics([episode(3)], ["observation", "camera", "camera"], quantiles=())
    assert list(statistics) == ["observation/state", "observation/mode", "camera"]
    assert statistics["camera"].max.shape == (4, 4, 3)
    assert "transitions, 1 trajectories" in str(statistics)


def test_nan_is_reported() -> None:
    with pytest.warns(RuntimeWarning, match="action: NaN or infinite values in 1 of") as warned:
        statistics = compute_statistics([episode(2, action=np.array([np.nan, 0.0]))])
    assert warned[0].filename == __file__
    assert np.isnan(statistics["action"].mean)


@pytest.mark.parametrize(
    ("episodes", "options", "error", "message"),
    [
        ([], {}, ValueError, "there are no episodes"),
        ([episode(2), {"steps": [1]}], {}, TypeError, "episode 1 must be a dict whose 'steps'"),
        ([{"steps": {"action": [1.0]}}], {}, KeyError, "episode 0 have no field 'is_last'"),
        ([episode(2)], {"fields": ["instruction"]}, TypeError, "'instruction' must be numeric"),
        ([episode(2)], {"fields": ["obs"]}, KeyError, "no field 'obs'. The fields are"),
        ([episode(2)], {"quantiles": [2.0]}, ValueError, "between 0 and 1, got 2.0"),
        ([episode(2), episode(2, action=np.zeros((2, 4)))], {}, ValueError,
         r"'action' of episode 1 has the shape \(2, 4\), expected \(2, 3\)"),
        ([episode(2), episode(2, reward=np.zeros(3))], {}, ValueError,
         r"'reward' of episode 1 has the shape \(3,\), expected \(2,\)"),
    ],
)  # fmt: skip
def test_bad_arguments_are_rejected(episodes: Any, options: Any, error: type, message: str) -> None:
    with pytest.raises(error, match=f"compute_statistics: .*{message}"):
        compute_statistics(episodes, **options)
