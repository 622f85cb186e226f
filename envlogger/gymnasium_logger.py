"""A recorder that is a Gymnasium environment, for code that trains on Gymnasium environments.

You need the extra `gymnasium`.
"""

from __future__ import annotations

from typing import Any

from envlogger.environment_logger import EnvLogger
from envlogger.gymnasium_adapter import GymnasiumAdapter, StepFn, record_reset

# This import follows the adapter, whose error message has the install command.
import gymnasium  # isort: skip

__all__ = ["GymnasiumLogger"]


class GymnasiumLogger(gymnasium.Wrapper[Any, Any, Any, Any]):
    """A Gymnasium environment that records every step, for code that expects `gymnasium.Env`.

        envs = gymnasium.vector.SyncVectorEnv(
            [lambda: envlogger.GymnasiumLogger(make_env(), data_directory="logs")] * 4
        )

    An `EnvLogger` records a `GymnasiumAdapter` of the environment. `reset` and `step` return the
    values of the environment. The metadata of an episode are the seed and the options of its reset.
    Outside of an episode, `step` begins one: it returns the first observation, a reward of 0.0 and
    no end, like the wrapper `Autoreset`.

    Args:
      env: The environment; closed together with the recorder.
      step_fn: See `EnvLogger`; it is called with the adapter, so `record_info` fits.
      episode_fn: See `EnvLogger`; a returned dict is stored with the seed and the options.
      reward_space: See `GymnasiumAdapter`.
      **arguments: Further arguments of `EnvLogger`: `metadata`, `backend`, `validate`, `video`, and
        those of the backend, such as `data_directory`.

    Attributes:
      recorder: The `EnvLogger`, for `flush` and `discard_episode`.

    Raises:
      UsageError: `env` is a vector environment.
      UnsupportedTypeError: A space has no spec, see `spec_of_space`.
      EnvLoggerError: The backend cannot record, see `EnvLogger`.

    >>> import tempfile
    >>> import envlogger
    >>> with tempfile.TemporaryDirectory() as directory:
    ...     with GymnasiumLogger(gymnasium.make("CartPole-v1"), data_directory=directory) as env:
    ...         observation, info = env.reset(seed=7)
    ...         _ = env.step(0)
    ...     with envlogger.Reader(directory) as reader:
    ...         len(reader.steps), reader.episode_metadata()[0]
    (2, {'options': None, 'seed': 7})
    """

    def __init__(
        self,
        env: gymnasium.Env[Any, Any],
        step_fn: StepFn | None = None,
        episode_fn: StepFn | None = None,
        *,
        reward_space: gymnasium.spaces.Space[Any] | None = None,
        **arguments: Any,
    ) -> None:
        self._adapter = GymnasiumAdapter(env, reward_space=reward_space)
        super().__init__(env)
        self.recorder = EnvLogger(self._adapter, step_fn, record_reset(episode_fn), **arguments)

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        """Begins a new episode, and records its first step.

        Raises:
          EnvLoggerError: The step cannot be recorded, see `EnvLogger.reset`.
        """
        self._adapter.prepare_reset(seed, options)
        return self.recorder.reset().observation, self._adapter.info

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        """Takes a step and records it.

        Raises:
          EnvLoggerError: The step cannot be recorded, see `EnvLogger.step`.
        """
        observation = self.recorder.step(action).observation
        adapter = self._adapter
        return observation, adapter.reward, adapter.terminated, adapter.truncated, adapter.info

    def close(self) -> None:
        """Closes the environment, and stores pending steps; further calls do nothing."""
        self.recorder.close()
