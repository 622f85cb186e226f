"""Storage of views: steps of a view, computed from rows of its base sources."""

from __future__ import annotations

import copy
import dataclasses
import functools
import math
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from typing_extensions import override

import rlds
from rlds.feeds.storage import Rows, Storage, hash_of, row_shape
from rlds.sources import arrays
from rlds.sources.episodes import Episodes
from rlds.sources.joined import ALL
from rlds.sources.source import Fields, Lengths, Source
from rlds.sources.text_tables import join_tables, table_in
from rlds.sources.view import RowContext, View
from rlds_ecosystem.model.fields import Field, in_words
from rlds_ecosystem.model.nests import leaves_at, nest

__all__ = ["ViewStorage", "WithColumn", "check_alike", "joined_metadata"]

_STEPS = f"{rlds.STEPS}/"
# Opens the storage of a base source of a view, with the given fields.
Opener = Callable[[Episodes, Collection[str]], Storage]


class ViewStorage(Storage):
    """A storage of the steps of a view, computed from rows of its base sources.

    Fields that need whole episodes come from a cache of episodes.

    Args:
      episodes: The episodes of a view.
      fields: The selected step fields, by their paths.
      opened: Opens the storage of a base source.
      cached: Opens the storage of the fields that need whole episodes, if there are any.
      threads: The number of threads of the view.
    """

    def __init__(
        self,
        episodes: Episodes,
        fields: Mapping[str, Field],
        opened: Opener,
        cached: Callable[[Lengths], Storage],
        threads: int | None = 0,
    ) -> None:
        assert isinstance(episodes.source, View)
        self.view, self.fields = copy.copy(episodes.source), fields
        self.view.threads = threads
        self._needs = {path: self._base_fields(path) for path in fields}
        self._options, self._has_all_episodes = (), False
        ranges = episodes.ranges
        self._splits = [split for split, _, _ in ranges]
        numbers = [np.arange(begin, end) for _, begin, end in ranges]
        self._index = np.concatenate(numbers)
        self._split = np.repeat(np.arange(len(ranges), dtype=np.int32), [*map(len, numbers)])
        below = {path for needs in self._needs.values() for path in needs or ()}
        self._setup([opened(part, below) for part in self._parts(episodes)], cached)

    def _setup(self, below: Sequence[Storage], cached: Callable[[Lengths], Storage] | None) -> None:
        # Fields that the view does not change, with their paths in the base source.
        names, touches = self.view.names or {}, self.view.overrides("touches")
        self._unchanged = {
            path: needs[0]
            for path, needs in self._needs.items()
            if needs and not touches and names.get(_STEPS + path) == _STEPS + needs[0]
        }
        self.below, self.outlines = below, self._lengths(below)
        episodic = None in self._needs.values()
        self._cached = cached(self.outlines) if episodic and cached is not None else None
        self.why_cached = next(filter(None, (each.why_cached for each in below)), "")
        if episodic:
            self.why_cached = "a view makes them from whole episodes"
        self.num_files = sum(each.num_files for each in below)
        self.is_remote = any(each.is_remote for each in below)

    _options: Sequence[Any]

    @classmethod
    def over(
        cls, view: View, fields: Mapping[str, Field], storage: Storage, options: Sequence[Any] = ()
    ) -> ViewStorage:
        """Returns the storage of a view over all episodes of an open storage.

        Args:
          view: A view of one split, with the same episodes.
          fields: The step fields of the view, by their paths.
          storage: The storage of the base of the view.
          options: Options that determine the values, for the fingerprint.
        """
        result, num_episodes = cls.__new__(cls), len(storage.outlines.num_steps)
        result.view, result.fields, result._options = view, fields, options
        result._needs = {path: result._base_fields(path) for path in fields}
        result._splits, result._index = [ALL], np.arange(num_episodes)
        result._split = result._base_of = np.zeros(num_episodes, np.int32)
        result._numbers, result._has_all_episodes = result._index, True
        result._setup([storage], None)
        return result

    def _base_fields(self, path: str) -> list[str] | None:
        """Returns the base fields of a field; None if the field needs whole episodes."""
        view, fields = self.view, {_STEPS + path}
        needs = None if view.takes_whole(fields) else view.needs(fields)
        names = view.names or {}
        is_other_file = self.fields[path].encoding and _STEPS + path not in names
        if needs is None or is_other_file or any(not name.startswith(_STEPS) for name in needs):
            return None
        return [name.removeprefix(_STEPS) for name in needs]

    def _parts(self, episodes: Episodes) -> list[Episodes]:
        """Assigns each episode to a base source; returns the needed episodes of each source."""
        number, first = len(self._index), 0
        self._base_of, self._numbers = (np.empty(number, np.int32), np.empty(number, np.int64))
        parts: dict[tuple[int, str], int] = {}
        sources: list[tuple[Source, str]] = []
        for split, begin, end in episodes.ranges:
            rows = slice(first, first + end - begin)
            first += end - begin
            for at, source, name, numbers in self.view.where(split, np.arange(begin, end)):
                part = parts.setdefault((id(source), name), len(parts))
                sources += [(source, name)] if part == len(sources) else []
                self._base_of[rows][at], self._numbers[rows][at] = part, numbers
        opened = []
        for part, (source, name) in enumerate(sources):  # Open only the range that is needed.
            at = self._base_of == part
            begin = int(self._numbers[at].min(initial=source.num_episodes(name)))
            end = max(int(self._numbers[at].max(initial=0)) + 1, begin)
            self._numbers[at] -= begin
            is_whole = end - begin == source.num_episodes(name)
            name = name if is_whole else f"{name}[{begin}:{end}]"
            opened.append(Episodes(source, name, format=episodes.format))
        return opened

    def _lengths(self, below: Sequence[Storage]) -> Lengths:
        lengths = Lengths(*map(self._in_view_order, zip(*(each.outlines for each in below))))
        lengths_by_split = [
            self.view.lengths(split, self._index[at], lengths.take(at))
            for number, split in enumerate(self._splits)
            for at in [np.flatnonzero(self._split == number)]
        ]
        return Lengths.joined(lengths_by_split)

    def _in_view_order(self, columns: Sequence[np.ndarray]) -> np.ndarray:
        """Joins columns of the base sources in the order of the view's episodes."""
        gathered = np.empty(len(self._base_of), np.result_type(*columns))
        for source_index, column in enumerate(columns):
            at = self._base_of == source_index
            gathered[at] = column[self._numbers[at]]
        return gathered

    @override
    def __reduce__(self) -> Any:
        return _unpickled, (type(self), {**vars(self)})

    def _renumber(self, numbers: np.ndarray, episodes: np.ndarray) -> np.ndarray:
        """Maps episode numbers to another numbering; unchanged if the view has all episodes."""
        return episodes if self._has_all_episodes else numbers[episodes]

    def groups(self, episodes: np.ndarray) -> Iterator[tuple[Any, int, str]]:
        """Yields (rows, base source, split) for the episodes of each base source and split."""
        if len(self.below) == 1 and len(self._splits) == 1:
            yield slice(None), 0, self._splits[0]
            return
        keys = self._base_of[episodes].astype(np.int64) * len(self._splits) + self._split[episodes]
        for key in np.unique(keys).tolist():
            part, split = divmod(key, len(self._splits))
            yield np.flatnonzero(keys == key), part, self._splits[split]

    def at(self, split: str, episodes: np.ndarray, steps: np.ndarray) -> np.ndarray:
        """Returns the steps of the base source for steps of episodes of a split."""
        return self.view.at(split, self._renumber(self._index, episodes), steps)

    def base_fields(self, paths: Sequence[str]) -> list[str]:
        """Returns the base fields of fields that do not need whole episodes."""
        return list(dict.fromkeys(name for path in paths for name in self._needs[path] or ()))

    @override
    def rows(self, episodes: np.ndarray, steps: np.ndarray, paths: Sequence[str]) -> Rows:
        episodic = [path for path in paths if self._needs[path] is None]
        cached = self._cached.rows(episodes, steps, episodic) if episodic and self._cached else None
        groups, base_fields = [*self.groups(episodes)], self.base_fields(paths)
        rows = []
        for at, part, split in groups:
            base_steps = self.at(split, episodes[at], steps[at])
            rows.append(
                self.below[part].rows(
                    self._renumber(self._numbers, episodes[at]), base_steps, base_fields
                )
            )
        return _ViewRows(self, episodes, steps, paths, groups, rows, cached)

    @override
    def read_ahead(
        self, episodes: np.ndarray, firsts: np.ndarray, lasts: np.ndarray, paths: Sequence[str]
    ) -> None:
        for at, part, split in self.groups(episodes):
            chosen, base_fields = episodes[at], self.base_fields(paths)
            begins, ends = (self.at(split, chosen, steps[at]) for steps in (firsts, lasts))
            self.below[part].read_ahead(
                self._renumber(self._numbers, chosen), begins, ends, base_fields
            )
        if self._cached and any(self._needs[path] is None for path in paths):
            self._cached.read_ahead(episodes, firsts, lasts, paths)

    @override
    def check(self, episodes: np.ndarray) -> None:
        for at, part, _ in self.groups(episodes):
            self.below[part].check(self._renumber(self._numbers, episodes[at]))

    @override
    def metadata_column(self, name: str) -> np.ndarray | None:
        base_name = (self.view.names or {}).get(name)
        touched = (
            self.view.touches(split, self._index[self._split == number])
            for number, split in enumerate(self._splits)
        )
        if base_name is None or any(each.any() for each in touched):
            return None
        columns = [each.metadata_column(base_name) for each in self.below]
        stored = [column for column in columns if column is not None]
        return self._in_view_order(stored) if stored and len(stored) == len(columns) else None

    @override
    def is_random(self, path: str) -> bool:
        needs = self._needs[path]
        return needs is not None and all(each.is_random(n) for each in self.below for n in needs)

    @override
    def is_image(self, path: str) -> bool:
        needs = self._needs[path]
        if path in self.view.decodes:
            return True
        if needs is None:
            return bool(self.fields[path].encoding)
        return any(each.is_image(name) for each in self.below for name in needs)

    @override
    def bytes_of_step(self, path: str) -> float:
        needs, total = self._needs[path] or (), 0.0
        for each in self.below:
            steps = int(each.outlines.num_steps.sum())
            total += math.fsum(map(each.bytes_of_step, needs)) * steps
        return total / max(sum(int(each.outlines.num_steps.sum()) for each in self.below), 1)

    @override
    def fingerprint(self) -> str:
        below = (each.fingerprint() for each in self.below)
        if self._options:
            return hash_of(*below, *self._options)
        content = (array.tobytes() for array in (self._base_of, self._numbers, *self.outlines))
        return hash_of(type(self.view).__qualname__, *below, *content)


