"""Episodes that have their labels as fields."""

from __future__ import annotations

import dataclasses
import hashlib
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from typing_extensions import override

import rlds
from rlds.labels.labels import Labels
from rlds.sources import reading
from rlds.sources.episodes import Episodes
from rlds.sources.label_rows import COLUMN, TYPES, Label
from rlds.sources.source import ALL_ROWS, Place, RandomAccessSource, SourceEpisode, files_of
from rlds.sources.wrapped import WrappedSource
from rlds_ecosystem.model.fields import Field
from rlds_ecosystem.model.names import what_there_is

__all__ = ["LabelledSource", "labelled"]

# What a field has where nothing is said, or where not all say the same.
_NOTHING: Mapping[type, Any] = {bool: False, str: "", float: np.nan}


def labelled(episodes: Episodes, layers: Iterable[str] | None = None) -> Episodes:
    """Returns the same episodes with their labels as fields.

    What is said of whole episodes is in `label/<layer>`, what is said of steps in the field of the
    steps of that name: what all annotators say who say something. Where they differ or nobody says
    anything, text is empty, a number NaN, and a flag false: `<layer>_known` is false there, too.

    Args:
      episodes: The episodes.
      layers: The names of layers; all if None.

    Raises:
      KeyError: There is no such layer.
      TypeError: The episodes cannot be read in any order.
      ValueError: They have fields `label` already, or there are no labels.
    """
    source = episodes.source
    if not isinstance(source, RandomAccessSource):
        raise TypeError(f"{files_of(source)}: no access by index; run `rlds convert` first")
    found = Labels(Episodes(source, "+".join(source.splits)))
    known = found.layers()
    wanted = set(known if layers is None else layers)
    for name in wanted - known.keys():
        raise KeyError(f"no layer {name!r}; {what_there_is(name, known)}")
    rows = [row for row in found if row.layer in wanted]
    if not rows:
        raise ValueError(f"{files_of(source)}: its episodes have no labels; add some first")
    return Episodes(LabelledSource(source, found, rows), episodes.split, format=episodes.format)


class LabelledSource(WrappedSource):
    """A source whose episodes have their labels as fields; see `labelled`.

    Args:
      source: The source.
      labels: Its labels.
      rows: Those to have.

    Raises:
      ValueError: There are fields `label` already.
    """

    shares_table = True

    def __init__(self, source: RandomAccessSource, labels: Labels, rows: Iterable[Label]) -> None:
        super().__init__(source)
        self.reads_rows = False
        self._types: dict[bool, dict[str, type]] = {False: {}, True: {}}
        self._rows: dict[str, list[Label]] = {}
        for row in rows:
            self._types[row.begin is not None][row.layer] = TYPES[row.type]
            self._rows.setdefault(row.episode, []).append(row)
        place = labels.episodes.place
        found = [(place(n), d) for n, d in enumerate(labels.digests) if d in self._rows]
        self._digests = dict(found)
        if COLUMN in source.step_fields() or COLUMN in source.episode_fields():
            raise ValueError(
                f"{files_of(source)}: the dataset already has a field {COLUMN!r}: rename it"
            )

    def _fields(self, *, of_steps: bool) -> dict[str, Any]:
        fields = {}
        for layer, kind in sorted(self._types[of_steps].items()):
            fields[layer] = Field(kind)
            if kind is bool:
                fields[f"{layer}_known"] = Field(bool)
        return {COLUMN: fields} if fields else {}

    @override
    def step_fields(self) -> Mapping[str, Any]:
        return {**self.source.step_fields(), **self._fields(of_steps=True)}

    @override
    def episode_fields(self) -> Mapping[str, Any]:
        return {**self.source.episode_fields(), **self._fields(of_steps=False)}

    @override
    def options(self) -> Mapping[str, Any]:
        names = [row.id for rows in self._rows.values() for row in rows]
        digest = hashlib.sha256(" ".join(names).encode()).hexdigest()
        return {**self.source.options(), COLUMN: digest}

    @override
    def stored_at(self, split: str, index: int, *, in_part: bool = False) -> Place | None:
        return self.source.stored_at(split, index, in_part=True) if in_part else None

    @override
    def read(
        self,
        split: str,
        index: int,
        fields: Collection[str] | None = None,
        rows: slice = ALL_ROWS,
    ) -> SourceEpisode:
        del rows  # How long the episode is, is seen in any field of its steps.
        flags = (*self.source.step_flags, *self.source.step_paths()[:1])
        wanted = None if fields is None else {*fields, *(f"{rlds.STEPS}/{name}" for name in flags)}
        episode = reading.read(self.source, split, index, wanted)
        labels = self._rows.get(self._digests.get((split, index), ""), [])
        whole = self._columns([row for row in labels if row.end is None], 1, of_steps=False)
        said = {at: {n: v[0] for n, v in columns.items()} for at, columns in whole.items()}
        ranges = [row for row in labels if row.end is not None]
        return dataclasses.replace(
            episode,
            steps={**episode.steps, **self._columns(ranges, episode.num_steps, of_steps=True)},
            metadata={**episode.metadata, **said},
        )

    def _columns(self, rows: Sequence[Label], length: int, *, of_steps: bool) -> dict[str, Any]:
        """The values of layers, in steps or in the one row of an episode."""
        columns: dict[str, Any] = {}
        for layer, kind in self._types[of_steps].items():
            said: dict[str, np.ndarray] = {}
            for row in rows:
                if row.layer == layer:
                    column = said.setdefault(row.annotator, np.full(length, None, object))
                    column[row.begin : row.end] = row.value
            values = [{*row} - {None} for row in zip(*said.values())] or [set[Any]()] * length
            known = np.array([len(each) == 1 for each in values])
            found = [next(iter(v)) if k else _NOTHING[kind] for v, k in zip(values, known)]
            columns[layer] = np.array(found, object if kind is str else kind)
            if kind is bool:
                columns[f"{layer}_known"] = known
        return {COLUMN: columns} if columns else {}
