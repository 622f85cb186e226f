"""Checks of steps against the specs of their environment."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import dm_env
import numpy as np
from dm_env import specs

from envlogger.errors import InvalidStepError
from rlds_ecosystem.columns import equal_in

__all__ = ["StepValidator", "unlike_spec"]


_SCALARS = {kind: np.dtype(kind).char for kind in (bool, int, float)}


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

    def differences(self, timestep: dm_env.TimeStep, action: Any) -> list[str]:
        """Returns the values of a step that have another dtype or shape than their spec."""
        values = [("observation", self._observation_spec, timestep.observation)]
        if timestep.step_type is not dm_env.StepType.FIRST:
            values.append(("action", self._action_spec, action))
            values.append(("reward", self._reward_spec, timestep.reward))
            values.append(("discount", self._discount_spec, timestep.discount))
        found: list[str] = []
        for path, spec, value in values:
            if not (isinstance(spec, specs.Array) and _is_like(spec, value)):
                found += unlike_spec(spec, value, path)
        return found

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


def unlike_spec(spec: Any, value: Any, path: str) -> Iterator[str]:
    """Yields the dtypes and shapes in a value, which may be nested, that are not those of its spec.

    Numbers of Python and integers of another width are like a spec whose dtype can hold them.

    >>> from dm_env import specs
    >>> list(unlike_spec({"x": specs.Array((2,), np.float32)}, {"x": np.zeros(2)}, "observation"))
    ['observation/x is float64 of shape (2,), and its spec says float32 of shape (2,)']
    """
    if isinstance(spec, specs.Array):
        if not _is_like(spec, value):
            expected = f"{spec.dtype} of shape {spec.shape}"
            yield f"{path} is {_in_words(value)}, and its spec says {expected}"
    elif isinstance(spec, Mapping) and isinstance(value, Mapping) and spec.keys() == value.keys():
        for key, item in spec.items():
            yield from unlike_spec(item, value[key], f"{path}/{key}")
    elif isinstance(spec, list | tuple) and isinstance(value, list | tuple):
        if len(spec) != len(value):
            yield f"{path} has {len(value)} items, and its spec has {len(spec)}"
        for i, (item, child) in enumerate(zip(spec, value)):
            yield from unlike_spec(item, child, f"{path}/{i}")
    elif spec:  # Empty ones say nothing.
        yield f"{path} is {value!r:.100}, and its spec has the items {spec!r:.200}"


def _is_like(spec: Any, value: Any) -> bool:
    dtype = getattr(value, "dtype", None)
    if dtype is not None and dtype == spec.dtype:
        return bool(value.shape == spec.shape)
    if _SCALARS.get(type(value)) == spec.dtype.char:
        return not spec.shape
    if dtype is None and spec.dtype.kind in "OUS":
        return isinstance(value, str | bytes)
    try:
        array = np.asarray(value)
    except ValueError:  # Lists of several lengths.
        return False
    if array.shape != spec.shape:
        return False
    kinds = {array.dtype.kind, spec.dtype.kind}
    if kinds <= set("OUS"):
        return value is not None
    is_integer = array.dtype.kind in "iu" and (kinds <= set("iu") or dtype is None)
    if is_integer and spec.dtype.kind in "iuf":
        return equal_in(array, spec.dtype) is not None
    return spec.dtype.kind == array.dtype.kind and np.can_cast(array.dtype, spec.dtype)


def _in_words(value: Any) -> str:
    if isinstance(value, list | tuple) or value is None:
        return f"{value!r:.100}"
    array = np.asarray(value)
    number = f" {value!r:.30}" if array.dtype.kind in "iu" and not array.shape else ""
    return f"{array.dtype}{number} of shape {array.shape}"


def _with_dtype(value: Any, dtype: np.dtype[Any]) -> Any:
    """Gives numbers of Python, which have no dtype, the one that they should have if they can."""
    kinds = {bool: "b", int: "iuf", float: "f"}.get(type(value), "")
    if dtype.kind not in kinds:
        return value
    try:
        return np.array(value, dtype)
    except OverflowError:
        return value
