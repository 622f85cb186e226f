"""Views: sources that wrap other sources, and change episodes or fields."""

from __future__ import annotations

import contextlib
import copy
import dataclasses
import functools
import hashlib
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any, ClassVar, NamedTuple, Self

import numpy as np
from typing_extensions import override

import rlds
from rlds.sources import reading
from rlds.sources.episode_fields import COMPLETE, TRUNCATED
from rlds.sources.source import (
    ALL_ROWS,
    AnySource,
    Capabilities,
    Columns,
    Fields,
    Lengths,
    Location,
    Origin,
    Source,
    SourceEpisode,
    SourceError,
    SourceInfo,
)
from rlds_ecosystem.model.nests import leaves_at, nest

__all__ = [
    "BaseEpisodes",
    "RowContext",
    "SelectedSource",
    "View",
    "changed_episodes",
    "flat",
    "nested",
    "num_steps_of",
    "read_values",
    "select_rows",
    "stored_location",
    "stored_paths",
    "trace",
    "values_of",
    "with_values",
]

_STEPS = f"{rlds.STEPS}/"
_EPISODE_ATTRIBUTES = (TRUNCATED, COMPLETE, rlds.FINAL_OBSERVATION_KNOWN)


class BaseEpisodes(NamedTuple):
    """Requested episodes of a view that lie in one split of one base.

    Attributes:
      positions: The positions of these episodes among the requested ones.
      source: The base.
      split: The split of the base.
      episodes: The indices of the episodes in that split, int64.
    """

    positions: Any
    source: Source
    split: str
    episodes: np.ndarray


class RowContext(NamedTuple):
    """The origin of rows in a view: the episode and the step of each row.

    Attributes:
      split: The split of the view.
      episodes: The index of the episode of each row, int64 of shape `[rows]`.
      steps: The step of each row in its episode, int64 of shape `[rows]`.
      base_values: Returns the values of fields of the bases at other steps. The arguments are the
        paths of the fields, and a step of the base for each row.
      episode_index: The index of the episode, if all rows are of one episode; None otherwise.
      episode: The episode in the base; None if the rows are of several episodes.
      siblings: The paths of the fields that other calls compute for the same rows.
    """

    split: str
    episodes: np.ndarray
    steps: np.ndarray
    base_values: Callable[[Collection[str], np.ndarray], Mapping[str, Any]]
    episode_index: int | None = None
    episode: SourceEpisode | None = None
    siblings: Collection[str] = ()


