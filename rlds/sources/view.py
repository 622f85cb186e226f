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
    About,
    AnySource,
    Can,
    Columns,
    Fields,
    Lengths,
    Origin,
    Place,
    Source,
    SourceEpisode,
    SourceError,
)
from rlds_ecosystem.model.nests import leaves_at, nest

__all__ = [
    "Chosen",
    "RowContext",
    "SelectedSource",
    "View",
    "flat",
    "nested",
    "num_steps_of",
    "read_values",
    "stored_at",
    "stored_names",
    "taken",
    "touched",
    "traced",
    "values_of",
    "with_values",
]

_STEPS = f"{rlds.STEPS}/"
_FACTS = (TRUNCATED, COMPLETE, rlds.FINAL_OBSERVATION_KNOWN)


class Chosen(NamedTuple):
    """Requested episodes of a view that lie in one split of one base.

    Attributes:
      at: The positions of these episodes among the requested ones.
      source: The base.
      split: The split of the base.
      episodes: Their numbers in that split, int64.
    """

    at: Any
    source: Source
    split: str
    episodes: np.ndarray


class RowContext(NamedTuple):
    """The origin of rows in a view: the episode and the step of each row.

    Attributes:
      split: The split of the view.
      episodes: The number of the episode of each row, int64 of shape `[rows]`.
      steps: The step of each row in its episode, int64 of shape `[rows]`.
      values_at: Returns the values of fields of the bases at other steps. Its arguments are the
        paths of the fields, and a step of the base for each row.
      number: The number of the episode, if all rows are of one episode; None otherwise.
      episode: This episode in the base; None if the rows are of several episodes.
      siblings: The paths of the fields that other calls compute for the same rows.
    """

    split: str
    episodes: np.ndarray
    steps: np.ndarray
    values_at: Callable[[Collection[str], np.ndarray], Mapping[str, Any]]
    number: int | None = None
    episode: SourceEpisode | None = None
    siblings: Collection[str] = ()