def _unpickled(kind: type[ViewStorage], state: dict[str, Any]) -> ViewStorage:
    storage = kind.__new__(kind)
    vars(storage).update(state)
    return storage


@dataclasses.dataclass
class _ViewRows(Rows):
    """Rows of a view.

    Attributes:
      storage: The steps of the view.
      episodes: The episode of each row.
      steps: The step of each row in its episode.
      paths: The fields that will be taken.
      groups: See `ViewStorage.groups`.
      rows: The rows of the base source, for each group.
      cached: The rows of fields that need whole episodes.
    """

    storage: ViewStorage
    episodes: np.ndarray
    steps: np.ndarray
    paths: Sequence[str]
    groups: Sequence[tuple[Any, int, str]]
    rows: Sequence[Rows]
    cached: Rows | None

    @override
    def at(self, steps: np.ndarray) -> Rows:
        rows = [
            rows.at(self.storage.at(split, self.episodes[at], steps[at]))
            for (at, _, split), rows in zip(self.groups, self.rows)
        ]
        cached = None if self.cached is None else self.cached.at(steps)
        return dataclasses.replace(self, steps=steps, rows=rows, cached=cached)

    @override
    def take(self, path: str) -> np.ndarray:
        storage = self.storage
        needs = storage._needs[path]
        if needs is None:
            assert self.cached is not None
            return self.cached.take(path)
        columns = [self._group_column(group, path, needs) for group in range(len(self.groups))]
        if len(columns) == 1:
            return columns[0]
        field = storage.fields[path]
        shape = row_shape(field)
        dtype = np.dtype(object) if shape is None else field.column_dtype
        out = arrays.empty((len(self.steps), *(shape or ())), dtype)
        for (at, _, _), column in zip(self.groups, columns):
            out[at] = column
        return out

    @functools.cached_property
    def _contexts(self) -> list[RowContext]:
        """The split, episode and step of the rows of each group."""
        groups = []
        for (at, _, split), rows in zip(self.groups, self.rows):

            def read_at(
                names: Collection[str], steps: np.ndarray, rows: Rows = rows
            ) -> dict[str, Any]:
                return _take_steps(rows.at(steps), names)

            episodes = self.storage._renumber(self.storage._index, self.episodes[at])
            groups.append(RowContext(split, episodes, self.steps[at], read_at, siblings=self.paths))
        return groups

    def _group_column(self, number: int, path: str, needs: Sequence[str]) -> np.ndarray:
        storage = self.storage
        if path in storage._unchanged:
            return self.rows[number].take(storage._unchanged[path])
        values = _take_steps(self.rows[number], [_STEPS + name for name in needs])
        if storage.view.makes({_STEPS + path}):
            values = storage.view.make(values, self._contexts[number], {_STEPS + path})
        column: np.ndarray = values[_STEPS + path]
        return column