class View(Source):
    """A source that wraps other sources.

    The defaults of all methods return the data of the bases. A view of episodes overrides `splits`,
    `num_episodes` and `base_episodes`; a view of steps, `base_steps` and `lengths`; a view of
    fields, `fields`, `changed_paths`, `needs`, `make`, and `base_paths` for exports and edits.

    Args:
      *bases: The wrapped sources.

    Attributes:
      shares_table: True if the view and its base share a table of episodes.
      keeps_values: True if the fields of the bases have the same values in the view, except in
        the episodes of `changed_episodes`.
      changes_only_keys: True if the episodes of `changed_episodes` differ by their keys only.
      uses_all_steps: True if `make` needs all steps of an episode.
      changed_paths: The paths of the fields that `make` changes or adds; None if it may change any.
      options: Options that the episodes depend on, for `SourceInfo.options`.
      decodes: The paths of the fields of steps whose images `make` decodes.
      threads: The number of further threads for `make`; None for a default number.
    """

    shares_table: ClassVar[bool] = False
    keeps_values: ClassVar[bool] = False
    changes_only_keys: ClassVar[bool] = False
    uses_all_steps: ClassVar[bool] = False

    changed_paths: Collection[str] | None = None
    bases: Sequence[Source]
    options: Mapping[str, Any] = MappingProxyType({})
    decodes: Collection[str] = ()
    threads: int | None = 0

    def __init__(self, *bases: Source) -> None:
        self.bases = bases

    @property
    @override
    def may_grow(self) -> bool:  # type: ignore[override]
        return any(base.may_grow for base in self.bases)

    @property
    @override
    def source_info(self) -> SourceInfo:
        info = self.bases[0].source_info
        return info.replace(options={**info.options, **self.options}) if self.options else info

    @property
    @override
    def splits(self) -> Sequence[str]:  # type: ignore[override]
        return self.bases[0].splits

    @property
    @override
    def fields(self) -> Fields:
        return self.bases[0].fields

    @override
    def inputs(self) -> Sequence[Any]:
        return [*dict.fromkeys(path for base in self.bases for path in base.inputs())]

    # --- Episodes.

    @override
    def num_episodes(self, split: str) -> int:
        return self.bases[0].num_episodes(split)

    def base_episodes(self, split: str, episodes: np.ndarray) -> Sequence[BaseEpisodes]:
        """Returns the episodes of the bases for episodes of a split, by index."""
        return [BaseEpisodes(slice(None), self.bases[0], split, episodes)]

    @property
    def has_all(self) -> bool:
        """Whether the view has all episodes of its single base, in order."""
        return not (self.overrides("base_episodes") or self.overrides("num_episodes"))

    def locate(self, split: str, index: int) -> Location:
        """Returns the base, split and index of an episode."""
        if not self.overrides("base_episodes"):
            return Location(self.bases[0], split, index)
        [(_, source, split, [row])] = self.base_episodes(split, np.array([index], np.int64))
        return Location(source, split, int(row))

    @override
    def key(self, split: str, index: int) -> str:
        source, split, index = self.locate(split, index)
        return source.key(split, index)

    # --- Steps.

    def base_steps(self, split: str, episodes: np.ndarray, steps: np.ndarray) -> np.ndarray:
        """Returns the step indices in the bases for steps of this view."""
        del split, episodes
        return steps

    def lengths(self, split: str, episodes: np.ndarray, lengths: Lengths) -> Lengths:
        """Returns the lengths of episodes, from their lengths in the bases."""
        del split, episodes
        return lengths

    # --- Fields.

    def needs(self, fields: Collection[str]) -> Collection[str] | None:
        """Returns the fields of the bases that are needed for some fields; None for all."""
        return fields if self.changed_paths is None else {*fields} - self._added

    @functools.cached_property
    def _added(self) -> set[str]:
        """The fields that `make` adds to the fields of the bases."""
        return {*(self.changed_paths or ())}.difference(self.paths)

    def make(
        self, values: dict[str, Any], rows: RowContext, fields: Collection[str] | None
    ) -> dict[str, Any]:
        """Computes the values of fields by path, in the form of `values_of`.

        Args:
          values: The values of the bases: of one episode, or fields of steps for rows of any
            episodes.
          rows: The origin of the rows of the columns.
          fields: The requested fields; all if None. The result may have more.
        """
        del rows, fields
        return values

    def needs_all_steps(self, fields: Collection[str] | None) -> bool:
        """Whether `make` needs all steps of an episode for some of the fields."""
        return not self.is_by_rows or (self.uses_all_steps and self.makes(fields))

    def makes(self, fields: Collection[str] | None) -> bool:
        """Whether `make` changes some of the fields."""
        if not self.overrides("make"):
            return False
        changed_paths = self.changed_paths
        return changed_paths is None or fields is None or not {*fields}.isdisjoint(changed_paths)

    @property
    def is_by_rows(self) -> bool:
        """Whether `make` does all changes, so that it can compute any rows."""
        return not (self.overrides("read") or self.overrides("values"))

    def overrides(self, method: str) -> bool:
        """Whether the class overrides a method of `View`."""
        return getattr(type(self), method) is not getattr(View, method)

    @functools.cached_property
    def base_paths(self) -> Mapping[str, str] | None:
        """The paths in the bases by the paths of unchanged fields; None if all fields change.

        The episodes of `changed_episodes` are exceptions.
        """
        makes_values = self.overrides("make") or self.overrides("read")
        only_adds = self.changed_paths is not None and self._added == {*self.changed_paths}
        if makes_values and not (self.keeps_values or only_adds):
            return None
        own_paths = {*_paths(self.fields)}
        return {path: path for path in self.paths if path in own_paths}

    @property
    def paths(self) -> Sequence[str]:
        """The paths of the fields of the bases."""
        return _paths(self.bases[0].fields)

    def changed_episodes(self, split: str, episodes: np.ndarray) -> np.ndarray:
        """Returns a mask of the episodes whose values differ from the fields of `base_paths`."""
        del split
        return np.zeros(len(episodes), np.bool_)

    @functools.cached_property
    def is_as_stored(self) -> bool:
        """True if all fields of the episodes are unchanged."""
        paths = _paths(self.fields)
        return paths == self.paths and self.base_paths == dict(zip(paths, paths))

    def with_bases(self, *bases: Source) -> Self:
        """Returns the same view over other sources with the same fields."""
        view = copy.copy(self)
        for name, value in vars(type(self)).items():
            if isinstance(value, functools.cached_property):
                vars(view).pop(name, None)
        view.bases = bases
        return view

    # --- Reading.

    @override
    def read(
        self, split: str, index: int, fields: Collection[str] | None = None, rows: slice = ALL_ROWS
    ) -> SourceEpisode:
        episode, values = self.values(split, index, fields, rows)
        return with_values(episode, values)

    def values(
        self, split: str, index: int, fields: Collection[str] | None, rows: slice = ALL_ROWS
    ) -> tuple[SourceEpisode, dict[str, Any]]:
        """Reads an episode; returns the episode of the base, and the values of the view by path."""
        base = self.locate(split, index)
        needs = None if fields is None else self.needs(fields)
        makes_fields = self.makes(fields)
        if makes_fields and needs is not None:
            needs = {*needs, *self._field_for_length(base.source, needs)}
        steps = None
        is_complete = self.needs_all_steps(fields)
        base_rows = ALL_ROWS if is_complete else rows
        if self.overrides("base_steps"):
            base_lengths = Lengths(*(np.array([value]) for value in reading.summary(*base)))
            [length] = self.lengths(split, np.array([index]), base_lengths).num_steps
            steps = np.arange(*base_rows.indices(int(length)), dtype=np.int64)
            steps = self.base_steps(split, np.full(len(steps), index), steps)
            base_rows = _bounding_slice(steps)
        episode, values = read_values(base, needs, base_rows)
        if steps is not None:
            is_run = np.array_equal(steps, np.arange(base_rows.start, base_rows.stop))
            values = values if is_run else select_rows(values, steps - base_rows.start)
        if makes_fields:
            num_steps = num_steps_of(values)
            start = 0 if is_complete else (rows.start or 0)

            def base_values(names: Collection[str], steps: np.ndarray) -> Mapping[str, Any]:
                base_rows = _bounding_slice(steps)
                return select_rows(read_values(base, names, base_rows)[1], steps - base_rows.start)

            indices = np.full(num_steps, index), np.arange(start, start + num_steps)
            context = RowContext(split, *indices, base_values, index, episode)
            values = self.make(values, context, fields)
        return episode, select_rows(values, rows) if is_complete and rows != ALL_ROWS else values

    def _field_for_length(self, source: Source, needs: Collection[str]) -> list[str]:
        """Returns a field that gives the number of steps, if no field of steps is requested."""
        if any(path.startswith(_STEPS) for path in needs):
            return []
        return [_STEPS + name for name in (*source.fields.flags, *source.fields.step_paths())[:1]]

    @property
    @override
    def capabilities(self) -> Capabilities:
        all_capabilities = [base.capabilities for base in self.bases]
        base_capabilities = all_capabilities[0]
        has_origins = all(c.origin for c in all_capabilities) and not self.overrides("base_steps")
        return Capabilities(
            lengths=self._lengths if all(c.lengths for c in all_capabilities) else None,
            reads_rows=all(c.reads_rows for c in all_capabilities),
            video=base_capabilities.video,
            quality=base_capabilities.quality,
            totals=base_capabilities.totals if self.has_all else None,
            faults=self._find_faults if any(c.faults for c in all_capabilities) else None,
            origin=self._origin if has_origins else None,
            shards=base_capabilities.shards if self.has_all else None,
            image_files=self._image_files if any(c.image_files for c in all_capabilities) else None,
            hold_open=self._hold_open if any(c.hold_open for c in all_capabilities) else None,
        )

    def _lengths(self, split: str) -> Lengths | None:
        episodes = np.arange(self.num_episodes(split))
        groups = self.base_episodes(split, episodes)
        known_lengths = [
            lengths.take(group.episodes)
            for group in groups
            if (lengths := reading.lengths(group.source, group.split)) is not None
        ]
        if len(known_lengths) < len(groups):
            return None
        order = np.concatenate([episodes[:0], *(episodes[group.positions] for group in groups)])
        lengths = Lengths.concatenate(known_lengths).take(np.argsort(order))
        return self.lengths(split, episodes, lengths)

    def _find_faults(self, split: str) -> Iterator[SourceError]:
        groups = self.base_episodes(split, np.arange(self.num_episodes(split)))
        for source, name in dict.fromkeys((group.source, group.split) for group in groups):
            if (faults := source.capabilities.faults) is not None:
                yield from faults(name)

    def _origin(self, split: str, index: int) -> Origin | None:
        source, split, index = self.locate(split, index)
        origin = source.capabilities.origin
        return None if origin is None else origin(split, index)

    def _image_files(self) -> AnySource:
        """Returns the view over bases with undecoded image files."""
        return self.with_bases(*map(reading.with_image_files, self.bases))

    @contextlib.contextmanager
    def _hold_open(self) -> Iterator[None]:
        with contextlib.ExitStack() as stack:
            for hold_open in (base.capabilities.hold_open for base in self.bases):
                if hold_open is not None:
                    stack.enter_context(hold_open())
            yield


