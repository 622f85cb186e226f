"""Converts recorded episodes to RLDS episodes: shifts the alignment of steps.

EnvLogger uses the order of the environment (RSA): a reward and a discount are recorded with the
next observation and the action that led to it. RLDS uses the order of the agent (SAR): a step holds
an observation, the action taken after it, and the reward and discount of that action.

| step     | 0                  | 1                  | ... | T                |
|----------|--------------------|--------------------|-----|------------------|
| recorded | o0                 | a0, r1, d1, o1     | ... | aT-1, rT, dT, oT |
| RLDS     | o0, a0, r1, d1     | o1, a1, r2, d2     | ... | oT, zeros        |
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import dm_env
import numpy as np

from envlogger.step_data import StepData
from rlds_ecosystem.model.columns import (
    leaves,
    map_columns,
    shift_steps,
    stack_partial,
    stack_values,
    step_flags,
    with_placeholder,
)

__all__ = ["is_zero", "to_rlds_episode", "to_rlds_episodes"]

# The step types as integers, because NumPy compares slowly with members of an enumeration.
_FIRST, _LAST = int(dm_env.StepType.FIRST), int(dm_env.StepType.LAST)


def to_rlds_episode(
    steps: Iterable[StepData],
    *,
    action_spec: Any = None,
    reward_spec: Any = None,
    discount_spec: Any = None,
) -> dict[str, Any]:
    """Converts a recorded episode to an RLDS episode, as columns.

    `T` transitions become `T + 1` steps. Step `i` holds the observation and the custom data of
    recorded step `i`, and the action, reward and discount of recorded step `i + 1`. The last step
    has no successor: its action, reward and discount are zeros (empty strings for strings), of the
    same dtype and shape. An action, reward or discount recorded with the first step belongs to a
    transition outside of the episode and is dropped.

    Custom data of only some steps get a mask of the steps that have them, see `stack_partial`.

    Every leaf becomes an array whose first axis is the step; dicts, lists and tuples of leaves are
    kept. Dtypes are kept: a Python `float` becomes float64, `int` int64, `bool` bool; `str`,
    `bytes` and NumPy string arrays become arrays of dtype object. A field that is `None` in every
    step becomes an object array of `None`. The result shares no memory with `steps`.

    Args:
      steps: The recorded steps of one episode, at least one.
      action_spec: dm_env spec (or nested specs) of the action; required for an episode of a single
        step, which has no action.
      reward_spec: The same for the reward.
      discount_spec: The same for the discount.

    Returns:
      `observation`, `action`, `reward`, `discount` and `is_first`, `is_last`, `is_terminal` (bool,
      `[T + 1]`), and the custom data: the entries of a dict are further fields, other values are
      the field `custom_data`. `is_first` is true in the first step, of any type: if a scheduler
      dropped steps, the recording may begin in the middle of the episode. `is_last` is true in the
      last step, also if a reset truncated the episode; `is_terminal` is true in a last step of type
      LAST with a discount of zero.

    Raises:
      ValueError: `steps` is empty; a FIRST or LAST step is inside the episode; the dtype, shape or
        structure of a field changes between steps; an integer does not fit int64; custom data have
        the name of another field; or the specs of a single step are missing.
      TypeError: A value is neither a number, a string nor an array of these.

    >>> import dm_env
    >>> episode = to_rlds_episode([
    ...     StepData(dm_env.restart(observation=10), action=None),
    ...     StepData(dm_env.transition(reward=1.0, observation=11), action=5),
    ...     StepData(dm_env.termination(reward=2.0, observation=12), action=6),
    ... ])
    >>> episode["observation"], episode["action"], episode["reward"]
    (array([10, 11, 12]), array([5, 6, 0]), array([1., 2., 0.]))
    >>> episode["is_terminal"]
    array([False, False,  True])
    """
    steps = list(steps)
    if not steps:
        raise ValueError("An episode has at least one step, got none.")
    _check_step_types(steps)

    timesteps = [step.timestep for step in steps]
    columns = {"observation": stack_values([t.observation for t in timesteps], "observation")}
    next_values = {
        "action": ([step.action for step in steps[1:]], action_spec),
        "reward": ([t.reward for t in timesteps[1:]], reward_spec),
        "discount": ([t.discount for t in timesteps[1:]], discount_spec),
    }
    for field, (values, spec) in next_values.items():
        if values:
            column = stack_values(values, field, steps=range(1, len(steps)))
            columns[field] = with_placeholder(column)
        elif spec is None:
            raise ValueError(
                f"{field}: the episode has a single step, so its dtype and shape are unknown; "
                f"pass {field}_spec."
            )
        else:
            columns[field] = map_columns(_create_zeros, spec)

    is_terminal = timesteps[-1].last() and is_zero(timesteps[-1].discount)
    return _add_custom_data(
        {**columns, **step_flags([len(steps)], [is_terminal])},
        _stack_custom_data([step.custom_data for step in steps]),
    )


def to_rlds_episodes(
    columns: Mapping[str, Any], lengths: Sequence[int], *, padded: bool = False
) -> dict[str, Any]:
    """Converts columns of several recorded episodes to columns of RLDS episodes.

    Args:
      columns: The steps of successive episodes, as from `envlogger.Reader.recorded_columns`.
      lengths: The number of steps of each episode, all positive.
      padded: Whether action, reward and discount end with a row of placeholders, as from
        `with_placeholder`. If so, the result shares their memory.

    Returns:
      The concatenated results of `to_rlds_episode` for each episode.

    Raises:
      ValueError: The sum of the lengths differs from the number of steps; a FIRST or LAST step is
        inside an episode; or custom data have the name of another field.

    >>> columns = {
    ...     "step_type": np.array([0, 2, 0, 1]), "observation": np.array([10, 11, 20, 21]),
    ...     "action": np.array([0, 5, 0, 6]), "reward": np.array([0.0, 1.0, 0.0, 2.0]),
    ...     "discount": np.array([0.0, 0.0, 0.0, 1.0]), "custom_data": np.full(4, None),
    ... }
    >>> episodes = to_rlds_episodes(columns, [2, 2])
    >>> episodes["action"], episodes["is_terminal"]
    (array([5, 0, 6, 0]), array([False,  True, False, False]))
    """
    types = columns["step_type"]
    if sum(lengths) != len(types):
        raise ValueError(f"There are {len(types)} steps, expected {sum(lengths)}.")
    discounts = list(leaves(columns["discount"]))
    last_steps = [end - 1 for end in itertools.accumulate(lengths)]
    is_terminal = [
        types[row] == _LAST and is_zero([column[row] for column in discounts]) for row in last_steps
    ]
    flags = step_flags(lengths, is_terminal)
    if ((types == _FIRST) > flags["is_first"]).any():
        raise ValueError("There is a FIRST step inside an episode.")
    if ((types == _LAST) > flags["is_last"]).any():
        raise ValueError("There is a LAST step inside an episode.")
    next_values = {
        key: shift_steps(columns[key] if padded else with_placeholder(columns[key]), last_steps)
        for key in ("action", "reward", "discount")
    }
    custom_data = columns["custom_data"]
    if isinstance(custom_data, np.ndarray) and custom_data[0] is None:
        custom_data = None
    return _add_custom_data(
        {"observation": columns["observation"], **next_values, **flags}, custom_data
    )


def _add_custom_data(episode: dict[str, Any], custom_data: Any) -> dict[str, Any]:
    if custom_data is None:
        return episode
    extra = custom_data if isinstance(custom_data, dict) else {"custom_data": custom_data}
    for field in extra:
        if field in episode:
            raise ValueError(
                f"custom_data/{field}: the name is taken by the RLDS field {field!r}; "
                "record it under another name."
            )
    return {**episode, **extra}


def _stack_custom_data(values: Sequence[Any]) -> Any:
    if all(value is None for value in values):
        return None
    try:
        return stack_values(values, "custom_data")
    except ValueError:  # The custom data differ in structure.
        if all(value is None or isinstance(value, Mapping) for value in values):
            return stack_partial(values, "custom_data")
        return stack_partial([{"custom_data": value} for value in values])


def _check_step_types(steps: Sequence[StepData]) -> None:
    for index, step in enumerate(steps):
        if index > 0 and step.timestep.first():
            raise ValueError(
                f"step {index} of {len(steps)} is a FIRST step: an episode begins inside this one; "
                "split the steps there."
            )
        if index < len(steps) - 1 and step.timestep.last():
            raise ValueError(
                f"step {index} of {len(steps)} is a LAST step, but {len(steps) - 1 - index} more "
                "follow it in the same episode; split the steps there."
            )


def _create_zeros(spec: Any) -> np.ndarray:
    """Returns a column with a single row of zeros."""
    shape = (1, *spec.shape)
    if spec.dtype.kind in "OUS":
        is_bytes = spec.dtype.kind == "S" or getattr(spec, "string_type", str) is bytes
        return np.full(shape, b"" if is_bytes else "", object)
    return np.zeros(shape, spec.dtype)


def is_zero(discount: Any) -> bool:
    """Returns whether all values of a discount, which may be nested (one per agent), are zero."""
    discounts = list(leaves(discount))
    return bool(discounts) and all(np.all(np.asarray(leaf) == 0.0) for leaf in discounts)
