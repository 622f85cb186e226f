"""What sources of HDF5 files have in common that have a group for each episode, or a file."""

from __future__ import annotations

import abc
import contextlib
import dataclasses
import json
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from typing_extensions import override

import rlds
from rlds.alignment import from_sars
from rlds.raw_files.hdf5_episodes import EpisodeGroup, field_of_values
from rlds.raw_files.hdf5_layout import encode_data, layout_changes
from rlds.raw_files.untrusted import SourceChangedError, source_errors
from rlds.sources.episode_fields import RESERVED
from rlds.sources.source import (
    ALL_ROWS,
    Origin,
    Outline,
    RandomAccessSource,
    SourceEpisode,
    SourceError,
    files_of,
)
from rlds_ecosystem.columns import with_placeholder
from rlds_ecosystem.fields import Field
from rlds_ecosystem.nests import Paths, excludes, nest

__all__ = ["LAYOUT", "Column", "Hdf5EpisodesSource", "of_colour"]

# The field of an episode that says, in JSON, in what it is stored otherwise than the first one.
LAYOUT = "layout"


_COLOURS: Mapping[str, tuple[str, ...]] = {
    "rgb": ("red", "green", "blue"),
    "bgr": ("blue", "green", "red"),
}


class Column(NamedTuple):
    """An array with a row for each step.

    Attributes:
      path: The path of the field of a step.
      field: What it holds.
      whole: Whether it has a row for the final observation, too.
    """

    path: str
    field: Field
    whole: bool


def of_colour(field: Field, colour: str) -> Field:
    """Returns a field whose channels are named in the order "rgb" or "bgr"; or as it is."""
    has_colours = field.shape[-1] == 3 and colour in _COLOURS
    return dataclasses.replace(field, names=_COLOURS[colour]) if has_colours else field