class SelectedSource(View):
    """Some of the episodes of another source, in any order.

    Args:
      source: The other source.
      indices: The indices of the episodes of each split.
      condition: The condition (`where`) that has selected the episodes, if any.
      base_split: The split of the other source for all indices; None for the split of the same
        name.

    Attributes:
      indices: See above.
      condition: See above.
      base_split: See above.
    """

    shares_table = True

    def __init__(
        self,
        source: Source,
        indices: Mapping[str, Sequence[int] | np.ndarray],
        condition: str | None = None,
        base_split: str | None = None,
    ) -> None:
        super().__init__(source)
        self.condition, self.base_split = condition, base_split
        self.indices = {split: np.asarray(rows, np.int64) for split, rows in indices.items()}
        self.options = {
            "episodes": {
                s: hashlib.sha256(r.tobytes()).hexdigest() for s, r in self.indices.items()
            }
        }

    @property
    @override
    def splits(self) -> Sequence[str]:  # type: ignore[override]
        return list(self.indices)

    @override
    def num_episodes(self, split: str) -> int:
        return len(self.indices[split])

    @override
    def base_episodes(self, split: str, episodes: np.ndarray) -> Sequence[BaseEpisodes]:
        base_split, rows = self.base_split or split, self.indices[split][episodes]
        return [BaseEpisodes(slice(None), self.bases[0], base_split, rows)]


