"""Numeric fields of steps as matrices: actions, and states (without rewards and flags)."""

from __future__ import annotations

import dataclasses
import hashlib
import math
import re
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

import rlds
from rlds.auditing.forms import forms
from rlds.auditing.meaning import ElementMeaning
from rlds.auditing.personal import personal_data_in
from rlds.robotics import find_meaning
from rlds.sources import reading
from rlds.sources.cameras import evenly
from rlds.sources.episode_fields import ACTION_REMAINDER
from rlds.sources.episodes import Episodes
from rlds.sources.source import ALL_ROWS, Source, SourceError, with_random_access
from rlds.sources.standardization import name_of
from rlds.sources.text_tables import TASKS
from rlds.sources.texts import as_text, is_instruction
from rlds_ecosystem.model.fields import Field, as_fields
from rlds_ecosystem.model.nests import leaves_at, root_of

__all__ = ["MAX_EPISODES", "EpisodeValues", "NumericFields"]

# The largest sample for usual values: episodes, rows.
MAX_EPISODES, _MAX_SAMPLED_ROWS = 200, 20_000
# The largest numbers of assessed elements of actions and of states.
_MAX_ACTION_SIZE, _MAX_STATE_SIZE = 256, 512
# The largest deviation of the increments of a clock, relative to their mean.
_CLOCK_DEVIATION = 0.5
# Names of timestamp fields, in any unit.
_TIME_NAME = re.compile(
    r"(.*/)?(([^/]*_)?(time_?stamp|stamp)|((sim|wall|ros|elapsed)_)?time)s?"
    r"(_?(s|ms|us|ns|secs?|seconds|nanos))?(\[0\])?"
)


@dataclasses.dataclass(frozen=True)
class EpisodeValues:
    """The numeric values of an episode; the action of a row follows its state.

    Attributes:
      actions: float64 of shape `[rows, elements]`.
      states: float64 of shape `[rows, elements]`.
      task: The instruction; None if there is none.
      digest: A digest of 64 bits; 0 if the state is constant.
      times: The time of each row, from the first field named as a time; empty if there is none.
      personal: The field and the kind of personal data in texts; "" if there is none.
      task_numbers: The keys of the tasks in the table of tasks of the dataset, if it has one.
    """

    actions: np.ndarray
    states: np.ndarray
    task: str | None
    digest: int
    times: np.ndarray
    personal: str = ""
    task_numbers: frozenset[int] = frozenset()