class View(Source):
    """A source that wraps other sources.

    Everything that a derived class does not override is that of the bases. A view of episodes
    overrides `splits`, `num_episodes` and `where`; a view of steps, `at` and `lengths`; a view of
    fields, `fields`, `changed_paths`, `needs`, `make`, and `names` for exports and edits.

    Args:
      *bases: The wrapped sources.

    Attributes:
      shares_table: True if the view and its base share a table of episodes.
      keeps_values: True if the fields of the bases have the same values in the view, except in
        the episodes of `touches`.
      touches_only_keys: True if the episodes of `touches` differ by their keys only.
      looks_around: True if `make` needs all steps of an episode.
      changed_paths: The paths of the fields that `make` changes or adds; None if it may change any.
      options: Options that the episodes depend on, for `About.options`.
      decodes: The paths of the fields of steps whose images `make` decodes.
      threads: The number of further threads for `make`; None for a default number.
    """

    shares_table: ClassVar[bool] = False
    keeps_values: ClassVar[bool] = False
    touches_only_keys: ClassVar[bool] = False
    looks_around: ClassVar[bool] = False

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
    def about(self) -> About:
        about = self.bases[0].about
        return about.replace(options={**about.options, **self.options}) if self.options else about

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

    def where(self, split: str, episodes: np.ndarray) -> Sequence[Chosen]:
        """Returns the episodes of the bases for those of a split, by their numbers."""
        return [Chosen(slice(None), self.bases[0], split, episodes)]

    @property
    def has_all(self) -> bool:
        """Whether the view has all episodes of its single base, in order."""
        return not (self.overrides("where") or self.overrides("num_episodes"))

    def place(self, split: str, index: int) -> Place:
        """Returns the base, split and index of an episode."""
        if not self.overrides("where"):
            return Place(self.bases[0], split, index)
        [(_, source, split, [number])] = self.where(split, np.array([index], np.int64))
        return Place(source, split, int(number))

    @override
    def key(self, split: str, index: int) -> str:
        source, split, index = self.place(split, index)
        return source.key(split, index)

    # --- Steps.

    def at(self, split: str, episodes: np.ndarray, steps: np.ndarray) -> np.ndarray:
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
        """The fields that `make` adds to those of the bases."""
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

    def takes_whole(self, fields: Collection[str] | None) -> bool:
        """Whether `make` needs all steps of an episode for some of the fields."""
        return not self.is_by_rows or (self.looks_around and self.makes(fields))

    def makes(self, fields: Collection[str] | None) -> bool:
        """Whether `make` changes some of the fields."""
        if not self.overrides("make"):
            return False
        changed = self.changed_paths
        return changed is None or fields is None or not {*fields}.isdisjoint(changed)

    @property
    def is_by_rows(self) -> bool:
        """Whether `make` does all changes, so that it can make any rows."""
        return not (self.overrides("read") or self.overrides("values"))

    def overrides(self, method: str) -> bool:
        """Whether the class overrides a method of `View`."""
        return getattr(type(self), method) is not getattr(View, method)

    @functools.cached_property
    def names(self) -> Mapping[str, str] | None:
        """For fields with unchanged values, their paths in the bases; None if all are changed.

        The episodes of `touches` are exceptions.
        """
        makes_others = self.overrides("make") or self.overrides("read")
        only_adds = self.changed_paths is not None and self._added == {*self.changed_paths}
        if makes_others and not (self.keeps_values or only_adds):
            return None
        here = {*_paths(self.fields)}
        return {path: path for path in self.paths if path in here}

    @property
    def paths(self) -> Sequence[str]:
        """The paths of the fields of the bases."""
        return _paths(self.bases[0].fields)

    def touches(self, split: str, episodes: np.ndarray) -> np.ndarray:
        """Returns a mask of the episodes whose values differ from those that `names` refers to."""
        del split
        return np.zeros(len(episodes), np.bool_)

    @functools.cached_property
    def is_as_stored(self) -> bool:
        """Whether the episodes equal those of the bases in all fields."""
        here, there = _paths(self.fields), _paths(self.bases[0].fields)
        return here == there and self.names == {path: path for path in here}

    def over(self, *bases: Source) -> Self:
        """Returns the same view over other sources with the same fields."""
        again = copy.copy(self)
        for name, value in vars(type(self)).items():
            if isinstance(value, functools.cached_property):
                vars(again).pop(name, None)
        again.bases = bases
        return again

    # --- Reading.

    @override
    def read(
        self,
        split: str,
        index: int,
        fields: Collection[str] | None = None,
        rows: slice = ALL_ROWS,
    ) -> SourceEpisode:
        episode, values = self.values(split, index, fields, rows)
        return with_values(episode, values)

    def values(
        self, split: str, index: int, fields: Collection[str] | None, rows: slice = ALL_ROWS
    ) -> tuple[SourceEpisode, dict[str, Any]]:
        """Reads an episode; returns the episode of the base, and the values of the view by path."""
        base = self.place(split, index)
        needs = None if fields is None else self.needs(fields)
        is_made = self.makes(fields)
        if is_made and needs is not None:
            needs = {*needs, *self._field_for_length(base.source, needs)}
        steps = None
        is_whole = self.takes_whole(fields)
        base_rows = ALL_ROWS if is_whole else rows
        if self.overrides("at"):
            before = Lengths(*(np.array([number]) for number in reading.outline(*base)))
            [length] = self.lengths(split, np.array([index]), before).num_steps
            steps = np.arange(*base_rows.indices(int(length)), dtype=np.int64)
            steps = self.at(split, np.full(len(steps), index), steps)
            base_rows = _bounding_slice(steps)
        episode, values = read_values(base, needs, base_rows)
        if steps is not None:
            is_run = np.array_equal(steps, np.arange(base_rows.start, base_rows.stop))
            values = values if is_run else taken(values, steps - base_rows.start)
        if is_made:
            number = num_steps_of(values)
            begin = 0 if is_whole else (rows.start or 0)

            def other_values(names: Collection[str], steps: np.ndarray) -> Mapping[str, Any]:
                base_rows = _bounding_slice(steps)
                return taken(read_values(base, names, base_rows)[1], steps - base_rows.start)

            numbers = np.full(number, index), np.arange(begin, begin + number)
            context = RowContext(split, *numbers, other_values, index, episode)
            values = self.make(values, context, fields)
        return episode, taken(values, rows) if is_whole and rows != ALL_ROWS else values

    def _field_for_length(self, source: Source, needs: Collection[str]) -> list[str]:
        """Returns a field that gives the number of steps, if no field of steps is requested."""
        if any(path.startswith(_STEPS) for path in needs):
            return []
        return [_STEPS + name for name in (*source.fields.flags, *source.fields.step_paths())[:1]]

    @property
    @override
    def can(self) -> Can:
        of = [base.can for base in self.bases]
        first, has_rows = of[0], not self.overrides("at")
        return Can(
            lengths=self._lengths if all(can.lengths for can in of) else None,
            reads_rows=all(can.reads_rows for can in of),
            video=first.video,
            quality=first.quality,
            totals=first.totals if self.has_all else None,
            faults=self._faults if any(can.faults for can in of) else None,
            origin=self._origin if has_rows and all(can.origin for can in of) else None,
            shards=first.shards if self.has_all else None,
            image_files=self._image_files if any(can.image_files for can in of) else None,
            hold_open=self._hold_open if any(can.hold_open for can in of) else None,
        )

    def _all_episodes(self, split: str) -> Sequence[Chosen]:
        return self.where(split, np.arange(self.num_episodes(split)))

    def _lengths(self, split: str) -> Lengths | None:
        episodes = np.arange(self.num_episodes(split))
        chosen = self.where(split, episodes)
        known_lengths = [
            lengths.take(each.episodes)
            for each in chosen
            if (lengths := reading.lengths(each.source, each.split)) is not None
        ]
        if len(known_lengths) < len(chosen):
            return None
        order = np.concatenate([episodes[:0], *(episodes[each.at] for each in chosen)])
        return self.lengths(split, episodes, Lengths.joined(known_lengths).take(np.argsort(order)))

    def _faults(self, split: str) -> Iterator[SourceError]:
        for source, name in dict.fromkeys((c.source, c.split) for c in self._all_episodes(split)):
            if (faults := source.can.faults) is not None:
                yield from faults(name)

    def _origin(self, split: str, index: int) -> Origin | None:
        source, split, index = self.place(split, index)
        origin = source.can.origin
        return None if origin is None else origin(split, index)

    def _image_files(self) -> AnySource:
        """Returns the view over bases with undecoded image files."""
        return self.over(*map(reading.with_image_files, self.bases))

    @contextlib.contextmanager
    def _hold_open(self) -> Iterator[None]:
        with contextlib.ExitStack() as stack:
            for hold_open in (base.can.hold_open for base in self.bases):
                if hold_open is not None:
                    stack.enter_context(hold_open())
            yield


