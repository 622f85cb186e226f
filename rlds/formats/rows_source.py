"""Base class of formats that store episodes as consecutive rows of arrays."""

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
from rlds_ecosystem.model.nests import is_below, lookup, nest, root_of

__all__ = ["EpisodeRows", "Order", "RowsSource", "RowsTable", "bounds", "differ"]

Order = Literal["sar", "rsa", "dm_env"]
"""The alignment of the rows. "sar": a row has an observation, the next action and its reward.
"rsa": an observation, the previous action and its reward. "dm_env": an observation, the previous
reward and the next action."""

_REWARD_FIELDS = (rlds.REWARD, rlds.DISCOUNT)
_ALIGNED_FIELDS = (rlds.OBSERVATION, rlds.ACTION, *_REWARD_FIELDS)


@dataclasses.dataclass(frozen=True)
class RowsTable:
    """The meaning of the rows of a format.

    Attributes:
      steps: Paths of the fields of steps, by the names of arrays that get a new name.
      order: The order of observations, actions and rewards.
      other_fields: The alignment of all fields except observations, actions, rewards and discounts:
        with the observations, or with the transitions.
      transitions: Paths of further fields with a value for each transition.
      leftovers: Fields of the episode for row values that belong to no transition, by the paths of
        the fields of steps.
    """

    steps: Mapping[str, str]
    order: Order = "sar"
    other_fields: Literal["observations", "transitions"] = "observations"
    transitions: Collection[str] = ()
    leftovers: Mapping[str, str] = dataclasses.field(default_factory=dict)

    def field_path(self, array: str) -> str:
        """Returns the path of the field of steps of an array."""
        return self.steps.get(array, array)

    def has_transition_rows(self, path: str) -> bool:
        """Returns True if a field has a row for each transition, not for each observation."""
        if (
            any(is_below(path, root) for root in (rlds.ACTION, *_REWARD_FIELDS))
            or path in self.transitions
        ):
            return True
        return self.other_fields == "transitions" and not is_below(path, rlds.OBSERVATION)

    def leftover(self, path: str) -> int:
        """Returns the row of an episode (0 or -1) with a value that belongs to no transition."""
        is_first = self.order == "rsa" or (
            self.order == "dm_env" and not is_below(path, rlds.ACTION)
        )
        return 0 if is_first else -1


