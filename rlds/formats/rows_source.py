"""Reads formats whose episodes are runs of rows, by a layout table of a row."""

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
"""The contents of a row beside an observation: "sar": the action taken on it, and the reward
that followed. "rsa": the action and the reward that led to it. "dm_env": the reward that arrived
with it, and the action that was taken on it."""

_ARRIVED = (rlds.REWARD, rlds.DISCOUNT)
_MAIN = (rlds.OBSERVATION, rlds.ACTION, *_ARRIVED)


@dataclasses.dataclass(frozen=True)
class RowsTable:
    """The meaning of the rows of a format.

    Attributes:
      steps: Paths of the fields of steps, by the names of arrays. Other arrays keep their names.
      order: The order of observations, actions and rewards.
      other_fields: The axis of fields other than observations, actions, rewards and discounts: that
        of the observations, or that of the transitions.
      transitions: Paths of more fields that belong to the transitions.
      leftovers: Fields of the episode that keep the values of rows that belong to no transition, by
        the paths of the fields of steps.
    """

    steps: Mapping[str, str]
    order: Order = "sar"
    other_fields: Literal["observations", "transitions"] = "observations"
    transitions: Collection[str] = ()
    leftovers: Mapping[str, str] = dataclasses.field(default_factory=dict)

    def field_path(self, array: str) -> str:
        """Returns the path of the field of steps that an array becomes."""
        return self.steps.get(array, array)

    def is_of_transitions(self, path: str) -> bool:
        """Whether a field of steps has a value for each transition, not for each observation."""
        if any(is_in(path, root) for root in (rlds.ACTION, *_ARRIVED)) or path in self.transitions:
            return True
        return self.other_fields == "transitions" and not is_in(path, rlds.OBSERVATION)

    def leftover(self, path: str) -> int:
        """Returns the row of an episode whose value of a field belongs to no transition."""
        is_first = self.order == "rsa" or (self.order == "dm_env" and not is_in(path, rlds.ACTION))
        return 0 if is_first else -1


class EpisodeRows(NamedTuple):
    """The rows of an episode.

    Attributes:
      origin: The place of the rows.
      num_rows: The number of rows of actions.
      terminal: Whether the last observation is a terminal state.
      final: The final observation: "row", the observation of the last row; "extra", a row that only
        observations have; "next", a row of other arrays; or "", unknown.
      complete: Whether the episode is whole.
      handle: The episode, as the hooks of the derived class need it to read values.
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
      ends: The rows after the last of each episode.
      index: The episode.
    """
    return int(ends[index - 1]) if index else 0, int(ends[index])


def differ(rows: np.ndarray, other_rows: np.ndarray) -> np.ndarray:
    """Returns which rows differ in any bit; a NaN equals itself, and -0.0 does not equal 0.0."""
    bits = f"u{min(rows.itemsize, 8)}"
    one, other = (
        np.ascontiguousarray(each).reshape(len(each), math.prod(each.shape[1:])).view(bits)
        for each in (rows, other_rows)
    )
    different: np.ndarray = np.any(one != other, axis=1)
    return different


class RowsSource(Source):
    """Episodes that are runs of rows.

    Derived classes find the runs, and read the rows.

    Attributes:
      table: The meaning of the rows.
      step_fields: The fields of steps that rows hold, by their paths.
      value_fields: The fields of episodes by their paths, but for leftovers.
    """

    table: RowsTable
    step_fields: Mapping[str, Field]
    value_fields: Mapping[str, Any] = {}

    def _run(self, split: str, index: int) -> EpisodeRows:
        """Returns the rows of an episode."""
        raise NotImplementedError

    @contextlib.contextmanager
    def _lend_run(self, split: str, index: int) -> Iterator[EpisodeRows]:
        """Lends the rows of an episode, for formats with a file for each."""
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
        """Returns the lengths of the runs, for formats that find these without reading."""
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
        main = nest({p: c for p, c in (observed | transitions).items() if root_of(p) in _MAIN})
        given: dict[str, Any] = {
            "observation": main.get(rlds.OBSERVATION, np.empty((run.num_steps, 0))),
            "action": main.get(rlds.ACTION, np.empty((num_transitions, 0))),
            "reward": main.get(rlds.REWARD),
            "discount": main.get(rlds.DISCOUNT),
            "terminal": run.terminal,
            "transition_metadata": {p: c for p, c in transitions.items() if root_of(p) not in main},
            "observation_metadata": {p: c for p, c in observed.items() if root_of(p) not in main},
        }
        if is_sar:
            return from_sars(**given)
        return from_rsa(**given, action_led_here=table.order == "rsa")
