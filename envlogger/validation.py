"""Checks of steps against the specs of their environment."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import dm_env
import numpy as np
from dm_env import specs

from envlogger.errors import InvalidStepError
from rlds_ecosystem.model.columns import cast_exact

__all__ = ["StepValidator"]


class StepValidator:
    """Checks steps against the specs of an environment.

    Python numbers match each dtype that can hold them.

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
        self._specs = env.reward_spec(), env.discount_spec(), env.action_spec()

    def differences(self, timestep: dm_env.TimeStep, action: Any) -> list[str]:
        """Describes the values of a step whose dtype or shape differs from their spec."""
        messages = []
        for spec, value, path in self._list_items(timestep, action):
            try:
                for leaf_spec, leaf, leaf_path in _flatten(spec, value, path):
                    if isinstance(leaf_spec, specs.Array) and not _matches(leaf_spec, leaf):
                        messages.append(
                            f"{leaf_path} is {_describe(leaf)}, and its spec says "
                            f"{leaf_spec.dtype} of shape {leaf_spec.shape}"
                        )
            except InvalidStepError as error:
                if spec:  # Empty arrays have no values to check.
                    messages.append(str(error))
        return messages

    def validate(self, timestep: dm_env.TimeStep, action: Any) -> None:
        """Checks a step; the first step of an episode has no action, reward and discount.

        Raises:
          InvalidStepError: A value does not match its spec.
        """
        for spec, value, path in self._list_items(timestep, action):
            for leaf_spec, leaf, leaf_path in _flatten(spec, value, path):
                if leaf is None:
                    raise InvalidStepError(f"{leaf_path}: expected {leaf_spec}, got None")
                try:
                    leaf_spec.validate(_with_dtype(leaf, leaf_spec.dtype))
                except ValueError as e:
                    raise InvalidStepError(f"{leaf_path}: {e}") from e

    def _list_items(self, timestep: dm_env.TimeStep, action: Any) -> Iterator[tuple[Any, Any, str]]:
        yield self._observation_spec, timestep.observation, "timestep.observation"
        if not timestep.first():
            values = timestep.reward, timestep.discount, action
            yield from zip(self._specs, values, ("timestep.reward", "timestep.discount", "action"))


def _flatten(spec: Any, value: Any, path: str) -> Iterator[tuple[Any, Any, str]]:
    """Yields the leaf specs of a nested spec, with their values and paths.

    Raises:
      InvalidStepError: The value is nested differently from the spec.
    """
    if isinstance(spec, Mapping):
        if not isinstance(value, Mapping):
            raise InvalidStepError(f"{path}: expected a dict, got {type(value).__name__}")
        if spec.keys() != value.keys():
            raise InvalidStepError(
                f"{path}: expected the keys {sorted(spec, key=repr)}, got {sorted(value, key=repr)}"
            )
        for key, item in spec.items():
            yield from _flatten(item, value[key], f"{path}[{key!r}]")
    elif isinstance(spec, list | tuple):
        if not isinstance(value, list | tuple) or len(value) != len(spec):
            raise InvalidStepError(
                f"{path}: expected {len(spec)} items in a list or tuple, got {value!r:.100}"
            )
        for i, item in enumerate(spec):
            yield from _flatten(item, value[i], f"{path}[{i}]")
    else:
        yield spec, value, path


def _matches(spec: specs.Array, value: Any) -> bool:
    """Returns whether a value has the dtype and shape of a spec.

    Python numbers and integers of another width match a spec whose dtype can hold them.
    """
    try:
        array = np.asarray(value)
    except ValueError:  # The lists differ in length.
        return False
    if value is None or array.shape != spec.shape:
        return False
    kind, expected = array.dtype.kind, spec.dtype.kind
    if kind in "iu" and (expected in "iu" or (expected == "f" and not hasattr(value, "dtype"))):
        return cast_exact(array, spec.dtype) is not None
    are_texts = {kind, expected} <= set("OUS")
    return are_texts or (kind == expected and np.can_cast(array.dtype, spec.dtype))


def _describe(value: Any) -> str:
    if isinstance(value, list | tuple) or value is None:
        return f"{value!r:.100}"
    array = np.asarray(value)
    text = f" {value!r:.30}" if array.dtype.kind in "iu" and not array.shape else ""
    return f"{array.dtype}{text} of shape {array.shape}"


def _with_dtype(value: Any, dtype: np.dtype[Any]) -> Any:
    """Converts Python numbers to the dtype of their spec, if they are in its range."""
    kinds = {bool: "b", int: "iuf", float: "f"}.get(type(value), "")
    if dtype.kind not in kinds:
        return value
    if dtype.kind in "iu" and not np.iinfo(dtype).min <= value <= np.iinfo(dtype).max:
        return value  # NumPy 1 would wrap the number.
    try:
        return np.array(value, dtype)
    except OverflowError:
        return value
