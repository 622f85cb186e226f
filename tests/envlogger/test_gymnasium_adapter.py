"""Recording Gymnasium environments."""

import subprocess
import sys

import dm_env
import gymnasium
import numpy as np
import pytest
from dm_env import specs
from gymnasium import spaces

import envlogger
import rlds.sources
from envlogger.callbacks import EpisodeStatistics
from envlogger.errors import UnsupportedTypeError, UnsupportedValueError, UsageError
from envlogger.gymnasium_adapter import GymnasiumAdapter, record_info, record_reset, spec_of_space
from envlogger.validation import StepValidator


class Corridor(gymnasium.Env):
    """Walks to the right; the episode is terminated at 3, and truncated after 5 steps."""

    observation_space = spaces.Dict({"place": spaces.Discrete(10), "seen": spaces.MultiBinary(2)})
    action_space = spaces.Discrete(2)

    def __init__(self):
        self.render_mode = "ansi"
        self.is_closed = False

    def _observation(self):
        return {"place": self._position, "seen": np.array([0, 1], np.int8)}

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self._position = (options or {}).get("begin", 0)
        self._steps = 0
        return self._observation(), {"luck": float(self.np_random.random())}

    def step(self, action):
        self._position += int(action)
        self._steps += 1
        info = {"luck": float(self.np_random.random()), "steps": self._steps}
        truncated = self._steps >= 5
        return self._observation(), np.float32(1), self._position >= 3, truncated, info

    def render(self):
        return f"at {self._position}"

    def close(self):
        self.is_closed = True


class Constant(gymnasium.Env):
    action_space = spaces.Discrete(2)

    def __init__(self, observation_space):
        self.observation_space = observation_space


def play(env, action):
    timesteps = [env.reset()]
    while not timesteps[-1].last():
        timesteps.append(env.step(action))
    return timesteps


def test_the_recorder_takes_gymnasium_environments(tmp_path):
    with envlogger.EnvLogger(Corridor(), data_directory=tmp_path, step_fn=record_info()) as env:
        play(env, 1)
    with envlogger.Reader(tmp_path) as reader:
        infos = [set(step.custom_data["info"]) for step in reader.steps]
        assert infos[:2] == [{"luck"}, {"luck", "steps"}]
        positions = [step.timestep.observation["place"] for step in reader.steps]
        assert positions == [0, 1, 2, 3]
        assert reader.action_spec().num_values == 2
    with pytest.raises(UsageError, match=r"vector environment.*envlogger\.GymnasiumLogger\("):
        envlogger.EnvLogger(gymnasium.make_vec("CartPole-v1", 2), data_directory=tmp_path)


def test_terminated_and_truncated_are_kept_apart():
    env = GymnasiumAdapter(Corridor())
    terminated, truncated = play(env, 1), play(env, 0)
    assert [t.discount for t in terminated] == [None, 1.0, 1.0, 0.0]
    assert [t.discount for t in truncated] == [None, 1.0, 1.0, 1.0, 1.0, 1.0]
    assert [t.step_type for t in terminated] == [
        dm_env.StepType.FIRST,
        dm_env.StepType.MID,
        dm_env.StepType.MID,
        dm_env.StepType.LAST,
    ]
    assert all(type(t.reward) is float for t in terminated[1:])
    assert env.step(1).first()
    env = GymnasiumAdapter(Corridor(), options={"begin": -2})
    assert env.step(1).first()
    last_step = play(env, 1)[-1]
    assert (last_step.discount, env.truncated) == (0.0, True)
    env.reset()
    assert not env.truncated


def test_rewards_of_one_element_become_floats_and_no_numbers_are_refused(tmp_path):
    class Rewarded(Corridor):
        def step(self, action):
            observation, _, *flags = super().step(action)
            return observation, self.reward, *flags

    env = Rewarded()
    for value in (np.array([2.5]), np.array([[2]]), np.array(2.5), np.int64(2), True, [1.5]):
        env.reward = value
        reward = play(GymnasiumAdapter(env), 1)[-1].reward
        assert type(reward) is float
        assert reward == np.asarray(value).item()
    vector = np.array([1, -2], np.float32)
    rewards = {"a": np.float32(1), "b": np.float32(2)}
    for reward in (rewards, None, "1, 2"):
        env.reward = reward
        with pytest.raises(UnsupportedValueError, match=r"expected numbers.*reward_space"):
            play(GymnasiumAdapter(env), 1)
    env.reward = vector
    with envlogger.EnvLogger(env, data_directory=tmp_path / "first value") as recorder:
        with pytest.warns(UserWarning, match=r"reward is float32 of shape \(2,\), and its spec"):
            play(recorder, 1)
    steps = rlds.sources.open(tmp_path / "first value")[0].steps
    np.testing.assert_equal(steps["reward"], [vector] * 3 + [[0, 0]])
    env.reward_space = spaces.Box(-9, 9, (2,), np.float32)
    with envlogger.EnvLogger(env, data_directory=tmp_path / "attribute") as recorder:
        play(recorder, 1)
    steps = rlds.sources.open(tmp_path / "attribute")[0].steps
    assert steps["reward"].dtype == np.float32
    del env.reward_space
    box = spaces.Box(-9, 9, (2,), np.float32)
    middle = gymnasium.Wrapper(env)
    middle.reward_space = box
    assert GymnasiumAdapter(gymnasium.Wrapper(middle)).reward_spec().shape == (2,)
    scalar = spaces.Box(-9, 9, (), np.float32)
    for space, reward in ((box, vector), (spaces.Dict(a=scalar, b=scalar), rewards)):
        env.reward, directory = reward, tmp_path / type(space).__name__
        adapter = GymnasiumAdapter(env, reward_space=space)
        with envlogger.EnvLogger(adapter, data_directory=directory) as recorder:
            play(recorder, 1)
        with envlogger.Reader(directory) as reader:
            assert reader.reward_spec() == adapter.reward_spec()
            np.testing.assert_equal(reader.steps[1].timestep.reward, reward)