class Hdf5EpisodesSource(RandomAccessSource):
    """Episodes in groups of HDF5 files: the first that can be read decides what all of them have.

    Derived classes call `_look_at_first` when they are made.

    Attributes:
      unread: The paths of arrays that become no fields: the layout has their values.
      keeps_layout: Whether the episodes say how they are stored, so that they can be restored.
    """

    reads_rows = True
    unread: Collection[str] = ()
    keeps_layout = True

    @abc.abstractmethod
    def _opened(self, split: str, index: int) -> contextlib.AbstractContextManager[EpisodeGroup]:
        """Opens an episode."""

    @abc.abstractmethod
    def _origin(self, split: str, index: int) -> str:
        """Returns where an episode is: the `file` of its `Origin`."""

    @abc.abstractmethod
    def _num_transitions(self, group: EpisodeGroup) -> int:
        """Returns how many transitions there are.

        Raises:
          SourceError: There are no actions.
        """

    @abc.abstractmethod
    def _column(self, path: str, group: EpisodeGroup, num_transitions: int) -> Column | None:
        """Returns which field of a step an array is; None for one of the episode."""

    def _is_terminal(self, group: EpisodeGroup) -> bool:
        """Whether the last transition led to a terminal state."""
        del group
        return False

    def _is_complete(self, split: str, index: int, num_transitions: int) -> bool:
        """Whether all of an episode is there."""
        del split, index, num_transitions
        return True

    def _others(self, split: str, index: int, wanted: Collection[str]) -> Mapping[str, Any]:
        """Returns fields of an episode that are not in its group, at least those wanted."""
        del split, index, wanted
        return {}

    def _other_fields(self) -> Mapping[str, Field]:
        return {}

    def _constants(self, split: str, index: int, group: EpisodeGroup) -> Mapping[str, str]:
        """Returns texts that are fields of all steps of an episode."""
        del split, index, group
        return {}

    def _constant_fields(self) -> Sequence[str]:
        """Returns their names."""
        return ()

    # --- What there is.

    def _look_at_first(self, episodes: Iterator[tuple[str, int]]) -> None:
        """Finds out what the first episode has that can be read.

        Raises:
          SourceError: None can be read.
        """
        damage: SourceError | None = None
        for split, index in episodes:
            try:
                with (
                    source_errors(lambda: files_of(self), episode=self.key(split, index)),
                    self._opened(split, index) as group,
                ):
                    self._describe(group)
                return
            except SourceChangedError:
                raise
            except SourceError as error:
                damage = damage or error
        assert damage is not None
        raise damage

    def _describe(self, group: EpisodeGroup) -> None:
        num_transitions = self._num_transitions(group)
        if not num_transitions:
            raise group.error("no rows", next(iter(group.arrays)))
        self._columns: dict[str, Column] = {}
        self._values: dict[str, Field] = {}
        self._rows_of_values: dict[str, int | None] = {}
        taken: Paths[Any] = Paths(dict.fromkeys((*rlds.STEP_FLAGS, rlds.DISCOUNT)))
        names: Paths[Any] = Paths(dict.fromkeys((*RESERVED, LAYOUT, *self._other_fields())))
        for path in group.arrays:
            if path in self.unread:
                continue
            column = self._column(path, group, num_transitions)
            used, field_path = (names, path) if column is None else (taken, column.path)
            if field_path in used or excludes(used, field_path):
                raise group.error(f"there is another field {field_path!r}", path)
            used[field_path] = None
            if column is None:
                self._values[path] = group.value_field(path)
                self._rows_of_values[path] = group.num_rows(path)
            else:
                self._columns[path] = column
        self._check_rows(group)
        attributes = group.attributes()
        self._attributes = {
            name: field_of_values(value)
            for name, value in attributes.items()
            if name not in names and not excludes(names, name)
        }
        self._first_layout = self._layout(group) if self.keeps_layout else {}

    def _layout(self, group: EpisodeGroup) -> dict[str, Any]:
        """How a group is stored, with the values that are no fields."""
        layout = group.layout()
        for path in self.unread:
            if path in group.arrays:
                array = group.arrays[path]
                data = encode_data(array[()], layout[path]["dtype"])
                layout[path] |= {"shape": list(array.shape), "data": data}
        for path, column in self._columns.items():
            array = group.arrays.get(path)
            if column.field.encoding and array is not None and array.dtype == np.uint8:
                layout[path]["width"] = int(array.shape[1])
        return layout

    def step_fields(self) -> Mapping[str, Any]:
        """See `Source`."""
        columns = {column.path: column.field for column in self._columns.values()}
        constants = {name: Field(str) for name in self._constant_fields()}
        return nest({**columns, rlds.DISCOUNT: Field(np.float32), **constants})

    def episode_fields(self) -> Mapping[str, Any]:
        """See `Source`."""
        layout = {LAYOUT: Field(str)} if self.keeps_layout else {}
        return nest({**self._attributes, **self._values, **self._other_fields(), **layout})

    # --- One episode.

    @override
    def outline(self, split: str, index: int) -> Outline:
        with self._opened(split, index) as group:
            return self._outline(group)

    @override
    def read(
        self,
        split: str,
        index: int,
        fields: Collection[str] | None = None,
        rows: slice = ALL_ROWS,
    ) -> SourceEpisode:
        with self._opened(split, index) as group:
            wanted = self.episode_paths(fields)
            if wanted or fields is None:
                self._check(group)
            outline = self._outline(group)
            if not outline.num_steps:
                raise SourceError("no rows", file=group.file)
            has_final = outline.final_observation_known
            attributes = [path for path in wanted if path in self._attributes]
            metadata = {
                **(self._attribute_values(group) if attributes else {}),
                **{path: group.value(path) for path in self._values if path in wanted},
                **self._others(split, index, wanted),
            }
            if self.keeps_layout and LAYOUT in wanted:
                changes = layout_changes(self._layout(group), self._first_layout)
                metadata[LAYOUT] = json.dumps(changes) if changes else ""
            return SourceEpisode(
                key=self.key(split, index),
                steps=self._steps(group, split, index, self.step_paths(fields), rows),
                origin=Origin(self._origin(split, index), 0, outline.num_steps),
                truncated=not self._is_terminal(group),
                final_observation_known=has_final,
                complete=self._is_complete(split, index, outline.num_steps - has_final),
                metadata=nest(metadata),
            )

    def _has_final(self, group: EpisodeGroup, num_transitions: int) -> bool:
        """Whether there is an observation more than there are actions."""
        wholes = [path for path, column in self._columns.items() if column.whole]
        return any(group.num_rows(path) == num_transitions + 1 for path in wholes)

    def _outline(self, group: EpisodeGroup) -> Outline:
        number = self._num_transitions(group)
        if self._has_final(group, number):
            return Outline(number + 1, number, True)
        return Outline(number, number - 1 + self._is_terminal(group), False)

    def _check(self, group: EpisodeGroup) -> None:
        """Checks that an episode has no arrays but those of the first one."""
        for path in group.arrays:
            if path not in self._columns and path not in self._values and path not in self.unread:
                raise group.error("the first episode has no such array", path)
        number = self._num_transitions(group)
        for path, field in self._values.items():
            group.check(path, field, as_rows=False)
            has_other_rows = group.num_rows(path) != self._rows_of_values[path]
            if has_other_rows and self._column(path, group, number) is not None:
                raise group.error("a row for each step, but not so in the first episode", path)

    def _check_rows(self, group: EpisodeGroup) -> tuple[int, int]:
        """Checks that arrays have their rows; returns how many transitions and steps there are."""
        number = self._num_transitions(group)
        num_steps = number + self._has_final(group, number)
        for path, column in self._columns.items():
            rows, expected = group.num_rows(path), num_steps if column.whole else number
            if rows != expected:
                what = f"{rows} rows, expected {expected}: there are {number} actions"
                raise group.error(what, path)
        return number, num_steps

    def _attribute_values(self, group: EpisodeGroup) -> dict[str, Any]:
        found = group.attributes()
        for name, field in self._attributes.items():
            if name not in found:
                raise group.error("no such attribute, but the first episode has it", name)
            if (other := field_of_values(found[name])) != field:
                raise group.error(f"{other}, expected {field}, as in the first episode", name)
        return {name: found[name] for name in self._attributes}

    def _steps(
        self,
        group: EpisodeGroup,
        split: str,
        index: int,
        wanted: Collection[str],
        rows: slice,
    ) -> dict[str, Any]:
        """Returns the wanted columns of some steps."""
        number, num_steps = self._check_rows(group)
        begin, end, _ = rows.indices(num_steps)
        steps = {}
        for path, (name, field, whole) in self._columns.items():
            group.check(path, field)
            if name not in wanted:
                continue
            column = group.rows(path, field, slice(begin, min(end, num_steps if whole else number)))
            steps[name] = with_placeholder(column) if len(column) < end - begin else column
        if not num_steps:
            return nest(steps)
        others = from_sars(
            observation=np.empty((num_steps, 0)),
            action=np.empty((number, 0)),
            reward=None,
            terminal=self._is_terminal(group),
        )
        for name, value in self._constants(split, index, group).items():
            others[name] = np.full(num_steps, value, object)
        for name in {*wanted} & others.keys() - steps.keys():
            steps[name] = others[name][begin:end]
        return nest(steps)
