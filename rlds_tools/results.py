"""The results of all commands: dataclasses that display as text, as HTML and as JSON.

A result yields its lines and tables in `Result.blocks`. The command line prints them, a notebook
shows them as HTML. Programs read `Result.to_dict`, whose keys are the attributes of the dataclass.
"""

from __future__ import annotations

import dataclasses
import shlex
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from rlds_ecosystem.model.texts import printable, shorten
from rlds_tools.markup import Markup, join, tag

__all__ = [
    "Block",
    "Result",
    "Spread",
    "Table",
    "cell",
    "count",
    "next_commands",
    "plain",
    "size_text",
    "text_of",
]

# The maximum number of characters of a table cell.
_CELL_LENGTH = 1000

# Renders a line for a terminal, given the line and the name of its style.
Style = Callable[[str, str], str]


@dataclasses.dataclass(frozen=True)
class Table:
    """A table.

    Attributes:
      columns: The headings; ">" in front marks a column of numbers, aligned to the right.
      rows: The cells.
    """

    columns: Sequence[str]
    rows: Sequence[Sequence[str]]


Block = str | Table


class Result:
    """The base of all results, which are dataclasses.

    Attributes:
      exit_code: The exit status of a command: 0, or 1 for findings that need attention.
    """

    @property
    def exit_code(self) -> int:
        """The exit status of a command."""
        return 0

    def blocks(self) -> Iterable[Block]:
        """Yields the printed blocks of the result, from top to bottom."""
        raise NotImplementedError

    def to_dict(self) -> dict[str, Any]:
        """Returns the result in the types of JSON; the keys stay the same between versions."""
        assert dataclasses.is_dataclass(self)
        return {field.name: plain(getattr(self, field.name)) for field in dataclasses.fields(self)}

    def text(self, style: Style = lambda text, _: text) -> str:
        """Returns the result as text.

        Args:
          style: Renders a line for a terminal, given the line, and "title" for the first line,
            "heading" for headings of tables, or "hint" for suggested commands.
        """
        return "\n".join(_lines(list(self.blocks()), style))

    def __str__(self) -> str:
        return self.text()

    def _repr_html_(self) -> str:
        return join(
            *(_html_table(b) if isinstance(b, Table) else tag("p", b) for b in self.blocks())
        )


@dataclasses.dataclass(frozen=True)
class Spread:
    """The spread of numbers: minimum, median, mean and maximum."""

    min: float
    median: float
    mean: float
    max: float

    @classmethod
    def from_values(cls, values: Sequence[float]) -> Spread | None:
        """Returns the spread of values; None without values."""
        import numpy as np

        if not len(values):
            return None
        spread = np.min(values), np.median(values), np.mean(values), np.max(values)
        return cls(*map(float, spread))

    def cells(self) -> list[str]:
        """Returns the numbers as text."""
        return [f"{value:,.6g}" for value in dataclasses.astuple(self)]


def _lines(blocks: Sequence[Block], style: Style) -> Iterable[str]:
    for position, block in enumerate(blocks):
        if isinstance(block, Table):
            yield from _table_lines(block, style)
        elif position == 0:
            yield style(printable(block), "title")
        else:
            yield (
                style(printable(block), "hint") if block.startswith("next: ") else printable(block)
            )


def _table_lines(table: Table, style: Style) -> Iterable[str]:
    is_number = [heading.startswith(">") for heading in table.columns]
    headings = [heading.removeprefix(">") for heading in table.columns]
    rows = [
        [shorten(printable(cell), _CELL_LENGTH) for cell in row] for row in (headings, *table.rows)
    ]
    widths = [max(map(len, column)) for column in zip(*rows)]
    for position, row in enumerate(rows):
        cells = [
            cell.rjust(width) if is_right else cell.ljust(width)
            for cell, width, is_right in zip(row, widths, is_number)
        ]
        line = "  ".join(cells).rstrip()
        yield style(line, "heading") if position == 0 else line


def _html_table(table: Table) -> Markup:
    sides = ["right" if heading.startswith(">") else "left" for heading in table.columns]

    def row(kind: str, cells: Sequence[str]) -> Markup:
        styled = (tag(kind, c, style=f"text-align: {side}") for c, side in zip(cells, sides))
        return tag("tr", *styled)

    header = row("th", [heading.removeprefix(">") for heading in table.columns])
    body = tag("tbody", *(row("td", cells) for cells in table.rows))
    return tag("table", tag("thead", header), body)


def plain(value: Any) -> Any:
    """Returns a value in the types of JSON: dataclasses become dicts, and arrays lists.

    Numbers that JSON lacks (NaN, infinities) are None.

    >>> import numpy as np
    >>> plain({"a": np.float32(1.5), "b": (np.arange(2), float("nan"))})
    {'a': 1.5, 'b': [[0, 1], None]}
    """
    if isinstance(value, Result):
        return value.to_dict()
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {
            field.name: plain(getattr(value, field.name)) for field in dataclasses.fields(value)
        }
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, str | bool | int | None):
        return value
    if isinstance(value, float):
        return value if abs(value) < float("inf") else None
    if isinstance(value, bytes):
        return text_of(value)
    if hasattr(value, "tolist"):  # Arrays and scalars of NumPy, which need not be loaded.
        return plain(value.tolist())
    if isinstance(value, Iterable):
        return [plain(item) for item in value]
    return str(value)


def text_of(value: Any) -> str:
    """Returns a value as text; bytes that are not UTF-8 are shown by their codes."""
    return value.decode(errors="backslashreplace") if isinstance(value, bytes) else str(value)


def count(total: int, noun: str) -> str:
    """Formats a number of things with its noun.

    >>> count(1, "episode"), count(12345, "step")
    ('1 episode', '12,345 steps')
    """
    return f"{total:,} {noun}{'' if total == 1 else 's'}"


def cell(total: int | None) -> str:
    """Formats a number for a cell of a table; "?" if it is unknown."""
    return "?" if total is None else f"{total:,}"


def next_commands(*commands: Sequence[object]) -> str:
    """Returns the line of suggested commands, quoted for a shell.

    >>> next_commands(["inspect", "my data"], ["stats", "my data", "--out", "stats.json"])
    "next: rlds inspect 'my data' · rlds stats 'my data' --out stats.json"
    """
    return "next: " + " · ".join(shlex.join(["rlds", *map(str, words)]) for words in commands)


def size_text(num_bytes: int) -> str:
    """Formats a size in bytes.

    >>> size_text(999), size_text(81_234_567)
    ('999 B', '81.2 MB')
    """
    size, (unit, *larger) = float(num_bytes), ("B", "kB", "MB", "GB", "TB")
    while size >= 999.5 and larger:
        size, (unit, *larger) = size / 1000, larger
    digits = 0 if unit == "B" or size >= 99.95 else 1
    return f"{size:.{digits}f} {unit}"
