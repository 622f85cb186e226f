"""`rlds record`: environments and policies by name, limits, seeds, frames, Ctrl-C."""

import json
import sys
import warnings

import dm_env
import numpy as np
import pytest
from dm_env import specs

import envlogger
import rlds_tools
from envlogger.converters import codec
from envlogger.environment_wrapper import EnvironmentWrapper
from envlogger.testing.catch_env import Catch
from rlds.sources import open as open_episodes
from rlds_tools.command_line import main

MODULE = """
import numpy as np
import envlogger.testing.catch_env

def environment(seed):
    return envlogger.testing.catch_env.Catch(rows=4, seed=seed)

def nothing():
    return 7

def of_timestep(timestep):
    return 2 if timestep.first() else 0

class Learned:
    def __init__(self, seed):
        self.rng = np.random.default_rng(seed)

    def __call__(self, observation):
        assert observation.shape == (4, 5)
        return int(self.rng.integers(3))

def wrong(observation):
    return 0.5

def of_two(observation, more):
    return 0
"""


@pytest.fixture(scope="module", autouse=True)
def agents(tmp_path_factory):
    """A module of environments and policies."""
    directory = tmp_path_factory.mktemp("modules")
    (directory / "recorded_agents.py").write_text(MODULE)
    sys.path.insert(0, str(directory))
    yield
    sys.path.remove(str(directory))
    sys.modules.pop("recorded_agents", None)


class RenderedCatch(EnvironmentWrapper):
    """Catch with frames of odd sizes."""

    metadata = {"render_fps": 10}  # noqa: RUF012

    def __init__(self):
        super().__init__(Catch())
        self.num_frames = 0

    def render(self):
        self.num_frames += 1
        return np.full((31, 45, 3), self.num_frames, np.uint8)


def encode_log(log):
    """Returns the bytes of all steps and of the metadata of episodes."""
    with envlogger.Reader(log) as reader:
        steps = [[*step.timestep, step.action, step.custom_data] for step in reader.steps]
        metadata = list(reader.episode_metadata())
    values = [(int(step_type), *fields) for step_type, *fields in steps] + metadata
    return [codec.encode(value).SerializeToString(deterministic=True) for value in values]


def test_a_recording_has_counts_metadata_and_next_commands(tmp_path):
    log = str(tmp_path / "log")
    result = rlds_tools.record("catch", log, episodes=3, seed=7, metadata={"task": "falling"})
    assert (result.episodes, result.steps, result.seed, result.policy) == (3, 30, 7, "random")
    assert not result.exit_code
    episodes = open_episodes(log)
    rewards = [episode.steps["reward"].sum() for episode in episodes]
    assert result.returns == rlds_tools.Spread.from_values(rewards)
    assert episodes.metadata == {"environment": "catch", "task": "falling"}
    assert episodes[1].metadata == {
        "agent_id": "random",
        "seed": 7,
        "return": rewards[1],
        "length": 9,
    }
    assert len({tuple(episode.steps["action"]) for episode in episodes}) == 3
    text = str(result)
    assert text.startswith(f"{log}: 3 episodes, 30 steps of catch")
    assert text.splitlines()[-1].startswith(f"next: rlds inspect {log} · rlds convert {log} ")
    assert json.loads(json.dumps(result.to_dict()))["returns"]["max"] == max(rewards)


@pytest.mark.slow
@pytest.mark.parametrize("environment", ["catch", "CartPole-v1", "recorded_agents:environment"])
def test_the_same_seed_records_the_same_bytes(tmp_path, environment):
    if environment.startswith("Cart"):
        pytest.importorskip("gymnasium")
    for name, seed in {"a": 3, "b": 3, "c": 4}.items():
        rlds_tools.record(environment, tmp_path / name, episodes=2, seed=seed)
    assert encode_log(tmp_path / "a") == encode_log(tmp_path / "b")
    assert encode_log(tmp_path / "a") != encode_log(tmp_path / "c")
    result = rlds_tools.record(environment, tmp_path / "d", episodes=2)
    rlds_tools.record(environment, tmp_path / "e", episodes=2, seed=result.seed)
    assert encode_log(tmp_path / "d") == encode_log(tmp_path / "e")


