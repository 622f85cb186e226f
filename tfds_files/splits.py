"""Names of splits and of their parts, in the syntax of TFDS.

| name | examples |
|---|---|
| `train` | all of the split |
| `train[5:20]`, `train[-5:]` | some, by their numbers |
| `train[:10%]`, `train[-33.3%:]` | some, by shares, which are rounded to the closest example |
| `train[2shard]`, `train[1shard:]` | those of some shards |
| `train+test[:5]` | one after the other |
| `all` | those of all splits |
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

__all__ = ["ranges_of"]

_BOUND = r"(?:(-?[\d_.]+)(%|shard)?)?"
_PART = re.compile(rf"([\w-]+)(?:\[{_BOUND}(:)?{_BOUND}\])?")


def ranges_of(name: str, shard_lengths: Mapping[str, Sequence[int]]) -> list[tuple[str, int, int]]:
    """Parses the name of a part: returns splits, each with first example and end.

    Args:
      name: The name.
      shard_lengths: The number of examples of each shard, for each split.

    Raises:
      KeyError: There is no such split.
      ValueError: The name is none that TFDS knows, or goes beyond the split.

    >>> ranges_of("train[-25%:]+test", {"train": [4, 4], "test": [3]})
    [('train', 6, 8), ('test', 0, 3)]
    """
    ranges: list[tuple[str, int, int]] = []
    for part in re.split(r"\s*\+\s*", name):
        match = _PART.fullmatch(part)
        if match is None:
            raise ValueError(f"{part!r} is not a split or a part of one, such as 'train[:10%]'")
        split, begin, begin_unit, colon, end, end_unit = match.groups()
        if split == "all" and part == "all":
            ranges += [(each, 0, sum(lengths)) for each, lengths in shard_lengths.items()]
            continue
        if split not in shard_lengths:
            raise KeyError(f"no split {split!r}; there are {', '.join(shard_lengths) or 'none'}")
        lengths, unit = shard_lengths[split], begin_unit or end_unit
        if part != split:
            if begin is None and end is None:
                raise ValueError(f"{part!r} has neither a begin nor an end")
            if not colon:
                if end is not None or unit != "shard":
                    raise ValueError(f"{part!r}: a single number must be the number of a shard")
                end = str(int(begin) + 1)
        low = _position(part, begin, unit, lengths)
        high = _position(part, end, unit, lengths, is_end=True)
        ranges.append((split, low, high))
    return ranges


def _position(
    part: str, bound: str | None, unit: str | None, lengths: Sequence[int], *, is_end: bool = False
) -> int:
    """The example that a bound stands for."""
    count = sum(lengths)
    if bound is None:
        return count if is_end else 0
    try:
        position = float(bound) if unit == "%" else int(bound)
    except ValueError:
        raise ValueError(f"{part!r}: {bound!r} is not a number") from None
    if unit == "%":
        if abs(position) > 100:
            raise ValueError(f"{part!r}: {bound}% is more than 100%")
        position = round(position * count / 100.0)
    elif unit == "shard":
        if is_end and position <= 0:  # Negative shards count from the end.
            position += len(lengths)
        position = sum(lengths[: int(position)])
    if abs(position) > count:
        raise ValueError(f"{part!r}: the split has only {count} examples")
    return int(position) + count if position < 0 else int(position)
