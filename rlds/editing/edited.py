"""Episodes of one or more sources as an edit has them: a view, of which nothing is stored."""

from __future__ import annotations

import dataclasses
import uuid
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from typing_extensions import override

import rlds
from rlds.editing.changes import STEPS, Change, columns_of, flat_fields, with_values
from rlds.sources import reading
from rlds.sources.digests import as_array
from rlds.sources.episode_fields import as_converted
from rlds.sources.episodes import Episodes
from rlds.sources.restored import RestoredSource
from rlds.sources.source import (
    ALL_ROWS,
    FACTS,
    OF_TRANSITIONS,
    Origin,
    Outline,
    Outlines,
    Place,
    RandomAccessSource,
    Source,
    SourceEpisode,
    SourceError,
    StoredSource,
    files_of,
)
from rlds.video import FIRST, FRAMES, VIDEO
from rlds_ecosystem.model.columns import zeros_like
from rlds_ecosystem.model.fields import as_fields
from rlds_ecosystem.model.nests import leaves_at, nest, root_of
from tfds_files.columns import stack

__all__ = ["EditedSource", "Part", "Rows", "fields_of", "source_of"]

_FLAGS = tuple(STEPS + name for name in rlds.STEP_FLAGS)


@dataclasses.dataclass(frozen=True)
class Part:
    """One of the datasets that an edit is of.

    Attributes:
      episodes: Its episodes.
      changes: How it gets the fields that all of them have.
      prefix: What the keys of its episodes begin with, so that no other part has them.
    """

    episodes: Episodes
    changes: Sequence[Change] = ()
    prefix: str = ""


@dataclasses.dataclass(frozen=True)
class Rows:
    """What becomes of each episode, as arrays with an element for each.

    The episodes of all parts are counted together, in the order of the parts.

    Attributes:
      splits: For each split, the numbers of its episodes.
      begin: The first step that each keeps.
      end: The step after the last one that each keeps; less than 0 for all.
      fixed: Whether its flags are set by where its steps are.
    """

    splits: Mapping[str, np.ndarray]
    begin: np.ndarray
    end: np.ndarray
    fixed: np.ndarray