def test_a_log_grows_only_by_the_same_environment(tmp_path):
    rlds_tools.record("catch", tmp_path, episodes=2, seed=1)
    result = rlds_tools.record("catch", tmp_path, episodes=1, seed=2)
    assert (result.episodes, result.episodes_before) == (1, 2)
    assert "appended to 2 earlier episodes" in str(result)
    assert [episode.metadata["seed"] for episode in open_episodes(tmp_path)] == [1, 1, 2]
    with pytest.raises(ValueError, match="is a log of catch"):
        rlds_tools.record(Catch(), tmp_path, episodes=1)
    resized_log = tmp_path / "sizes"
    for env in Catch(rows=4), Catch(rows=5):
        error = None
        try:
            rlds_tools.record(env, resized_log, episodes=1)
        except ValueError as e:
            error = e
    assert "observation_spec" in str(error)
    assert len(open_episodes(resized_log)) == 1


def test_limits_truncate_episodes(tmp_path):
    result = rlds_tools.record("catch", tmp_path / "a", steps=25, max_episode_steps=6)
    assert (result.episodes, result.steps) == (4, 25)
    episodes = list(open_episodes(tmp_path / "a"))
    assert [episode.num_steps for episode in episodes] == [7, 7, 7, 4]
    assert all(episode.truncated and episode.complete for episode in episodes)
    assert not any(episode.steps["is_terminal"].any() for episode in episodes)
    # A single step is no episode.
    assert rlds_tools.record("catch", tmp_path / "b", steps=21).steps == 20
    assert rlds_tools.record("catch", tmp_path / "c", steps=100, episodes=1).steps == 10


@pytest.mark.parametrize(
    ("policy", "actions"),
    [
        ("constant:2", [2, 2, 2]),
        ("recorded_agents:of_timestep", [2, 0, 0]),
        (lambda observation: np.float32(1), [1, 1, 1]),
    ],
)
def test_policies_choose_the_recorded_actions(tmp_path, policy, actions):
    rlds_tools.record("recorded_agents:environment", tmp_path, episodes=2, policy=policy)
    steps = open_episodes(tmp_path)[1].steps
    np.testing.assert_array_equal(steps["action"][:-1], actions)
    assert steps["action"].dtype == np.int64


class AnyActions(dm_env.Environment):
    """An environment whose actions are of all kinds."""

    def __init__(self):
        self.actions = []

    def reset(self):
        return dm_env.restart(np.zeros(1))

    def step(self, action):
        self.actions.append(action)
        return dm_env.termination(np.ones(2), np.zeros(1))

    def observation_spec(self):
        return specs.Array((1,), np.float64)

    def reward_spec(self):
        return specs.Array((2,), np.float64)

    def action_spec(self):
        return {
            "move": specs.BoundedArray((2,), np.float32, [-1, -np.inf], [2, 3]),
            "parts": (
                specs.DiscreteArray(4, np.uint8),
                specs.BoundedArray((3,), np.int32, -5, [-5, 9, 0]),
                specs.Array((), bool),
                specs.Array((2, 2), np.float64),
            ),
        }


def test_random_actions_satisfy_specs_of_all_kinds(tmp_path):
    env = AnyActions()
    result = rlds_tools.record(env, tmp_path, episodes=200, seed=1)
    assert result.returns is None  # Each step has several rewards.
    spec = env.action_spec()
    for action in env.actions:
        spec["move"].validate(action["move"])
        assert all(
            each.validate(value) is not None for each, value in zip(spec["parts"], action["parts"])
        )
    moves = np.array([action["move"] for action in env.actions])
    assert moves[:, 0].min() < -0.9
    assert moves[:, 0].max() > 1.9
    assert (moves[:, 1] < -1).any()
    assert {int(action["parts"][0]) for action in env.actions} == set(range(4))
    assert {int(action["parts"][1][1]) for action in env.actions} == set(range(-5, 10))
    assert {bool(action["parts"][2]) for action in env.actions} == {False, True}


def test_rendered_frames_are_observations(tmp_path):
    env = RenderedCatch()
    result = rlds_tools.record(env, tmp_path / "a", episodes=2, render=True, seed=1)
    assert env.num_frames == result.steps
    steps = open_episodes(tmp_path / "a").columns(1)["observation"]
    assert steps["state"].shape == (10, 10, 5)
    assert steps["render"].shape == (10, 31, 45, 3)
    np.testing.assert_array_equal(steps["render"][:, 0, 0, 0], range(11, 21))
    rlds_tools.record(RenderedCatch(), tmp_path / "b", episodes=1, render=True, size=(20, 10))
    assert open_episodes(tmp_path / "b").columns(0)["observation"]["render"].shape[1:] == (
        10,
        20,
        3,
    )
    with pytest.raises(ValueError, match="cannot be rendered"):
        rlds_tools.record("catch", tmp_path / "c", render=True)
    assert not (tmp_path / "c").exists()


