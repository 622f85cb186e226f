"""How statistics look when they are printed: a table with a line for each element of a field."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Final

import numpy as np

if TYPE_CHECKING:
    from rlds.statistics import FieldStatistics

_WIDTH: Final = 100
_MAX_ELEMENTS: Final = 8
_MIN_NAME: Final = 8


def table(fields: Mapping[str, FieldStatistics]) -> str:
    """The statistics as aligned text, at most 100 characters wide; see `rows_of`."""
    rows = rows_of(fields)
    widths = [max(len(row[i]) for row in rows if i < len(row)) for i in range(len(rows[0]))]
    widths[0] = min(widths[0], max(_MIN_NAME, _WIDTH - sum(width + 2 for width in widths[1:])))
    return "\n".join("  ".join(_padded(row, widths)).rstrip() for row in rows)


def rows_of(fields: Mapping[str, FieldStatistics]) -> list[list[str]]:
    """The cells of the table, the headings first.

    Of fields with many elements it has the first and the last, of many quantiles the outermost.
    """
    quantiles = sorted({q for field in fields.values() for q in field.quantiles})
    shown = [q for q in quantiles if q in (quantiles[0], quantiles[-1])]
    rows = [["", "count", "mean", "std", "min", *(f"q{100 * q:g}" for q in shown), "max"]]
    for name, field in fields.items():
        rows.extend(_rows(name, field, shown))
    return rows


def _rows(name: str, field: FieldStatistics, quantiles: list[float]) -> Iterator[list[str]]:
    missing = np.full(field.mean.shape, np.nan)
    columns = [field.mean, field.std, field.min]
    columns += [field.quantiles.get(q, missing) for q in quantiles]
    columns += [field.max]
    indices = list(np.ndindex(field.mean.shape))
    if not indices:
        yield [f"{name}: no elements"]
    num_left_out = max(0, len(indices) - _MAX_ELEMENTS)
    last_shown = indices[_MAX_ELEMENTS - 1 + num_left_out :]
    for index in [*indices[: _MAX_ELEMENTS - 1], *last_shown]:
        if num_left_out and index == indices[-1]:
            yield [f"{name}: {num_left_out} more"]
        element = f"{name}[{', '.join(map(str, index))}]" if index else name
        yield [
            element,
            str(field.count[index]),
            *(f"{column[index] + 0.0:.4g}" for column in columns),
        ]


def _padded(row: list[str], widths: list[int]) -> Iterator[str]:
    name, *numbers = row
    if len(name) > widths[0]:  # The end of a path says more than its beginning.
        name = "…" + name[len(name) - widths[0] + 1 :]
    yield name.ljust(widths[0])
    yield from (number.rjust(width) for number, width in zip(numbers, widths[1:]))
