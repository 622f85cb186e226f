"""Tables of texts, such as the tasks of LeRobot, and columns with indices of their rows."""

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
    "RenumberedSource",
    "TextTable",
    "join_tables",
    "renumber",
    "table_in",
    "unknown_indices",
]

TASKS = "tasks"
"""The `Field.table` of task indices."""

TextTable: TypeAlias = Mapping[int, str]
"""Texts by their indices."""

# The suffix of the key of the index in a row of a table.
_INDEX_SUFFIX = "_index"


def table_in(metadata: Mapping[str, Any], name: str) -> TextTable:
    """Returns a table of texts; empty if the metadata does not have it.

    Args:
      metadata: The metadata of a dataset. A format has a table under its own name, as a list of
        rows, each with an index and a text.
      name: The name of the table, see `Field.table`.

    >>> rows = [{"task_index": 0, "task": "pick"}, {"task_index": 3, "task": "pour"}]
    >>> table_in({"lerobot": {"tasks": rows}}, "tasks")
    {0: 'pick', 3: 'pour'}
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
      columns: For each dataset, the name of the table of each column of indices.

    Returns:
      The metadata, and for each dataset the new indices by the old indices of each changed column.

    Raises:
      ValueError: A dataset has indices of a missing table.
    """
    metadata_of_join, changes = dict(metadata), [dict[str, Mapping[int, int]]() for _ in datasets]
    for table in dict.fromkeys(name for tables in columns for name in tables.values()):
        owner, rows = _rows_in(metadata_of_join, table)
        texts, rows = table_in(metadata_of_join, table), [*rows]
        first_indices = {text: index for index, text in reversed([*texts.items()])}
        free_indices = itertools.count(max(texts, default=-1) + 1)
        has_table = any(table_in(dataset, table) for dataset in datasets)
        for position, dataset in enumerate(datasets if has_table else ()):
            new_indices: dict[int, int] = {}
            for row in _rows_in(dataset, table)[1]:
                for key, old, text in _entries(row):
                    if text not in first_indices:
                        first_indices[text] = next(free_indices)
                        rows.append({**row, key: first_indices[text]})
                    new_indices[old] = old if texts.get(old) == text else first_indices[text]
            paths = [path for path, name in columns[position].items() if name == table]
            if paths and not new_indices:
                raise ValueError(
                    f"dataset {position}: {', '.join(paths)}: numbers of {table}, but the dataset "
                    "has no such table: leave them out"
                )
            if any(old != new for old, new in new_indices.items()):
                changes[position] |= dict.fromkeys(paths, new_indices)
        metadata_of_join |= {owner: {**metadata_of_join[owner], table: rows}} if owner else {}
    return metadata_of_join, changes


def _rows_in(metadata: Mapping[str, Any], name: str) -> tuple[str, Sequence[Mapping[str, Any]]]:
    """Returns the format whose metadata has a table, and its rows."""
    for owner, group in metadata.items():
        rows = group.get(name) if isinstance(group, Mapping) else None
        if isinstance(rows, Sequence) and rows and all(isinstance(row, Mapping) for row in rows):
            return owner, rows
    return "", ()


def _entries(row: Mapping[str, Any]) -> list[tuple[str, int, str]]:
    """Returns the key, index and text of a table row; empty if one is missing."""
    indices = [(k, c) for k, c in row.items() if k.endswith(_INDEX_SUFFIX) and type(c) is int]
    texts = [cell for cell in row.values() if isinstance(cell, str)]
    return [(*item, text) for item, text in zip(indices[:1], texts)]


def unknown_indices(indices: np.ndarray, texts: Mapping[int, Any]) -> list[int]:
    """Returns indices without a text in the table. Negative indices stand for no text."""
    return [n for n in np.unique(indices).tolist() if n >= 0 and n not in texts]


def renumber(indices: np.ndarray, new: Mapping[int, int]) -> np.ndarray:
    """Maps indices of texts to their indices in another table.

    Args:
      indices: The indices. Negative indices stand for no text, and are kept.
      new: The new indices by the old indices.

    Raises:
      ValueError: An index is not in the table, or its new index does not fit in the dtype.

    >>> renumber(np.array([4, -1, 0]), {0: 1, 4: 0}).tolist()
    [0, -1, 1]
    """
    if unknown := unknown_indices(indices, new):
        raise ValueError(f"{unknown[0]} has no text in the table: correct it, or drop the field")
    unique, positions = np.unique(indices, return_inverse=True)
    new_indices = np.array([new.get(index, index) for index in unique.tolist()], np.int64)
    new_column = new_indices.astype(indices.dtype)
    if (misfits := new_indices[new_column != new_indices]).size:
        raise ValueError(
            f"the text now has number {misfits[0]}, which does not fit {indices.dtype}: store the "
            "field with more bits, or drop it"
        )
    return new_column[positions].reshape(indices.shape)


class RenumberedSource(View):
    """A source whose task indices are renumbered for a joined table of texts.

    Args:
      base: The source.
      new: The new indices by the old indices, for the path of each column.

    Attributes:
      is_copied: True if episodes are copied unchanged, because the export renumbers them itself.
    """

    keeps_values = True
    is_copied = False

    def __init__(self, base: Source, new: Mapping[str, Mapping[int, int]]) -> None:
        super().__init__(base)
        self._new_indices = new

    @override
    def make(
        self, values: dict[str, Any], rows: RowContext, fields: Collection[str] | None
    ) -> dict[str, Any]:
        new_values = dict(values)
        for path in self._new_indices.keys() & values.keys():
            try:
                new_values[path] = renumber(np.asarray(values[path]), self._new_indices[path])
            except ValueError as error:
                key = "" if rows.episode is None else as_converted(rows.episode).key
                location = f"merge: episode {key!r}, " if key else ""
                raise ValueError(f"{location}{path}: {error}") from error
        return new_values

    @override
    def changed_episodes(self, split: str, episodes: np.ndarray) -> np.ndarray:
        return np.full(len(episodes), not self.is_copied)
