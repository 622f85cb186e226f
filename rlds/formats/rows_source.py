"""Base class of formats with episodes as consecutive rows of arrays: alignment with RLDS."""

from __future__ import annotations

import abc
import contextlib
import dataclasses
import functools
import math
from collections.abc import Collection, Iterator, Mapping
from typing import Any, Literal, NamedTuple

import numpy as np
from typing_extensions import override

import rlds
from rlds.alignment import append_row, from_rsa, from_sars
from rlds.sources.source import (
    ALL_ROWS,
    Fields,
    Lengths,
    Origin,
    Source,
    SourceEpisode,
    with_discount,
)
from rlds_ecosystem.model.fields import Field
from rlds_ecosystem.model.nests import at, is_in, nest, root_of

__all__ = ["EpisodeRows", "Order", "RowsSource", "RowsTable", "bounds", "differ"]

Order = Literal["sar", "rsa", "dm_env"]
"""The alignment of a row with an observation. "sar": the row has the next action and its reward.
"rsa": it has the previous action and its reward. "dm_env": it has the previous reward and the next
action."""

_REWARD_FIELDS = (rlds.REWARD, rlds.DISCOUNT)
_ALIGNED_FIELDS = (rlds.OBSERVATION, rlds.ACTION, *_REWARD_FIELDS)


@dataclasses.dataclass(frozen=True)
class RowsTable:
    """The meaning of the rows of a format.

    Attributes:
      steps: Paths of the fields of steps, by the names of arrays. Other arrays keep their names.
      order: The order of observations, actions and rewards.
      other_fields: The alignment of other fields than observations, actions, rewards and discounts:
        with the observations, or with the transitions.
      transitions: Paths of further fields with a value for each transition.
      leftovers: Fields of the episode for values of a row that belong to no transition, by the
        paths of the fields of steps.
    """

    steps: Mapping[str, str]
    order: Order = "sar"
    other_fields: Literal["observations", "transitions"] = "observations"
    transitions: Collection[str] = ()
    leftovers: Mapping[str, str] = dataclasses.field(default_factory=dict)

    def field_path(self, array: str) -> str:
        """Returns the path of the field of steps of an array."""
        return self.steps.get(array, array)

    def is_of_transitions(self, path: str) -> bool:
        """Returns True if a field of steps has a value for each transition, not observation."""
        if (
            any(is_in(path, root) for root in (rlds.ACTION, *_REWARD_FIELDS))
            or path in self.transitions
        ):
            return True
        return self.other_fields == "transitions" and not is_in(path, rlds.OBSERVATION)

    def leftover(self, path: str) -> int:
        """Returns the row of an episode (0 or -1) with a value that belongs to no transition."""
        is_first = self.order == "rsa" or (self.order == "dm_env" and not is_in(path, rlds.ACTION))
        return 0 if is_first else -1


class EpisodeRows(NamedTuple):
    """The rows of an episode.

    Attributes:
      origin: The location of the rows.
      num_rows: The number of rows of actions.
      terminal: True if the last observation is a terminal state.
      final: The location of the final observation: "row" for the last row, "extra" for a further
        row of observations, "next" for arrays of next observations; or "" if unknown.
      complete: True if the episode is complete.
      handle: The handle of the episode for the hooks of the derived class.
    """

    origin: Origin
    num_rows: int
    terminal: bool
    final: Literal["row", "extra", "next", ""]
    complete: bool = True
    handle: Any = None

    @property
    def num_steps(self) -> int:
        """The number of steps."""
        return self.num_rows + (self.final in ("extra", "next"))


def bounds(ends: np.ndarray, index: int) -> tuple[int, int]:
    """Returns the row range of an episode: first row, and end.

    Args:
      ends: The end row of each episode.
      index: The episode.
    """
    return int(ends[index - 1]) if index else 0, int(ends[index])


def differ(rows: np.ndarray, other_rows: np.ndarray) -> np.ndarray:
    """Returns a mask of rows that differ in any bit: NaN equals NaN, and -0.0 differs from 0.0."""
    bits = f"u{min(rows.itemsize, 8)}"
    one, other = (
        np.ascontiguousarray(each).reshape(len(each), math.prod(each.shape[1:])).view(bits)
        for each in (rows, other_rows)
    )
    different: np.ndarray = np.any(one != other, axis=1)
    return different