class EditedSource(RandomAccessSource):
    """The episodes of several datasets as an edit has them.

    Args:
      parts: The datasets, with the same fields.
      changes: What becomes of their fields, in this order.
      rows: What becomes of their episodes.
      metadata: What is said of the data as a whole.
      facts: Others of the attributes of sources, such as `license`.
    """

    reads_rows = True

    def __init__(
        self,
        parts: Sequence[Part],
        changes: Sequence[Change],
        rows: Rows,
        metadata: Mapping[str, Any],
        facts: Mapping[str, str],
    ) -> None:
        self._parts, self._changes, self._rows = list(parts), list(changes), rows
        self._metadata = dict(metadata)
        self._name = uuid.uuid4().hex  # Functions make fields: no two views are known to be equal.
        self._ends = np.cumsum([len(part.episodes) for part in parts])
        first = source_of(parts[0].episodes)
        for name in FACTS:
            setattr(self, name, facts.get(name, getattr(first, name)))
        self.images_as_png = first.images_as_png
        changed = [change.fields for change in (*parts[0].changes, *changes)][-1:]
        self._fields = changed[0] if changed else fields_of(parts[0].episodes)
        self.finite_fields = (*(p for p in first.finite_fields if STEPS + p in self._fields),)

    @property
    @override
    def splits(self) -> Sequence[str]:
        return list(self._rows.splits)

    @property
    @override
    def step_flags(self) -> Sequence[str]:
        if self._rows.fixed.any():
            return rlds.STEP_FLAGS
        known = [source_of(part.episodes).step_flags for part in self._parts]
        return [name for name in rlds.STEP_FLAGS if all(name in flags for flags in known)]

    @override
    def step_fields(self) -> Mapping[str, Any]:
        paths = [path for path in self._fields if path.startswith(STEPS)]
        return nest({path.removeprefix(STEPS): self._fields[path] for path in paths})

    @override
    def episode_fields(self) -> Mapping[str, Any]:
        return nest({p: field for p, field in self._fields.items() if not p.startswith(STEPS)})

    @override
    def metadata(self) -> Mapping[str, Any]:
        return self._metadata

    @override
    def inputs(self) -> Sequence[Any]:
        return [path for part in self._parts for path in source_of(part.episodes).inputs()]

    @override
    def options(self) -> Mapping[str, Any]:
        return {"view": self._name}

    @override
    def num_episodes(self, split: str) -> int:
        return len(self._rows.splits[split])

    @override
    def key(self, split: str, index: int) -> str:
        part, place = self._place(self._row(split, index))
        return part.prefix + source_of(part.episodes).key(*place)

    @override
    def read(
        self,
        split: str,
        index: int,
        fields: Collection[str] | None = None,
        rows: slice = ALL_ROWS,
    ) -> SourceEpisode:
        row = self._row(split, index)
        part, place = self._place(row)
        source, changes = source_of(part.episodes), [*part.changes, *self._changes]
        needs = _needs(changes, fields, source.step_flags)
        is_changed = self._are_cut(row) or self._rows.fixed[row]
        if is_changed and needs is not None:
            needs |= set(_FLAGS)
        is_whole = is_changed or needs is None
        episode = as_converted(reading.read(source, *place, needs, ALL_ROWS if is_whole else rows))
        if self._are_cut(row):
            begin, end = int(self._rows.begin[row]), int(self._rows.end[row])
            episode = _trimmed(episode, begin, end, self.step_flags)
        values = columns_of(episode)
        for change in changes:
            values = change.values(values, row, episode)
        episode = with_values(episode, values)
        if self._rows.fixed[row]:
            episode = _with_flags(episode, rlds.STEP_FLAGS)
        if is_whole and rows != ALL_ROWS:
            episode = reading.cut(episode, rows)
        return dataclasses.replace(episode, key=part.prefix + episode.key)

    @override
    def outline(self, split: str, index: int) -> Outline:
        row = self._row(split, index)
        if self._are_cut(row) or self._rows.fixed[row]:
            return super().outline(split, index)
        part, place = self._place(row)
        return reading.outline(source_of(part.episodes), *place)

    @override
    def outlines(self, split: str) -> Outlines | None:
        rows = self._rows.splits[split]
        known = [part.episodes.all_outlines() for part in self._parts]
        if (self._are_cut(rows) | self._rows.fixed[rows]).any():
            return None
        if any(outlines is None for outlines in known):
            return None
        return Outlines(*(np.concatenate(arrays)[rows] for arrays in zip(*filter(None, known))))

    @override
    def num_steps(self, split: str) -> Sequence[int] | None:
        known = self.outlines(split)
        return None if known is None else known.num_steps.tolist()

    @override
    def faults(self, split: str) -> Iterator[SourceError]:
        rows, begin = self._rows.splits[split], 0
        for part in self._parts:
            for name, first, last in part.episodes.ranges:
                end = begin + last - first
                if ((begin <= rows) & (rows < end)).any():
                    yield from source_of(part.episodes).faults(name)
                begin = end

    @override
    def stored_names(self) -> Mapping[str, str]:
        names = source_of(self._parts[0].episodes).stored_names()
        for change in (*self._parts[0].changes, *self._changes):
            names = change.names(names)
        return names

    @override
    def stored_at(self, split: str, index: int, *, in_part: bool = False) -> Place | None:
        row = self._row(split, index)
        if self.touched(np.array([row]), in_part=in_part)[0]:
            return None
        part, place = self._place(row)
        return source_of(part.episodes).stored_at(*place, in_part=in_part)

    @override
    def bases(self) -> Sequence[Source]:
        return [base for part in self._parts for base in source_of(part.episodes).bases()]

    @override
    def base_at(self, split: str, index: int) -> tuple[Place, int]:
        row = self._row(split, index)
        part, place = self._place(row)
        base, first = source_of(part.episodes).base_at(*place)
        return base, first + int(self._rows.begin[row])

    def touched(self, rows: np.ndarray, *, in_part: bool = False) -> np.ndarray:
        """Returns which episodes are others than those that are stored, by their numbers.

        Args:
          rows: The numbers.
          in_part: See `stored_at`.
        """
        numbers = self.parts_of(rows)
        touched: np.ndarray = self._rows.fixed[rows] | self._are_cut(rows)
        for change in self._changes:
            touched |= change.touches(rows) & (not in_part or change.changes_values)
        for number, part in enumerate(self._parts):
            for change in part.changes:
                touched |= (numbers == number) & change.touches(rows)
            # They have the keys.
            if part.prefix and isinstance(part.episodes.source, StoredSource | RestoredSource):
                touched |= numbers == number
        return touched

    def parts_of(self, rows: np.ndarray) -> np.ndarray:
        """Returns the numbers of the parts that episodes are of."""
        return np.searchsorted(self._ends, rows, side="right")

    def _row(self, split: str, index: int) -> int:
        return int(self._rows.splits[split][index])

    def _place(self, row: int) -> tuple[Part, tuple[str, int]]:
        number = int(np.searchsorted(self._ends, row, side="right"))
        part = self._parts[number]
        before = int(self._ends[number]) - len(part.episodes)
        return part, part.episodes.place(row - before)

    def _are_cut(self, rows: int | np.ndarray) -> Any:
        return (self._rows.begin[rows] > 0) | (self._rows.end[rows] >= 0)


