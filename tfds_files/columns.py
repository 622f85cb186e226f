"""Columns whose rows differ in length."""

from __future__ import annotations

import dataclasses
import functools
from typing import Any

import numpy as np

__all__ = ["RaggedColumn", "stack"]


@dataclasses.dataclass(frozen=True)
class RaggedColumn:
    """A column whose rows are sequences of different lengths.

    Attributes:
      values: The elements of all rows, as a column.
      lengths: The number of elements of each row.

    >>> column = RaggedColumn(np.array([1, 2, 3]), np.array([2, 0, 1]))
    >>> len(column), column[0], column[1]
    (3, array([1, 2]), array([], dtype=int64))
    """

    values: Any
    lengths: np.ndarray

    def __len__(self) -> int:
        return len(self.lengths)

    def __getitem__(self, row: int | slice) -> Any:
        if isinstance(row, slice):
            start, end, step = row.indices(len(self))
            if step != 1:
                raise ValueError(f"a slice of rows needs step 1, got {step}")
            value_start, value_end = self._row_offsets[[start, max(start, end)]].tolist()
            return RaggedColumn(self.values[value_start:value_end], self.lengths[row])
        if not -len(self) <= row < len(self):
            raise IndexError(f"row {row} of {len(self)}")
        start, end = self._row_offsets[row % len(self) :][:2].tolist()
        values = self.values
        if isinstance(values, RaggedColumn):
            value_start, value_end = values._row_offsets[[start, end]].tolist()
            return RaggedColumn(values.values[value_start:value_end], values.lengths[start:end])
        return values[start:end]

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        """Returns the rows as an array; as an array of arrays if they differ in length."""
        rows = stack([np.asarray(self[row]) for row in range(len(self))])
        return rows if dtype is None else rows.astype(dtype)

    @functools.cached_property
    def _row_offsets(self) -> np.ndarray:
        """The offsets of the rows in `values`, with the end of the last row; int64[rows + 1]."""
        return np.concatenate([[0], np.cumsum(self.lengths, dtype=np.int64)])


def stack(rows: list[np.ndarray]) -> np.ndarray:
    """Returns rows as one array; as an array of arrays if their shapes differ.

    >>> stack([np.zeros((2, 2)), np.zeros((3, 2))]).shape
    (2,)
    """
    if len({row.shape for row in rows}) == 1:
        return np.stack(rows)
    column = np.empty(len(rows), object)
    column[:] = rows
    return column
