"""Episodes of one or more sources as an edit has them: a view, of which nothing is stored."""

from __future__ import annotations

import dataclasses
import uuid
from collections.abc import Collection, Mapping, Sequence
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
    About,
    AnySource,
    Can,
    Fields,
    Origin,
    Source,
    SourceEpisode,
    with_random_access,
)
from rlds.sources.view import Chosen, View, stored_names
from rlds.video import FIRST, FRAMES, VIDEO
from rlds_ecosystem.columns import zeros_like
from rlds_ecosystem.fields import as_fields
from rlds_ecosystem.nests import leaves_at, nest, root_of
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


class EditedSource(View):
    """The episodes of several datasets as an edit has them.

    Args:
      parts: The datasets, with the same fields.
      changes: What becomes of their fields, in this order.
      rows: What becomes of their episodes.
      metadata: What is said of the data as a whole.
      facts: Others of the attributes of sources, such as `license`.
    """

    def __init__(
        self,
        parts: Sequence[Part],
        changes: Sequence[Change],
        rows: Rows,
        metadata: Mapping[str, Any],
        facts: Mapping[str, str],
    ) -> None:
        super().__init__(*(source_of(part.episodes) for part in parts))
        self._parts, self._changes, self._rows = list(parts), list(changes), rows
        self._metadata = dict(metadata)
        self._name = uuid.uuid4().hex  # Functions make fields: no two views are known to be equal.
        self._ends = np.cumsum([len(part.episodes) for part in parts])
        first = source_of(parts[0].episodes)
        self._facts = facts
        changed = [change.fields for change in (*parts[0].changes, *changes)][-1:]
        self._fields = changed[0] if changed else fields_of(parts[0].episodes)

    @property
    @override
    def splits(self) -> Sequence[str]:
        return list(self._rows.splits)

    @property
    @override
    def fields(self) -> Fields:
        steps = {p.removeprefix(STEPS): f for p, f in self._fields.items() if p.startswith(STEPS)}
        episode = {p: field for p, field in self._fields.items() if not p.startswith(STEPS)}
        known = [base.fields.flags for base in self.bases]
        flags = [name for name in rlds.STEP_FLAGS if all(name in of for of in known)]
        if self._rows.fixed.any():
            flags = [*rlds.STEP_FLAGS]
        return Fields(nest(steps), nest(episode), flags)

    @property
    @override
    def about(self) -> About:
        first = super().about
        return About(
            **{name: self._facts.get(name, getattr(first, name)) for name in FACTS},
            metadata=self._metadata,
            options={"view": self._name},
            finite=[path for path in first.finite if STEPS + path in self._fields],
            images_as_png=first.images_as_png,
        )

    @override
    def num_episodes(self, split: str) -> int:
        return len(self._rows.splits[split])

    @override
    def key(self, split: str, index: int) -> str:
        return self._part(self._row(split, index)).prefix + super().key(split, index)

    @override
    def read(
        self,
        split: str,
        index: int,
        fields: Collection[str] | None = None,
        rows: slice = ALL_ROWS,
    ) -> SourceEpisode:
        row = self._row(split, index)
        part, (source, *place) = self._part(row), self.place(split, index)
        changes = [*part.changes, *self._changes]
        needs = _needs(changes, fields, source.fields.flags)
        is_changed = self._are_cut(row) or self._rows.fixed[row]
        if is_changed and needs is not None:
            needs |= set(_FLAGS)
        is_whole = is_changed or needs is None
        episode = as_converted(reading.read(source, *place, needs, ALL_ROWS if is_whole else rows))
        if self._are_cut(row):
            begin, end = int(self._rows.begin[row]), int(self._rows.end[row])
            episode = _trimmed(episode, begin, end, self.fields.flags)
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
    def where(self, split: str, episodes: np.ndarray) -> Sequence[Chosen]:
        rows = self._rows.splits[split][episodes]
        numbers, found = self.parts_of(rows), []
        for number in np.unique(numbers).tolist():
            part, base = self._parts[number].episodes, self.bases[number]
            before = int(self._ends[number]) - len(part)
            for name, first, last in part.ranges:
                end = before + last - first
                at = np.flatnonzero((numbers == number) & (before <= rows) & (rows < end))
                if len(at):
                    found.append(Chosen(at, base, name, rows[at] - before + first))
                before = end
        return found

    @override
    def at(self, split: str, episodes: np.ndarray, steps: np.ndarray) -> np.ndarray:
        begins: np.ndarray = self._rows.begin[self._rows.splits[split][episodes]]
        return steps + begins

    @property
    @override
    def can(self) -> Can:
        is_cut = (self._rows.end >= 0).any() or self._rows.begin.any() or self._rows.fixed.any()
        can = super().can
        return dataclasses.replace(
            can, reads_rows=True, image_files=None, lengths=None if is_cut else can.lengths
        )

    @property
    @override
    def names(self) -> Mapping[str, str]:
        names: Mapping[str, str] = {path: path for path in stored_names(self.bases[0])}
        for change in (*self._parts[0].changes, *self._changes):
            names = change.names(names)
        return names

    @override
    def touches(self, split: str, episodes: np.ndarray) -> np.ndarray:
        return self.touched(self._rows.splits[split][episodes], in_part=True)

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
            if part.prefix and _has_keys(part.episodes.source):
                touched |= numbers == number
        return touched

    def parts_of(self, rows: np.ndarray) -> np.ndarray:
        """Returns the numbers of the parts that episodes are of."""
        return np.searchsorted(self._ends, rows, side="right")

    def _row(self, split: str, index: int) -> int:
        return int(self._rows.splits[split][index])

    def _part(self, row: int) -> Part:
        return self._parts[int(np.searchsorted(self._ends, row, side="right"))]

    def _are_cut(self, rows: int | np.ndarray) -> Any:
        return (self._rows.begin[rows] > 0) | (self._rows.end[rows] >= 0)


def _has_keys(source: AnySource) -> bool:
    """Whether what is stored of an episode has its key."""
    return source.can.examples is not None or isinstance(source, RestoredSource)


def source_of(episodes: Episodes) -> Source:
    """Returns the source of episodes that can be read in any order.

    Raises:
      TypeError: They cannot.
    """
    return with_random_access(episodes.source)


def fields_of(episodes: Episodes) -> dict[str, Any]:
    """Returns the fields of steps, without the flags, and of episodes, by path."""
    source = episodes.source
    return flat_fields(as_fields(source.fields.steps), as_fields(source.fields.episode))


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
