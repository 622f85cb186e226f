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
from rlds.sources.joined_source import ALL
from rlds.sources.source import Fields, Lengths, Source
from rlds.sources.text_tables import join_tables, table_in
from rlds.sources.view import RowContext, View
from rlds_ecosystem.model.fields import Field, fields_text
from rlds_ecosystem.model.nests import leaves_at, nest

__all__ = ["ViewStorage", "WithColumn", "check_alike", "join_metadata"]

_STEPS = f"{rlds.STEPS}/"
# Opens the storage of some fields of a base source of a view.
Opener = Callable[[Episodes, Collection[str]], Storage]


class ViewStorage(Storage):
    """A storage of the steps of a view, computed from rows of its base sources.

    Fields that need whole episodes come from a cache of episodes.

    Args:
      episodes: The episodes of a view.
      fields: The selected step fields, by their paths.
      open_base: Opens the storage of a base source.
      open_cached: Opens the storage of the fields that need whole episodes, if there are any.
      threads: The number of threads of the view.
    """

    def __init__(
        self,
        episodes: Episodes,
        fields: Mapping[str, Field],
        open_base: Opener,
        open_cached: Callable[[Lengths], Storage],
        threads: int | None = 0,
    ) -> None:
        assert isinstance(episodes.source, View)
        self.view, self.fields = copy.copy(episodes.source), fields
        self.view.threads = threads
        self._needs = {path: self._base_fields(path) for path in fields}
        self._options, self._has_all_episodes = (), False
        ranges = episodes.ranges
        self._splits = [split for split, _, _ in ranges]
        indices = [np.arange(begin, end) for _, begin, end in ranges]
        self._index = np.concatenate(indices)
        self._split = np.repeat(np.arange(len(ranges), dtype=np.int32), [*map(len, indices)])
        base_fields = {path for needs in self._needs.values() for path in needs or ()}
        bases = [open_base(base, base_fields) for base in self._base_episodes(episodes)]
        self._set_up(bases, open_cached)

    def _set_up(
        self, bases: Sequence[Storage], open_cached: Callable[[Lengths], Storage] | None
    ) -> None:
        # Fields that the view does not change, with their paths in the base source.
        names, has_changes = self.view.base_paths or {}, self.view.overrides("changed_episodes")
        self._unchanged = {
            path: needs[0]
            for path, needs in self._needs.items()
            if needs and not has_changes and names.get(_STEPS + path) == _STEPS + needs[0]
        }
        self.bases, self.summaries = bases, self._lengths(bases)
        episodic = None in self._needs.values()
        self._cached = open_cached(self.summaries) if episodic and open_cached is not None else None
        self.why_cached = next(filter(None, (base.why_cached for base in bases)), "")
        if episodic:
            self.why_cached = "a view computes them from whole episodes"
        self.num_files = sum(base.num_files for base in bases)
        self.is_remote = any(base.is_remote for base in bases)

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
        result, num_episodes = cls.__new__(cls), len(storage.summaries.num_steps)
        result.view, result.fields, result._options = view, fields, options
        result._needs = {path: result._base_fields(path) for path in fields}
        result._splits, result._index = [ALL], np.arange(num_episodes)
        result._split = result._base_of = np.zeros(num_episodes, np.int32)
        result._base_indices, result._has_all_episodes = result._index, True
        result._set_up([storage], None)
        return result

    def _base_fields(self, path: str) -> list[str] | None:
        """Returns the base fields of a field; None if the field needs whole episodes."""
        view, fields = self.view, {_STEPS + path}
        needs = None if view.needs_all_steps(fields) else view.needs(fields)
        names = view.base_paths or {}
        is_other_file = self.fields[path].encoding and _STEPS + path not in names
        if needs is None or is_other_file or any(not name.startswith(_STEPS) for name in needs):
            return None
        return [name.removeprefix(_STEPS) for name in needs]

    def _base_episodes(self, episodes: Episodes) -> list[Episodes]:
        """Assigns each episode to a base source; returns the needed episodes of each source."""
        count, first = len(self._index), 0
        self._base_of, self._base_indices = np.empty(count, np.int32), np.empty(count, np.int64)
        bases: dict[tuple[int, str], int] = {}
        sources: list[tuple[Source, str]] = []
        for split, begin, end in episodes.ranges:
            rows = slice(first, first + end - begin)
            first += end - begin
            for group, source, name, indices in self.view.base_episodes(
                split, np.arange(begin, end)
            ):
                base = bases.setdefault((id(source), name), len(bases))
                sources += [(source, name)] if base == len(sources) else []
                self._base_of[rows][group], self._base_indices[rows][group] = base, indices
        datasets = []
        for base, (source, name) in enumerate(sources):  # Open only the needed range.
            mask = self._base_of == base
            begin = int(self._base_indices[mask].min(initial=source.num_episodes(name)))
            end = max(int(self._base_indices[mask].max(initial=0)) + 1, begin)
            self._base_indices[mask] -= begin
            is_whole = end - begin == source.num_episodes(name)
            name = name if is_whole else f"{name}[{begin}:{end}]"
            datasets.append(Episodes(source, name, format=episodes.format))
        return datasets

    def _lengths(self, bases: Sequence[Storage]) -> Lengths:
        lengths = Lengths(*map(self._in_view_order, zip(*(base.summaries for base in bases))))
        lengths_by_split = [
            self.view.lengths(split, self._index[rows], lengths.take(rows))
            for split_index, split in enumerate(self._splits)
            for rows in [np.flatnonzero(self._split == split_index)]
        ]
        return Lengths.concatenate(lengths_by_split)

    def _in_view_order(self, columns: Sequence[np.ndarray]) -> np.ndarray:
        """Joins columns of the base sources in the order of the view's episodes."""
        gathered = np.empty(len(self._base_of), np.result_type(*columns))
        for base, column in enumerate(columns):
            mask = self._base_of == base
            gathered[mask] = column[self._base_indices[mask]]
        return gathered

    @override
    def __reduce__(self) -> Any:
        return _unpickle, (type(self), {**vars(self)})

    def _renumber(self, indices: np.ndarray, episodes: np.ndarray) -> np.ndarray:
        """Maps episodes to other indices; unchanged if the view has all episodes."""
        return episodes if self._has_all_episodes else indices[episodes]

    def groups(self, episodes: np.ndarray) -> Iterator[tuple[Any, int, str]]:
        """Yields (rows, base source, split) for the episodes of each base source and split."""
        if len(self.bases) == 1 and len(self._splits) == 1:
            yield slice(None), 0, self._splits[0]
            return
        keys = self._base_of[episodes].astype(np.int64) * len(self._splits) + self._split[episodes]
        for key in np.unique(keys).tolist():
            base, split = divmod(key, len(self._splits))
            yield np.flatnonzero(keys == key), base, self._splits[split]

    def base_steps(self, split: str, episodes: np.ndarray, steps: np.ndarray) -> np.ndarray:
        """Returns the steps of the base source for steps of episodes of a split."""
        return self.view.base_steps(split, self._renumber(self._index, episodes), steps)

    def base_fields(self, paths: Sequence[str]) -> list[str]:
        """Returns the base fields of fields that do not need whole episodes."""
        return list(dict.fromkeys(name for path in paths for name in self._needs[path] or ()))

    @override
    def rows(self, episodes: np.ndarray, steps: np.ndarray, paths: Sequence[str]) -> Rows:
        episodic = [path for path in paths if self._needs[path] is None]
        cached = self._cached.rows(episodes, steps, episodic) if episodic and self._cached else None
        groups, base_fields = [*self.groups(episodes)], self.base_fields(paths)
        rows = []
        for group, base, split in groups:
            base_steps = self.base_steps(split, episodes[group], steps[group])
            base_episodes = self._renumber(self._base_indices, episodes[group])
            rows.append(self.bases[base].rows(base_episodes, base_steps, base_fields))
        return _ViewRows(self, episodes, steps, paths, groups, rows, cached)

    @override
    def read_ahead(
        self,
        episodes: np.ndarray,
        first_steps: np.ndarray,
        last_steps: np.ndarray,
        paths: Sequence[str],
    ) -> None:
        for rows, base, split in self.groups(episodes):
            view_episodes = episodes[rows]
            to_base = functools.partial(self.base_steps, split, view_episodes)
            base_ranges = to_base(first_steps[rows]), to_base(last_steps[rows])
            base_episodes = self._renumber(self._base_indices, view_episodes)
            self.bases[base].read_ahead(base_episodes, *base_ranges, self.base_fields(paths))
        if self._cached and any(self._needs[path] is None for path in paths):
            self._cached.read_ahead(episodes, first_steps, last_steps, paths)

    @override
    def check(self, episodes: np.ndarray) -> None:
        for rows, base, _ in self.groups(episodes):
            self.bases[base].check(self._renumber(self._base_indices, episodes[rows]))

    @override
    def metadata_column(self, name: str) -> np.ndarray | None:
        base_name = (self.view.base_paths or {}).get(name)
        is_changed = (
            self.view.changed_episodes(split, self._index[self._split == index])
            for index, split in enumerate(self._splits)
        )
        if base_name is None or any(mask.any() for mask in is_changed):
            return None
        columns = [base.metadata_column(base_name) for base in self.bases]
        base_columns = [column for column in columns if column is not None]
        is_complete = 0 < len(base_columns) == len(columns)
        return self._in_view_order(base_columns) if is_complete else None

    @override
    def is_random(self, path: str) -> bool:
        needs = self._needs[path]
        return needs is not None and all(base.is_random(n) for base in self.bases for n in needs)

    @override
    def is_image(self, path: str) -> bool:
        needs = self._needs[path]
        if path in self.view.decodes:
            return True
        if needs is None:
            return bool(self.fields[path].encoding)
        return any(base.is_image(name) for base in self.bases for name in needs)

    @override
    def bytes_of_step(self, path: str) -> float:
        needs, total = self._needs[path] or (), 0.0
        num_steps = [int(base.summaries.num_steps.sum()) for base in self.bases]
        for base, steps in zip(self.bases, num_steps):
            total += math.fsum(map(base.bytes_of_step, needs)) * steps
        return total / max(sum(num_steps), 1)

    @override
    def fingerprint(self) -> str:
        fingerprints = (base.fingerprint() for base in self.bases)
        if self._options:
            return hash_of(*fingerprints, *self._options)
        arrays_to_hash = self._base_of, self._base_indices, *self.summaries
        content = (array.tobytes() for array in arrays_to_hash)
        return hash_of(type(self.view).__qualname__, *fingerprints, *content)


