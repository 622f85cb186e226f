"""Checks that steps are what the specs of an environment say."""

from __future__ import annotations

from typing import Any

import dm_env
import numpy as np

from envlogger.errors import InvalidStepError

__all__ = ["StepValidator"]


class StepValidator:
    """Checks steps against the specs of an environment.

    Python's own numbers may stand for those of any dtype that can hold them.

    Args:
      env: The environment; its specs are read once.

    >>> from envlogger.testing.catch_env import Catch
    >>> validator = StepValidator(Catch())
    >>> validator.validate(Catch().reset(), None)
    >>> try:
    ...     validator.validate(dm_env.restart(np.zeros(3)), None)
    ... except InvalidStepError as e:
    ...     print(e)
    timestep.observation: Expected shape (10, 5) but found (3,) for spec board
    """

    def __init__(self, env: dm_env.Environment) -> None:
        self._observation_spec = env.observation_spec()
        self._action_spec = env.action_spec()
        self._reward_spec = env.reward_spec()
        self._discount_spec = env.discount_spec()

    def validate(self, timestep: dm_env.TimeStep, action: Any) -> None:
        """Checks a step; the first one of an episode has no action, reward and discount.

        Raises:
          InvalidStepError: Something is not as its spec says; names the path to it.
        """
        _validate(self._observation_spec, timestep.observation, "timestep.observation")
        if timestep.first():
            return
        _validate(self._reward_spec, timestep.reward, "timestep.reward")
        _validate(self._discount_spec, timestep.discount, "timestep.discount")
        _validate(self._action_spec, action, "action")


def _validate(spec: Any, value: Any, path: str) -> None:
    if isinstance(spec, dict):
        if not isinstance(value, dict):
            raise InvalidStepError(f"{path}: expected a dict, got {type(value).__name__}")
        if spec.keys() != value.keys():
            raise InvalidStepError(
                f"{path}: expected the keys {sorted(spec, key=repr)}, got {sorted(value, key=repr)}"
            )
        for key, item in spec.items():
            _validate(item, value[key], f"{path}[{key!r}]")
    elif isinstance(spec, list | tuple):
        if not isinstance(value, list | tuple) or len(value) != len(spec):
            raise InvalidStepError(
                f"{path}: expected {len(spec)} items in a list or tuple, got {value!r:.100}"
            )
        for i, item in enumerate(spec):
            _validate(item, value[i], f"{path}[{i}]")
    else:
        if value is None:
            raise InvalidStepError(f"{path}: expected {spec}, got None")
        try:
            spec.validate(_with_dtype(value, spec.dtype))
        except ValueError as e:
            raise InvalidStepError(f"{path}: {e}") from e


def _with_dtype(value: Any, dtype: np.dtype[Any]) -> Any:
    """Gives numbers of Python, which have no dtype, the one that they should have if they can."""
    kinds = {bool: "b", int: "iuf", float: "f"}.get(type(value), "")
    if dtype.kind not in kinds:
        return value
    try:
        return np.array(value, dtype)
    except OverflowError:
        return value
