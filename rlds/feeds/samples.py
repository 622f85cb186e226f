"""Samples of a feed: the rows of batches, such as steps, transitions, windows and segments.

The index of a sample is in the order of the episodes and of their steps. A batch has samples of any
indices; `rlds.feeds.order` sets the order of training.

The fields, their order and their values equal `rlds.transformations`.
"""

from __future__ import annotations

import abc
import copy
import dataclasses
import functools
import math
import operator
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple, Protocol, Self, TypeAlias

import numpy as np
from typing_extensions import override

import rlds
from rlds import normalization
from rlds.alignment import discounts_of
from rlds.feeds._core import locate, permute
from rlds.feeds.permutation import key_of, uniform_of
from rlds.feeds.storage import Rows, Storage, hash_of
from rlds.sources.arrays import as_indices, paths_of, stack_rows, zero_out
from rlds.sources.source import TRANSITION_FIELDS, Lengths, step_aliases
from rlds.statistics import FieldType, Statistics
from rlds_ecosystem.model.columns import concat_ranges
from rlds_ecosystem.model.fields import Field
from rlds_ecosystem.model.nests import is_below, leaves_at, nest, root_of, suggest_fields

__all__ = [
    "Batch",
    "Columns",
    "FilteredSamples",
    "GoalSamples",
    "NormalizedSamples",
    "Offsets",
    "SampleRows",
    "Samples",
    "Segments",
    "Steps",
    "SubsampledSamples",
    "Transitions",
    "WeightedSamples",
    "Windows",
    "match_rank",
]

Columns: TypeAlias = dict[str, np.ndarray]
Batch: TypeAlias = dict[str, Any]

_PADDINGS = ("edge", "zeros")
_GOAL_STRATEGIES = ("uniform", "last", "geometric")
# The number of samples in a batch of a filter function.
_FILTER_BATCH_SIZE = 4096


class StepTable(Protocol):
    """The interface of a `Table` that samples use."""

    episodes: Any
    storage: Storage
    fields: dict[str, Field]

    @property
    def summaries(self) -> Lengths: ...
    @property
    def num_episodes(self) -> int: ...
    @property
    def num_steps(self) -> int: ...
    @property
    def cache_bytes(self) -> int: ...
    def rows(self, episodes: np.ndarray, steps: np.ndarray, paths: Sequence[str]) -> Rows: ...
    def read_ahead(
        self,
        episodes: np.ndarray,
        first_steps: np.ndarray,
        last_steps: np.ndarray,
        paths: Sequence[str],
    ) -> None: ...
    def check(self, episodes: np.ndarray) -> None: ...
    def column(self, name: str) -> np.ndarray: ...
    def select(self, fields: str | Iterable[str]) -> Self: ...
    def filter_episodes(self, choose: Any) -> Self: ...
    def unknown_field(self, path: str) -> KeyError: ...
    def fingerprint(self) -> str: ...


class SampleRows(NamedTuple):
    """Samples with their indices, episodes and steps.

    Attributes:
      indices: The indices of the samples, int64 of shape `[n]`.
      episodes: The episode of each sample, in the same form.
      steps: The step of each sample in its episode.
      epoch: The epoch.
    """

    indices: np.ndarray
    episodes: np.ndarray
    steps: np.ndarray
    epoch: int = 0


_NO_SAMPLES = SampleRows(*np.zeros((3, 0), np.int64))