def test_the_video_shows_the_first_episode(tmp_path):
    av = pytest.importorskip("av")
    env, video = RenderedCatch(), tmp_path / "first.mp4"
    result = rlds_tools.record(env, tmp_path / "log", episodes=3, video=video)
    assert result.video == str(video)
    assert env.num_frames == 10  # Only the first episode is rendered.
    assert open_episodes(tmp_path / "log").columns(0)["observation"].shape == (10, 10, 5)
    with av.open(str(video)) as container:
        stream = container.streams.video[0]
        assert (stream.codec_context.name, stream.average_rate) == ("h264", 10)
        frames = [frame.to_ndarray(format="rgb24") for frame in container.decode(stream)]
    assert len(frames) == 10
    assert frames[0].shape == (32, 46, 3)  # H.264 needs even sizes.


def test_ctrl_c_keeps_finished_episodes(tmp_path, capsys):
    def interrupt_at(call):
        calls = iter(range(10**9))

        def policy(observation):
            if next(calls) == call:
                raise KeyboardInterrupt
            return 1

        return policy

    result = rlds_tools.record("catch", tmp_path / "a", policy=interrupt_at(22), episodes=9)
    assert (result.interrupted, result.exit_code, result.episodes, result.steps) == (
        True,
        130,
        2,
        20,
    )
    assert "interrupted" in str(result)
    assert [episode.num_steps for episode in open_episodes(tmp_path / "a")] == [10, 10]

    class InterruptedCatch(Catch):
        resets = 0

        def reset(self):
            self.resets += 1
            if self.resets == 3:
                raise KeyboardInterrupt
            return super().reset()

    result = rlds_tools.record(InterruptedCatch(), tmp_path / "b")
    assert result.episodes == len(open_episodes(tmp_path / "b")) == 2
    empty = rlds_tools.record("catch", tmp_path / "c", policy=interrupt_at(0))
    assert (empty.episodes, empty.returns) == (0, None)
    assert "next:" not in str(empty)


def test_errors_of_policies_and_arguments_name_the_cause(tmp_path):
    def broken(observation):
        if observation[4].any():
            raise OSError("the robot is gone")
        return 1

    with pytest.raises(OSError, match="the robot is gone") as error:
        rlds_tools.record("catch", tmp_path / "log", policy=broken)
    assert "0 finished episodes" in error.value.__notes__[0]
    for arguments, message in [
        ({"policy": "recorded_agents:wrong"}, r"chose 0\.5, which does not match.*expected int"),
        (
            {"policy": "recorded_agents:of_two"},
            r"of_two\(observation, more\) has the wrong arg.*'more'",
        ),
        ({"environment": "recorded_agents:of_two"}, "missing a required argument: 'observation'"),
        ({"policy": "constant:3"}, "not all within bounds"),
        ({"policy": "constant:one"}, "expected numbers"),
        ({"policy": "clever"}, "no policy 'clever'"),
        ({"policy": "recorded_agents:missing"}, "has no 'missing'"),
        (
            {"environment": "recorded_agents:nothing"},
            "got a int, expected a dm_env or Gymnasium env",
        ),
        ({"environment": "dm_control:cartpole"}, "has no task"),
        ({"episodes": 0}, "episodes must be positive"),
        ({"info": True}, "returns no info"),
        ({"size": (4, 4)}, "camera and size need"),
    ]:
        with pytest.raises(ValueError, match=message):
            rlds_tools.record(**{"environment": "catch", "output": tmp_path / "no", **arguments})


def test_gymnasium_environments_are_recorded_by_name_or_as_objects(tmp_path):
    gymnasium = pytest.importorskip("gymnasium")
    result = rlds_tools.record(
        "CartPole-v1", tmp_path / "a", max_episode_steps=5, policy="constant:0"
    )
    assert result.steps == 60
    with envlogger.Reader(tmp_path / "a") as log:
        assert log.action_spec().num_values == 2
    env = gymnasium.make("Pendulum-v1", max_episode_steps=4)
    result = rlds_tools.record(env, tmp_path / "b", episodes=1, info=True, policy="constant:0.5")
    assert result.environment == "Pendulum-v1"
    steps = open_episodes(tmp_path / "b")[0].steps
    assert steps["truncated"].tolist() == [False] * 4 + [True]
    assert steps["action"][0].tolist() == [0.5]
    # Toy text uses actions as keys of a dict.
    assert rlds_tools.record("FrozenLake-v1", tmp_path / "c", episodes=1).episodes == 1
    with pytest.raises(ValueError, match="Nope"):
        rlds_tools.record("Nope-v1", tmp_path / "d")


