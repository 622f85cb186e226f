"""Prioritized experience replay: samples drawn by priorities that change during training."""

from __future__ import annotations

import hashlib
import operator
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from rlds.feeds.permutation import key_of, uniform_of
from rlds.feeds.samples import Batch, Samples
from rlds.sources.arrays import as_numbers, joined
from rlds_ecosystem.model.nests import nest

__all__ = ["PrioritizedFeed", "SumTree"]

_VERSION = 1
_WEIGHT, _NUMBER = "importance_weight", "sample_number"


class SumTree:
    """A sum tree: values found by their cumulative sum, and updated, in logarithmic time.

    Updates recompute the sums, so the tree depends only on its current values.

    Args:
      values: Values of 0 or more.

    >>> tree = SumTree(np.array([1.0, 0.0, 2.0]))
    >>> tree.find(np.array([0.5, 1.0, 2.9])).tolist()
    [0, 2, 2]
    >>> tree.update(np.array([0]), np.array([5.0]))
    >>> tree.total, tree.find(np.array([4.9, 5.0])).tolist()
    (7.0, [0, 2])
    """

    _FANOUT = 64

    def __init__(self, values: np.ndarray) -> None:
        self.values = np.array(values, np.float64)
        self._levels = [self._as_nodes(self.values)]
        while len(self._levels[-1]) > 1:
            self._levels.append(self._as_nodes(self._levels[-1].sum(axis=1)))

    def _as_nodes(self, values: np.ndarray) -> np.ndarray:
        rows = np.zeros((-(-len(values) // self._FANOUT), self._FANOUT))
        rows.reshape(-1)[: len(values)] = values
        return rows

    @property
    def total(self) -> float:
        """The sum of all values."""
        return float(self._levels[-1].sum())

    def update(self, numbers: np.ndarray, values: np.ndarray) -> None:
        """Sets values by number; of a repeated number, the last value is set."""
        # NumPy does not define the result of repeated indices.
        _, firsts = np.unique(numbers[::-1], return_index=True)
        chosen = len(numbers) - 1 - firsts
        nodes, sums = numbers[chosen], values[chosen]
        self.values[nodes] = sums
        for level in self._levels:
            level.reshape(-1)[nodes] = sums
            nodes = np.unique(nodes // self._FANOUT)
            sums = level[nodes].sum(axis=1)

    def find(self, sums: np.ndarray) -> np.ndarray:
        """Returns the index of the value at which the cumulative sum exceeds each sum."""
        nodes, remainders = np.zeros(len(sums), np.int64), np.array(sums, np.float64)
        for level in reversed(self._levels):
            children = level[nodes]
            ends = np.cumsum(children, axis=1)
            # Rounding may lead beyond the last positive value.
            last = self._FANOUT - 1 - np.argmax(children[:, ::-1] > 0, axis=1)
            chosen = np.minimum((ends <= remainders[:, np.newaxis]).sum(axis=1), last)
            before = np.where(chosen > 0, ends[np.arange(len(ends)), chosen - 1], 0.0)
            remainders = np.maximum(remainders - before, 0.0)
            nodes = nodes * self._FANOUT + chosen
        return nodes


class PrioritizedFeed(Iterator[Batch]):
    """Batches of samples drawn by priorities, which are updated during training.

    This is proportional prioritization of "Prioritized Experience Replay" (Schaul et al., 2016).
    Batch k depends on the seed, on k and on the priorities at that time.

        feed = PrioritizedFeed(table.transitions(), 256, seed=0)
        for batch in feed:
            errors = train(batch, weights=batch["importance_weight"])
            feed.update(batch["sample_number"], abs(errors))

    Args:
      samples: The samples; their weights, if any, are the initial priorities.
      batch_size: The number of samples in a batch, over all ranks.
      seed: The seed of the random draws.
      alpha: The exponent of priorities: 0 draws samples uniformly.
      beta: The exponent of importance weights, which correct the bias of priorities: 1 fully.
      epsilon: A constant added to priorities, so every sample can be drawn.
      rank: The rank of this process in distributed training. Each gets every `world`-th row; all
        ranks need the priorities of all rows.
      world: The number of processes in distributed training.

    Attributes:
      batch: The number of the next batch.
      beta: See above; it may be changed between batches.

    Raises:
      ValueError: A number is out of range, or there are no samples.

    If all priorities are 0, and `epsilon` is 0 as well, the next batch raises a ValueError.

    A batch has two fields more: `sample_number`, int64, and `importance_weight`, float32, of which
    the largest in the batch (of all ranks) is 1.
    """

    def __init__(
        self,
        samples: Samples,
        batch_size: int,
        *,
        seed: int = 0,
        alpha: float = 0.6,
        beta: float = 0.4,
        epsilon: float = 1e-6,
        rank: int = 0,
        world: int = 1,
    ) -> None:
        for name, number in (("alpha", alpha), ("beta", beta), ("epsilon", epsilon)):
            if not 0 <= number < np.inf:
                raise ValueError(f"{name} must be 0 or more, got {number}")
        if batch_size < 1 or not 0 <= rank < world or batch_size % world:
            raise ValueError(
                f"got batch_size={batch_size}, rank={rank}, expected a multiple of world={world}"
            )
        if not len(samples):
            raise ValueError(f"there are no samples: {samples!r}. The episodes may be too short")
        if taken := samples.spec.keys() & {_WEIGHT, _NUMBER}:
            raise ValueError(f"the samples already have a field {min(taken)!r}")
        self.samples, self.batch_size, self.seed = samples, operator.index(batch_size), seed
        self.alpha, self.beta, self.epsilon = alpha, beta, epsilon
        self.rank, self.world, self.batch = rank, world, 0
        first = np.ones(len(samples)) if samples.weights is None else samples.weights
        self._tree = SumTree(self._tree_values(first))

    def __repr__(self) -> str:
        return f"PrioritizedFeed({self.samples!r}, batches of {self.batch_size}, seed={self.seed})"

    def _tree_values(self, priorities: np.ndarray) -> np.ndarray:
        powers: np.ndarray = (priorities + self.epsilon) ** self.alpha
        return powers

    def __next__(self) -> Batch:
        if not self._tree.total > 0:
            raise ValueError(
                f"all priorities of the {len(self.samples)} samples are 0, so none can be drawn: "
                "give one a priority (update), or pass epsilon > 0"
            )
        rows = np.arange(self.batch_size)
        positions = rows + self.batch * self.batch_size
        # Stratified sampling: one sample of each of `batch_size` equal ranges of the sum.
        quantiles = (rows + uniform_of(positions, key_of("prioritized", self.seed))) / len(rows)
        sample_numbers = self._tree.find(quantiles * self._tree.total)
        probabilities = self._tree.values[sample_numbers] / self._tree.total
        weights = (len(self.samples) * probabilities) ** -self.beta
        weights /= weights.max()
        own_rows = slice(self.rank, None, self.world)
        columns = self.samples.batch_columns(sample_numbers[own_rows], epoch=self.batch)
        columns[_NUMBER], columns[_WEIGHT] = (
            sample_numbers[own_rows],
            weights[own_rows].astype(np.float32),
        )
        self.batch += 1
        return nest({path: joined(column) for path, column in columns.items()})

    def update(self, numbers: np.ndarray, priorities: np.ndarray) -> None:
        """Sets priorities, such as absolute temporal-difference errors.

        Args:
          numbers: The numbers of samples, int64 of shape `[n]`.
          priorities: The priority of each sample, 0 or more, `[n]`.

        Raises:
          IndexError: There is no such sample.
          ValueError: A priority is negative or not finite, or the shapes differ.
        """
        numbers, priorities = as_numbers(numbers), np.asarray(priorities, np.float64)
        if numbers.shape != priorities.shape:
            raise ValueError(f"priorities: got shape {priorities.shape} for {len(numbers)} samples")
        if not (np.isfinite(priorities) & (priorities >= 0)).all():
            raise ValueError("priorities must be finite, and 0 or more")
        if len(numbers) and (numbers.min() < 0 or numbers.max() >= len(self.samples)):
            raise IndexError(
                f"not all of the samples {numbers} exist: there are {len(self.samples)}"
            )
        self._tree.update(numbers, self._tree_values(priorities))

    def state_dict(self) -> dict[str, Any]:
        """Returns the state to resume, with a copy of all priorities (8 bytes each)."""
        return {
            "version": _VERSION,
            "batch": self.batch,
            "beta": self.beta,
            "identity": self._identity(),
            "powers": self._tree.values.copy(),
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Resumes from a state.

        Raises:
          ValueError: The state is of other data, samples or arguments.
        """
        if (state.get("version"), state.get("identity")) != (_VERSION, self._identity()):
            raise ValueError(
                "the state does not fit this feed: the data, the samples, the batch size, the seed "
                "or alpha differ"
            )
        self.batch, self.beta = int(state["batch"]), float(state["beta"])
        self._tree = SumTree(np.asarray(state["powers"]))

    def _identity(self) -> str:
        data, samples = self.samples.table.fingerprint(), self.samples.describe()
        parts = data, samples, self.batch_size, self.seed, self.alpha, self.epsilon
        return hashlib.sha256(repr(parts).encode()).hexdigest()[:16]