class EpisodeRows(NamedTuple):
    """The rows of an episode.

    Attributes:
      origin: The location of the rows.
      num_rows: The number of rows of actions.
      terminal: True if the last observation is a terminal state.
      final: The location of the final observation: "row" for the last row, "extra" for a further
        row of observations, "next" for arrays of next observations; "" if it is unknown.
      complete: True if the episode is complete.
      handle: An object that the derived class passes to its own hooks.
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


def bounds(end_rows: np.ndarray, index: int) -> tuple[int, int]:
    """Returns the first row of an episode, and its end.

    Args:
      end_rows: The end row of each episode.
      index: The index of the episode.
    """
    return int(end_rows[index - 1]) if index else 0, int(end_rows[index])


def differ(rows: np.ndarray, other_rows: np.ndarray) -> np.ndarray:
    """Returns a mask of rows that differ in any bit: NaN equals NaN, and -0.0 differs from 0.0."""
    dtype = f"u{min(rows.itemsize, 8)}"
    bits, other_bits = (
        np.ascontiguousarray(values).reshape(len(values), math.prod(values.shape[1:])).view(dtype)
        for values in (rows, other_rows)
    )
    different: np.ndarray = np.any(bits != other_bits, axis=1)
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

    def _find_rows(self, split: str, index: int) -> EpisodeRows:
        """Returns the rows of an episode."""
        raise NotImplementedError

    @contextlib.contextmanager
    def _open_rows(self, split: str, index: int) -> Iterator[EpisodeRows]:
        """Opens the rows of an episode, for formats with a file for each episode."""
        yield self._find_rows(split, index)

    def _find_table(self, episode: EpisodeRows) -> RowsTable:
        """Returns the meaning of the rows of an episode."""
        return self.table

    @abc.abstractmethod
    def _read_rows(self, episode: EpisodeRows, paths: Collection[str]) -> dict[str, np.ndarray]:
        """Reads fields of the rows of an episode, by path."""

    def _final(self, episode: EpisodeRows) -> Any:
        """Returns the final observation, for episodes whose `final` is "next"."""
        raise NotImplementedError

    def _values(self, episode: EpisodeRows, paths: Collection[str]) -> Mapping[str, Any]:
        """Returns the values of `value_fields` in an episode."""
        return {}

    def _counts(self, episode: EpisodeRows, rows: Mapping[str, np.ndarray]) -> Mapping[str, int]:
        """Returns the counts of an episode; see `Capabilities.totals`."""
        return {}

    @functools.cached_property
    @override
    def fields(self) -> Fields:
        steps = self.step_fields
        leftovers = {name: steps[path] for path, name in self.table.leftovers.items()}
        return Fields(nest(with_discount(steps)), nest({**self.value_fields, **leftovers}))

    def _lengths(self, split: str) -> Lengths:
        """Returns the lengths of the episodes, for formats that store them."""
        runs = [self._find_rows(split, index) for index in range(self.num_episodes(split))]
        num_steps = np.array([episode.num_steps for episode in runs], np.int64)
        is_known = np.array([bool(episode.final) for episode in runs], bool)
        is_last_valid = np.array([episode.terminal for episode in runs], bool) & ~is_known
        return Lengths(num_steps, num_steps - ~is_last_valid, is_known)

    @override
    def read(
        self, split: str, index: int, fields: Collection[str] | None = None, rows: slice = ALL_ROWS
    ) -> SourceEpisode:
        with self._open_rows(split, index) as episode:
            return self._episode(self.key(split, index), episode, fields)

    def _episode(
        self, key: str, episode: EpisodeRows, fields: Collection[str] | None
    ) -> SourceEpisode:
        step_paths, values = self.fields.step_paths(fields), self.fields.episode_paths(fields)
        leftovers = {p: name for p, name in self.table.leftovers.items() if name in values}
        columns = self._read_rows(episode, {*step_paths, *leftovers})
        metadata = {
            **self._values(episode, values),
            **{
                name: self._leftover(episode, path, columns[path])
                for path, name in leftovers.items()
            },
        }
        counts = self._counts(episode, columns)
        if rlds.OBSERVATION in map(root_of, columns) and episode.final == "next":
            final = append_row(nest(columns)[rlds.OBSERVATION], self._final(episode))
            columns |= {
                path: lookup({rlds.OBSERVATION: final}, path)
                for path in columns
                if is_below(path, rlds.OBSERVATION)
            }
        steps = self._steps(episode, columns)
        return SourceEpisode(
            key=key,
            steps=nest({path: lookup(steps, path) for path in step_paths}),
            origin=episode.origin,
            truncated=not episode.terminal,
            final_observation_known=bool(episode.final),
            complete=episode.complete,
            metadata=nest(metadata),
            counts=counts,
        )

    def _leftover(self, episode: EpisodeRows, path: str, rows: np.ndarray) -> Any:
        return rows[self.table.leftover(path)] if episode.final == "row" else np.zeros_like(rows[0])

    def _steps(self, episode: EpisodeRows, columns: Mapping[str, np.ndarray]) -> dict[str, Any]:
        """Returns the columns of the steps, aligned as in RLDS."""
        table, is_sar = self._find_table(episode), self.table.order == "sar"
        transitions = {p: rows for p, rows in columns.items() if table.has_transition_rows(p)}
        observed = {path: rows for path, rows in columns.items() if path not in transitions}
        num_transitions = episode.num_rows
        if is_sar and episode.final == "row":
            num_transitions -= 1
            transitions = {path: rows[:-1] for path, rows in transitions.items()}
        aligned = {p: c for p, c in columns.items() if root_of(p) in _ALIGNED_FIELDS}
        main = nest({path: transitions.get(path, rows) for path, rows in aligned.items()})
        alignment_arguments: dict[str, Any] = {
            "observation": main.get(rlds.OBSERVATION, np.empty((episode.num_steps, 0))),
            "action": main.get(rlds.ACTION, np.empty((num_transitions, 0))),
            "reward": main.get(rlds.REWARD),
            "discount": main.get(rlds.DISCOUNT),
            "terminal": episode.terminal,
            "transition_metadata": {p: c for p, c in transitions.items() if root_of(p) not in main},
            "observation_metadata": {p: c for p, c in observed.items() if root_of(p) not in main},
        }
        if is_sar:
            return from_sars(**alignment_arguments)
        return from_rsa(**alignment_arguments, action_led_here=table.order == "rsa")