def test_unknown_cameras_are_errors(tmp_path):
    pytest.importorskip("mujoco")
    for camera in 7, "nope":
        with pytest.raises(ValueError, match=f"no camera {camera!r}; expected -1 and 0 'track'"):
            rlds_tools.record("Hopper-v5", tmp_path, render=True, camera=camera)
    with pytest.raises(ValueError, match="no cameras to choose"):
        rlds_tools.record("CartPole-v1", tmp_path, render=True, camera=0)


def test_atari_games_are_recorded_with_their_info(tmp_path):
    pytest.importorskip("ale_py")
    result = rlds_tools.record("ALE/Breakout-v5", tmp_path, steps=12, info=True, seed=1)
    assert result.steps == 12
    steps = open_episodes(tmp_path)[0].steps
    assert steps["observation"].shape == (12, 210, 160, 3)
    assert set(steps["info"]["lives"]) == {5}


def test_environments_that_cannot_be_created_are_errors_with_advice(tmp_path, monkeypatch):
    gymnasium = pytest.importorskip("gymnasium")

    def record(name, **options):
        return rlds_tools.record(name, tmp_path / "log", episodes=1)

    with pytest.raises(ValueError, match=r"Did you mean 'dm_control:cartpole/swingup'\?"):
        record("cartpole/swingup")
    with pytest.raises(ValueError, match=r"Did you mean 'dm_control:cartpole/swingup'\?"):
        record("dm_control/cartpole-swingup-v0")
    with warnings.catch_warnings():  # Gymnasium warns of the old version, too.
        warnings.simplefilter("error")
        with pytest.raises(ValueError, match=r"LunarLander-v2: .*deprecated"):
            record("LunarLander-v2")

    for error, message in [
        (AttributeError("no flex"), "cannot be created: AttributeError: no flex. To install"),
        (ModuleNotFoundError("No module named 'imageio'"), "'imageio'. To install compatible"),
    ]:

        def fail(error=error, **_):
            raise error

        monkeypatch.setitem(
            gymnasium.registry,
            "Broken-v0",
            gymnasium.envs.registration.EnvSpec("Broken-v0", entry_point=fail),
        )
        with pytest.raises((ValueError, ImportError), match=message):
            record("Broken-v0")
    for name in ("dm_control", "dm_control.suite"):
        monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(ImportError, match=r"pip install 'rlds-ecosystem\[dm_control\]'"):
        record("dm_control:cartpole/swingup")
    assert not (tmp_path / "log").exists()


@pytest.mark.slow  # Importing dm_control takes seconds.
def test_dm_control_is_recorded_and_reproducible(tmp_path):
    pytest.importorskip("dm_control")
    for name in "ab":
        rlds_tools.record("dm_control:cartpole/swingup", tmp_path / name, steps=20, seed=1)
    assert encode_log(tmp_path / "a") == encode_log(tmp_path / "b")
    with pytest.raises(ValueError, match="Level 'fly' does not exist"):
        rlds_tools.record("dm_control:cartpole/fly", tmp_path / "c")


def test_the_command_records_environments_and_policies_of_modules(tmp_path, monkeypatch, capsys):
    def run(*arguments):
        with pytest.raises(SystemExit) as exit:
            main(["record", *arguments])
        return exit.value.code

    (tmp_path / "typed_here.py").write_text(MODULE)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    arguments = ["--steps", "10", "--metadata", "runs=3", "--metadata", "task=a=b"]
    assert (
        run("typed_here:environment", "-o", "log", "--policy", "typed_here:Learned", *arguments)
        == 0
    )
    assert "log: 3 episodes, 10 steps of typed_here:environment" in capsys.readouterr().out
    metadata = open_episodes("log").metadata
    assert metadata == {"environment": "typed_here:environment", "runs": 3, "task": "a=b"}
    assert run("catch", "-o", "log2", "--metadata", "x") == 2
    assert run("catch", "-o", "log2", "--render", "--size", "84") == 2
    assert "WIDTHxHEIGHT" in capsys.readouterr().err
    assert run("catch", "-o", "log") == 1
    assert capsys.readouterr().err.startswith("error: log is a log of typed_here:environment")