class SelectedSource(View):
    """Some of the episodes of another source, in any order.

    Args:
      source: The other source.
      chosen: The numbers of the episodes of each split.
      condition: The condition (`where`) that has selected the episodes, if any.
      of: The split of the other source for these numbers; None for the split of the same name.

    Attributes:
      chosen: See above.
      condition: See above.
      of: See above.
    """

    shares_table = True

    def __init__(
        self,
        source: Source,
        chosen: Mapping[str, Sequence[int] | np.ndarray],
        condition: str | None = None,
        of: str | None = None,
    ) -> None:
        super().__init__(source)
        self.condition, self.of = condition, of
        self.chosen = {split: np.asarray(rows, np.int64) for split, rows in chosen.items()}
        digests = {s: hashlib.sha256(rows.tobytes()).hexdigest() for s, rows in self.chosen.items()}
        self.options = {"episodes": digests}

    @property
    @override
    def splits(self) -> Sequence[str]:  # type: ignore[override]
        return list(self.chosen)

    @override
    def num_episodes(self, split: str) -> int:
        return len(self.chosen[split])

    @override
    def where(self, split: str, episodes: np.ndarray) -> Sequence[Chosen]:
        return [Chosen(slice(None), self.bases[0], self.of or split, self.chosen[split][episodes])]


def traced(source: Source, split: str, index: int) -> tuple[Place, int]:
    """Returns the stored episode of an episode of a view, and the offset of its first step.

    The source of the stored episode is one of `reading.bases`.
    """
    first = np.zeros(1, np.int64)
    while isinstance(source, View):
        first = source.at(split, np.array([index]), first)
        source, split, index = source.place(split, index)
    return Place(source, split, index), int(first[0])