def trace(source: Source, split: str, index: int) -> tuple[Location, int]:
    """Returns the stored episode of an episode of a view, and the offset of its first step.

    The source of the stored episode is one of `reading.roots`.
    """
    first_step = np.zeros(1, np.int64)
    while isinstance(source, View):
        first_step = source.base_steps(split, np.array([index]), first_step)
        source, split, index = source.locate(split, index)
    return Location(source, split, index), int(first_step[0])


def stored_location(
    source: AnySource, split: str, index: int, *, ignore_names: bool = False
) -> Location | None:
    """Returns the location of an episode that is stored unchanged; None for a changed one.

    Exports copy episodes that are stored in their own format.

    Args:
      source: The source.
      split: The split.
      index: The episode.
      ignore_names: True to allow renamed, missing and added fields, and another key.
    """
    if not isinstance(source, Source):
        return None
    if changed_episodes(source, split, np.array([index]), ignore_names=ignore_names)[0]:
        return None
    return trace(source, split, index)[0]


def changed_episodes(
    source: AnySource, split: str, episodes: np.ndarray, *, ignore_names: bool = False
) -> np.ndarray:
    """Returns a mask of the episodes that differ from the stored ones.

    Args:
      source: The source.
      split: The split.
      episodes: The indices of the episodes, int64.
      ignore_names: See `stored_location`.
    """
    if not isinstance(source, View):
        return np.zeros(len(episodes), np.bool_)
    if source.base_paths is None or not (ignore_names or source.is_as_stored):
        return np.ones(len(episodes), np.bool_)
    mask = np.zeros(len(episodes), np.bool_)
    if not (ignore_names and source.changes_only_keys):
        mask |= source.changed_episodes(split, episodes)
    for positions, base, name, rows in source.base_episodes(split, episodes):
        mask[positions] |= changed_episodes(base, name, rows, ignore_names=ignore_names)
    return mask


