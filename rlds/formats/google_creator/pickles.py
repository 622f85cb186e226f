"""The classes in pickles of RLDS Creator: steps, timesteps and specs."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Mapping
from typing import Any

import dm_env
import numpy as np
from dm_env import specs

from envlogger.step_data import StepData

__all__ = ["NAMES"]

# The maximum number of values of a spec, for which placeholders are allocated.
_MAX_VALUES = 1 << 24


def _step_type_of_name(kind: Any, name: Any) -> dm_env.StepType:
    """Unpickles a `StepType` in the form of the first releases of Python 3.11."""
    if kind is not dm_env.StepType:
        raise ValueError("an attribute of an object other than StepType")
    return dm_env.StepType[name]


def _text() -> str:
    """Stands for the type `str` of a spec."""
    return ""


def _array(kind: type[specs.Array], shape: Any, dtype: Any, *arguments: Any) -> specs.Array:
    """Creates a spec of a class from its pickled state."""
    if type(shape) is not tuple or not 0 <= math.prod(shape) <= _MAX_VALUES:
        limit = f"at most {_MAX_VALUES:,} values"
        raise ValueError(f"a spec of shape {shape!r:.100}, expected {limit}")
    if kind is specs.StringArray:
        return specs.StringArray(shape, str if dtype is _text else bytes, *arguments)
    if not isinstance(dtype, np.dtype):
        raise ValueError(f"a spec of {dtype!r:.100}, expected a dtype")
    return kind(shape, dtype, *arguments)


NAMES: Mapping[str, Callable[..., Any]] = {
    "builtins.getattr": _step_type_of_name,
    "builtins.str": _text,
    "builtins.unicode": _text,  # Python 2 has this type.
    "dm_env._environment.StepType": dm_env.StepType,
    "dm_env._environment.TimeStep": dm_env.TimeStep,
    "dm_env.specs.Array": functools.partial(_array, specs.Array),
    "dm_env.specs.BoundedArray": functools.partial(_array, specs.BoundedArray),
    "dm_env.specs.DiscreteArray": specs.DiscreteArray,
    "dm_env.specs.StringArray": functools.partial(_array, specs.StringArray),
    "envlogger.step_data.StepData": StepData,
    "rlds_creator.episode_storage.StepData": StepData,
}
