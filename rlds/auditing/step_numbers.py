"""The numbers of steps as matrices: actions, and states (all but actions, rewards and flags)."""

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

__all__ = ["MOST_EPISODES", "EpisodeNumbers", "StepNumbers"]

# The size of the sample for usual values, unless a smaller one is requested.
MOST_EPISODES, _MOST_ROWS = 200, 20_000
# The largest numbers of elements of actions and of states to assess.
_MOST_ACTIONS, _MOST_STATES = 256, 512
# The largest deviation of the increments of a clock, relative to their mean.
_EVEN = 0.5
# Names of fields with the time of a row, in any unit.
_TIME = re.compile(
    r"(.*/)?(([^/]*_)?(time_?stamp|stamp)|((sim|wall|ros|elapsed)_)?time)s?"
    r"(_?(s|ms|us|ns|secs?|seconds|nanos))?(\[0\])?"
)


@dataclasses.dataclass(frozen=True)
class EpisodeNumbers:
    """The numbers of an episode, row by row; a row has an action that follows its state.

    Attributes:
      actions: float64 of shape `[rows, elements]`.
      states: float64 of shape `[rows, elements]`.
      task: The instruction; None if the data has none.
      digest: Equal for equal numbers, 64 bits; 0 if no number of the state changes.
      times: The time of each row, from the first field named as a time; empty if there is none.
      personal: The field and the kind of personal data in its texts; "" if there is none.
      task_numbers: The numbers of its tasks in the table of tasks of the dataset, if it has one.
    """

    actions: np.ndarray
    states: np.ndarray
    task: str | None
    digest: int
    times: np.ndarray
    personal: str = ""
    task_numbers: frozenset[int] = frozenset()


class StepNumbers:
    """The numeric fields of the steps of a dataset; it can be pickled.

    Images, clocks, and the elements of the state that no episode changes are left out. Of very long
    vectors, elements at even distances are assessed.

    Args:
      episodes: The episodes; a sample of them is read.
      max_episodes: The largest number of episodes in the sample.
      seconds: The time limit for the sample, if there is one.

    Attributes:
      actions: The paths of the fields of actions.
      names: The names of the elements of each field of numbers.
      action_indices: The indices of the assessed elements in each field of actions.
      action_names: The names of these elements, of all fields.
      state_names: The names of the elements of the state.
      constants: The names of the elements of the state that no episode of the sample changes.
      units: The declared units of elements, by their names.
      kinds: The declared kinds of elements of actions, by their names.
      forms: The meaning of elements of each field of the state, by their indices, if it has any.
      task_columns: The paths of the fields of steps with numbers of tasks.
      num_elements: The number of elements of actions and states in the data.
      has_more: Whether only some of the changing elements are assessed.
      sample: Episodes at even distances, in random order.

    Raises:
      TypeError: The data can be read from the beginning to the end only.
    """

    def __init__(
        self, episodes: Episodes, max_episodes: int = MOST_EPISODES, seconds: float | None = None
    ) -> None:
        self._source: Source = with_random_access(episodes.source)
        steps = dict(leaves_at(as_fields(self._source.fields.steps), None))
        fields = {path: it for path, it in steps.items() if _is_vector(it)}
        self.actions = [path for path in fields if root_of(path) == rlds.ACTION]
        self._states = [path for path in fields if _is_state(path)]
        names = self.names = {path: _names(path, fields[path]) for path in fields}
        self.action_indices = [evenly(len(names[path]), _MOST_ACTIONS) for path in self.actions]
        self.action_names = [
            names[path][index]
            for path, indices in zip(self.actions, self.action_indices)
            for index in indices
        ]
        all_names = [name for path in self._states for name in names[path]]
        self.num_elements = sum(len(names[path]) for path in (*self.actions, *self._states))
        self.units = {n: it.unit for p, it in fields.items() if it.unit for n in names[p]}
        self.kinds = {n: fields[p].kind for p in self.actions if fields[p].kind for n in names[p]}
        self._add_declared(episodes)
        self._instruction = _instruction_of(self._source)
        of_episodes = leaves_at(as_fields(self._source.fields.episode), None)
        self._text_paths = [path for path, field in of_episodes if _is_text(field)]
        self._text_paths += [f"{rlds.STEPS}/{path}" for path, it in steps.items() if _is_text(it)]
        self.task_columns = [path for path, field in steps.items() if _has_tasks(field)]
        self._assessed_states = np.arange(len(all_names))
        stamps = (index for index, name in enumerate(all_names) if _TIME.fullmatch(name))
        self._time_element = next(stamps, -1)
        self.sample = list(self._sampled(episodes, max_episodes, seconds))
        self.forms = self._forms()
        moving, clocks = _moving(self.sample, len(all_names))
        clocks[self._time_element :][:1] |= self._time_element >= 0
        self.constants = [all_names[index] for index in np.flatnonzero(~moving)]
        changing = np.flatnonzero(moving & ~clocks)
        self.has_more = len(changing) > _MOST_STATES or any(
            len(names[path]) > _MOST_ACTIONS for path in self.actions
        )
        self._assessed_states = changing[evenly(len(changing), _MOST_STATES)]
        self.state_names = [all_names[index] for index in self._assessed_states]
        self.sample = [
            dataclasses.replace(each, states=each.states[:, self._assessed_states])
            for each in self.sample
        ]

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "sample": []}

    def read(self, split: str, index: int, rows: slice = ALL_ROWS) -> EpisodeNumbers:
        """Reads an episode.

        Args:
          split: The split of the episode.
          index: The number of the episode in the split.
          rows: The range of steps to read.

        Raises:
          SourceError: It is damaged.
        """
        paths = [f"{rlds.STEPS}/{path}" for path in (*self.actions, *self._states)]
        paths += [f"{rlds.STEPS}/{path}" for path in self.task_columns]
        episode = reading.read(self._source, split, index, [*paths, *self._text_paths], rows)
        steps = dict(leaves_at(episode.steps, None))
        actions = [
            _flat(steps[path])[:, picked] for path, picked in zip(self.actions, self.action_indices)
        ]
        observed = [_flat(steps[path]) for path in self._states]
        length = min((len(each) for each in (*actions, *observed)), default=0)
        if episode.final_observation_known and length:
            length -= 1  # The last row has no action; if it has one, a row less hardly matters.
        arrays = [
            np.concatenate([np.empty((length, 0)), *(each[:length] for each in columns)], axis=1)
            for columns in (actions, observed)
        ]
        content = arrays[0].tobytes() + arrays[1].tobytes() if len(self._assessed_states) else b""
        digest = int.from_bytes(hashlib.blake2b(content, digest_size=8).digest()) if content else 0
        times = arrays[1][:, self._time_element] if self._time_element >= 0 else np.empty(0)
        of_steps = {f"{rlds.STEPS}/{path}": column for path, column in steps.items()}
        of_episode = dict(leaves_at(episode.metadata, None))
        values = {**of_episode, **of_steps}
        texts = {path: _distinct_texts(values[path]) for path in self._text_paths if path in values}
        instructions = texts.get(self._instruction)
        task = None if instructions is None else next(filter(str.strip, instructions), "")
        task_numbers = {int(n) for path in self.task_columns for n in np.unique(steps[path])}
        states = arrays[1][:, self._assessed_states]
        return EpisodeNumbers(
            arrays[0], states, task, digest, times, _personal(texts), frozenset(task_numbers)
        )

    def _forms(self) -> dict[str, dict[int, ElementMeaning]]:
        meanings, begin = {}, 0
        for path in self._states:
            end = begin + len(self.names[path])
            if of_field := forms([each.states[:, begin:end] for each in self.sample]):
                meanings[path] = of_field
            begin = end
        return meanings

    def _add_declared(self, episodes: Episodes) -> None:
        """Adds the meaning from the registry of robots, or from metadata in its form."""
        try:
            meaning = find_meaning(name_of(self._source), episodes.metadata)
        except ValueError:  # `rlds validate` says what is wrong with the metadata.
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

    def _sampled(
        self, episodes: Episodes, max_episodes: int, seconds: float | None
    ) -> Iterator[EpisodeNumbers]:
        chosen, rows, begin = evenly(len(episodes), max_episodes), 0, time.monotonic()
        for index in np.random.default_rng(0).permutation(chosen).tolist():
            is_late = seconds is not None and time.monotonic() - begin > seconds
            if rows >= _MOST_ROWS or is_late:
                return
            try:
                episode = self.read(*episodes.locate(index), slice(0, _MOST_ROWS - rows))
            except SourceError:  # The audit and validation report damage.
                continue
            rows += len(episode.states)
            yield episode