def test_seeds_hold_for_one_reset_and_options_for_all():
    env = GymnasiumAdapter(Corridor(), seed=7, options={"begin": 1})
    lucks = []
    for _ in range(2):
        env.reset()
        lucks.append((env.seed, env.options, env.info["luck"]))
    assert [luck[:2] for luck in lucks] == [(7, {"begin": 1}), (None, {"begin": 1})]
    env.prepare_reset(seed=7)
    env.reset()
    assert (env.seed, env.options, env.info["luck"]) == (7, None, lucks[0][2])
    env.reset()
    assert (env.seed, env.options) == (None, {"begin": 1})


def test_attributes_that_the_adapter_lacks_are_those_of_the_environment():
    corridor = Corridor()
    env = GymnasiumAdapter(corridor)
    env.reset()
    assert env.unwrapped is corridor
    assert (env.render(), env.render_mode) == ("at 0", "ansi")
    with pytest.raises(AttributeError, match="missing"):
        _ = env.missing
    with pytest.raises(AttributeError, match="'_env' yet"):
        _ = GymnasiumAdapter.__new__(GymnasiumAdapter).missing
    env.close()
    assert corridor.is_closed


def test_steps_seeds_options_and_returns_are_recorded(tmp_path):
    with envlogger.EnvLogger(
        GymnasiumAdapter(Corridor(), seed=3),
        data_directory=tmp_path,
        step_fn=record_info(["steps"]),
        episode_fn=record_reset(EpisodeStatistics()),
        validate=True,
    ) as env:
        play(env, 1)
        env.prepare_reset(options={"begin": 2})
        play(env, 1)
        env.reset()
    with envlogger.Reader(tmp_path) as reader:
        assert [len(episode) for episode in reader.episodes] == [4, 2, 1]
        positions = [step.timestep.observation["place"] for step in reader.episodes[0]]
        assert positions == [0, 1, 2, 3]
        metadata = [(m["seed"], m["options"], m.get("return")) for m in reader.episode_metadata()]
        assert metadata == [(3, None, 3.0), (None, {"begin": 2}, 1.0), (None, None, None)]
        steps = [step.custom_data for step in reader.episodes[1]]
        assert steps == [
            {"info": {"steps": None}, "truncated": False},
            {"info": {"steps": 1}, "truncated": False},
        ]
        assert reader.observation_spec() == env.observation_spec()


@pytest.mark.parametrize(
    ("space", "spec"),
    [
        (
            spaces.Box(-1, 2, (3,), np.float32),
            specs.BoundedArray((3,), np.float32, -1, 2, "a"),
        ),
        (
            spaces.Box(np.array([0, -np.inf]), np.array([1, np.inf]), dtype=np.float64),
            specs.BoundedArray((2,), np.float64, [0, -np.inf], [1, np.inf], "a"),
        ),
        (spaces.Discrete(3), specs.DiscreteArray(3, np.int64, "a")),
        (spaces.Discrete(3, start=-1), specs.BoundedArray((), np.int64, -1, 1, "a")),
        (spaces.MultiBinary((2, 3)), specs.BoundedArray((2, 3), np.int8, 0, 1, "a")),
        (
            spaces.MultiDiscrete([3, 2], start=[1, 0]),
            specs.BoundedArray((2,), np.int64, [1, 0], [3, 1], "a"),
        ),
        (spaces.Text(5), specs.StringArray((), str, "a")),
        (
            spaces.Tuple([spaces.Discrete(2), spaces.Dict({"x": spaces.Discrete(4)})]),
            (
                specs.DiscreteArray(2, np.int64, "a/0"),
                {"x": specs.DiscreteArray(4, np.int64, "a/1/x")},
            ),
        ),
    ],
    ids=str,
)
def test_every_supported_space_has_its_dm_env_spec(space, spec):
    assert spec_of_space(space, "a") == spec
    StepValidator(GymnasiumAdapter(Constant(space))).validate(dm_env.restart(space.sample()), None)


def test_spaces_without_a_dm_env_spec_are_refused():
    space = spaces.Dict({"path": spaces.Sequence(spaces.Discrete(2))})
    with pytest.raises(UnsupportedTypeError, match="observation/path: there is no dm_env spec for"):
        spec_of_space(space, "observation")


def test_the_error_without_gymnasium_names_the_extra():
    code = "import sys; sys.modules['gymnasium'] = None; import envlogger.gymnasium_adapter"
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert r"pip install 'rlds-ecosystem[gymnasium]'" in result.stderr


def test_a_space_of_text_need_not_be_a_text_space():
    class Missions(spaces.Space):  # MiniGrid has one.
        def __init__(self):
            super().__init__(dtype=str)

    assert spec_of_space(Missions(), "a") == specs.StringArray((), str, "a")