class NumericFields:
    """The numeric fields of the steps of a dataset; it can be pickled.

    Images, clocks and constant elements of the state are excluded. Long vectors are reduced to
    evenly spaced elements.

    Args:
      episodes: The episodes; a sample of them is read.
      max_episodes: The largest number of episodes in the sample.
      seconds: The time limit for the sample, if there is one.

    Attributes:
      actions: The paths of the fields of actions.
      names: The names of the elements of each numeric field.
      action_indices: The indices of the assessed elements in each field of actions.
      action_names: The names of the assessed elements of all fields of actions.
      state_names: The names of the elements of the state.
      constants: The names of the state elements that are constant in each episode of the sample.
      units: The declared units of elements by name.
      kinds: The declared kinds of action elements by name.
      forms: The elements with a form in each field of the state, by index.
      task_columns: The paths of the fields of steps with keys of tasks.
      num_elements: The number of elements of actions and states in the data.
      has_more: True if some changing elements are not assessed.
      sample: Evenly spaced episodes, in random order.

    Raises:
      TypeError: The data has no random access.
    """

    def __init__(
        self, episodes: Episodes, max_episodes: int = MAX_EPISODES, seconds: float | None = None
    ) -> None:
        self._source: Source = with_random_access(episodes.source)
        steps = dict(leaves_at(as_fields(self._source.fields.steps), None))
        fields = {path: field for path, field in steps.items() if _is_vector(field)}
        self.actions = [path for path in fields if root_of(path) == rlds.ACTION]
        self._states = [path for path in fields if _is_state(path)]
        names = self.names = {path: _list_names(path, fields[path]) for path in fields}
        self.action_indices = [evenly(len(names[path]), _MAX_ACTION_SIZE) for path in self.actions]
        self.action_names = [
            names[path][index]
            for path, indices in zip(self.actions, self.action_indices)
            for index in indices
        ]
        all_names = [name for path in self._states for name in names[path]]
        self.num_elements = sum(len(names[path]) for path in (*self.actions, *self._states))
        self.units = {n: field.unit for p, field in fields.items() if field.unit for n in names[p]}
        self.kinds = {n: fields[p].kind for p in self.actions if fields[p].kind for n in names[p]}
        self._add_declared(episodes)
        self._instruction = _read_instruction(self._source)
        episode_fields = leaves_at(as_fields(self._source.fields.episode), None)
        self._text_paths = [path for path, field in episode_fields if _is_text(field)]
        self._text_paths += [f"{rlds.STEPS}/{path}" for path in steps if _is_text(steps[path])]
        self.task_columns = [path for path, field in steps.items() if _has_tasks(field)]
        self._assessed_states = np.arange(len(all_names))
        timestamps = (index for index, name in enumerate(all_names) if _TIME_NAME.fullmatch(name))
        self._time_element = next(timestamps, -1)
        self.sample = list(self._read_sample(episodes, max_episodes, seconds))
        self.forms = self._find_forms()
        moving, clocks = _find_moving(self.sample, len(all_names))
        clocks[self._time_element :][:1] |= self._time_element >= 0
        self.constants = [all_names[index] for index in np.flatnonzero(~moving)]
        changing = np.flatnonzero(moving & ~clocks)
        self.has_more = len(changing) > _MAX_STATE_SIZE or any(
            len(names[path]) > _MAX_ACTION_SIZE for path in self.actions
        )
        self._assessed_states = changing[evenly(len(changing), _MAX_STATE_SIZE)]
        self.state_names = [all_names[index] for index in self._assessed_states]
        self.sample = [
            dataclasses.replace(episode, states=episode.states[:, self._assessed_states])
            for episode in self.sample
        ]

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "sample": []}

    def read(self, split: str, index: int, rows: slice = ALL_ROWS) -> EpisodeValues:
        """Reads an episode.

        Args:
          split: The split of the episode.
          index: The index of the episode in the split.
          rows: The range of steps to read.

        Raises:
          SourceError: The episode is damaged.
        """
        paths = [f"{rlds.STEPS}/{path}" for path in (*self.actions, *self._states)]
        paths += [f"{rlds.STEPS}/{path}" for path in self.task_columns]
        episode = reading.read(self._source, split, index, [*paths, *self._text_paths], rows)
        steps = dict(leaves_at(episode.steps, None))
        actions = [
            _matrix(steps[path])[:, picked]
            for path, picked in zip(self.actions, self.action_indices)
        ]
        states = [_matrix(steps[path]) for path in self._states]
        length = min((len(column) for column in (*actions, *states)), default=0)
        if episode.final_observation_known and length:
            length -= 1  # The last row has no action.
        arrays = [
            np.concatenate([np.empty((length, 0)), *(rows[:length] for rows in columns)], axis=1)
            for columns in (actions, states)
        ]
        content = arrays[0].tobytes() + arrays[1].tobytes() if len(self._assessed_states) else b""
        digest = int.from_bytes(hashlib.blake2b(content, digest_size=8).digest()) if content else 0
        times = arrays[1][:, self._time_element] if self._time_element >= 0 else np.empty(0)
        values = dict(leaves_at(episode.metadata, None))
        values |= {f"{rlds.STEPS}/{path}": column for path, column in steps.items()}
        texts = {path: _list_texts(values[path]) for path in self._text_paths if path in values}
        instructions = texts.get(self._instruction)
        task = None if instructions is None else next(filter(str.strip, instructions), "")
        task_numbers = {int(n) for path in self.task_columns for n in np.unique(steps[path])}
        assessed = arrays[1][:, self._assessed_states]
        personal = _find_personal_data(texts)
        return EpisodeValues(
            arrays[0], assessed, task, digest, times, personal, frozenset(task_numbers)
        )

    def _find_forms(self) -> dict[str, dict[int, ElementMeaning]]:
        meanings, begin = {}, 0
        for path in self._states:
            end = begin + len(self.names[path])
            if by_index := forms([episode.states[:, begin:end] for episode in self.sample]):
                meanings[path] = by_index
            begin = end
        return meanings

    def _add_declared(self, episodes: Episodes) -> None:
        """Adds the meaning declared by the registry of robots, or by metadata of the same form."""
        try:
            meaning = find_meaning(name_of(self._source), episodes.metadata)
        except ValueError:  # `rlds validate` reports the error.
            meaning = None
        for dimension in (*meaning.action, *meaning.state) if meaning else ():
            element_names = self.names.get(dimension.field, ())
            if not -len(element_names) <= dimension.element < len(element_names):
                continue
            name = element_names[dimension.element]
            if dimension.unit and "unit" not in dimension.assumed:
                self.units.setdefault(name, dimension.unit)
            if dimension.kind:
                self.kinds.setdefault(name, dimension.kind)

    def _read_sample(
        self, episodes: Episodes, max_episodes: int, seconds: float | None
    ) -> Iterator[EpisodeValues]:
        indices, num_rows, begin = evenly(len(episodes), max_episodes), 0, time.monotonic()
        for index in np.random.default_rng(0).permutation(indices).tolist():
            is_late = seconds is not None and time.monotonic() - begin > seconds
            if num_rows >= _MAX_SAMPLED_ROWS or is_late:
                return
            try:
                episode = self.read(*episodes.locate(index), slice(0, _MAX_SAMPLED_ROWS - num_rows))
            except SourceError:  # The audit and `rlds validate` report it.
                continue
            num_rows += len(episode.states)
            yield episode