class RowsSource(Source):
    """A source with episodes as consecutive rows of arrays.

    Derived classes find the episodes, and read the rows.

    Attributes:
      table: The meaning of the rows.
      step_fields: The fields of steps in the rows, by path.
      value_fields: The fields of episodes, by path, without leftovers.
    """

    table: RowsTable
    step_fields: Mapping[str, Field]
    value_fields: Mapping[str, Any] = {}

    def _run(self, split: str, index: int) -> EpisodeRows:
        """Returns the rows of an episode."""
        raise NotImplementedError

    @contextlib.contextmanager
    def _lend_run(self, split: str, index: int) -> Iterator[EpisodeRows]:
        """Opens the rows of an episode, for formats with a file for each episode."""
        yield self._run(split, index)

    def _table_of(self, run: EpisodeRows) -> RowsTable:
        """Returns the meaning of the rows of an episode."""
        return self.table

    @abc.abstractmethod
    def _rows(self, run: EpisodeRows, paths: Collection[str]) -> dict[str, np.ndarray]:
        """Reads the rows of an episode of some fields, by their paths."""

    def _final(self, run: EpisodeRows) -> Any:
        """Returns the final observation, if it comes from next observations."""
        raise NotImplementedError

    def _values(self, run: EpisodeRows, paths: Collection[str]) -> Mapping[str, Any]:
        """Returns the values of `value_fields` in an episode."""
        return {}

    def _counts(self, run: EpisodeRows, rows: Mapping[str, np.ndarray]) -> Mapping[str, int]:
        """Returns the counts of an episode; see `Can.totals`."""
        return {}

    @functools.cached_property
    @override
    def fields(self) -> Fields:
        steps = self.step_fields
        leftovers = {name: steps[path] for path, name in self.table.leftovers.items()}
        return Fields(nest(with_discount(steps)), nest({**self.value_fields, **leftovers}))

    def _lengths(self, split: str) -> Lengths:
        """Returns the lengths of the episodes, for formats that have them without reading."""
        runs = [self._run(split, index) for index in range(self.num_episodes(split))]
        num_steps = np.array([run.num_steps for run in runs], np.int64)
        is_known = np.array([bool(run.final) for run in runs], bool)
        is_last_valid = np.array([run.terminal for run in runs], bool) & ~is_known
        return Lengths(num_steps, num_steps - ~is_last_valid, is_known)

    @override
    def read(
        self,
        split: str,
        index: int,
        fields: Collection[str] | None = None,
        rows: slice = ALL_ROWS,
    ) -> SourceEpisode:
        with self._lend_run(split, index) as run:
            return self._episode(self.key(split, index), run, fields)

    def _episode(self, key: str, run: EpisodeRows, fields: Collection[str] | None) -> SourceEpisode:
        step_paths, values = self.fields.step_paths(fields), self.fields.episode_paths(fields)
        leftovers = {p: name for p, name in self.table.leftovers.items() if name in values}
        columns = self._rows(run, {*step_paths, *leftovers})
        metadata = {
            **self._values(run, values),
            **{name: self._leftover(run, path, columns[path]) for path, name in leftovers.items()},
        }
        counts = self._counts(run, columns)
        if rlds.OBSERVATION in map(root_of, columns) and run.final == "next":
            observation = nest(columns)[rlds.OBSERVATION]
            final = append_row(observation, self._final(run))
            columns |= {
                path: at({rlds.OBSERVATION: final}, path)
                for path in columns
                if is_in(path, rlds.OBSERVATION)
            }
        steps = self._steps(run, columns)
        return SourceEpisode(
            key=key,
            steps=nest({path: at(steps, path) for path in step_paths}),
            origin=run.origin,
            truncated=not run.terminal,
            final_observation_known=bool(run.final),
            complete=run.complete,
            metadata=nest(metadata),
            counts=counts,
        )

    def _leftover(self, run: EpisodeRows, path: str, rows: np.ndarray) -> Any:
        return rows[self.table.leftover(path)] if run.final == "row" else np.zeros_like(rows[0])

    def _steps(self, run: EpisodeRows, columns: Mapping[str, np.ndarray]) -> dict[str, Any]:
        """Returns the columns of the steps, in the order of RLDS."""
        table, is_sar = self._table_of(run), self.table.order == "sar"
        transitions = {p: rows for p, rows in columns.items() if table.is_of_transitions(p)}
        observed = {path: rows for path, rows in columns.items() if path not in transitions}
        num_transitions = run.num_rows
        if is_sar and run.final == "row":
            num_transitions -= 1
            transitions = {path: rows[:-1] for path, rows in transitions.items()}
        main = nest(
            {p: c for p, c in (observed | transitions).items() if root_of(p) in _ALIGNED_FIELDS}
        )
        alignment_arguments: dict[str, Any] = {
            "observation": main.get(rlds.OBSERVATION, np.empty((run.num_steps, 0))),
            "action": main.get(rlds.ACTION, np.empty((num_transitions, 0))),
            "reward": main.get(rlds.REWARD),
            "discount": main.get(rlds.DISCOUNT),
            "terminal": run.terminal,
            "transition_metadata": {p: c for p, c in transitions.items() if root_of(p) not in main},
            "observation_metadata": {p: c for p, c in observed.items() if root_of(p) not in main},
        }
        if is_sar:
            return from_sars(**alignment_arguments)
        return from_rsa(**alignment_arguments, action_led_here=table.order == "rsa")
