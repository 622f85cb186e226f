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
from rlds_ecosystem.model.fields import MEANING, Field

__all__ = ["Mixture", "not_samples"]

_BLOCK_SIZE = 1 << 16


class Mixture:
    """A mixture of samples of several datasets, with exact fractions.

    In each block of 65,536 consecutive samples, each dataset has exactly the number of its weight,
    in random order; a dataset repeats after its last sample. A warning names fields with different
    meanings in the datasets: unit, names, codes, kind, or table of texts.

    Args:
      parts: Samples with the same fields, or mixtures of them; in a sequence, or by name.
      weights: The weight of each part, in number of samples; all equal by default. By name if
        `parts` is.
      sizes: The size of each dataset, in any unit, as for `rlds.transformations.mix`: factors of
        the weights. Without weights, `[len(part) for part in parts]` makes all samples equally
        likely.
      temperature: In place of sizes: the factors are the numbers of samples to the power of
        1 / temperature. 1 makes all samples equally likely; with a larger temperature, the
        fractions of the datasets become more equal.

    Raises:
      TypeError: The fields of the samples differ; the message has the difference.
      ValueError: A number is invalid, or the weight of a part is too small for one sample.
    """

    def __init__(
        self,
        parts: Sequence[Samples | Mixture] | Mapping[str, Samples | Mixture],
        weights: Sequence[float] | Mapping[str, float] | None = None,
        *,
        sizes: Sequence[float] | None = None,
        temperature: float | None = None,
    ) -> None:
        names = list(parts) if isinstance(parts, Mapping) else []
        parts = list(parts.values()) if isinstance(parts, Mapping) else list(parts)
        if isinstance(weights, Mapping):
            if {*weights} != {*names}:
                raise ValueError(
                    f"weights: got the names {sorted(weights)}, expected {sorted(names)}"
                )
            weights = [weights[name] for name in names]
        if temperature is not None:
            if not temperature > 0 or sizes is not None:
                raise ValueError(
                    f"temperature must be positive, and without sizes; got {temperature}"
                )
            counts = [sum(len(inner) for inner, _ in _flat_parts(part)) for part in parts]
            sizes = [max(count, 1) ** (1 / temperature) for count in counts]
        if not parts:
            raise ValueError("there are no samples to mix")
        ratios = [1.0] * len(parts)
        for option, factors in (("weights", weights), ("sizes", sizes)):
            if factors is None:
                continue
            if len(factors) != len(parts):
                raise ValueError(
                    f"{option}: got {len(factors)}, expected one for each of {len(parts)} datasets"
                )
            if any(not 0.0 < factor < math.inf for factor in factors):
                raise ValueError(f"{option} must be finite and positive, got {factors}")
            ratios = [ratio * float(factor) for ratio, factor in zip(ratios, factors)]
        fractions = [_flat_parts(part) for part in parts]
        self.parts: list[Samples] = [part for inner in fractions for part, _ in inner]
        ratios = [n * fraction for n, inner in zip(ratios, fractions) for _, fraction in inner]
        for part_index, part in enumerate(self.parts):
            if not isinstance(part, Samples):
                raise TypeError(not_samples(part))
            if not len(part):
                raise ValueError(f"part {part_index} has no samples: {part!r}")
            if part.spec != self.parts[0].spec:
                raise TypeError(_spec_difference(part_index, part.spec, self.parts[0].spec))
        _warn_of_differences(self.parts)
        self.counts = _block_counts(ratios)
        self._last_block: tuple[tuple[int, int], np.ndarray, np.ndarray] | None = None

    def __repr__(self) -> str:
        parts = [
            f"{count / _BLOCK_SIZE:.3%} {part!r}" for count, part in zip(self.counts, self.parts)
        ]
        return f"Mixture({'; '.join(parts)})"

    @property
    def spec(self) -> dict[str, tuple[np.dtype, tuple[int, ...]]]:
        """The dtype and the shape of each field of a sample, by its path."""
        return self.parts[0].spec

    def epochs(self, num_samples: int) -> list[float]:
        """Returns the number of epochs over each dataset in a number of samples.

        Args:
          num_samples: The number of samples of the mixture.
        """
        fractions = [count / _BLOCK_SIZE for count in self.counts.tolist()]
        return [num_samples * fraction / len(part) for fraction, part in zip(fractions, self.parts)]

    def size(self, seed: int) -> int:
        """Returns the number of samples of the mixture until each dataset was passed once.

        Args:
          seed: The seed of the mixture.
        """
        lengths = np.array([len(part) for part in self.parts])
        blocks = (lengths - 1) // self.counts
        block = int(blocks.max())
        parts, ranks = self._block(block, seed)
        lasts = [
            np.flatnonzero(
                (parts == part) & (ranks == lengths[part] - 1 - block * self.counts[part])
            )
            for part in np.flatnonzero(blocks == block).tolist()
        ]
        return block * _BLOCK_SIZE + int(np.concatenate(lasts).max()) + 1

    def places(self, positions: np.ndarray, seed: int) -> tuple[np.ndarray, np.ndarray]:
        """Returns the part of the sample at each position, and its index in that part.

        Args:
          positions: Positions in the mixture, from 0 on, int64 of shape `[n]`.
          seed: The seed of the mixture.

        Returns:
          The part of each position, and its index in that part, both int64 of shape `[n]`.
        """
        blocks, offsets = np.divmod(positions, _BLOCK_SIZE)
        parts, indices = np.empty_like(positions), np.empty_like(positions)
        for block in np.unique(blocks).tolist():
            chosen = blocks == block
            block_parts, ranks = self._block(block, seed)
            parts[chosen] = block_parts[offsets[chosen]]
            indices[chosen] = block * self.counts[parts[chosen]] + ranks[offsets[chosen]]
        return parts, indices

    def _block(self, block: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
        """Returns the part of each sample of a block, and its index among those of the part."""
        cached_block = self._last_block
        if cached_block is None or cached_block[0] != (block, seed):
            order = permute(np.arange(_BLOCK_SIZE), _BLOCK_SIZE, key_of("mixture", seed, block))
            parts = np.searchsorted(np.cumsum(self.counts), order, side="right").astype(np.int32)
            ranks = np.empty(_BLOCK_SIZE, np.int32)
            for part, count in enumerate(self.counts.tolist()):
                ranks[parts == part] = np.arange(count)
            cached_block = self._last_block = (block, seed), parts, ranks
        return cached_block[1:]


def _flat_parts(part: Samples | Mixture) -> list[tuple[Samples, float]]:
    if not isinstance(part, Mixture):
        return [(part, 1.0)]
    return list(zip(part.parts, (part.counts / _BLOCK_SIZE).tolist()))


def not_samples(argument: object) -> str:
    """Returns the error message for an argument that is no samples."""
    table = "the table" if isinstance(argument, Table) else "the table that rlds.feeds.open returns"
    return (
        f"got a {type(argument).__name__}, expected samples: call .transitions(), .windows(...), "
        f".segments(...) or .steps() of {table}"
    )


def _warn_of_differences(parts: Sequence[Samples]) -> None:
    """Warns if the parts of a mixture give a field another unit, kind or table of texts."""
    for path in parts[0].spec:
        fields = [part.table.fields.get(path) for part in parts]
        meanings = [field.meaning if isinstance(field, Field) else {} for field in fields]
        differing = [f for f in MEANING if len({each[f] for each in meanings if f in each}) > 1]
        texts: dict[int, str] = {}
        for part, meaning in zip(parts, meanings):
            if name := meaning.get("table", ""):
                table = table_in(part.table.episodes.metadata, name)
                if any(texts.setdefault(number, text) != text for number, text in table.items()):
                    differing.append(f"texts of {name}")
        if differing:
            facts = ", ".join(dict.fromkeys(differing))
            warnings.warn(
                f"{path}: the mixed datasets have different {facts}. Convert one with "
                "Feed(transform=...), use a field of texts in place of numbers, or open the "
                "datasets as one table, rlds.feeds.open([...])",
                stacklevel=4,
            )


def _block_counts(weights: Sequence[float]) -> np.ndarray:
    """Returns the samples of each part in a block, by the largest remainder method."""
    exact = np.array(weights) / math.fsum(weights) * _BLOCK_SIZE
    counts = np.floor(exact).astype(np.int64)
    num_missing = _BLOCK_SIZE - int(counts.sum())
    counts[np.argsort(counts - exact, kind="stable")[:num_missing]] += 1
    if (counts == 0).any():
        number = int(np.flatnonzero(counts == 0)[0])
        raise ValueError(
            f"part {number} gets less than one sample in {_BLOCK_SIZE}: leave it out, or "
            "give it a larger weight"
        )
    return counts


def _spec_difference(part: int, spec: dict, first: dict) -> str:  # type: ignore[type-arg]
    for path in [*first, *spec]:
        here, there = spec.get(path, "nothing"), first.get(path, "nothing")
        if here != there:
            return (
                f"field {path!r}: part {part} has {here}, but part 0 has {there}. Select the "
                "same fields of all parts"
            )
    return f"part {part} has the fields in another order: {list(spec)}, expected {list(first)}"
