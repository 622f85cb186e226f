"""Storages that are made of others: of several datasets, and with fields that are in memory."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from typing_extensions import override

from rlds.feeds import arrays
from rlds.feeds.storage import Outlines, Rows, Storage, WrappedStorage, hash_of, row_shape
from rlds.sources.text_tables import join_tables, table_in, with_new_numbers
from rlds_ecosystem.model.fields import Field, in_words
from rlds_ecosystem.model.nests import leaves_at

__all__ = ["ExtendedStorage", "JoinedStorage"]


class ExtendedStorage(WrappedStorage):
    """The steps of another storage with a field more, which is in memory.

    Args:
      storage: The other one.
      path: The field.
      values: Its values in the steps of some episodes, with a leading axis.
      episodes: Which these are.
    """

    def __init__(
        self, storage: Storage, path: str, values: np.ndarray, episodes: np.ndarray
    ) -> None:
        super().__init__(storage)
        self.path, self.values = path, values
        self.opening = ExtendedStorage, (storage, path, values, episodes)
        lengths = storage.outlines.num_steps
        self._begins = np.full(len(lengths), -1, np.int64)
        self._begins[episodes] = np.cumsum(lengths[episodes]) - lengths[episodes]
        self.fields = {**storage.fields, path: Field(values.dtype, values.shape[1:])}

    @override
    def made_of(self, path: str) -> Sequence[str]:
        return [] if path == self.path else [path]

    @override
    def __reduce__(self) -> Any:
        return self.opening

    @override
    def rows(self, episodes: np.ndarray, steps: np.ndarray, paths: Sequence[str]) -> Rows:
        others = self.storage.rows(episodes, steps, self.needed(paths))
        return _ExtendedRows(self, others, self._begins[episodes], steps)

    @override
    def fingerprint(self) -> str:
        return hash_of(self.storage.fingerprint(), self.path, self.values.tobytes())


class _ExtendedRows(Rows):
    def __init__(
        self, storage: ExtendedStorage, others: Rows, begins: np.ndarray, steps: np.ndarray
    ) -> None:
        self._storage, self._others, self._begins, self._steps = storage, others, begins, steps

    @override
    def take(self, path: str) -> np.ndarray:
        if path == self._storage.path:
            return self._storage.values[self._begins + self._steps]
        return self._others.take(path)

    @override
    def at(self, steps: np.ndarray) -> Rows:
        return _ExtendedRows(self._storage, self._others.at(steps), self._begins, steps)


def _described(field: Any) -> str:
    """What a field holds and means, in words; its `doc` may differ."""
    facts = [*field.facts, field.encoding] if isinstance(field, Field) else []
    return "; ".join([in_words(field), *filter(None, facts)])


def _columns_of_numbers(tables: Sequence[Any]) -> dict[str, str]:
    """The names of tables of texts whose numbers fields hold, by path.

    Episodes have the fields that were not chosen, too: they count if all datasets have the texts.
    """
    chosen, *others = (
        {
            (path, field.table)
            for path, field in leaves_at(each.episodes.source.step_fields(), None)
            if isinstance(field, Field)
            and field.table
            and table_in(each.episodes.metadata, field.table)
        }
        for each in tables
    )
    shared = chosen.intersection(*others)
    return dict(shared) | {p: field.table for p, field in tables[0].fields.items() if field.table}


class JoinedStorage(Storage):
    """The steps of several tables of the same fields, one after the other.

    Numbers of texts are those of one table, the texts of the first dataset before others.

    Args:
      tables: The tables.

    Attributes:
      metadata: The metadata of the first dataset, with the texts of all.
      new_numbers: For each table, the new numbers of texts by the old ones, by path.

    Raises:
      TypeError: A field differs; says how.
      ValueError: A dataset has numbers of texts, and not the texts.
    """

    def __init__(self, tables: Sequence[Any]) -> None:
        self._tables = list(tables)
        self.opening = JoinedStorage, (self._tables,)
        self.fields = dict(tables[0].fields)
        for number, table in enumerate(tables):
            for path in {**self.fields, **table.fields}:
                here, there = (_described(of.get(path)) for of in (table.fields, self.fields))
                if here != there:
                    raise TypeError(
                        f"field {path!r}: dataset {number} has {here}, but dataset 0 has {there}. "
                        "Select the fields that are equal: fields=[...]"
                    )
        columns = _columns_of_numbers(tables)
        said = [table.episodes.metadata for table in (tables if columns else tables[:1])]
        self.metadata, new = join_tables(said[0], said, [columns for _ in said])
        self.new_numbers = new if columns else [{} for _ in tables]
        self.outlines = Outlines(*map(np.concatenate, zip(*(t.outlines for t in tables))))
        self.num_files = sum(table.storage.num_files for table in tables)
        self.is_remote = any(table.storage.is_remote for table in tables)
        self.why_cached = next(filter(None, (table.storage.why_cached for table in tables)), "")
        self._ends = np.cumsum([table.num_episodes for table in tables])

    @override
    def __reduce__(self) -> Any:
        return self.opening

    def parts_of(self, episodes: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Returns which tables episodes are of, and their numbers there."""
        parts = np.searchsorted(self._ends, episodes, side="right")
        return parts, episodes - np.concatenate([[0], self._ends])[parts]

    @override
    def rows(self, episodes: np.ndarray, steps: np.ndarray, paths: Sequence[str]) -> Rows:
        parts, numbers = self.parts_of(episodes)
        made = []
        for part in np.unique(parts).tolist():
            rows = np.flatnonzero(parts == part)
            found = self._tables[part].rows(numbers[rows], steps[rows], paths)
            new = self.new_numbers[part]
            made.append((rows, _RenumberedRows(found, new) if new else found))
        return _JoinedRows(self, made, steps)

    @override
    def read_ahead(
        self, episodes: np.ndarray, firsts: np.ndarray, lasts: np.ndarray, paths: Sequence[str]
    ) -> None:
        parts, numbers = self.parts_of(episodes)
        for part in np.unique(parts).tolist():
            rows = parts == part
            self._tables[part].read_ahead(numbers[rows], firsts[rows], lasts[rows], paths)

    @override
    def check(self, episodes: np.ndarray) -> None:
        parts, numbers = self.parts_of(episodes)
        for part in np.unique(parts).tolist():
            self._tables[part].check(numbers[parts == part])

    @override
    def metadata_column(self, name: str) -> np.ndarray | None:
        columns = [table.metadata_column(name) for table in self._tables]
        return None if any(column is None for column in columns) else np.concatenate(columns)

    @override
    def is_random(self, path: str) -> bool:
        return all(table.storage.is_random(path) for table in self._tables)

    @override
    def is_image(self, path: str) -> bool:
        return any(table.storage.is_image(path) for table in self._tables)

    @override
    def fingerprint(self) -> str:
        return hash_of(*(table.fingerprint() for table in self._tables))

    @override
    def bytes_of_step(self, path: str) -> float:
        sizes = [t.storage.bytes_of_step(path) * t.num_steps for t in self._tables]
        return math.fsum(sizes) / max(int(self.outlines.num_steps.sum()), 1)


