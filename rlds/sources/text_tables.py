"""Tables of texts, such as the tasks of LeRobot, and the columns that hold their numbers."""

from __future__ import annotations

import itertools
from collections.abc import Collection, Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np
from typing_extensions import override

from rlds.sources.episode_fields import as_converted
from rlds.sources.source import Source
from rlds.sources.view import RowContext, View

__all__ = [
    "TASKS",
    "Renumbered",
    "TextTable",
    "join_tables",
    "renumbered",
    "table_in",
    "unknown_numbers",
]

TASKS = "tasks"
"""The `Field.table` of numbers of tasks."""

TextTable: TypeAlias = Mapping[int, str]
"""Texts by their numbers."""

# The suffix of the key of the number in a row of a table.
_INDEX_SUFFIX = "_index"


def table_in(metadata: Mapping[str, Any], name: str) -> TextTable:
    """Returns a table of texts; an empty one if the metadata has none.

    Args:
      metadata: The metadata of a dataset. A format has a table under its own name, as a list of
        rows, each with a number and a text.
      name: The name of the table, see `Field.table`.

    >>> rows = [{"task_index": 0, "task": "pick"}, {"task_index": 3, "task": "place"}]
    >>> table_in({"lerobot": {"tasks": rows}}, "tasks")
    {0: 'pick', 3: 'place'}
    """
    return {n: text for row in _rows_in(metadata, name)[1] for _, n, text in _entries(row)}


def join_tables(
    metadata: Mapping[str, Any],
    datasets: Sequence[Mapping[str, Any]],
    columns: Sequence[Mapping[str, str]],
) -> tuple[dict[str, Any], list[dict[str, Mapping[int, int]]]]:
    """Joins the tables of texts of several datasets, such as for a merge.

    Args:
      metadata: The metadata of the joined dataset, whose tables are extended.
      datasets: The metadata of each dataset.
      columns: The table of each numbered column, by column, for each dataset.

    Returns:
      The metadata, and for each dataset the new numbers by the old ones, for each changed column.

    Raises:
      ValueError: A dataset has numbers of a table that it lacks.
    """
    joined, new = dict(metadata), [dict[str, Mapping[int, int]]() for _ in datasets]
    for table in dict.fromkeys(name for tables in columns for name in tables.values()):
        owner, rows = _rows_in(joined, table)
        texts, rows = table_in(joined, table), [*rows]
        first = {text: number for number, text in reversed([*texts.items()])}
        free = itertools.count(max(texts, default=-1) + 1)
        is_known = any(table_in(each, table) for each in datasets)
        for number, each in enumerate(datasets if is_known else ()):
            numbers: dict[int, int] = {}
            for row in _rows_in(each, table)[1]:
                for key, old, text in _entries(row):
                    if text not in first:
                        first[text] = next(free)
                        rows.append({**row, key: first[text]})
                    numbers[old] = old if texts.get(old) == text else first[text]
            paths = [path for path, name in columns[number].items() if name == table]
            if paths and not numbers:
                raise ValueError(
                    f"dataset {number}: {', '.join(paths)}: numbers of {table}, but the dataset "
                    "has no such table: leave them out"
                )
            if any(old != now for old, now in numbers.items()):
                new[number] |= dict.fromkeys(paths, numbers)
        joined |= {owner: {**joined[owner], table: rows}} if owner else {}
    return joined, new


def _rows_in(metadata: Mapping[str, Any], name: str) -> tuple[str, Sequence[Mapping[str, Any]]]:
    """Returns the format whose metadata has a table, and its rows."""
    for owner, group in metadata.items():
        rows = group.get(name) if isinstance(group, Mapping) else None
        if isinstance(rows, Sequence) and rows and all(isinstance(row, Mapping) for row in rows):
            return owner, rows
    return "", ()


def _entries(row: Mapping[str, Any]) -> list[tuple[str, int, str]]:
    """Returns the key, number and text of a table row; empty if one is missing."""
    numbers = [
        (key, it) for key, it in row.items() if key.endswith(_INDEX_SUFFIX) and type(it) is int
    ]
    texts = [it for it in row.values() if isinstance(it, str)]
    return [(*number, text) for number, text in zip(numbers[:1], texts)]


def unknown_numbers(numbers: np.ndarray, texts: Mapping[int, Any]) -> list[int]:
    """Returns numbers without a text in the table. Negative numbers stand for no text."""
    return [n for n in np.unique(numbers).tolist() if n >= 0 and n not in texts]


def renumbered(numbers: np.ndarray, new: Mapping[int, int]) -> np.ndarray:
    """Maps numbers of texts to their numbers in another table.

    Args:
      numbers: The numbers. Negative numbers stand for no text, and are kept.
      new: The new numbers by the old ones.

    Raises:
      ValueError: A number is in no table, or its new number does not fit in the dtype.

    >>> renumbered(np.array([4, -1, 0]), {0: 1, 4: 0}).tolist()
    [0, -1, 1]
    """
    if unknown := unknown_numbers(numbers, new):
        raise ValueError(f"{unknown[0]} has no text in the table: correct it, or drop the field")
    unique, positions = np.unique(numbers, return_inverse=True)
    new_numbers = np.array([new.get(number, number) for number in unique.tolist()], np.int64)
    changed = new_numbers.astype(numbers.dtype)
    if (misfits := new_numbers[changed != new_numbers]).size:
        raise ValueError(
            f"the text now has number {misfits[0]}, which does not fit {numbers.dtype}: store the "
            "field with more bits, or drop it"
        )
    return changed[positions].reshape(numbers.shape)


class Renumbered(View):
    """Episodes whose task numbers are renumbered for a joined table of texts.

    Args:
      base: The source.
      new: The new numbers by the old ones, for the path of each column.

    Attributes:
      is_copied: True if episodes are copied unchanged, as the export renumbers them itself.
    """

    keeps_values = True
    is_copied = False

    def __init__(self, base: Source, new: Mapping[str, Mapping[int, int]]) -> None:
        super().__init__(base)
        self._new = new

    @override
    def make(
        self, values: dict[str, Any], rows: RowContext, fields: Collection[str] | None
    ) -> dict[str, Any]:
        changed = dict(values)
        for path in self._new.keys() & values.keys():
            try:
                changed[path] = renumbered(np.asarray(values[path]), self._new[path])
            except ValueError as error:
                key = "" if rows.episode is None else as_converted(rows.episode).key
                where = f"merge: episode {key!r}, " if key else ""
                raise ValueError(f"{where}{path}: {error}") from error
        return changed

    @override
    def changed_episodes(self, split: str, episodes: np.ndarray) -> np.ndarray:
        return np.full(len(episodes), not self.is_copied)
