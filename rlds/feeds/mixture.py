"""Mixtures of samples of several datasets, by weight."""

from __future__ import annotations

import math
import warnings
from collections.abc import Mapping, Sequence

import numpy as np

from rlds.feeds._core import permute
from rlds.feeds.permutation import key_of
from rlds.feeds.samples import Samples
from rlds.feeds.table import Table
from rlds.sources.text_tables import table_in
from rlds_ecosystem.model.fields import MEANING_ATTRIBUTES, Field

__all__ = ["Mixture", "not_samples"]

_BLOCK_SIZE = 1 << 16


class Mixture:
    """A mixture of samples of several datasets, with exact fractions.

    In each block of 65,536 consecutive samples, each dataset has exactly its fraction of samples,
    in random order; a dataset repeats after its last sample. A warning names fields with different
    meanings in the datasets: unit, names, codes, kind, or table of texts.

    Args:
      datasets: Samples with the same fields, or mixtures of them; in a sequence, or by name.
      weights: The weight of each dataset, in number of samples; all equal by default. By name if
        `datasets` is.
      sizes: The size of each dataset, in any unit, as for `rlds.transformations.mix`: factors of
        the weights. Without weights, `[len(samples) for samples in datasets]` makes all samples
        equally likely.
      temperature: An alternative to sizes: the factors are the numbers of samples to the power of
        1 / temperature. 1 makes all samples equally likely; with a larger temperature, the
        fractions of the datasets become more equal.

    Raises:
      TypeError: The fields of the samples differ; the message has the difference.
      ValueError: An argument is invalid, or a weight is too small for one sample in a block.
    """

    def __init__(
        self,
        datasets: Sequence[Samples | Mixture] | Mapping[str, Samples | Mixture],
        weights: Sequence[float] | Mapping[str, float] | None = None,
        *,
        sizes: Sequence[float] | None = None,
        temperature: float | None = None,
    ) -> None:
        names = list(datasets) if isinstance(datasets, Mapping) else []
        datasets = list(datasets.values()) if isinstance(datasets, Mapping) else list(datasets)
        if isinstance(weights, Mapping):
            if {*weights} != {*names}:
                raise ValueError(f"weights: got {sorted(weights)}, expected {sorted(names)}")
            weights = [weights[name] for name in names]
        if temperature is not None:
            if not temperature > 0 or sizes is not None:
                raise ValueError(
                    f"temperature must be positive, and without sizes; got {temperature}"
                )
            counts = [sum(len(samples) for samples, _ in _flatten(dataset)) for dataset in datasets]
            sizes = [max(count, 1) ** (1 / temperature) for count in counts]
        if not datasets:
            raise ValueError("there are no samples to mix")
        ratios = [1.0] * len(datasets)
        for option, factors in (("weights", weights), ("sizes", sizes)):
            if factors is None:
                continue
            if len(factors) != len(datasets):
                raise ValueError(
                    f"{option}: got {len(factors)} values for {len(datasets)} datasets"
                )
            if any(not 0.0 < factor < math.inf for factor in factors):
                raise ValueError(f"{option} must be finite and positive, got {factors}")
            ratios = [ratio * float(factor) for ratio, factor in zip(ratios, factors)]
        flattened = [_flatten(dataset) for dataset in datasets]
        self.datasets: list[Samples] = [samples for pairs in flattened for samples, _ in pairs]
        ratios = [r * fraction for r, pairs in zip(ratios, flattened) for _, fraction in pairs]
        for index, samples in enumerate(self.datasets):
            if not isinstance(samples, Samples):
                raise TypeError(not_samples(samples))
            if not len(samples):
                raise ValueError(f"dataset {index} has no samples: {samples!r}")
            if samples.spec != self.datasets[0].spec:
                raise TypeError(_describe_difference(index, samples.spec, self.datasets[0].spec))
        _warn_of_differences(self.datasets)
        self.counts = _count_block(ratios)
        self._last_block: tuple[tuple[int, int], np.ndarray, np.ndarray] | None = None

    def __repr__(self) -> str:
        counts = zip(self.counts, self.datasets)
        dataset_texts = [f"{count / _BLOCK_SIZE:.3%} {dataset!r}" for count, dataset in counts]
        return f"Mixture({'; '.join(dataset_texts)})"

    @property
    def spec(self) -> dict[str, tuple[np.dtype, tuple[int, ...]]]:
        """The dtype and the shape of each field of a sample, by its path."""
        return self.datasets[0].spec

    def epochs(self, num_samples: int) -> list[float]:
        """Returns the number of epochs over each dataset in a number of samples.

        Args:
          num_samples: The number of samples of the mixture.
        """
        per_sample = num_samples / _BLOCK_SIZE
        counts = self.counts.tolist()
        return [per_sample * count / len(samples) for count, samples in zip(counts, self.datasets)]

    def size(self, seed: int) -> int:
        """Returns the number of samples of the mixture until each dataset has been passed once.

        Args:
          seed: The seed of the mixture.
        """
        lengths = np.array([len(samples) for samples in self.datasets])
        blocks = (lengths - 1) // self.counts
        block = int(blocks.max())
        datasets, ranks = self._block(block, seed)
        last_samples = [
            np.flatnonzero(
                (datasets == dataset)
                & (ranks == lengths[dataset] - 1 - block * self.counts[dataset])
            )
            for dataset in np.flatnonzero(blocks == block).tolist()
        ]
        return block * _BLOCK_SIZE + int(np.concatenate(last_samples).max()) + 1

    def locate(self, positions: np.ndarray, seed: int) -> tuple[np.ndarray, np.ndarray]:
        """Returns the dataset of the sample at each position, and its index in the dataset.

        Args:
          positions: Positions in the mixture, from 0 on, int64 of shape `[n]`.
          seed: The seed of the mixture.
        """
        blocks, offsets = np.divmod(positions, _BLOCK_SIZE)
        datasets, indices = np.empty_like(positions), np.empty_like(positions)
        for block in np.unique(blocks).tolist():
            rows = blocks == block
            block_datasets, ranks = self._block(block, seed)
            datasets[rows] = block_datasets[offsets[rows]]
            indices[rows] = block * self.counts[datasets[rows]] + ranks[offsets[rows]]
        return datasets, indices

    def _block(self, block: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
        """Returns the dataset of each sample of a block, and its rank in the block's dataset."""
        cached_block = self._last_block
        if cached_block is None or cached_block[0] != (block, seed):
            order = permute(np.arange(_BLOCK_SIZE), _BLOCK_SIZE, key_of("mixture", seed, block))
            dataset_ends = np.cumsum(self.counts)
            datasets = np.searchsorted(dataset_ends, order, side="right").astype(np.int32)
            ranks = np.empty(_BLOCK_SIZE, np.int32)
            for dataset, count in enumerate(self.counts.tolist()):
                ranks[datasets == dataset] = np.arange(count)
            cached_block = self._last_block = (block, seed), datasets, ranks
        return cached_block[1:]


def _flatten(dataset: Samples | Mixture) -> list[tuple[Samples, float]]:
    """Returns the samples of a dataset or a mixture, with their fractions."""
    if not isinstance(dataset, Mixture):
        return [(dataset, 1.0)]
    return list(zip(dataset.datasets, (dataset.counts / _BLOCK_SIZE).tolist()))


def not_samples(argument: object) -> str:
    """Returns the error message for an argument of another type than `Samples`."""
    table = "the table" if isinstance(argument, Table) else "the table that rlds.feeds.open returns"
    return (
        f"got a {type(argument).__name__}, expected samples: call .transitions(), .windows(...), "
        f".segments(...) or .steps() of {table}"
    )


def _warn_of_differences(datasets: Sequence[Samples]) -> None:
    """Warns if datasets of a mixture give a field another unit, kind or table of texts."""
    for path in datasets[0].spec:
        fields = [samples.table.fields.get(path) for samples in datasets]
        meanings = [field.meaning if isinstance(field, Field) else {} for field in fields]
        differing = [f for f in MEANING_ATTRIBUTES if len({m[f] for m in meanings if f in m}) > 1]
        texts: dict[int, str] = {}
        for samples, meaning in zip(datasets, meanings):
            if name := meaning.get("table", ""):
                table = table_in(samples.table.episodes.metadata, name)
                if any(texts.setdefault(code, text) != text for code, text in table.items()):
                    differing.append(f"texts of {name}")
        if differing:
            attributes = ", ".join(dict.fromkeys(differing))
            warnings.warn(
                f"{path}: the mixed datasets have different {attributes}. Convert one with "
                "Feed(transform=...), use a field of texts instead of numbers, or open the "
                "datasets as one table, rlds.feeds.open([...])",
                stacklevel=4,
            )


def _count_block(weights: Sequence[float]) -> np.ndarray:
    """Returns the number of samples of each dataset in a block: the largest remainder method."""
    exact = np.array(weights) / math.fsum(weights) * _BLOCK_SIZE
    counts = np.floor(exact).astype(np.int64)
    num_missing = _BLOCK_SIZE - int(counts.sum())
    counts[np.argsort(counts - exact, kind="stable")[:num_missing]] += 1
    if (counts == 0).any():
        dataset = int(np.flatnonzero(counts == 0)[0])
        raise ValueError(
            f"dataset {dataset} gets less than one sample in {_BLOCK_SIZE}: leave it out, or "
            "give it a larger weight"
        )
    return counts


def _describe_difference(dataset: int, spec: dict, first: dict) -> str:  # type: ignore[type-arg]
    for path in [*first, *spec]:
        value_type, first_type = spec.get(path, "nothing"), first.get(path, "nothing")
        if value_type != first_type:
            return (
                f"field {path!r}: dataset {dataset} has {value_type}, but dataset 0 has "
                f"{first_type}. Select the same fields of all datasets"
            )
    return f"dataset {dataset} has the fields in another order: {[*spec]}, expected {[*first]}"
