"""Logs whose values have other dtypes and shapes than the specs of their environment."""

import warnings

import dm_env
import numpy as np
import pytest
from dm_env import specs

import envlogger
import rlds.feeds
import rlds.sources
from envlogger.backends.in_memory_backend import InMemoryBackendWriter
from rlds_tools.command_line.commands import run

FLOATS = specs.Array((2,), np.float32, "x")
STEP_SPECS = {
    "action": specs.BoundedArray((), np.int64, 0, 9),
    "reward": specs.Array((), np.float64),
    "discount": specs.Array((), np.float64),
}


class Script(dm_env.Environment):
    """Returns the given observations, with rewards from the second on."""

    def __init__(self, observations, rewards, **new_specs):
        self._observations, self._rewards = observations, rewards
        self._specs = {"observation": FLOATS, **STEP_SPECS, **new_specs}
        self._next = 0

    def reset(self):
        self._next = 0
        return dm_env.restart(self._observations[0])

    def step(self, action):
        self._next += 1
        end = self._next == len(self._observations) - 1
        make = dm_env.termination if end else dm_env.transition
        return make(self._rewards[self._next - 1], self._observations[self._next])

    def observation_spec(self):
        return self._specs["observation"]

    def action_spec(self):
        return self._specs["action"]

    def reward_spec(self):
        return self._specs["reward"]

    def discount_spec(self):
        return self._specs["discount"]