def _instruction_of(source: Source) -> str:
    """The path of the field with the instruction; empty if there is none."""
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


def _distinct_texts(value: Any) -> list[str]:
    """The different texts of a field, in the order of the steps; bytes that are no UTF-8, too."""
    values = value.tolist() if isinstance(value, np.ndarray) and value.ndim else [value]
    return list(dict.fromkeys(as_text(each, "replace") for each in values))


def _personal(texts: Mapping[str, Sequence[str]]) -> str:
    """The first field with personal data, and its kind; "" if there is none."""
    for path, of_field in texts.items():
        if kind := personal_data_in(of_field):
            return f"{path} has {kind}"
    return ""


def _is_vector(field: object) -> bool:
    if not isinstance(field, Field) or field.encoding or field.table:
        return False
    is_number = field.column_dtype.kind in "fiub"
    return is_number and len(field.shape) < 2 and None not in field.shape


def _is_state(path: str) -> bool:
    name = path.split("/")[-1]
    # `ACTION_REMAINDER` is the rounding error that `rlds.editing.ActionAs` stores, and no state.
    excluded = (rlds.REWARD, rlds.DISCOUNT, ACTION_REMAINDER, *rlds.STEP_FLAGS)
    return root_of(path) != rlds.ACTION and name not in excluded


def _flat(column: np.ndarray) -> np.ndarray:
    return np.asarray(column, np.float64).reshape(len(column), math.prod(column.shape[1:]))


def _moving(sample: Sequence[EpisodeNumbers], width: int) -> tuple[np.ndarray, np.ndarray]:
    """Returns masks of state elements that change in some episode, and of clocks (even growth)."""
    moving, clocks = np.zeros(width, bool), np.ones(width, bool)
    for each in sample:
        # An element that is never finite counts as constant.
        steps = np.diff(np.nan_to_num(each.states, posinf=0.0, neginf=0.0), axis=0)
        if not len(steps):
            continue
        moving |= (np.abs(steps) > 0).any(0)
        means = steps.mean(0)
        clocks &= (steps >= 0).all(0) & (steps.std(0) <= _EVEN * means) & (means > 0)
    return moving, clocks


def _names(path: str, field: Field) -> list[str]:
    if not field.shape:
        return [path]
    if field.names is not None and len(field.names) == field.shape[-1]:
        return [f"{path}[{name}]" for name in field.names]
    return [f"{path}[{index}]" for index in range(field.shape[0] or 0)]
