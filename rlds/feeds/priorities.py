"""Prioritized experience replay: samples drawn by priorities that change during training."""

from __future__ import annotations

import hashlib
import operator
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from rlds.feeds.permutation import key_of, uniform_of
from rlds.feeds.samples import Batch, Samples
from rlds.sources.arrays import as_indices, stack_rows
from rlds_ecosystem.model.nests import nest

__all__ = ["PrioritizedFeed", "SumTree"]

_STATE_VERSION = 1
_WEIGHT_FIELD, _INDEX_FIELD = "importance_weight", "sample_number"


class SumTree:
    """A sum tree: a search by cumulative sum, and updates, take logarithmic time.

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

    _CHILDREN_PER_NODE = 64

    def __init__(self, values: np.ndarray) -> None:
        self.values = np.array(values, np.float64)
        self._levels = [self._as_nodes(self.values)]
        while len(self._levels[-1]) > 1:
            self._levels.append(self._as_nodes(self._levels[-1].sum(axis=1)))

    def _as_nodes(self, values: np.ndarray) -> np.ndarray:
        rows = np.zeros((-(-len(values) // self._CHILDREN_PER_NODE), self._CHILDREN_PER_NODE))
        rows.reshape(-1)[: len(values)] = values
        return rows

    @property
    def total(self) -> float:
        """The sum of all values."""
        return float(self._levels[-1].sum())

    def update(self, indices: np.ndarray, values: np.ndarray) -> None:
        """Sets values by index; for a repeated index, sets the last value."""
        # NumPy does not define the result of repeated indices.
        _, reversed_rows = np.unique(indices[::-1], return_index=True)
        rows = len(indices) - 1 - reversed_rows
        nodes, sums = indices[rows], values[rows]
        self.values[nodes] = sums
        for level in self._levels:
            level.reshape(-1)[nodes] = sums
            nodes = np.unique(nodes // self._CHILDREN_PER_NODE)
            sums = level[nodes].sum(axis=1)

    def find(self, sums: np.ndarray) -> np.ndarray:
        """Returns the index of the value at which the cumulative sum exceeds each sum."""
        nodes, remainders = np.zeros(len(sums), np.int64), np.array(sums, np.float64)
        for level in reversed(self._levels):
            children = level[nodes]
            upper_bounds = np.cumsum(children, axis=1)
            # Rounding may exceed the last positive value.
            last_child = self._CHILDREN_PER_NODE - 1 - np.argmax(children[:, ::-1] > 0, axis=1)
            child = np.minimum((upper_bounds <= remainders[:, np.newaxis]).sum(axis=1), last_child)
            previous_bounds = upper_bounds[np.arange(len(child)), child - 1]
            remainders = np.maximum(remainders - np.where(child > 0, previous_bounds, 0.0), 0.0)
            nodes = nodes * self._CHILDREN_PER_NODE + child
        return nodes


class PrioritizedFeed(Iterator[Batch]):
    """Batches of samples drawn by priorities, which are updated during training.

    This is the proportional variant of "Prioritized Experience Replay" (Schaul et al., 2016).
    Batch k depends on the seed, on k and on the current priorities.

        feed = PrioritizedFeed(table.transitions(), 256, seed=0)
        for batch in feed:
            errors = train(batch, weights=batch["importance_weight"])
            feed.update(batch["sample_number"], abs(errors))

    Args:
      samples: The samples; their weights, if any, are the initial priorities.
      batch_size: The number of samples in a batch, over all ranks.
      seed: The seed of the random draws.
      alpha: The exponent of priorities: 0 draws samples uniformly.
      beta: The exponent of importance weights, which correct the bias of priorities: 1 corrects it
        fully.
      epsilon: A constant added to priorities, so every sample can be drawn.
      rank: The rank of this process in distributed training. Each process gets every `world`-th
        row; all ranks need the priorities of all rows.
      world: The number of processes in distributed training.

    Attributes:
      batch: The index of the next batch.
      beta: The exponent of importance weights, which may be changed between batches.

    Raises:
      ValueError: An argument is out of range, or there are no samples.

    If all priorities are 0, and `epsilon` is 0 as well, the next batch raises a ValueError.

    A batch has two further fields: `sample_number`, the index of the sample (int64), and
    `importance_weight` (float32), with a maximum of 1 in the batch of all ranks.
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
        for name, value in (("alpha", alpha), ("beta", beta), ("epsilon", epsilon)):
            if not 0 <= value < np.inf:
                raise ValueError(f"{name} must be 0 or more, got {value}")
        if batch_size < 1 or not 0 <= rank < world or batch_size % world:
            raise ValueError(
                f"got batch_size={batch_size}, rank={rank}, expected a multiple of world={world}"
            )
        if not len(samples):
            raise ValueError(f"there are no samples: {samples!r}. The episodes may be too short")
        if duplicates := samples.spec.keys() & {_WEIGHT_FIELD, _INDEX_FIELD}:
            raise ValueError(f"the samples already have a field {min(duplicates)!r}")
        self.samples, self.batch_size, self.seed = samples, operator.index(batch_size), seed
        self.alpha, self.beta, self.epsilon = alpha, beta, epsilon
        self.rank, self.world, self.batch = rank, world, 0
        priorities = np.ones(len(samples)) if samples.weights is None else samples.weights
        self._tree = SumTree(self._tree_values(priorities))

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
        # Stratified sampling: one sample from each of `batch_size` equal ranges of the sum.
        quantiles = (rows + uniform_of(positions, key_of("prioritized", self.seed))) / len(rows)
        sample_indices = self._tree.find(quantiles * self._tree.total)
        probabilities = self._tree.values[sample_indices] / self._tree.total
        weights = (len(self.samples) * probabilities) ** -self.beta
        weights /= weights.max()
        rank_rows = slice(self.rank, None, self.world)
        columns = self.samples.batch_columns(sample_indices[rank_rows], epoch=self.batch)
        columns[_INDEX_FIELD] = sample_indices[rank_rows]
        columns[_WEIGHT_FIELD] = weights[rank_rows].astype(np.float32)
        self.batch += 1
        return nest({path: stack_rows(column) for path, column in columns.items()})

    def update(self, indices: np.ndarray, priorities: np.ndarray) -> None:
        """Sets priorities, such as absolute temporal-difference errors.

        Args:
          indices: Indices of samples, int64 of shape `[n]`.
          priorities: The priority of each sample, 0 or more, `[n]`.

        Raises:
          IndexError: An index is out of range.
          ValueError: A priority is negative or not finite, or the shapes differ.
        """
        indices, priorities = as_indices(indices), np.asarray(priorities, np.float64)
        if indices.shape != priorities.shape:
            raise ValueError(f"priorities: got shape {priorities.shape} for {len(indices)} samples")
        if not (np.isfinite(priorities) & (priorities >= 0)).all():
            raise ValueError("priorities must be finite, and 0 or more")
        if len(indices) and (indices.min() < 0 or indices.max() >= len(self.samples)):
            raise IndexError(f"not all samples {indices} exist: there are {len(self.samples)}")
        self._tree.update(indices, self._tree_values(priorities))

    def state_dict(self) -> dict[str, Any]:
        """Returns the state to resume, with a copy of all priorities (8 bytes each)."""
        return {
            "version": _STATE_VERSION,
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
        if (state.get("version"), state.get("identity")) != (_STATE_VERSION, self._identity()):
            raise ValueError(
                "the state does not fit this feed: the data, the samples, the batch size, the seed "
                "or alpha differ"
            )
        self.batch, self.beta = int(state["batch"]), float(state["beta"])
        self._tree = SumTree(np.asarray(state["powers"]))

    def _identity(self) -> str:
        data, samples = self.samples.table.fingerprint(), self.samples.describe()
        parameters = data, samples, self.batch_size, self.seed, self.alpha, self.epsilon
        return hashlib.sha256(repr(parameters).encode()).hexdigest()[:16]