class Samples(abc.ABC):
    """Samples of a table, by their indices.

    Attributes:
      table: The table of the steps.
      weights: The weight of each sample in random draws; None if an epoch has each sample once.
    """

    table: StepTable
    weights: np.ndarray | None = None

    def reach(self, path: str) -> tuple[int, int]:
        """Returns the numbers of past and of future steps of a field that a sample includes."""
        del path
        return 0, 0

    def __len__(self) -> int:
        return int(self._sample_ends[-1]) if len(self._sample_ends) else 0

    def __repr__(self) -> str:
        return f"{self.describe()} of {self.table}: {len(self)} samples"

    @abc.abstractmethod
    def describe(self) -> str:
        """Describes the samples, with all their parameters."""

    @abc.abstractmethod
    def counts(self) -> np.ndarray:
        """Returns the number of samples of each episode, int64."""

    @abc.abstractmethod
    def columns(self, batch: SampleRows) -> Columns:
        """Returns the fields of samples, by their paths."""

    def steps_of(self, sample_indices: np.ndarray) -> np.ndarray:
        """Returns the step of each sample, by the index of the sample in its episode."""
        return sample_indices

    @functools.cached_property
    def _sample_ends(self) -> np.ndarray:
        return np.cumsum(self.counts(), dtype=np.int64)

    def locate(self, indices: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Returns the episode of each sample, and its step in the episode.

        Args:
          indices: Indices of samples, int64 of shape `[n]`.

        Raises:
          IndexError: There is no such sample.
        """
        self._check(indices)
        episodes = locate(indices, self._sample_ends)
        first_samples = self._sample_ends[episodes] - self._counts[episodes]
        return episodes, self.steps_of(indices - first_samples)

    def _check(self, indices: np.ndarray) -> None:
        if len(indices) and (indices.min() < 0 or indices.max() >= len(self)):
            raise IndexError(f"not all of the samples {indices} exist: there are {len(self)}")

    @functools.cached_property
    def _counts(self) -> np.ndarray:
        return self.counts()

    def __getstate__(self) -> dict[str, Any]:
        computed = ("_sample_ends", "_counts", "spec")
        return {name: value for name, value in vars(self).items() if name not in computed}

    def batch_columns(self, indices: np.ndarray, epoch: int = 0) -> Columns:
        """Returns the fields of samples by their paths; see `batch`."""
        episodes, steps = self.locate(indices)
        try:
            return self.columns(SampleRows(indices, episodes, steps, epoch))
        finally:
            self.table.check(episodes)

    def read_ahead(self, first_samples: np.ndarray, last_samples: np.ndarray) -> None:
        """Prefetches the data of runs of samples, if it is in an object store.

        Args:
          first_samples: The first sample of each run.
          last_samples: The last sample of each run.
        """
        storage = self.table.storage
        episodes, first_steps = self.locate(first_samples)
        last_episodes, last_steps = self.locate(last_samples)
        counts = last_episodes - episodes + 1
        # A run over several episodes is split at episode boundaries.
        offsets = concat_ranges(counts)
        episodes = np.repeat(episodes, counts) + offsets
        max_steps = self.table.summaries.num_steps[episodes] - 1
        is_end = offsets == np.repeat(counts, counts) - 1
        last_steps = np.where(is_end, np.repeat(last_steps, counts), max_steps)
        first_steps = np.where(offsets == 0, np.repeat(first_steps, counts), 0)
        # The ends of episodes are derived from these fields.
        discount_paths = [
            p for name in (rlds.DISCOUNT, rlds.IS_TERMINAL) for p in _paths_in(storage.fields, name)
        ]
        paths = dict.fromkeys([*self.table.fields, *discount_paths])
        for past, future in sorted({self.reach(path) for path in paths}):
            range_paths = [path for path in paths if self.reach(path) == (past, future)]
            stops = np.minimum(last_steps + future, max_steps)
            self.table.read_ahead(
                episodes, np.minimum(np.maximum(first_steps - past, 0), stops), stops, range_paths
            )

    def batch(self, indices: Sequence[int] | np.ndarray, epoch: int = 0) -> Batch:
        """Returns samples.

        Args:
          indices: Indices of samples, in any order.
          epoch: The epoch: relabelled goals depend on it.

        Returns:
          The fields, nested in dicts: new arrays with a leading axis for the samples.

        Raises:
          IndexError: An index is out of range.
          SourceError: The samples cannot be read; the message has the location.
          TypeError: The indices are not integers.
        """
        columns = self.batch_columns(as_indices(indices), epoch)
        return nest({path: stack_rows(column) for path, column in columns.items()})

    def __getitem__(self, index: int) -> Batch:
        """Returns a sample: its fields, nested in dicts, without an axis for samples.

        Raises:
          IndexError: There is no such sample.
          SourceError: The sample cannot be read; the message has the location.
        """
        if not hasattr(index, "__index__"):
            raise TypeError(
                f"samples[{index!r}]: an index gives one sample; samples.batch(indices) returns a "
                "batch, such as batch(range(3))"
            )
        index = operator.index(index)
        if not -len(self) <= index < len(self):
            raise IndexError(f"no sample {index}: there are {len(self)}")
        columns = self.batch_columns(np.array([index % len(self)], np.int64))
        return nest({path: column[0] for path, column in columns.items()})

    @functools.cached_property
    def spec(self) -> dict[str, tuple[np.dtype, tuple[int, ...]]]:
        """The dtype and the shape of each field of a sample, by its path."""
        fields = self.columns(_NO_SAMPLES)
        return {path: (column.dtype, column.shape[1:]) for path, column in fields.items()}

    def with_goals(
        self,
        *,
        seed: int,
        strategy: str = "uniform",
        max_distance: int | None = None,
        gamma: float = 0.99,
        fields: str | Iterable[str] = (rlds.OBSERVATION,),
        fraction: float = 1.0,
        goal_field: str | None = None,
        reward_fn: Callable[[Batch], Any] | None = None,
    ) -> GoalSamples:
        """Relabels the goal of each sample with a later observation of its episode.

        The goals have the distribution of `rlds.transformations.relabel_goals`. Goals depend on the
        seed, the epoch, and the index of the sample.

        Args:
          seed: The seed of the goals.
          strategy: "uniform", "last" or "geometric".
          max_distance: The largest distance of a goal.
          gamma: The parameter of the geometric distribution.
          fields: The fields of the goal: paths that begin with `observation`.
          fraction: The fraction of relabelled samples, from 0 to 1. Other samples keep the goal of
            the episode. Hindsight experience replay relabels 0.8 of the samples.
          goal_field: The field of the observation with the goal of the episode, such as
            `observation/desired_goal`; needed for a fraction below 1.
          reward_fn: A function of a batch of samples with goals that returns their rewards, nested
            as the rewards are. The result is the `reward` of relabelled samples.

        Returns:
          The samples with the fields `goal` and `goal_distance` (int64; -1 for an original goal).

        Raises:
          KeyError: There is no such field.
          ValueError: The strategy is unknown, or an argument is out of range.
        """
        goals = _Goals(seed, strategy, max_distance, gamma, paths_of(fields), fraction, goal_field)
        return GoalSamples(self, goals, reward_fn)

    def normalize(
        self,
        statistics: Statistics,
        *,
        kind: str = "normal",
        fields: Sequence[str] | None = None,
        clip: bool = True,
        floor: float = 1e-8,
    ) -> NormalizedSamples:
        """Normalizes fields by the statistics of a dataset, as `rlds.normalization.normalize` does.

        `next_observation` and `goal` are normalized as the observation is. Call it last.

        Args:
          statistics: The statistics of the dataset.
          kind: "normal", "bounds" or "bounds_q99".
          fields: Paths of step fields; by default, all with statistics except for the reward.
          clip: Whether to clip values to -1 and 1; not for "normal".
          floor: The minimum of the divisors: standard deviations, or half the ranges.

        Raises:
          KeyError: A field or its statistics are missing.
          TypeError: A field is not numeric.
          ValueError: The kind is unknown, the quantiles are missing, or a shape does not match.
        """
        return NormalizedSamples(self, statistics, kind, fields, clip, floor)

    def weighted(
        self,
        weights: Sequence[float] | np.ndarray | None = None,
        *,
        episode_weights: Sequence[float] | np.ndarray | None = None,
        balance: Sequence[Any] | np.ndarray | None = None,
    ) -> WeightedSamples:
        """Weights samples: a feed draws samples by weight, with replacement.

        Without weights, a feed has each sample once in an epoch. Weights need 16 bytes per sample.

        Args:
          weights: The weight of each sample.
          episode_weights: The weight of each episode, multiplied with the weights of its samples.
          balance: A value of each episode, such as `table.column("instruction")`: each value gets
            the same total weight.

        Raises:
          ValueError: The number of weights is wrong, a weight is negative or not finite, or all
            weights are zero.
        """
        return WeightedSamples(self, weights, episode_weights, balance)

    def filter(
        self, keep: Callable[[Batch], Any], fields: Iterable[str] | None = None
    ) -> FilteredSamples:
        """Filters the samples by a function, in one pass over all of them.

        The result needs 8 bytes of memory per kept sample.

        Args:
          keep: A function of a batch that returns a mask of its samples.
          fields: Paths of the step fields that the function needs; other fields are not read.
        """
        return FilteredSamples(self, _find_kept_indices(self, keep, fields))

    def choose(self, indices: Sequence[int] | np.ndarray) -> FilteredSamples:
        """Keeps the samples with some indices, in ascending order.

        Raises:
          IndexError: An index is out of range.
          TypeError: The indices are not integers.
        """
        kept_indices = np.unique(as_indices(indices))
        self._check(kept_indices)
        return FilteredSamples(self, kept_indices)

    def at_most(self, length: int, *, seed: int) -> SubsampledSamples:
        """Keeps at most `length` samples of each episode, drawn again in each epoch.

        Args:
          length: The largest number of samples of an episode.
          seed: The seed of the choice.

        Raises:
          ValueError: The length is not positive.
        """
        return SubsampledSamples(self, length, seed)

    def with_table(self, table: StepTable) -> Samples:
        """Returns the samples with another table of the same episodes."""
        other = copy.copy(self)
        other.table = table
        return other

    def _take(self, episodes: np.ndarray, steps: np.ndarray, paths: Iterable[str]) -> Columns:
        """Returns the values of fields at steps of samples.

        Args:
          episodes: The episode of each sample.
          steps: The steps of each sample, of shape `[n]` or `[n, steps]`: the first axes of the
            result.
          paths: The paths of the fields.
        """
        paths = list(paths)
        row_episodes = np.repeat(episodes, steps.shape[1]) if steps.ndim > 1 else episodes
        rows = self.table.rows(row_episodes, steps.reshape(-1), paths)
        columns = {path: rows.take(path) for path in paths}
        if steps.ndim > 1:
            columns = {p: c.reshape(*steps.shape, *c.shape[1:]) for p, c in columns.items()}
        return columns

    def _take_offsets(
        self,
        batch: SampleRows,
        offsets: np.ndarray,
        num_steps: np.ndarray | None,
        names: Iterable[str],
        padding: str,
    ) -> tuple[np.ndarray, Columns]:
        """Returns fields at step offsets of samples, padded beyond the ends of episodes.

        Args:
          batch: The samples.
          offsets: The offsets in steps.
          num_steps: The number of steps of each episode with values; None without upper bound.
          names: The fields.
          padding: "edge" or "zeros".

        Returns:
          A mask of the values without padding, and the fields.
        """
        steps = batch.steps[:, np.newaxis] + offsets
        is_valid = steps >= 0
        if (offsets < 0).any():
            np.maximum(steps, 0, out=steps)
        if num_steps is not None:
            is_valid &= steps < num_steps[:, np.newaxis]
            np.minimum(steps, np.maximum(num_steps - 1, 0)[:, np.newaxis], out=steps)
        paths = [path for name in names for path in _paths_in(self.table.fields, name)]
        columns = self._take(batch.episodes, steps, paths)
        if padding == "zeros":
            for column in columns.values():
                zero_out(column, ~is_valid)
        return is_valid, columns


class Steps(Samples):
    """Samples of single steps; see `Table.steps`."""

    def __init__(self, table: StepTable, only_real: bool) -> None:
        self.table, self._only_real = table, only_real

    @override
    def describe(self) -> str:
        return "steps(only_real=True)" if self._only_real else "steps()"

    @override
    def counts(self) -> np.ndarray:
        summaries = self.table.summaries
        return summaries.num_real_steps() if self._only_real else summaries.num_steps

    @override
    def columns(self, batch: SampleRows) -> Columns:
        return self._take(batch.episodes, batch.steps, self.table.fields)


class Transitions(Samples):
    """Samples of transitions: a step, its reward, and the next observation; see `Table`."""

    def __init__(self, table: StepTable, n: int, gamma: float) -> None:
        if n < 1:
            raise ValueError(f"n must be positive, got {n}")
        if not 0.0 <= gamma <= 1.0:
            raise ValueError(f"gamma must be between 0 and 1, got {gamma}")
        self.table, self._n, self._gamma = table, n, gamma
        self._table_fields = table.storage.fields
        self._has_flag = rlds.IS_TERMINAL in self._table_fields
        self._discounts = _paths_in(self._table_fields, rlds.DISCOUNT)
        self._discount_of = self._match_discounts()
        for path in (*self._discount_of, *self._discounts):
            if self._table_fields[path].column_dtype.kind in "OSUcMm":
                raise TypeError(f"field {path!r} must be numeric, got {self._table_fields[path]}")
        if not self._has_flag and not self._discounts:
            raise KeyError(
                f"the steps have neither {rlds.IS_TERMINAL!r} nor {rlds.DISCOUNT!r}; without "
                "one, terminated and truncated episodes look alike"
            )

    def _match_discounts(self) -> dict[str, str]:
        """Returns the discount field of each reward, by their paths."""
        shapes = {p: self._table_fields[p].shape for p in _paths_in(self.table.fields, rlds.REWARD)}
        if self._n == 1:  # The reward of a single step is not discounted.
            return dict.fromkeys(shapes, "")
        discounts = {path: self._table_fields[path].shape for path in self._discounts}
        return discounts_of(shapes, discounts or {rlds.DISCOUNT: ()})

    @override
    def reach(self, path: str) -> tuple[int, int]:
        del path
        return 0, self._n

    @override
    def describe(self) -> str:
        return f"transitions(n={self._n}, gamma={self._gamma})"

    @override
    def counts(self) -> np.ndarray:
        return self.table.summaries.num_transitions

    @override
    def columns(self, batch: SampleRows) -> Columns:
        fields, summaries = self.table.fields, self.table.summaries
        _, episodes, steps, _ = batch
        paths = [path for path in fields if path not in (rlds.IS_LAST, rlds.IS_TERMINAL)]
        num_transitions = summaries.num_transitions[episodes]
        next_steps = np.minimum(steps + self._n, num_transitions)
        # The step of an unknown next observation would follow the last step.
        is_unknown = next_steps == summaries.num_steps[episodes] if self._has_missing else None
        stored_steps = next_steps if is_unknown is None else next_steps - is_unknown

        needed = [*paths, *self._discounts, *([rlds.IS_TERMINAL] if self._has_flag else [])]
        rows = self.table.rows(episodes, steps, needed)
        next_rows = rows.with_steps(stored_steps)
        result, observations = {}, {}
        for path in paths:
            result[path] = rows.take(path)
            if is_below(path, rlds.OBSERVATION):  # The next observation is adjacent in memory.
                column = observations[f"next_{path}"] = next_rows.take(path)
                if is_unknown is not None:
                    zero_out(column, is_unknown)
        next_is_terminal = self._is_terminal(rows, next_rows, next_steps, is_unknown, episodes)
        totals, products = self._compute_returns(rows, steps, num_transitions, result)
        for product in products.values():
            product *= match_rank(product, ~next_is_terminal)
        for path, values in (totals | products).items():
            field = self._table_fields.get(path)
            dtype = np.dtype(np.float32) if field is None else _float_dtype(field.column_dtype)
            result[path] = values.astype(dtype, copy=False)
        result |= observations
        result["next_is_last"] = next_steps == num_transitions
        result["next_is_terminal"] = next_is_terminal
        return result

    @functools.cached_property
    def _has_missing(self) -> bool:
        """True if the terminal observation of some episode is unknown."""
        summaries = self.table.summaries
        return bool((summaries.num_transitions == summaries.num_steps).any())

    def _is_terminal(
        self,
        rows: Rows,
        next_rows: Rows,
        next_steps: np.ndarray,
        is_unknown: np.ndarray | None,
        episodes: np.ndarray,
    ) -> np.ndarray:
        """Returns a mask of terminal observations, by their flags or the preceding discounts."""
        if not self._has_flag:
            last_rows = rows.with_steps(next_steps - 1)
            continues = np.zeros(len(next_steps), np.bool_)
            for path in self._discounts:
                discount = last_rows.take(path)
                continues |= (discount != 0).any(axis=tuple(range(1, discount.ndim)))
            return ~continues
        flags = next_rows.take(rlds.IS_TERMINAL)
        if is_unknown is None:
            return flags
        # Without the final observation, the terminal flag of the last step refers to its action.
        summaries = self.table.summaries
        flags &= summaries.num_transitions[episodes] < summaries.num_steps[episodes]
        flags |= is_unknown
        return flags

    def _compute_returns(
        self, rows: Rows, steps: np.ndarray, num_transitions: np.ndarray, columns: Columns
    ) -> tuple[Columns, Columns]:
        """Returns the n-step returns, and the products of the discounts, in float64."""
        totals = {path: columns[path] for path in self._discount_of}
        discounts = {p: columns[p] if p in columns else rows.take(p) for p in self._discounts}
        products = {path: self._gamma * values.astype(float) for path, values in discounts.items()}
        products = products or {rlds.DISCOUNT: np.full(len(steps), self._gamma)}
        for offset in range(1, self._n):
            is_valid = steps + offset < num_transitions
            next_rows = rows.with_steps(np.where(is_valid, steps + offset, steps))
            for path, discount in self._discount_of.items():
                rewards = next_rows.take(path).astype(np.float64)
                rewards *= match_rank(rewards, products[discount])
                totals[path] = totals[path] + np.where(match_rank(rewards, is_valid), rewards, 0.0)
            for path, product in products.items():
                factor = next_rows.take(path) if self._discounts else np.ones(len(steps))
                factor = factor.astype(np.float64)
                factor *= self._gamma
                product *= np.where(match_rank(factor, is_valid), factor, 1.0)
        return totals, products


class _NeighbourSteps(Steps):
    """Samples of single steps, with neighbouring steps of some fields."""

    def __init__(
        self, table: StepTable, only_real: bool, padding: str, fields: Iterable[str]
    ) -> None:
        super().__init__(table, only_real)
        if padding not in _PADDINGS:
            raise ValueError(f"padding must be one of {_PADDINGS}, got {padding!r}")
        self._padding, self._neighbours = padding, tuple(fields)
        for name in self._neighbours:
            if not _paths_in(table.fields, name):
                raise table.unknown_field(name)

    def _step_columns(self, episodes: np.ndarray, steps: np.ndarray) -> Columns:
        """Returns the columns of the fields without neighbouring steps."""
        fields = self.table.fields
        paths = [p for p in fields if not any(is_below(p, name) for name in self._neighbours)]
        return self._take(episodes, steps, paths)


class Windows(_NeighbourSteps):
    """Samples with a history of observations and a horizon of actions; see `Table.windows`."""

    def __init__(
        self,
        table: StepTable,
        history: int,
        horizon: int,
        history_fields: str | Iterable[str],
        horizon_fields: str | Iterable[str],
        padding: str,
        only_real: bool,
    ) -> None:
        for name, length in (("history", history), ("horizon", horizon)):
            if length < 1:
                raise ValueError(f"{name} must be positive, got {length}")
        self._history, self._horizon = history, horizon
        self._history_fields = paths_of(history_fields)
        self._horizon_fields = paths_of(horizon_fields)
        neighbours = (*self._history_fields, *self._horizon_fields)
        super().__init__(table, only_real, padding, neighbours)

    @override
    def reach(self, path: str) -> tuple[int, int]:
        is_past, is_future = (
            any(is_below(path, name) for name in names)
            for names in (self._history_fields, self._horizon_fields)
        )
        return is_past * (self._history - 1), is_future * (self._horizon - 1)

    @override
    def describe(self) -> str:
        return (
            f"windows(history={self._history}, horizon={self._horizon}, "
            f"history_fields={self._history_fields}, horizon_fields={self._horizon_fields}, "
            f"padding={self._padding!r}, only_real={self._only_real})"
        )

    @override
    def columns(self, batch: SampleRows) -> Columns:
        summaries, episodes = self.table.summaries, batch.episodes
        past, future = np.arange(1 - self._history, 1), np.arange(self._horizon)
        num_real = summaries.num_real_steps(episodes)
        result = self._step_columns(episodes, batch.steps)
        for mask, offsets, num_steps, names in (
            ("timestep_pad_mask", past, None, self._history_fields),
            ("action_pad_mask", future, num_real, self._horizon_fields),
        ):
            if names:
                valid, columns = self._take_offsets(batch, offsets, num_steps, names, self._padding)
                result |= {mask: valid, **columns}
        return result


class Offsets(_NeighbourSteps):
    """Samples with values of fields at step offsets; see `Table.offsets`."""

    def __init__(
        self, table: StepTable, offsets: Mapping[str, Iterable[int]], padding: str, only_real: bool
    ) -> None:
        super().__init__(table, only_real, padding, offsets)
        self._offsets = {name: as_indices(list(steps)) for name, steps in offsets.items()}
        for name, steps in self._offsets.items():
            if not len(steps):
                raise ValueError(f"{name}: got no offsets, expected at least one")

    @override
    def reach(self, path: str) -> tuple[int, int]:
        lists = [offsets for name, offsets in self._offsets.items() if is_below(path, name)]
        offsets = [0, *(offset for steps in lists for offset in steps)]
        return -int(min(offsets)), int(max(offsets))

    @override
    def describe(self) -> str:
        lists = {name: offsets.tolist() for name, offsets in self._offsets.items()}
        return f"offsets({lists}, padding={self._padding!r}, only_real={self._only_real})"

    @override
    def columns(self, batch: SampleRows) -> Columns:
        summaries, episodes = self.table.summaries, batch.episodes
        result = self._step_columns(episodes, batch.steps)
        for name, offsets in self._offsets.items():
            # A final observation has no transition fields, such as action and reward.
            num_steps = summaries.num_steps[episodes]
            if root_of(name) in TRANSITION_FIELDS:
                num_steps = summaries.num_real_steps(episodes)
            is_valid, columns = self._take_offsets(batch, offsets, num_steps, [name], self._padding)
            result |= {**columns, f"{name}_is_pad": ~is_valid}
        return result


class Segments(Samples):
    """Samples of consecutive steps of an episode; see `Table.segments`."""

    def __init__(self, table: StepTable, length: int, shift: int, drop_remainder: bool) -> None:
        for name, value in (("length", length), ("shift", shift)):
            if value < 1:
                raise ValueError(f"{name} must be positive, got {value}")
        self.table, self._length, self._shift = table, length, shift
        self._drop_remainder = drop_remainder

    @override
    def reach(self, path: str) -> tuple[int, int]:
        del path
        return 0, self._length - 1

    @override
    def describe(self) -> str:
        options = f"shift={self._shift}, drop_remainder={self._drop_remainder}"
        return f"segments({self._length}, {options})"

    @override
    def counts(self) -> np.ndarray:
        num_steps = self.table.summaries.num_steps
        if not self._drop_remainder:
            return -(-num_steps // self._shift)
        counts: np.ndarray = (num_steps - self._length) // self._shift + 1
        return np.where(num_steps < self._length, 0, counts)

    @override
    def steps_of(self, sample_indices: np.ndarray) -> np.ndarray:
        return sample_indices * self._shift

    @override
    def columns(self, batch: SampleRows) -> Columns:
        num_steps = self.table.summaries.num_steps[batch.episodes]
        offsets = np.arange(self._length)
        mask, result = self._take_offsets(batch, offsets, num_steps, self.table.fields, "zeros")
        if not self._drop_remainder:
            result["pad_mask"] = mask
        return result


class _DerivedSamples(Samples):
    """Samples that are derived from other samples."""

    def __init__(self, samples: Samples) -> None:
        self.table, self._samples, self.weights = samples.table, samples, samples.weights

    @override
    def reach(self, path: str) -> tuple[int, int]:
        return self._samples.reach(path)

    @override
    def counts(self) -> np.ndarray:
        return self._samples.counts()

    @override
    def locate(self, indices: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        return self._samples.locate(indices)

    @override
    def columns(self, batch: SampleRows) -> Columns:
        return self._samples.columns(batch)

    @override
    def with_table(self, table: StepTable) -> Samples:
        other = copy.copy(self)
        other.table, other._samples = table, self._samples.with_table(table)
        return other


@dataclasses.dataclass(frozen=True)
class _Goals:
    """The parameters of goal relabelling: the arguments of `Samples.with_goals`."""

    seed: int
    strategy: str
    max_distance: int | None
    gamma: float
    fields: tuple[str, ...]
    fraction: float
    goal_field: str | None

    def __post_init__(self) -> None:
        if self.strategy not in _GOAL_STRATEGIES:
            raise ValueError(f"strategy must be one of {_GOAL_STRATEGIES}, got {self.strategy!r}")
        if self.max_distance is not None and self.max_distance < 1:
            raise ValueError(f"max_distance must be positive, got {self.max_distance}")
        if not 0.0 < self.gamma < 1.0:
            raise ValueError(f"gamma must lie between 0 and 1, got {self.gamma}")
        if not 0.0 <= self.fraction <= 1.0:
            raise ValueError(f"fraction must be from 0 to 1, got {self.fraction}")
        if self.fraction < 1.0 and self.goal_field is None:
            raise ValueError("goal_field: fraction < 1 needs the field of the original goals")

    def __str__(self) -> str:
        text = f"seed={self.seed}, strategy={self.strategy!r}, max_distance={self.max_distance}"
        text += f", gamma={self.gamma}, fields={self.fields}"
        return text if self.fraction == 1.0 else f"{text}, {self.fraction} or {self.goal_field}"


class GoalSamples(_DerivedSamples):
    """Samples with relabelled goals; see `Samples.with_goals`."""

    def __init__(
        self, samples: Samples, goals: _Goals, reward_fn: Callable[[Batch], Any] | None
    ) -> None:
        super().__init__(samples)
        self._goals, self._reward_fn = goals, reward_fn
        fields = self.table.storage.fields
        for name in (*goals.fields, *([goals.goal_field] if goals.goal_field else [])):
            if root_of(name) != rlds.OBSERVATION or not _paths_in(fields, name):
                observed = [path for path in fields if root_of(path) == rlds.OBSERVATION]
                hint = suggest_fields(name, observed, step_aliases(self.table.episodes.source))
                raise KeyError(f"no field {name!r} of observations; {hint}")
        paths = [path for name in goals.fields for path in _paths_in(fields, name)]
        own_paths = paths
        if goals.goal_field is not None:
            own_paths = _paths_in(fields, goals.goal_field)
            types = {path: (fields[path].column_dtype, fields[path].shape) for path in fields}
            if [types[path] for path in paths] != [types[path] for path in own_paths]:
                other = f"another dtype or shape than {goals.fields}"
                raise ValueError(f"goal_field: {goals.goal_field!r} has {other}")
        self._paths = list(zip(paths, own_paths))
        if reward_fn is not None and not _paths_in(samples.spec, rlds.REWARD):
            hint = suggest_fields(rlds.REWARD, samples.spec)
            raise KeyError(f"reward_fn: no field {rlds.REWARD!r} in the samples; {hint}")

    @override
    def describe(self) -> str:
        name = getattr(self._reward_fn, "__qualname__", "")
        rewards = f", reward_fn={name}" if self._reward_fn else ""
        return f"{self._samples.describe()}.with_goals({self._goals}{rewards})"

    @override
    def columns(self, batch: SampleRows) -> Columns:
        goals = self._goals
        indices, episodes, steps, epoch = batch
        max_distances = self.table.summaries.num_steps[episodes] - 1 - steps
        if goals.max_distance is not None:
            max_distances = np.minimum(max_distances, goals.max_distance)
        distance = self._draw(max_distances, indices, epoch)
        result = self._samples.columns(batch)
        goal_fields = self._take(episodes, steps + distance, [path for path, _ in self._paths])
        is_new = np.ones(len(indices), np.bool_)
        if goals.fraction < 1.0:
            uniform = uniform_of(indices, key_of("relabelled", goals.seed, epoch))
            is_new = uniform < goals.fraction
            distance[~is_new] = -1
            own_goals = self._take(episodes, steps, [path for _, path in self._paths])
        for path, own_path in self._paths:
            if goals.fraction < 1.0:
                goal_fields[path][~is_new] = own_goals[own_path][~is_new]
            result[f"goal{path.removeprefix(rlds.OBSERVATION)}"] = goal_fields[path]
        result["goal_distance"] = distance
        if self._reward_fn is not None:
            self._reward(result, is_new)
        return result

    def _reward(self, result: Columns, is_new: np.ndarray) -> None:
        """Gives relabelled samples the reward that `reward_fn` computes."""
        assert self._reward_fn is not None
        batch = nest({path: stack_rows(column) for path, column in result.items()})
        rewards = {rlds.REWARD: self._reward_fn(batch)}
        if rlds.REWARD not in result:  # The rewards are nested.
            rewards = dict(leaves_at(rewards, None))
        rewards = {path: np.asarray(values) for path, values in rewards.items()}
        shapes = {path: values.shape for path, values in rewards.items()}
        expected = {path: result[path].shape for path in _paths_in(result, rlds.REWARD)}
        if shapes != expected:
            raise ValueError(f"reward_fn returned arrays of shape {shapes}, expected {expected}")
        for path in expected:
            reward = result[path]
            merged = np.where(match_rank(reward, is_new), rewards[path], reward)
            result[path] = merged.astype(reward.dtype)

    def _draw(self, max_distances: np.ndarray, indices: np.ndarray, epoch: int) -> np.ndarray:
        if self._goals.strategy == "last":
            return max_distances
        uniform = uniform_of(indices, key_of("goals", self._goals.seed, epoch))
        if self._goals.strategy == "uniform":
            distances = uniform * max_distances
        else:
            # The inverse of the distribution function (1 - gamma^d) / (1 - gamma^max).
            log = math.log(self._goals.gamma)
            distances = np.log1p(uniform * np.expm1(max_distances * log)) / log
        # Rounding may exceed the last step.
        return np.minimum(1 + np.floor(distances).astype(np.int64), max_distances)


class NormalizedSamples(_DerivedSamples):
    """Samples with normalized values; see `Samples.normalize`."""

    def __init__(
        self,
        samples: Samples,
        statistics: Statistics,
        kind: str,
        fields: Sequence[str] | None,
        clip: bool,
        floor: float,
    ) -> None:
        super().__init__(samples)
        self._options = kind, fields, clip, floor
        self._statistics = statistics
        names = normalization.names_of(fields, statistics)
        sample_names = {normalized_as(path) for path in samples.spec}
        if missing := sorted(names - sample_names) if fields is not None else []:
            hint = suggest_fields(missing[0], samples.spec)
            raise KeyError(f"normalize: no field {missing[0]!r} in the samples; {hint}")
        self._names = names & sample_names
        self._normalize(samples.columns(_NO_SAMPLES))  # Checks dtypes and shapes.

    @override
    def describe(self) -> str:
        kind, fields, clip, floor = self._options
        statistics = hash_of(self._statistics.to_json())
        options = f"kind={kind!r}, fields={fields}, clip={clip}, floor={floor}"
        return f"{self._samples.describe()}.normalize({statistics}, {options})"

    @override
    def columns(self, batch: SampleRows) -> Columns:
        return self._normalize(self._samples.columns(batch))

    def _normalize(self, columns: Columns) -> Columns:
        kind, _, clip, floor = self._options
        normalize = normalization.normalizer(kind, clip, floor)
        for path, column in columns.items():
            name = normalized_as(path)
            if name in self._names:
                field, column_type = self._statistics[name], FieldType.from_column(column)
                normalization.check_field(column_type, column.shape, field, name, "normalize")
                columns[path] = normalize(column, field, name)
        return columns


def normalized_as(path: str) -> str:
    """Returns the path of the step field whose statistics normalize a field of a sample.

    >>> normalized_as("next_observation/state")
    'observation/state'
    """
    root, _, subpath = path.partition("/")
    if root in ("next_observation", "goal"):
        root = rlds.OBSERVATION
    return f"{root}/{subpath}" if subpath else root


class WeightedSamples(_DerivedSamples):
    """Samples drawn by weight; see `Samples.weighted`."""

    def __init__(
        self,
        samples: Samples,
        weights: Sequence[float] | np.ndarray | None,
        episode_weights: Sequence[float] | np.ndarray | None,
        balance: Sequence[Any] | np.ndarray | None,
    ) -> None:
        super().__init__(samples)
        counts = samples.counts()
        weight = np.ones(len(samples)) if samples.weights is None else samples.weights
        product = weight * _as_weights("weights", weights, len(samples), "samples")
        factors = _as_weights("episode_weights", episode_weights, len(counts), "episodes")
        product *= np.repeat(factors, counts)
        if balance is not None:
            if len(balance) != len(counts):
                raise ValueError(f"balance: got {len(balance)} values for {len(counts)} episodes")
            _, groups = np.unique(np.asarray(balance), return_inverse=True)
            sample_groups = np.repeat(groups, counts)
            totals = np.bincount(sample_groups, product)
            product /= np.where(totals > 0, totals, 1)[sample_groups]
        if not product.any():
            raise ValueError("all weights are zero, so no sample can be drawn")
        self.weights = product

    @override
    def describe(self) -> str:
        assert self.weights is not None
        return f"{self._samples.describe()}.weighted({hash_of(self.weights.tobytes())})"


def _as_weights(
    name: str, values: Sequence[float] | np.ndarray | None, count: int, unit: str
) -> np.ndarray:
    if values is None:
        return np.ones(count)
    weights = np.asarray(values, np.float64)
    if weights.shape != (count,):
        raise ValueError(f"{name}: got the shape {weights.shape} for {count} {unit}")
    if not (np.isfinite(weights) & (weights >= 0)).all():
        index = int(np.flatnonzero(~(np.isfinite(weights) & (weights >= 0)))[0])
        raise ValueError(f"{name}: got {weights[index]} at index {index}, expected 0 or more")
    return weights


class FilteredSamples(_DerivedSamples):
    """A subset of samples; see `Samples.filter` and `Samples.choose`."""

    def __init__(self, samples: Samples, kept_indices: np.ndarray) -> None:
        super().__init__(samples)
        self._kept_indices = kept_indices
        self.weights = None if samples.weights is None else samples.weights[kept_indices]

    @override
    def describe(self) -> str:
        indices_hash = hash_of(self._kept_indices.tobytes())
        return f"{self._samples.describe()}.filter({len(self)}: {indices_hash})"

    def __len__(self) -> int:
        return len(self._kept_indices)

    @override
    def counts(self) -> np.ndarray:
        episodes, _ = self._samples.locate(self._kept_indices)
        return np.bincount(episodes, minlength=self.table.num_episodes)

    @override
    def locate(self, indices: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        self._check(indices)
        return self._samples.locate(self._kept_indices[indices])

    @override
    def columns(self, batch: SampleRows) -> Columns:
        return self._samples.columns(batch._replace(indices=self._kept_indices[batch.indices]))


class SubsampledSamples(_DerivedSamples):
    """Samples limited to a maximum number per episode; see `Samples.at_most`."""

    def __init__(self, samples: Samples, length: int, seed: int) -> None:
        if length < 1:
            raise ValueError(f"length must be positive, got {length}")
        if samples.weights is not None:
            raise ValueError("at_most: call it before weighted(...)")
        super().__init__(samples)
        self._length, self._seed = length, seed

    @override
    def describe(self) -> str:
        return f"{self._samples.describe()}.at_most({self._length}, seed={self._seed})"

    @override
    def counts(self) -> np.ndarray:
        return np.minimum(self._samples.counts(), self._length)

    @override
    def locate(self, indices: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        return Samples.locate(self, indices)

    @override
    def columns(self, batch: SampleRows) -> Columns:
        counts, sample_ends = self._samples._counts, self._samples._sample_ends
        _, episodes, steps, epoch = batch
        subsampled = steps.copy()
        for episode in np.unique(episodes[counts[episodes] > self._length]).tolist():
            rows, size = episodes == episode, int(counts[episode])
            key = key_of("some", self._seed, epoch, episode)
            subsampled[rows] = permute(steps[rows], size, key)
        indices = sample_ends[episodes] - counts[episodes] + subsampled
        return self._samples.columns(SampleRows(indices, *self._samples.locate(indices), epoch))


def _find_kept_indices(
    samples: Samples, keep: Callable[[Batch], Any], fields: Iterable[str] | None
) -> np.ndarray:
    """Returns the indices of the samples that a filter function keeps."""
    inputs = samples if fields is None else samples.with_table(samples.table.select(fields))
    kept_indices = []
    for begin in range(0, len(samples), _FILTER_BATCH_SIZE):
        indices = np.arange(begin, min(begin + _FILTER_BATCH_SIZE, len(samples)))
        mask = np.asarray(keep(inputs.batch(indices)))
        if mask.dtype != bool or mask.shape != indices.shape:
            expected = f"expected bool of shape {indices.shape}"
            raise ValueError(f"the filter returned {mask.dtype} of shape {mask.shape}, {expected}")
        kept_indices.append(indices[mask])
    return np.concatenate(kept_indices) if kept_indices else np.zeros(0, np.int64)


def _paths_in(fields: Mapping[str, Any], name: str) -> list[str]:
    """Returns the paths of the fields at a path or nested in it."""
    return [path for path in fields if is_below(path, name)]


def match_rank(values: np.ndarray, row_values: np.ndarray) -> np.ndarray:
    """Returns `row_values` with trailing axes of length 1, up to the rank of `values`."""
    return row_values.reshape(row_values.shape + (1,) * (values.ndim - row_values.ndim))


def _float_dtype(dtype: np.dtype) -> np.dtype:
    return dtype if dtype.kind == "f" else np.dtype(np.float32)
