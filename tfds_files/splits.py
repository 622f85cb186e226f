"""Names of splits and of their slices, in the syntax of TFDS.

| name | examples |
|---|---|
| `train` | all examples of the split |
| `train[5:20]`, `train[-5:]` | examples by their indices |
| `train[:10%]`, `train[-33.3%:]` | examples by percentages, rounded to the closest example |
| `train[2shard]`, `train[1shard:]` | the examples of some shards |
| `train+test[:5]` | the examples of several splits, in order |
| `all` | the examples of all splits |
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

__all__ = ["ranges_of"]

_SLICE_BOUND = r"(?:(-?[\d_.]+)(%|shard)?)?"
_SLICE = re.compile(rf"([\w-]+)(?:\[{_SLICE_BOUND}(:)?{_SLICE_BOUND}\])?")


def ranges_of(name: str, shard_lengths: Mapping[str, Sequence[int]]) -> list[tuple[str, int, int]]:
    """Parses the name of a split or slice; returns names of splits with begin and end.

    Args:
      name: The name.
      shard_lengths: The number of examples of each shard, for each split.

    Raises:
      KeyError: There is no such split.
      ValueError: The name is not valid, or goes beyond the split.

    >>> ranges_of("train[-25%:]+test", {"train": [4, 4], "test": [3]})
    [('train', 6, 8), ('test', 0, 3)]
    """
    ranges: list[tuple[str, int, int]] = []
    for piece in re.split(r"\s*\+\s*", name):
        match = _SLICE.fullmatch(piece)
        if match is None:
            raise ValueError(f"{piece!r} is not a split or a slice of one, such as 'train[:10%]'")
        split, start, start_unit, colon, end, end_unit = match.groups()
        if split == "all" and piece == "all":
            ranges += [(split, 0, sum(lengths)) for split, lengths in shard_lengths.items()]
            continue
        if split not in shard_lengths:
            raise KeyError(f"no split {split!r}; there are {', '.join(shard_lengths) or 'none'}")
        lengths, unit = shard_lengths[split], start_unit or end_unit
        if piece != split:
            if start is None and end is None:
                raise ValueError(f"{piece!r} has neither a begin nor an end")
            if not colon:
                if end is not None or unit != "shard":
                    raise ValueError(f"{piece!r}: a single number must be the number of a shard")
                end = str(int(start) + 1)
        low = _find_position(piece, start, unit, lengths)
        high = _find_position(piece, end, unit, lengths, is_end=True)
        ranges.append((split, low, high))
    return ranges


def _find_position(
    piece: str, bound: str | None, unit: str | None, lengths: Sequence[int], *, is_end: bool = False
) -> int:
    """Returns the index of the example at a bound."""
    count = sum(lengths)
    if bound is None:
        return count if is_end else 0
    try:
        position = float(bound) if unit == "%" else int(bound)
    except ValueError:
        raise ValueError(f"{piece!r}: {bound!r} is not a number") from None
    if unit == "%":
        if abs(position) > 100:
            raise ValueError(f"{piece!r}: {bound}% is more than 100%")
        position = round(position * count / 100.0)
    elif unit == "shard":
        if is_end and position <= 0:  # Negative shards count from the end.
            position += len(lengths)
        position = sum(lengths[: int(position)])
    if abs(position) > count:
        raise ValueError(f"{piece!r}: the split has only {count} examples")
    return int(position) + count if position < 0 else int(position)
