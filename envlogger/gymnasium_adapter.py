"""Gymnasium environments as dm_env environments, so that they can be recorded.

    env = GymnasiumAdapter(gymnasium.make("CartPole-v1"), seed=7)
    with EnvLogger(env, data_directory=d, step_fn=record_info(), episode_fn=record_reset()) as env:
        timestep = env.reset()
        while not timestep.last():
            timestep = env.step(policy(timestep.observation))

You need the extra `gymnasium`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import dm_env
import numpy as np
from dm_env import specs

from envlogger.errors import UnsupportedTypeError, UnsupportedValueError, UsageError
from rlds_ecosystem import install_command

try:
    import gymnasium
    from gymnasium import spaces
except ImportError as e:
    raise ImportError(
        "envlogger.gymnasium_adapter needs gymnasium, which is missing: "
        + install_command("gymnasium")
    ) from e

__all__ = ["GymnasiumAdapter", "record_info", "record_reset", "spec_of_space"]

StepFn = Callable[[dm_env.TimeStep, Any, Any], Any]


class GymnasiumAdapter(dm_env.Environment):  # type: ignore[misc]  # dm_env is untyped.
    """A Gymnasium environment as a dm_env environment.

    A terminated episode ends with discount 0. An episode that is only truncated, by a time limit
    for example, ends with discount 1, because it could have gone on. Discounts are `float`, and so
    are rewards, also an array of one reward; observations, actions and arrays of several rewards
    are returned unchanged. Missing attributes, such as `render` and `unwrapped`, are looked up in
    the environment.

    Args:
      env: The environment; closed together with the adapter. For a vector environment, record each
        of its environments with an `envlogger.GymnasiumLogger`.
      seed: The seed of the first episode, which determines all later seeds; None for a random seed.
      options: The options of every episode.
      reward_space: The space of rewards that are nested or have several elements; such rewards are
        returned unchanged. By default the attribute `reward_space` of the environment, as in
        MO-Gymnasium, if it is a `Box` of several elements.

    Attributes:
      seed: The seed of the last `reset`, or None.
      options: The options of the last `reset`, or None.
      info: The `info` of the last `reset` or `step`.
      reward: The reward of the last `step`, as the environment returned it.
      terminated: Whether the last `step` terminated the episode.
      truncated: Whether the last `step` truncated the episode; both may be true.

    Raises:
      UsageError: `env` is a vector environment.
      UnsupportedTypeError: A space has no spec, see `spec_of_space`.

    >>> env = GymnasiumAdapter(gymnasium.make("CartPole-v1"), seed=7)
    >>> env.reset().observation.shape, env.action_spec().num_values, env.seed
    ((4,), 2, 7)
    >>> timestep = env.step(0)
    >>> timestep.reward, timestep.discount
    (1.0, 1.0)
    """

    def __init__(
        self,
        env: gymnasium.Env[Any, Any],
        seed: int | None = None,
        options: Mapping[str, Any] | None = None,
        reward_space: spaces.Space[Any] | None = None,
    ) -> None:
        if isinstance(env, gymnasium.vector.VectorEnv):
            raise UsageError(
                "the episodes of a vector environment begin and end at different times; record "
                "each of the environments in it: gymnasium.vector.SyncVectorEnv([lambda: "
                "envlogger.GymnasiumLogger(make_env(), data_directory=...), ...])"
            )
        self._env = env
        self._observation_spec = spec_of_space(env.observation_space, "observation")
        self._action_spec = spec_of_space(env.action_space, "action")
        reward_space = reward_space or _find_reward_space(env)
        self._reward_spec = None
        if reward_space is not None:
            self._reward_spec = spec_of_space(reward_space, "reward")
        self._next_seed = seed
        self._next_options = self._default_options = options
        self._reset_next_step = True
        self.seed: int | None = None
        self.options: dict[str, Any] | None = None
        self.info: dict[str, Any] = {}
        self.reward: Any = 0.0
        self.terminated = self.truncated = False

    def __getattr__(self, name: str) -> Any:
        if name == "_env":  # The attribute is missing during copying and construction.
            raise AttributeError(f"{type(self).__name__} has no attribute {name!r} yet")
        return getattr(self._env, name)

    def prepare_reset(
        self, seed: int | None = None, options: Mapping[str, Any] | None = None
    ) -> None:
        """Sets the seed and the options of the next `reset` only."""
        self._next_seed = seed
        self._next_options = options

    def reset(self) -> dm_env.TimeStep:
        """Begins a new episode."""
        self.seed, self._next_seed = self._next_seed, None
        options, self._next_options = self._next_options, self._default_options
        self.options = None if options is None else dict(options)
        self._reset_next_step = False
        self.reward, self.terminated, self.truncated = 0.0, False, False
        observation, self.info = self._env.reset(seed=self.seed, options=self.options)
        return dm_env.restart(observation)

    def step(self, action: Any) -> dm_env.TimeStep:
        """Takes a step; begins a new episode if the last one is over.

        Raises:
          UnsupportedValueError: The reward is neither a number nor an array of numbers, and there
            is no `reward_space`.
        """
        if self._reset_next_step:
            return self.reset()
        observation, reward, terminated, truncated, self.info = self._env.step(action)
        self.reward = reward
        self.terminated, self.truncated = bool(terminated), bool(truncated)
        self._reset_next_step = self.terminated or self.truncated
        step_type = dm_env.StepType.LAST if self._reset_next_step else dm_env.StepType.MID
        if self._reward_spec is None:
            reward = _to_numeric(reward)
        return dm_env.TimeStep(step_type, reward, 0.0 if terminated else 1.0, observation)

    def reward_spec(self) -> Any:
        """The spec of the reward space; without a space, the spec of a `float`."""
        return super().reward_spec() if self._reward_spec is None else self._reward_spec

    def observation_spec(self) -> Any:
        """The spec of the observation space."""
        return self._observation_spec

    def action_spec(self) -> Any:
        """The spec of the action space."""
        return self._action_spec

    def close(self) -> None:
        """Closes the environment."""
        self._env.close()


def _find_reward_space(env: gymnasium.Env[Any, Any]) -> spaces.Space[Any] | None:
    try:
        space = env.get_wrapper_attr("reward_space")
    except AttributeError:
        return None
    return space if isinstance(space, spaces.Box) and space.low.size > 1 else None


def _to_numeric(reward: Any) -> Any:
    """Returns a reward as a `float`, or as an array if it has several elements."""
    try:
        rewards = np.asarray(reward)
        if rewards.dtype.kind not in "biuf":
            raise TypeError(f"{rewards.dtype} is not a numeric type")
    except (TypeError, ValueError) as error:
        raise UnsupportedValueError(
            f"the environment returned the reward {reward!r:.200}, expected numbers. If rewards "
            "are nested, pass GymnasiumAdapter(env, reward_space=...)"
        ) from error
    return float(rewards.item()) if rewards.size == 1 else rewards


def record_info(keys: Iterable[str] | None = None) -> StepFn:
    """Returns a `step_fn` for `EnvLogger` that stores `info` and `truncated` of Gymnasium.

    The custom data of each step are `{"info": {key: value}, "truncated": bool}`.

    Args:
      keys: The entries of the info to store; None for all. Missing entries, as are common at
        `reset`, are stored as None.
    """
    info_keys = None if keys is None else list(keys)

    def step_fn(timestep: dm_env.TimeStep, action: Any, env: Any) -> dict[str, Any]:
        info = env.info
        if info_keys is not None:
            info = {key: info.get(key) for key in info_keys}
        return {"info": info, "truncated": env.truncated}

    return step_fn


def record_reset(episode_fn: StepFn | None = None) -> StepFn:
    """Returns an `episode_fn` for `EnvLogger` that stores the arguments of Gymnasium's `reset`.

    The metadata of the episode are `seed` (an int or None) and `options` (a dict or None).

    Args:
      episode_fn: A function such as `envlogger.callbacks.EpisodeStatistics()` that returns further
        metadata in a dict.
    """

    def store_reset(timestep: dm_env.TimeStep, action: Any, env: Any) -> dict[str, Any] | None:
        metadata = episode_fn(timestep, action, env) if episode_fn is not None else None
        if metadata is None and not timestep.first():
            return None
        return {"seed": env.seed, "options": env.options, **(metadata or {})}

    return store_reset


def spec_of_space(space: spaces.Space[Any], path: str = "") -> Any:
    """Converts a Gymnasium space to dm_env specs.

    `Box`, `MultiBinary`, `MultiDiscrete` and a `Discrete` space that does not begin at 0 become a
    `BoundedArray`, other `Discrete` spaces a `DiscreteArray`; `Text` and other spaces of the type
    `str` become a `StringArray`; `Dict` and `Tuple` become dicts and tuples of specs.

    Args:
      space: The space.
      path: The path of the space in a nested space, for the specs and for error messages.

    Raises:
      UnsupportedTypeError: dm_env has no spec for the space.

    >>> spec_of_space(spaces.Dict({"x": spaces.Discrete(3), "y": spaces.MultiBinary(2)}))["x"]
    DiscreteArray(shape=(), dtype=int64, name=x, minimum=0, maximum=2, num_values=3)
    """
    if isinstance(space, spaces.Dict):
        return {key: spec_of_space(child, _join(path, key)) for key, child in space.items()}
    if isinstance(space, spaces.Tuple):
        return tuple(spec_of_space(child, _join(path, i)) for i, child in enumerate(space))
    name = path or None
    if isinstance(space, spaces.Box):
        return specs.BoundedArray(space.shape, space.dtype, space.low, space.high, name)
    if isinstance(space, spaces.Discrete):
        if space.start == 0:
            return specs.DiscreteArray(int(space.n), space.dtype, name)
        end = space.start + space.n - 1
        return specs.BoundedArray((), space.dtype, space.start, end, name)
    if isinstance(space, spaces.MultiDiscrete):
        end = space.start + space.nvec - 1
        return specs.BoundedArray(space.shape, space.dtype, space.start, end, name)
    if isinstance(space, spaces.MultiBinary):
        return specs.BoundedArray(space.shape, space.dtype, 0, 1, name)
    if isinstance(space, spaces.Text) or space.dtype == np.dtype(str):
        return specs.StringArray((), str, name)
    raise UnsupportedTypeError(
        f"{path}: there is no dm_env spec for the space {space}; wrap the environment to return "
        "values of Box, Discrete, MultiBinary, MultiDiscrete, Text, Dict or Tuple spaces, for "
        "example padded to a fixed size"
    )


def _join(path: str, key: Any) -> str:
    return f"{path}/{key}" if path else str(key)