def source_of(episodes: Episodes) -> RandomAccessSource:
    """Returns the source of episodes that can be read in any order.

    Raises:
      TypeError: They cannot.
    """
    source = episodes.source
    if not isinstance(source, RandomAccessSource):
        raise TypeError(f"{files_of(source)}: no access by index; run `rlds convert` first")
    return source


def fields_of(episodes: Episodes) -> dict[str, Any]:
    """Returns the fields of steps, without the flags, and of episodes, by path."""
    source = episodes.source
    return flat_fields(as_fields(source.step_fields()), as_fields(source.episode_fields()))


def _needs(
    changes: Sequence[Change], fields: Collection[str] | None, flags: Sequence[str]
) -> set[str] | None:
    """Which fields those that are wanted are made of; None for all."""
    needs = None if fields is None else set(fields)
    for change in reversed(changes):
        if needs is not None:
            needs = change.needs(needs)
    if needs is not None and changes and any(path.startswith(STEPS) for path in needs):
        needs |= {STEPS + name for name in flags[:1]}  # It says how many steps there are.
    return needs


def _trimmed(episode: SourceEpisode, begin: int, end: int, flags: Collection[str]) -> SourceEpisode:
    """An episode with some of its steps; its clips stay, and frames are counted from elsewhere."""
    number = episode.num_steps
    end = number if end < 0 else min(end, number)
    if begin >= end:
        raise ValueError(
            f"trim: no step of episode {episode.key!r} is left: it has {number}, got {begin}:{end}"
        )
    steps = {path: _stacked(column[begin:end]) for path, column in leaves_at(episode.steps, None)}
    is_cut = end < number
    if is_cut and episode.final_observation_known:
        for path in steps:
            if root_of(path) in OF_TRANSITIONS:
                steps[path] = as_array(steps[path]).copy()
                steps[path][-1:] = zeros_like(steps[path][-1:])
    values = dict(leaves_at(episode.metadata, None))
    for path in [path for path in values if root_of(path) == VIDEO and path.endswith(f"/{FIRST}")]:
        frames = path.removesuffix(FIRST) + FRAMES
        if frames in values:
            values[frames] = values[frames][begin:end]
            shown = values[frames][values[frames] >= 0]
            values[path] = np.int64(shown[0] if len(shown) else values[path])
        else:
            values[path] = np.int64(values[path] + begin)
    origin, first = episode.origin, episode.origin.begin
    rows = origin.end - first  # The final observation has a row, or none.
    if rows in (number, number - episode.final_observation_known):
        origin = Origin(origin.file, first + begin, first + min(end, rows))
    changed = dataclasses.replace(
        episode,
        steps=nest(steps),
        metadata=nest(values),
        origin=origin,
        truncated=episode.truncated or is_cut,
    )
    return _with_flags(changed, flags)


def _stacked(column: Any) -> Any:
    """A column of arrays as one array, if what is left of it has one shape."""
    is_of_arrays = isinstance(column, np.ndarray) and column.dtype == object
    is_of_arrays = is_of_arrays and isinstance(column.flat[0], np.ndarray)
    return stack(list(column)) if is_of_arrays else column


def _with_flags(episode: SourceEpisode, names: Collection[str]) -> SourceEpisode:
    """An episode whose first step is the first, and whose last step alone is the last."""
    number = episode.num_steps
    rows = np.arange(number)
    stored = episode.steps.get(rlds.IS_TERMINAL, np.zeros(number, np.bool_))
    is_last = rows == number - 1
    flags = {
        rlds.IS_FIRST: rows == 0,
        rlds.IS_LAST: is_last,
        rlds.IS_TERMINAL: np.asarray(stored, np.bool_) & is_last,
    }
    flags = {name: column for name, column in flags.items() if name in names}
    return dataclasses.replace(episode, steps={**episode.steps, **flags})