def _read_instruction(source: Source) -> str:
    """Returns the path of the field with the instruction; "" if there is none."""
    fields = as_fields(source.fields.episode), as_fields(source.fields.steps)
    for prefix, leaves in zip(("", f"{rlds.STEPS}/"), fields):
        for path, field in leaves_at(leaves, None):
            if is_instruction(path) and _is_text(field):
                return f"{prefix}{path}"
    return ""


def _is_text(field: object) -> bool:
    return isinstance(field, Field) and field.is_text and not field.shape


def _has_tasks(field: object) -> bool:
    return isinstance(field, Field) and field.table == TASKS and not field.shape


def _list_texts(value: Any) -> list[str]:
    """Returns the distinct texts of a field in the order of steps, with invalid UTF-8 replaced."""
    values = value.tolist() if isinstance(value, np.ndarray) and value.ndim else [value]
    return list(dict.fromkeys(as_text(text, "replace") for text in values))


def _find_personal_data(texts: Mapping[str, Sequence[str]]) -> str:
    """Returns the first field with personal data, and the kind of the data; "" if there is none."""
    for path, field_texts in texts.items():
        if kind := personal_data_in(field_texts):
            return f"{path} has {kind}"
    return ""


def _is_vector(field: object) -> bool:
    if not isinstance(field, Field) or field.encoding or field.table:
        return False
    is_number = field.column_dtype.kind in "fiub"
    return is_number and len(field.shape) < 2 and None not in field.shape


def _is_state(path: str) -> bool:
    name = path.split("/")[-1]
    # `ACTION_REMAINDER` is the rounding error that `rlds.editing.ActionAs` stores.
    excluded = (rlds.REWARD, rlds.DISCOUNT, ACTION_REMAINDER, *rlds.STEP_FLAGS)
    return root_of(path) != rlds.ACTION and name not in excluded


def _matrix(column: np.ndarray) -> np.ndarray:
    return np.asarray(column, np.float64).reshape(len(column), math.prod(column.shape[1:]))


def _find_moving(sample: Sequence[EpisodeValues], width: int) -> tuple[np.ndarray, np.ndarray]:
    """Returns masks of state elements that change in some episode, and of clocks (even growth)."""
    moving, clocks = np.zeros(width, bool), np.ones(width, bool)
    for episode in sample:
        # An element that is never finite counts as constant.
        steps = np.diff(np.nan_to_num(episode.states, posinf=0.0, neginf=0.0), axis=0)
        if not len(steps):
            continue
        moving |= (np.abs(steps) > 0).any(0)
        means = steps.mean(0)
        clocks &= (steps >= 0).all(0) & (steps.std(0) <= _CLOCK_DEVIATION * means) & (means > 0)
    return moving, clocks


def _list_names(path: str, field: Field) -> list[str]:
    if not field.shape:
        return [path]
    if field.names is not None and len(field.names) == field.shape[-1]:
        return [f"{path}[{name}]" for name in field.names]
    return [f"{path}[{index}]" for index in range(field.shape[0] or 0)]