class _RenumberedRows(Rows):
    """Rows whose numbers of texts are those of a joined table."""

    def __init__(self, others: Rows, new: Mapping[str, Mapping[int, int]]) -> None:
        self._others, self._new = others, new

    @override
    def take(self, path: str) -> np.ndarray:
        column: np.ndarray = with_new_numbers({path: self._others.take(path)}, self._new)[path]
        return column

    @override
    def at(self, steps: np.ndarray) -> Rows:
        return _RenumberedRows(self._others.at(steps), self._new)


class _JoinedRows(Rows):
    def __init__(
        self, storage: JoinedStorage, parts: Sequence[tuple[np.ndarray, Rows]], steps: np.ndarray
    ) -> None:
        self._storage, self._parts, self._steps = storage, parts, steps

    @override
    def take(self, path: str) -> np.ndarray:
        if len(self._parts) == 1:
            return self._parts[0][1].take(path)
        field = self._storage.fields[path]
        shape = row_shape(field)
        dtype = np.dtype(object) if shape is None else field.column_dtype
        out = arrays.empty((len(self._steps), *(shape or ())), dtype)
        for rows, part in self._parts:
            out[rows] = part.take(path)
        return out

    @override
    def at(self, steps: np.ndarray) -> Rows:
        return _JoinedRows(
            self._storage, [(rows, part.at(steps[rows])) for rows, part in self._parts], steps
        )