def stored_paths(source: AnySource, episode: tuple[str, int] | None = None) -> Mapping[str, str]:
    """Returns the stored paths of fields, by their paths in a source.

    Fields that are not stored are missing.

    Args:
      source: The source.
      episode: The split and the index of an episode; None for an episode of the first base.
    """
    if not isinstance(source, View):
        return {path: path for path in _paths(source.fields)}
    base = source.bases[0]
    if episode is not None:
        base, *episode = source.locate(*episode)  # type: ignore[assignment]
    paths = stored_paths(base, episode)
    return {path: paths[old] for path, old in (source.base_paths or {}).items() if old in paths}


def values_of(episode: SourceEpisode) -> dict[str, Any]:
    """Returns the values of an episode by path: columns of steps at `steps/...`.

    They include `truncated`, `complete` and `final_observation_known`, which views may change.
    """
    attributes = {name: getattr(episode, name) for name in _EPISODE_ATTRIBUTES}
    return {**flat(episode.steps, episode.metadata), **attributes}


def with_values(episode: SourceEpisode, values: Mapping[str, Any]) -> SourceEpisode:
    """Returns an episode with replaced values; see `values_of`."""
    attributes: dict[str, Any] = {name: bool(values[name]) for name in _EPISODE_ATTRIBUTES}
    steps, metadata = nested({path: v for path, v in values.items() if path not in attributes})
    return dataclasses.replace(episode, steps=steps, metadata=metadata, **attributes)


def flat(steps: Columns, episode: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the values of steps and episodes, by path."""
    values = {_STEPS + path: value for path, value in leaves_at(steps, None)}
    return values | dict(leaves_at(episode, None))


def nested(values: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Returns the nested values of steps, and of episodes: the inverse of `flat`."""
    steps = {path.removeprefix(_STEPS): v for path, v in values.items() if path.startswith(_STEPS)}
    episode_values = {path: value for path, value in values.items() if not path.startswith(_STEPS)}
    return nest(steps), nest(episode_values)


def read_values(
    location: Location, fields: Collection[str] | None, rows: slice = ALL_ROWS
) -> tuple[SourceEpisode, dict[str, Any]]:
    """Reads an episode with checks; returns it, and its values in the form of `values_of`."""
    source, split, index = location
    if isinstance(source, View) and not source.overrides("read"):  # Avoids nesting the values.
        return source.values(split, index, fields, rows)
    episode = reading.read(source, split, index, fields, rows)
    return episode, values_of(episode)


def select_rows(values: Mapping[str, Any], rows: Any) -> dict[str, Any]:
    """Selects rows of the columns of steps."""
    return {path: c[rows] if path.startswith(_STEPS) else c for path, c in values.items()}


def _bounding_slice(steps: np.ndarray) -> slice:
    """Returns the slice from the smallest to the largest of some steps."""
    return slice(int(steps.min()), int(steps.max()) + 1) if len(steps) else slice(0, 0)


def num_steps_of(values: Mapping[str, Any]) -> int:
    """Returns the number of steps in the result of `values_of`; 0 without a field of steps."""
    return next((len(column) for path, column in values.items() if path.startswith(_STEPS)), 0)


def _paths(fields: Fields) -> list[str]:
    """Returns the sorted paths of all fields."""
    return sorted([*map(_STEPS.__add__, fields.step_paths()), *fields.episode_paths()])
