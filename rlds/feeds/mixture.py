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

_BLOCK = 1 << 16


class Mixture:
    """Samples of several datasets, with exact shares; none repeats before it is through.

    Of every 65,536 samples in a row, each dataset has the number that its weight asks for. Within
    such a block they are mixed at random. A warning names fields whose numbers have another meaning
    in each dataset: their unit, names, codes, kind, or the texts that they are numbers of.

    Args:
      parts: Samples with the same fields, or mixtures of such; or these by their names.
      weights: A weight for each, all the same if not given; by their names, too. A weight counts
        samples.
      sizes: The size of each dataset, in any unit, as for `rlds.transformations.mix`: the weights
        are multiplied with them. `[len(part) for part in parts]` makes every sample as likely as
        any other, if no weights are given.
      temperature: Instead of the sizes: the weights are multiplied with how many samples there are,
        to the power of 1 / temperature. 1 makes every sample as likely as any other, and the
        larger it is, the more alike are the shares of the datasets.

    Raises:
      TypeError: The fields of the samples differ; the message has the difference.
      ValueError: Numbers do not fit, or a weight is so small that its part would have no sample.
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
            counts = [sum(len(inner) for inner, _ in _shares(part)) for part in parts]
            sizes = [max(count, 1) ** (1 / temperature) for count in counts]
        if not parts:
            raise ValueError("there are no samples to mix")
        portions = [1.0] * len(parts)
        for option, factors in (("weights", weights), ("sizes", sizes)):
            if factors is None:
                continue
            if len(factors) != len(parts):
                raise ValueError(
                    f"{option}: got {len(factors)}, expected one for each of {len(parts)} datasets"
                )
            if any(not 0.0 < factor < math.inf for factor in factors):
                raise ValueError(f"{option} must be finite and positive, got {factors}")
            portions = [portion * float(factor) for portion, factor in zip(portions, factors)]
        shares = [_shares(part) for part in parts]
        self.parts: list[Samples] = [part for inner in shares for part, _ in inner]
        portions = [n * share for n, inner in zip(portions, shares) for _, share in inner]
        for part_index, part in enumerate(self.parts):
            if not isinstance(part, Samples):
                raise TypeError(not_samples(part))
            if not len(part):
                raise ValueError(f"part {part_index} has no samples: {part!r}")
            if part.spec != self.parts[0].spec:
                raise TypeError(_differences(part_index, part.spec, self.parts[0].spec))
        _warn_of_meanings(self.parts)
        self.counts = _counts(portions)
        self._last_block: tuple[tuple[int, int], np.ndarray, np.ndarray] | None = None

    def __repr__(self) -> str:
        shares = [f"{count / _BLOCK:.3%} {part!r}" for count, part in zip(self.counts, self.parts)]
        return f"Mixture({'; '.join(shares)})"

    @property
    def spec(self) -> dict[str, tuple[np.dtype, tuple[int, ...]]]:
        """The dtype and the shape of each field of a sample, by its path."""
        return self.parts[0].spec

    def epochs(self, num_samples: int) -> list[float]:
        """Returns the number of passes over each dataset while a number of samples is drawn.

        Args:
          num_samples: The number of samples of the mixture.
        """
        shares = [count / _BLOCK for count in self.counts.tolist()]
        return [num_samples * share / len(part) for share, part in zip(shares, self.parts)]

    def size(self, seed: int) -> int:
        """Returns how many samples are drawn until each dataset has been passed once.

        Args:
          seed: Decides how the parts are mixed.
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
        return block * _BLOCK + int(np.concatenate(lasts).max()) + 1

    def places(self, positions: np.ndarray, seed: int) -> tuple[np.ndarray, np.ndarray]:
        """Returns the part of the sample at each position, and its index in that part.

        Args:
          positions: Positions in the mixture, from 0 on, int64 of shape `[n]`.
          seed: Decides how the parts are mixed.

        Returns:
          The part of each position, and its index in that part, both int64 of shape `[n]`.
        """
        blocks, inside = np.divmod(positions, _BLOCK)
        parts, before = np.empty_like(positions), np.empty_like(positions)
        for block in np.unique(blocks).tolist():
            chosen = blocks == block
            of_block, ranks = self._block(block, seed)
            parts[chosen] = of_block[inside[chosen]]
            before[chosen] = block * self.counts[parts[chosen]] + ranks[inside[chosen]]
        return parts, before

    def _block(self, block: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
        """The part of each sample of a block, and the number of that part's samples before it."""
        cached_block = self._last_block
        if cached_block is None or cached_block[0] != (block, seed):
            order = permute(np.arange(_BLOCK), _BLOCK, key_of("mixture", seed, block))
            parts = np.searchsorted(np.cumsum(self.counts), order, side="right").astype(np.int32)
            ranks = np.empty(_BLOCK, np.int32)
            for part, count in enumerate(self.counts.tolist()):
                ranks[parts == part] = np.arange(count)
            cached_block = self._last_block = (block, seed), parts, ranks
        return cached_block[1:]


def _shares(part: Samples | Mixture) -> list[tuple[Samples, float]]:
    if not isinstance(part, Mixture):
        return [(part, 1.0)]
    return list(zip(part.parts, (part.counts / _BLOCK).tolist()))


def not_samples(argument: object) -> str:
    """Returns the error message for an argument that is no samples."""
    table = "the table" if isinstance(argument, Table) else "the table that rlds.feeds.open returns"
    return (
        f"got a {type(argument).__name__}, expected samples: call .transitions(), .windows(...), "
        f".segments(...) or .steps() of {table}"
    )


def _warn_of_meanings(parts: Sequence[Samples]) -> None:
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


def _counts(weights: Sequence[float]) -> np.ndarray:
    """Returns the samples of each part in a block: the largest remainders are rounded up."""
    exact = np.array(weights) / math.fsum(weights) * _BLOCK
    counts = np.floor(exact).astype(np.int64)
    short = _BLOCK - int(counts.sum())
    counts[np.argsort(counts - exact, kind="stable")[:short]] += 1
    if (counts == 0).any():
        number = int(np.flatnonzero(counts == 0)[0])
        raise ValueError(
            f"the share of part {number} is less than one sample in {_BLOCK}: leave it out, or "
            "give it a larger weight"
        )
    return counts


def _differences(part: int, spec: dict, first: dict) -> str:  # type: ignore[type-arg]
    for path in [*first, *spec]:
        here, there = spec.get(path, "nothing"), first.get(path, "nothing")
        if here != there:
            return (
                f"field {path!r}: part {part} has {here}, but part 0 has {there}. Select the "
                "same fields of all parts"
            )
    return f"part {part} has the fields in another order: {list(spec)}, expected {list(first)}"