def _take_steps(rows: Rows, paths: Collection[str]) -> dict[str, Any]:
    """Returns the values of step fields, for `View.make`."""
    return {path: rows.take(path.removeprefix(_STEPS)) for path in paths}


class WithColumn(View):
    """A view of the episodes of one split with an additional in-memory field.

    Args:
      base: The source.
      path: The path of the field.
      values: The values at the steps of some episodes, with a leading axis.
      begins: The offset of the first row of each episode; -1 for an episode without values.
    """

    def __init__(self, base: Source, path: str, values: np.ndarray, begins: np.ndarray) -> None:
        super().__init__(base)
        self._path, self._values, self._begins = path, values, begins
        self.changed_paths = {_STEPS + path}

    @property
    @override
    def fields(self) -> Fields:
        fields = super().fields
        new_field = Field(self._values.dtype, self._values.shape[1:])
        steps = {**dict(leaves_at(fields.steps, None)), self._path: new_field}
        return fields.replace(steps=nest(steps))

    @override
    def make(self, values: dict[str, Any], rows: RowContext, fields: Any) -> dict[str, Any]:
        begins = self._begins[rows.episodes]
        if (without := rows.episodes[begins < 0]).size:
            raise ValueError(
                f"{self._path}: episode {without[0]} has no values. Add the field to a table that "
                "has the episode"
            )
        return {**values, _STEPS + self._path: self._values[begins + rows.steps]}