def _unpickle(kind: type[ViewStorage], state: dict[str, Any]) -> ViewStorage:
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
      paths: The requested fields.
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
    def with_steps(self, steps: np.ndarray) -> Rows:
        rows = [
            rows.with_steps(self.storage.base_steps(split, self.episodes[group], steps[group]))
            for (group, _, split), rows in zip(self.groups, self.rows)
        ]
        cached = None if self.cached is None else self.cached.with_steps(steps)
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
        for (group, _, _), column in zip(self.groups, columns):
            out[group] = column
        return out

    @functools.cached_property
    def _contexts(self) -> list[RowContext]:
        """The split, episode and step of the rows of each group."""
        contexts = []
        for (group, _, split), rows in zip(self.groups, self.rows):

            def read_at(
                names: Collection[str], steps: np.ndarray, rows: Rows = rows
            ) -> dict[str, Any]:
                return _take_steps(rows.with_steps(steps), names)

            episodes = self.storage._renumber(self.storage._index, self.episodes[group])
            steps = self.steps[group]
            contexts.append(RowContext(split, episodes, steps, read_at, siblings=self.paths))
        return contexts

    def _group_column(self, group: int, path: str, needs: Sequence[str]) -> np.ndarray:
        storage = self.storage
        if path in storage._unchanged:
            return self.rows[group].take(storage._unchanged[path])
        values = _take_steps(self.rows[group], [_STEPS + name for name in needs])
        if storage.view.makes({_STEPS + path}):
            values = storage.view.make(values, self._contexts[group], {_STEPS + path})
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
      row_offsets: The offset of the first row of each episode; -1 for an episode without values.
    """

    def __init__(
        self, base: Source, path: str, values: np.ndarray, row_offsets: np.ndarray
    ) -> None:
        super().__init__(base)
        self._path, self._values, self._row_offsets = path, values, row_offsets
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
        row_offsets = self._row_offsets[rows.episodes]
        if (missing := rows.episodes[row_offsets < 0]).size:
            raise ValueError(
                f"{self._path}: episode {missing[0]} has no values. Add the field to a table that "
                "has the episode"
            )
        return {**values, _STEPS + self._path: self._values[row_offsets + rows.steps]}


def _describe_type(field: Any) -> str:
    """Describes the type and the meaning of a field, without its `doc`."""
    properties = [*field.meanings, field.encoding] if isinstance(field, Field) else []
    return "; ".join([fields_text(field), *filter(None, properties)])


def check_alike(tables: Sequence[Mapping[str, Field]]) -> None:
    """Checks that the tables of several datasets have the same fields.

    Raises:
      TypeError: A field differs; the message has the difference.
    """
    for dataset, fields in enumerate(tables):
        for path in {**tables[0], **fields}:
            field_type, first_type = (_describe_type(f.get(path)) for f in (fields, tables[0]))
            if field_type != first_type:
                raise TypeError(
                    f"field {path!r}: dataset {dataset} has {field_type}, but dataset 0 has "
                    f"{first_type}. Select equal fields: fields=[...]"
                )


def join_metadata(
    episodes: Sequence[Episodes], fields: Mapping[str, Field]
) -> tuple[Mapping[str, Any], Sequence[Mapping[str, Mapping[int, int]]]]:
    """Returns the metadata of joined datasets, and the new text codes of each dataset by path.

    Text codes refer to one joined table, which begins with the texts of the first dataset.

    Raises:
      ValueError: A dataset has text codes without the table of texts.
    """
    tables = {path: field.table for path, field in fields.items() if field.table}
    columns = _find_text_codes(episodes) | tables
    metadata = [dataset.metadata for dataset in episodes]
    if not columns:
        return metadata[0], [{} for _ in episodes]
    named = {_STEPS + path: table for path, table in columns.items()}
    return join_tables(metadata[0], metadata, [named for _ in metadata])


def _find_text_codes(episodes: Sequence[Episodes]) -> dict[str, str]:
    """Returns the text tables of the fields with text codes, by path.

    Fields that are not selected are included if all datasets have their texts.
    """
    first_tables, *other_tables = (
        {
            (path, field.table)
            for path, field in leaves_at(dataset.source.fields.steps, None)
            if isinstance(field, Field) and field.table and table_in(dataset.metadata, field.table)
        }
        for dataset in episodes
    )
    return dict(first_tables.intersection(*other_tables))