def record(directory, *episodes, **new_specs):
    """Records episodes; returns the warnings of the recorder."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for observations, rewards, actions in episodes:
            env = Script(observations, rewards, **new_specs)
            with envlogger.EnvLogger(env, data_directory=directory) as recorder:
                recorder.reset()
                for action in actions:
                    recorder.step(action)
    return [str(warning.message) for warning in caught]


def repeat(observation, reward=0.5, action=1):
    return [observation] * 3, [reward] * 2, [action] * 2


NARROW, WIDE = np.array([0.1, 0.2], np.float32), np.array([0.1, 0.2])


@pytest.mark.parametrize(
    ("new_specs", "values", "got", "column"),
    [
        ({}, {"observation": WIDE}, "float64 of shape (2,)", WIDE),
        ({}, {"observation": [0.1, 0.2]}, "[0.1, 0.2]", WIDE),
        ({}, {"observation": NARROW[None]}, "float32 of shape (1, 2)", NARROW),
        ({}, {"observation": np.array([1, 2])}, "int64 of shape (2,)", np.array([1, 2], "f")),
        ({"action": FLOATS}, {"action": [0.1, 0.2]}, "[0.1, 0.2]", WIDE),
        ({"action": FLOATS}, {"action": (1, 0.2)}, "(1, 0.2)", np.array([1, 0.2])),
        ({"action": specs.Array((1,), np.float32)}, {"action": 0.1}, "float64", np.array([0.1])),
        ({}, {"action": np.array([1])}, "int64 of shape (1,)", np.int64(1)),
        (
            {"observation": specs.BoundedArray((2,), np.int8, 0, 1)},
            {"observation": np.array([True, False])},
            "bool of shape (2,)",
            np.array([1, 0], np.int8),
        ),
        ({}, {"reward": np.array([0.1, 0.2])}, "float64 of shape (2,)", WIDE),
        ({}, {"reward": np.array([0.1])}, "float64 of shape (1,)", np.float64(0.1)),
        ({}, {"action": 2**53 + 1}, "", np.int64(2**53 + 1)),
        ({}, {"reward": 1}, "", np.float64(1)),
    ],
)
def test_values_that_differ_from_their_spec_are_read(tmp_path, new_specs, values, got, column):
    (name,) = values
    episode = repeat(**{"observation": NARROW, **values})
    messages = record(tmp_path / "log", episode, **new_specs)
    assert [got in warning for warning in messages] == [True] * bool(got)
    if got:
        prefix = "" if name == "action" else "timestep."
        assert messages[0].startswith(f"{prefix}{name} is ")
        assert "validate=True" in messages[0]
    episodes = rlds.sources.open(tmp_path / "log")
    actual = episodes[0].steps[name]
    assert (actual.dtype, actual.shape[1:]) == (column.dtype, column.shape)
    np.testing.assert_array_equal(actual[:2], np.stack([column] * 2))
    assert episodes.columns(0, [name])[name].dtype == column.dtype
    table = rlds.feeds.open(tmp_path / "log")
    np.testing.assert_array_equal(table.steps().batch([0])[name][0], column)


def test_logs_are_read_independently_of_their_values(tmp_path):
    for value in (0.1, 0.5):
        wide = np.full(2, value)
        for order, episodes in {
            "wide": [wide],
            "first": [wide, NARROW],
            "last": [NARROW, wide],
            "amid": [NARROW, wide, NARROW],
        }.items():
            path = tmp_path / f"{order}{value}"
            messages = record(path, *map(repeat, episodes))
            assert len(messages) == 1
            rounded, exact = rlds.sources.open(path, float64="float32"), rlds.sources.open(path)
            for i, expected in enumerate(episodes):
                actual = rounded[i].steps["observation"]
                assert actual.dtype == rounded[i].steps["reward"].dtype == np.float32
                np.testing.assert_array_equal(actual[0], expected.astype(np.float32))
                if order != "amid":
                    actual = exact[i].steps["observation"]
                    assert actual.dtype == np.float64
                    np.testing.assert_array_equal(actual[0], expected)
            if order == "amid":
                with pytest.raises(ValueError, match=r"episode 1.*float64='float32'"):
                    _ = exact[1].steps


def test_a_dtype_that_changes_at_the_first_step_is_widened(tmp_path):
    """Reset returns float32, and step float64; rewards are 0 and 0.5."""
    record(tmp_path, ([NARROW, WIDE, WIDE], [0, 0.5], [1, 1]))
    with envlogger.Reader(tmp_path) as reader:
        assert reader.columns(0)["observation"].dtype == np.float64
    steps = rlds.sources.open(tmp_path)[0].steps
    np.testing.assert_array_equal(steps["observation"], np.stack([NARROW, WIDE, WIDE]))
    np.testing.assert_array_equal(steps["reward"], [0, 0.5, 0])


def test_the_command_line_takes_the_float64_option(tmp_path, capsys):
    record(tmp_path / "log", *map(repeat, [NARROW, WIDE, NARROW]))
    path, option = str(tmp_path / "log"), "float64=float32"
    report = str(tmp_path / "report.html")
    for command in (
        ["stats"],
        ["validate"],
        ["inspect", "--episode", "1"],
        ["report", "-o", report],
    ):
        assert run([*command, path, "-O", option]) == 0
    assert run(["diff", path, path, "-O", option, "--other-option", option]) == 0
    capsys.readouterr()
    assert run(["stats", path]) != 0
    assert "float64='float32'" in capsys.readouterr().err


def test_a_reward_missing_amid_an_episode_is_refused(tmp_path):
    (warning,) = record(tmp_path, ([NARROW] * 4, [0.5, None, 0.5], [1, 1, 1]))
    assert warning.startswith("timestep.reward is None, and its spec says float64 of shape ()")
    with pytest.raises(ValueError, match=r"reward: step 2 holds None.* step 1 holds float64"):
        _ = rlds.sources.open(tmp_path)[0].steps


def test_recorded_dtypes_stay_unchanged(tmp_path):
    backend = InMemoryBackendWriter()
    with envlogger.EnvLogger(Script(*repeat(WIDE)[:2]), backend=backend) as env:
        with pytest.warns(UserWarning, match="observation is float64") as warned:
            env.reset()
        env.step([1])
    assert len(warned) == 1
    assert warned[0].filename == __file__
    assert backend.steps[1].timestep.observation.dtype == np.float64
    assert backend.steps[1].action == [1]
    with envlogger.EnvLogger(Script(*repeat(WIDE)[:2]), backend=backend, validate=True) as env:
        with pytest.raises(envlogger.errors.InvalidStepError, match="observation"):
            env.reset()