def _type_text(field: Any) -> str:
    """Describes the type and the meaning of a field, without its `doc`."""
    facts = [*field.facts, field.encoding] if isinstance(field, Field) else []
    return "; ".join([in_words(field), *filter(None, facts)])


def check_alike(tables: Sequence[Mapping[str, Field]]) -> None:
    """Checks that the tables of several datasets have the same fields.

    Raises:
      TypeError: A field differs; the message has the difference.
    """
    for number, fields in enumerate(tables):
        for path in {**tables[0], **fields}:
            here, there = (_type_text(of.get(path)) for of in (fields, tables[0]))
            if here != there:
                raise TypeError(
                    f"field {path!r}: dataset {number} has {here}, but dataset 0 has {there}. "
                    "Select the fields that are equal: fields=[...]"
                )


def joined_metadata(
    episodes: Sequence[Episodes], fields: Mapping[str, Field]
) -> tuple[Mapping[str, Any], Sequence[Mapping[str, Mapping[int, int]]]]:
    """Returns the metadata of joined datasets, and the new text numbers of each dataset by path.

    Text numbers refer to one joined table, which begins with the texts of the first dataset.

    Raises:
      ValueError: A dataset has text numbers without the table of texts.
    """
    columns = _text_number_columns(episodes) | {p: it.table for p, it in fields.items() if it.table}
    metadata = [each.metadata for each in episodes]
    if not columns:
        return metadata[0], [{} for _ in episodes]
    named = {_STEPS + path: table for path, table in columns.items()}
    return join_tables(metadata[0], metadata, [named for _ in metadata])


def _text_number_columns(episodes: Sequence[Episodes]) -> dict[str, str]:
    """Returns the text tables of fields of text numbers, by path.

    Fields that are not selected are included if all datasets have their texts.
    """
    chosen, *other_tables = (
        {
            (path, field.table)
            for path, field in leaves_at(each.source.fields.steps, None)
            if isinstance(field, Field) and field.table and table_in(each.metadata, field.table)
        }
        for each in episodes
    )
    return dict(chosen.intersection(*other_tables))
