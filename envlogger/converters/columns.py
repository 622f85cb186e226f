"""Turns stored steps into columns: arrays `[number of steps, ...]` in place of single values.

Records that a template fits are sliced all at once. The others are decoded one by one, and so are
all of them if what results does not fit together: then there is an error to be raised.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import dm_env
import numpy as np

from envlogger.converters.rlds_episode import (
    assemble_episode,
    dtype_and_shape,
    stack_values,
    to_rlds_episode,
    zeros_like,
)
from envlogger.converters.step_decoder import StepDecoder
from envlogger.converters.step_template import NoMatchError, Template
from envlogger.errors import DamagedDataError
from envlogger.step_data import StepData

__all__ = ["as_fields", "recorded_columns", "rlds_columns", "stacked_columns"]


def recorded_columns(records: Sequence[bytes], decoder: StepDecoder) -> StepData:
    """Decodes steps to columns in the order in which they were recorded.

    Args:
      records: Serialized steps, at least one, of one or several episodes.
      decoder: Knows templates, and learns more.

    Returns:
      The structure of a step with a column in place of each value; the column of the step types is
      int64. See `to_rlds_episode` for dtypes. The first step of an episode usually has no action,
      reward and discount, but None: there, in a step of type FIRST, the column has zeros (empty
      strings for strings). A field that is None in every step gives an object array of `None`. The
      arrays are writable and share memory with nothing.

    Raises:
      DamagedDataError: A record is no step; says which.
      ValueError: There is no record. Or a field changes its dtype, shape or structure between
        steps, or an integer does not fit int64.

    >>> from envlogger.converters.step_encoder import StepEncoder
    >>> encode = StepEncoder().encode
    >>> start = StepData(dm_env.restart(observation=10), action=None)
    >>> step = StepData(dm_env.transition(reward=1.5, observation=11), action=5)
    >>> columns = recorded_columns([encode(start), encode(step)], StepDecoder())
    >>> columns.timestep.observation, columns.timestep.reward, columns.action
    (array([10, 11]), array([0. , 1.5]), array([0, 5]))
    """
    if not records:
        raise ValueError("There must be at least one step, got none.")
    try:
        return _merged_steps(_parts_of(records, decoder), len(records))
    except (_DifferError, NoMatchError, ValueError, TypeError):
        return stacked_columns(_decoded(records, range(len(records)), decoder))


def rlds_columns(
    records: Sequence[bytes],
    decoder: StepDecoder,
    *,
    action_spec: Any = None,
    reward_spec: Any = None,
    discount_spec: Any = None,
) -> dict[str, Any]:
    """Decodes the steps of an episode to an RLDS episode.

    Args:
      records: The serialized steps of one episode, at least one.
      decoder: Knows templates, and learns more.
      action_spec: See `to_rlds_episode`.
      reward_spec: Likewise.
      discount_spec: Likewise.

    Returns:
      What `to_rlds_episode` returns for the decoded steps.

    Raises:
      DamagedDataError: A record is no step; says which.
      ValueError: As `to_rlds_episode` does.
      TypeError: Likewise.
    """
    try:
        return _merged_episode(records, decoder)
    except (_DifferError, NoMatchError, ValueError, TypeError):
        return to_rlds_episode(
            _decoded(records, range(len(records)), decoder),
            action_spec=action_spec,
            reward_spec=reward_spec,
            discount_spec=discount_spec,
        )


def stacked_columns(steps: Iterable[StepData]) -> StepData:
    """Stacks steps to columns, as `recorded_columns` does with stored ones.

    Args:
      steps: At least one.

    Returns:
      See `recorded_columns`.

    Raises:
      ValueError: There is no step; or see `recorded_columns`.
    """
    steps = list(steps)
    if not steps:
        raise ValueError("There must be at least one step, got none.")
    timesteps = [step.timestep for step in steps]

    def stacked(field: str, values: list[Any]) -> Any:
        present = [
            number
            for number, value in enumerate(values)
            if value is not None or not timesteps[number].first()
        ] or list(range(len(values)))
        column = stack_values([values[number] for number in present], field, steps=present)
        return _merge([(np.array(present), column)], len(values))

    timestep = dm_env.TimeStep(
        np.array([int(timestep.step_type) for timestep in timesteps]),
        stacked("reward", [timestep.reward for timestep in timesteps]),
        stacked("discount", [timestep.discount for timestep in timesteps]),
        stack_values([timestep.observation for timestep in timesteps], "observation"),
    )
    return StepData(
        timestep,
        stacked("action", [step.action for step in steps]),
        stack_values([step.custom_data for step in steps], "custom_data"),
    )


def as_fields(columns: StepData) -> dict[str, Any]:
    """The columns of steps by the names of their fields."""
    return {
        **columns.timestep._asdict(),
        "action": columns.action,
        "custom_data": columns.custom_data,
    }


class _DifferError(Exception):
    """Parts do not fit together."""


class _Part(NamedTuple):
    """The columns of some of the steps, with the numbers of these, which increase."""

    steps: np.ndarray
    columns: StepData


def _parts_of(records: Sequence[bytes], decoder: StepDecoder) -> list[_Part]:
    """Decodes all records, in the order of the first step of each part."""
    sizes = np.array(list(map(len, records)))
    parts = []
    others = []
    for size in np.unique(sizes).tolist():
        steps = np.flatnonzero(sizes == size)
        known = iter(decoder.templates_of_size(size))
        while len(steps):
            template = next(known, None) or decoder.learn(records[steps[0]])
            if template is None:
                others.append(steps)
                break
            joined = _joined(records, steps)
            is_match = template.matches(joined)
            if is_match.all():
                matching, steps = steps, steps[:0]
            else:
                matching, steps = steps[is_match], steps[~is_match]
                joined = _joined(records, matching)
            if len(matching):
                part = _sliced(joined, matching, template)
                if part is None:
                    others.append(matching)
                else:
                    parts.append(part)
    if others:
        parts += _stacked_parts(records, np.sort(np.concatenate(others)), decoder)
    return sorted(parts, key=lambda part: int(part.steps[0]))


def _joined(records: Sequence[bytes], steps: np.ndarray) -> bytes:
    if _is_run(steps):
        return b"".join(records[int(steps[0]) : int(steps[-1]) + 1])
    return b"".join([records[step] for step in steps.tolist()])


def _is_run(steps: np.ndarray) -> bool:
    return len(steps) > 0 and int(steps[-1]) - int(steps[0]) + 1 == len(steps)


def _sliced(joined: bytes, steps: np.ndarray, template: Template) -> _Part | None:
    try:
        return _Part(steps, template.columns(joined))
    except NoMatchError:
        return None


def _stacked_parts(
    records: Sequence[bytes], numbers: np.ndarray, decoder: StepDecoder
) -> Iterator[_Part]:
    """Decodes steps one by one; those with and without action, reward and discount apart."""
    groups: dict[tuple[bool, ...], tuple[list[int], list[StepData]]] = {}
    for number, step in zip(numbers.tolist(), _decoded(records, numbers.tolist(), decoder)):
        timestep, action, _ = step
        form = (action is None, timestep.reward is None, timestep.discount is None)
        group_numbers, group = groups.setdefault(form, ([], []))
        group_numbers.append(number)
        group.append(step)
    for group_numbers, group in groups.values():
        timesteps = [step.timestep for step in group]
        columns = StepData(
            dm_env.TimeStep(
                np.array([int(timestep.step_type) for timestep in timesteps]),
                stack_values([timestep.reward for timestep in timesteps]),
                stack_values([timestep.discount for timestep in timesteps]),
                stack_values([timestep.observation for timestep in timesteps]),
            ),
            stack_values([step.action for step in group]),
            stack_values([step.custom_data for step in group]),
        )
        yield _Part(np.array(group_numbers), columns)


def _decoded(
    records: Sequence[bytes], steps: Iterable[int], decoder: StepDecoder
) -> Iterator[StepData]:
    for step in steps:
        try:
            yield decoder.decode(records[step])
        except DamagedDataError as e:
            raise DamagedDataError(f"step {step} of {len(records)} is damaged: {e}") from e


# --- Recorded order.


def _merged_steps(parts: list[_Part], num_steps: int) -> StepData:
    def merged(field: str) -> Any:
        found = [(part, _field(part, field)) for part in parts]
        present = [
            (part, column) for part, column in found if not _is_missing_at_start(part, column)
        ]
        return _merge([(part.steps, column) for part, column in present or found], num_steps)

    timestep = dm_env.TimeStep(
        _merge([(part.steps, _field(part, "step_type")) for part in parts], num_steps),
        merged("reward"),
        merged("discount"),
        _merge([(part.steps, _field(part, "observation")) for part in parts], num_steps),
    )
    custom_data = _merge([(part.steps, part.columns.custom_data) for part in parts], num_steps)
    return StepData(timestep, merged("action"), custom_data)


def _field(part: _Part, field: str) -> Any:
    columns = part.columns
    return columns.action if field == "action" else getattr(columns.timestep, field)


def _is_missing_at_start(part: _Part, column: Any) -> bool:
    types = _field(part, "step_type")
    return _is_none(column) and bool((types == int(dm_env.StepType.FIRST)).all())


def _is_none(column: Any) -> bool:
    """Whether a column of a part has no values."""
    if not isinstance(column, np.ndarray) or column.dtype != object or column.ndim != 1:
        return False
    return column[0] is None


# --- RLDS.


def _merged_episode(records: Sequence[bytes], decoder: StepDecoder) -> dict[str, Any]:
    num_steps = len(records)
    if num_steps < 2:
        raise _DifferError  # It takes specs, or there is an error to be raised.
    parts = _parts_of(records, decoder)
    types = _merge([(part.steps, _field(part, "step_type")) for part in parts], num_steps)
    if (types[1:] == dm_env.StepType.FIRST).any() or (types[:-1] == dm_env.StepType.LAST).any():
        raise _DifferError

    def arrived(field: str) -> Any:
        # The action, reward and discount of a step are recorded with the next one.
        columns = [(part.steps - 1, _field(part, field)) for part in parts]
        first_steps, first_column = columns[0]
        if len(first_steps) == 1:
            del columns[0]
        else:
            columns[0] = (first_steps[1:], _without_first(first_column))
        return _merge(columns, num_steps)

    custom_data = _merge([(part.steps, part.columns.custom_data) for part in parts], num_steps)
    return assemble_episode(
        decoder.decode(records[-1]).timestep,
        num_steps,
        observation=_merge(
            [(part.steps, _field(part, "observation")) for part in parts], num_steps
        ),
        action=arrived("action"),
        reward=arrived("reward"),
        discount=arrived("discount"),
        custom_data=None if _is_none(custom_data) else custom_data,
    )


def _without_first(columns: Any) -> Any:
    if isinstance(columns, dict):
        return {key: _without_first(child) for key, child in columns.items()}
    if isinstance(columns, list | tuple):
        return type(columns)(_without_first(child) for child in columns)
    return columns[1:]


# --- Merging.


def _merge(parts: list[tuple[np.ndarray, Any]], num_steps: int) -> Any:
    """Puts columns of some steps each together to new ones of all; where there are none, zeros.

    Raises:
      _DifferError: They differ in dtype, shape or structure.
    """
    head = parts[0][1]
    if isinstance(head, np.ndarray):
        return _merge_arrays(parts, num_steps)
    if any(_keys(columns) != _keys(head) for _, columns in parts):
        raise _DifferError
    if isinstance(head, dict):
        return {
            key: _merge([(steps, columns[key]) for steps, columns in parts], num_steps)
            for key in head
        }
    return type(head)(
        _merge([(steps, columns[i]) for steps, columns in parts], num_steps)
        for i in range(len(head))
    )


def _keys(columns: Any) -> tuple[type, Any]:
    return type(columns), set(columns) if isinstance(columns, dict) else len(columns)


def _merge_arrays(parts: list[tuple[np.ndarray, Any]], num_steps: int) -> np.ndarray:
    head = parts[0][1][:1]
    head = head.astype(head.dtype.newbyteorder("="))
    expected = dtype_and_shape(head)
    merged = np.zeros((num_steps, *head.shape[1:]), head.dtype)
    if head.dtype == object:
        merged[:] = zeros_like(head)
    for steps, column in parts:
        if not isinstance(column, np.ndarray):
            raise _DifferError
        if _native(dtype_and_shape(column[:1])) != expected:
            raise _DifferError
        if _is_run(steps):  # Which is faster to fill.
            merged[int(steps[0]) : int(steps[-1]) + 1] = column
        else:
            merged[steps] = column
    return merged


def _native(description: tuple[Any, tuple[int, ...]]) -> tuple[Any, tuple[int, ...]]:
    dtype, shape = description
    return (dtype.newbyteorder("=") if isinstance(dtype, np.dtype) else dtype), shape