def stored_at(source: AnySource, split: str, index: int, *, in_part: bool = False) -> Place | None:
    """Returns the location of an episode that is stored unchanged; None for a changed one.

    Exports copy what is stored in their own format.

    Args:
      source: The source.
      split: The split.
      index: The episode.
      in_part: True to allow renamed, missing and added fields, and another key.
    """
    if not isinstance(source, Source):
        return None
    if touched(source, split, np.array([index]), in_part=in_part)[0]:
        return None
    return traced(source, split, index)[0]


def touched(
    source: AnySource, split: str, episodes: np.ndarray, *, in_part: bool = False
) -> np.ndarray:
    """Returns a mask of the episodes that differ from the stored ones.

    Args:
      source: The source.
      split: The split.
      episodes: Their numbers, int64.
      in_part: See `stored_at`.
    """
    if not isinstance(source, View):
        return np.zeros(len(episodes), np.bool_)
    if source.names is None or not (in_part or source.is_as_stored):
        return np.ones(len(episodes), np.bool_)
    only_keys = in_part and source.touches_only_keys
    mask = np.zeros(len(episodes), np.bool_) if only_keys else source.touches(split, episodes)
    for at, base, name, numbers in source.where(split, episodes):
        mask[at] |= touched(base, name, numbers, in_part=in_part)
    return mask


def stored_names(source: AnySource, episode: tuple[str, int] | None = None) -> Mapping[str, str]:
    """Returns the stored paths of fields, by their paths in a source.

    Fields that are not stored are missing.

    Args:
      source: The source.
      episode: The split and the number of an episode; None for one of the first base.
    """
    if not isinstance(source, View):
        return {path: path for path in _paths(source.fields)}
    base = source.bases[0]
    if episode is not None:
        base, *episode = source.place(*episode)  # type: ignore[assignment]
    names, below = source.names or {}, stored_names(base, episode)
    return {path: below[old] for path, old in names.items() if old in below}


def values_of(episode: SourceEpisode) -> dict[str, Any]:
    """Returns the values of an episode by path: columns of steps at `steps/...`.

    They include `truncated`, `complete` and `final_observation_known`, which views may change.
    """
    facts = {name: getattr(episode, name) for name in _FACTS}
    return {**flat(episode.steps, episode.metadata), **facts}


def with_values(episode: SourceEpisode, values: Mapping[str, Any]) -> SourceEpisode:
    """Returns an episode with replaced values; see `values_of`."""
    facts: dict[str, Any] = {name: bool(values[name]) for name in _FACTS}
    steps, metadata = nested({path: v for path, v in values.items() if path not in facts})
    return dataclasses.replace(episode, steps=steps, metadata=metadata, **facts)


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
    location: Place, fields: Collection[str] | None, rows: slice = ALL_ROWS
) -> tuple[SourceEpisode, dict[str, Any]]:
    """Reads an episode with checks; returns it, and its values in the form of `values_of`."""
    source, split, index = location
    if isinstance(source, View) and not source.overrides("read"):  # Avoids nesting the values.
        return source.values(split, index, fields, rows)
    episode = reading.read(source, split, index, fields, rows)
    return episode, values_of(episode)


def taken(values: Mapping[str, Any], rows: Any) -> dict[str, Any]:
    """Returns values with some rows of the columns of steps."""
    return {
        path: value[rows] if path.startswith(_STEPS) else value for path, value in values.items()
    }


def _bounding_slice(steps: np.ndarray) -> slice:
    """Returns the slice from the first to the last of some steps, in any order."""
    return slice(int(steps.min()), int(steps.max()) + 1) if len(steps) else slice(0, 0)


def num_steps_of(values: Mapping[str, Any]) -> int:
    """Returns the number of steps of values (see `values_of`); 0 without a field of steps."""
    return next((len(column) for path, column in values.items() if path.startswith(_STEPS)), 0)


def _paths(fields: Fields) -> list[str]:
    """Returns the sorted paths of all fields."""
    return sorted([*map(_STEPS.__add__, fields.step_paths()), *fields.episode_paths()])
