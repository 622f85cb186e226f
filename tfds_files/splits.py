"""The splits of a dataset, and parts of them, as TFDS names them.

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

import bisect
import itertools
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from etils import epath

from tfds_files.errors import DamagedFileError, TfdsFilesError
from tfds_files.record_files import RecordFile

if TYPE_CHECKING:
    from tfds_files.folder import DatasetFolder

__all__ = ["Piece", "Split", "ranges_of"]

_BOUND = r"(?:(-?[\d_.]+)(%|shard)?)?"
_PART = re.compile(rf"([\w-]+)(?:\[{_BOUND}(:)?{_BOUND}\])?")


class Piece(NamedTuple):
    """A run of records in a file.

    Attributes:
      path: The file.
      file: Its records.
      begin: The first one.
      end: The one after the last.
    """

    path: epath.Path
    file: RecordFile
    begin: int
    end: int


class Split:
    """The examples of a split, or of a part, in the order in which TFDS reads them too.

    Args:
      name: How it is called.
      pieces: Where its examples are.
      folder: The dataset that it is of.

    Attributes:
      name: How it is called.
      folder: The dataset that it is of.
      shard_lengths: How many examples it has in each file.
      paths: The files.
    """

    def __init__(self, name: str, pieces: Iterable[Piece], folder: DatasetFolder) -> None:
        self.name, self.folder = name, folder
        self._pieces = tuple(pieces)
        self.shard_lengths = tuple(piece.end - piece.begin for piece in self._pieces)
        self.paths = tuple(piece.path for piece in self._pieces)
        self._ends = list(itertools.accumulate(self.shard_lengths))

    def __repr__(self) -> str:
        return f"Split({self.name!r}, {len(self)} examples in {len(self.paths)} shards)"

    def __len__(self) -> int:
        return self._ends[-1] if self._ends else 0

    def __iter__(self) -> Iterator[dict[str, Any]]:
        return (self.example(index) for index in range(len(self)))

    def __getitem__(self, index: int) -> dict[str, Any]:
        return self.example(index)

    def example(self, index: int, fields: Iterable[str] | None = None) -> dict[str, Any]:
        """Returns an example, such as an episode, as columns; see `ExampleDecoder`.

        Args:
          index: Which one; from the end if it is negative.
          fields: Which fields, such as `["steps/action"]`; all by default.

        Raises:
          IndexError: There is no such example.
          KeyError: There is no such field.
          DamagedFileError: It cannot be read; says which file, record and field.
        """
        piece, record = self._place_of(index)
        decoder = self.folder.decoder(None if fields is None else tuple(fields))
        data = _read(piece, record)
        try:
            return decoder.decode(data)
        except TfdsFilesError as e:
            raise type(e)(f"{piece.path}, record {record}: {e}") from e

    def example_bytes(self, index: int) -> bytes:
        """Returns the bytes of an example, a `tf.train.Example`.

        Raises:
          IndexError: There is no such example.
          DamagedFileError: It cannot be read.
        """
        return bytes(_read(*self._place_of(index)))

    def cut(self, begin: int, end: int) -> Iterator[Piece]:
        """Yields where the examples of a range are."""
        for piece, after in zip(self._pieces, self._ends):
            first = after - (piece.end - piece.begin)
            low, high = max(begin, first) - first, min(end, after) - first
            if low < high:
                yield piece._replace(begin=piece.begin + low, end=piece.begin + high)

    def stored_lengths(self) -> list[int]:
        """Returns how many examples the files have, where `dataset_info.json` may say otherwise.

        Raises:
          DamagedFileError: A file cannot be read.
        """
        return [len(piece.file) for piece in self._pieces]

    def close(self) -> None:
        """Closes the files; reading opens them again."""
        for piece in self._pieces:
            piece.file.close()

    def place_of(self, index: int) -> tuple[epath.Path, int]:
        """Returns the file that an example is in, and the number of its record there.

        Raises:
          IndexError: There is no such example.
        """
        piece, record = self._place_of(index)
        return piece.path, record

    def _place_of(self, index: int) -> tuple[Piece, int]:
        """Where an example is, and its record there."""
        position = index + len(self) if index < 0 else index
        if not 0 <= position < len(self):
            raise IndexError(f"{self.name}: example {index} of {len(self)}")
        number = bisect.bisect_right(self._ends, position)
        piece = self._pieces[number]
        return piece, piece.begin + position - (self._ends[number - 1] if number else 0)


def _read(piece: Piece, record: int) -> bytes | bytearray:
    try:
        return piece.file.read(record)
    except IndexError:
        raise DamagedFileError(
            f"{piece.path}: {len(piece.file)} records, but dataset_info.json declares a record "
            f"{record}"
        ) from None


def ranges_of(name: str, shard_lengths: Mapping[str, Sequence[int]]) -> list[tuple[str, int, int]]:
    """Returns which examples the name of a part stands for: splits, where to begin, where to end.

    Args:
      name: The name.
      shard_lengths: How many examples each shard has, for each split.

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
        low = _position(part, begin, unit, lengths, 0)
        high = _position(part, end, unit, lengths, sum(lengths), is_end=True)
        ranges.append((split, low, high))
    return ranges


def _position(
    part: str,
    bound: str | None,
    unit: str | None,
    lengths: Sequence[int],
    default: int,
    *,
    is_end: bool = False,
) -> int:
    """The example that a bound stands for."""
    count = sum(lengths)
    if bound is None:
        return default
    try:
        number = float(bound) if unit == "%" else int(bound)
    except ValueError:
        raise ValueError(f"{part!r}: {bound!r} is not a number") from None
    if unit == "%":
        if abs(number) > 100:
            raise ValueError(f"{part!r}: {bound}% is more than 100%")
        number = round(number * count / 100.0)
    elif unit == "shard":
        if is_end and number <= 0:  # So that [-1shard] is the last one.
            number += len(lengths)
        number = sum(lengths[: int(number)])
    if abs(number) > count:
        raise ValueError(f"{part!r}: the split has only {count} examples")
    return int(number) + count if number < 0 else int(number)
