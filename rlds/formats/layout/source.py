"""Reads files of any kind whose arrays a layout describes; see docs/layouts.md."""

from __future__ import annotations

import fnmatch
import functools
import os
from collections.abc import Collection, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from etils import epath
from typing_extensions import override

import rlds
from rlds.formats.layout.arrays import KINDS, Arrays, FolderArrays, groups_in, open_arrays
from rlds.formats.layout.layouts import LAYOUT_FILE, FileLayout, LayoutField
from rlds.formats.rows_source import EpisodeRows, RowsSource, RowsTable
from rlds.raw_files.image_files import image_field
from rlds.raw_files.input_files import natural_order
from rlds.raw_files.untrusted import check_link, source_errors
from rlds.sources.conventions import warn_of_convention
from rlds.sources.source import About, Can, Lengths, Origin, SourceError
from rlds_ecosystem.files import stores
from rlds_ecosystem.model.columns import equal_in
from rlds_ecosystem.model.fields import Field
from rlds_ecosystem.model.names import what_there_is
from rlds_ecosystem.model.nests import nest

__all__ = ["LayoutSource"]


class _Unit(NamedTuple):
    """A file, a folder, or a group of a file."""

    path: str
    group: str = ""


class _Place(NamedTuple):
    """The rows of an episode in a unit; `end` is None for all rows."""

    unit: int
    begin: int
    end: int | None
    complete: bool = True


class LayoutSource(RowsSource):
    """Episodes in files of your own (HDF5, npz, CSV, Parquet, images), by a layout in YAML.

    Args:
      path: A file or a folder.
      layout: The path of the layout, or its text; the file `rlds_layout.yaml` of the folder if
        empty.

    Raises:
      FileNotFoundError: There is no such file.
      ValueError: There is no layout.
      SourceError: A file is damaged, or has other arrays than the layout describes; or the layout
        has an error, or a line with `???` to fill in: names the line.
    """

    def __init__(self, path: str | os.PathLike[str], *, layout: str = "") -> None:
        self._root = os.fspath(path)
        if not layout and not self.recognizes(path):
            raise ValueError(
                "layout: missing; pass a layout in YAML (`rlds inspect PATH` proposes one)"
            )
        self._layout = FileLayout.of(layout or os.path.join(self._root, LAYOUT_FILE))
        self.table: RowsTable = self._layout.table
        self._opened_units: dict[int, Arrays] = {}
        self._units = self._find_units()
        first = self._arrays(0)
        self._check_names(first)
        self._described = {it.path: self._field(first, it) for it in self._layout.steps}
        self._of_episode = {it.path: self._value_field(first, it) for it in self._layout.episode}
        self._places = [
            place for unit in range(len(self._units)) for place in self._places_in(unit)
        ]

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_opened_units": {}}

    @classmethod
    @override
    def recognizes(cls, path: str | os.PathLike[str]) -> bool:
        return bool(stores.as_path(os.path.join(os.fspath(path), LAYOUT_FILE)).exists())

    # --- Files.

    def _find_units(self) -> list[_Unit]:
        layout, place = self._layout, stores.as_path(self._root)
        if not place.exists():
            raise FileNotFoundError(f"{self._root!r} does not exist.")
        if not place.is_dir():
            paths = [self._root]
        elif layout.files or layout.one_per:
            paths = self._paths_in(place)
        else:
            paths = [self._root]
        if layout.one_per != "group":
            return [_Unit(path) for path in paths]
        units = [_Unit(path, group) for path in paths for group in groups_in(path, layout.groups)]
        if not units:
            raise SourceError(f"no groups match {layout.groups!r}", file=self._root)
        return units

    def _paths_in(self, place: epath.Path) -> list[str]:
        """Returns the files or the folders in a folder that the layout means."""
        is_folder = self._layout.one_per == "folder"
        entries = stores.list_directory(place)
        for entry in entries:
            check_link(os.path.join(self._root, entry.name))
        names = [
            entry.name
            for entry in entries
            if not entry.name.startswith(".") and entry.name != LAYOUT_FILE
            if entry.is_dir == is_folder
            if is_folder or os.path.splitext(entry.name)[1] in KINDS
        ]
        pattern = self._layout.files or "*"
        names = sorted(fnmatch.filter(names, pattern), key=natural_order)
        kinds = sorted({os.path.splitext(name)[1] for name in names})
        if not names:
            raise SourceError(
                f"no {'folder' if is_folder else 'file'} matches {pattern!r}", file=self._root
            )
        if not is_folder and len(kinds) > 1:
            what = f"files of several kinds ({', '.join(kinds)}); name those to read with files:"
            raise SourceError(what, file=self._root)
        return [os.path.join(self._root, name) for name in names]

    def _arrays(self, unit: int) -> Arrays:
        """Returns the arrays of a unit; the last ones stay open."""
        opened = self._opened_units.get(unit)
        if opened is None:
            opened = open_arrays(*self._units[unit])
            if isinstance(opened, FolderArrays):
                for name in self._layout.arrays:
                    opened.match(name)
            self._opened_units = {unit: opened}
        return opened

    def _check_names(self, first: Arrays) -> None:
        known = first.lengths()
        used = self._layout.arrays
        for name in sorted(used - known.keys() - {*self._layout.leave_out}):
            found = f"no array {name!r} in {first.path}; {what_there_is(name, known)}"
            raise SourceError(f"{self._layout.lines[name]}: {found}")
        unread = sorted(known.keys() - used)
        if unread:
            warn_of_convention(
                self._root,
                f"not in the layout, and not read: {', '.join(map(repr, unread[:8]))}. Add them to "
                "steps, or to leave_out",
            )

    # --- Fields.

    def _field(self, arrays: Arrays, wanted: LayoutField) -> Field:
        parts = [arrays.field(name) for name in wanted.arrays]
        field = parts[0]
        if len(parts) > 1:
            if any(part.is_text or part.encoding or len(part.shape) > 1 for part in parts):
                raise SourceError(f"{wanted.where}: only numbers and vectors can be joined")
            sizes = [int(part.shape[0] or 0) if part.shape else 1 for part in parts]
            dtype = np.result_type(*(part.column_dtype for part in parts))
            is_named = all(not part.shape for part in parts)
            field = Field(dtype, (sum(sizes),), names=wanted.arrays if is_named else None)
        changes: dict[str, Any] = {"doc": wanted.doc, "unit": wanted.unit}
        if wanted.names is not None:
            if field.shape[-1:] != (len(wanted.names),):
                raise SourceError(f"{wanted.where}: {len(wanted.names)} names for {field}")
            changes["names"] = wanted.names
        if wanted.dtype is not None:
            if field.is_text or field.encoding:
                raise SourceError(f"{wanted.where}: got dtype {wanted.dtype} for {field}")
            changes["dtype"] = wanted.dtype
        return Field(**{**_parts_of(field), **changes})

    def _value_field(self, arrays: Arrays, wanted: LayoutField) -> Field:
        (name, *others), field = wanted.arrays, arrays.field(wanted.arrays[0])
        if others:
            raise SourceError(f"{wanted.where}: expected one array")
        is_whole = not self._is_constant(arrays, name) and arrays.lengths()[name] is not None
        shape = (None, *field.shape) if is_whole else field.shape
        return Field(**{**_parts_of(field), "shape": shape, "doc": wanted.doc, "unit": wanted.unit})

    def _is_constant(self, arrays: Arrays, name: str) -> bool:
        """Whether an array has a row for each step, of which an episode takes one."""
        return not self._layout.one_per or arrays.is_column(name)

    @override
    def _fields(self) -> Mapping[str, Field]:
        return self._described

    @override
    def _value_fields(self) -> Mapping[str, Any]:
        return self._of_episode

    # --- Episodes.

    def _places_in(self, unit: int) -> list[_Place]:
        """Finds the episodes of a unit."""
        layout = self._layout
        if layout.one_per:
            return [_Place(unit, 0, None)]
        arrays = self._arrays(unit)
        with source_errors(arrays.path):
            num_rows = self._num_rows(arrays)
            for name in sorted(
                layout.arrays - {*layout.leave_out, layout.end_rows, layout.lengths}
            ):
                self._check_length(arrays, name, num_rows)
            ends, is_last_whole = self._ends_in(arrays, num_rows)
        places = [
            _Place(unit, begin, end, is_last_whole or end < num_rows)
            for begin, end in zip([0, *ends[:-1]], ends)
        ]
        if not places:
            raise arrays.error("no rows")
        return places

    def _num_rows(self, arrays: Arrays) -> int:
        lengths = {n: arrays.lengths()[n] for it in self._layout.steps for n in it.arrays}
        if len({*lengths.values()}) != 1 or None in lengths.values():
            raise arrays.error(f"arrays of different lengths: {lengths}")
        return int(next(iter(lengths.values())) or 0)

    def _ends_in(self, arrays: Arrays, num_rows: int) -> tuple[list[int], bool]:
        """Returns the rows after the last of each episode, and whether the last one is whole."""
        layout = self._layout
        if layout.flags:
            marked = np.zeros(num_rows, bool)
            for name in layout.flags:
                marked |= self._flags(arrays, name, 0, num_rows)
            ends = np.union1d(np.flatnonzero(marked) + 1, [num_rows])
            return ends.tolist(), bool(marked[-1:].any())
        name = layout.end_rows or layout.lengths or layout.number
        values = np.asarray(arrays.value(name)).reshape(-1)
        if values.dtype.kind not in "iu" and not (layout.number and values.dtype == object):
            raise arrays.error(f"{values.dtype}, expected integers", name)
        if layout.number:
            changes = np.flatnonzero(values[1:] != values[:-1]) + 1
            begins = values[[0, *changes]].tolist()
            if len({*begins}) < len(begins):
                raise arrays.error("the rows of an episode are in several places", name)
            return [*changes.tolist(), num_rows], True
        values = values.astype(np.int64)  # Of values without a sign, no difference is negative.
        ends = np.cumsum(values) if layout.lengths else values
        if not len(ends) or ends[-1] != num_rows or np.any(np.diff(ends, prepend=0) <= 0):
            what = f"expected increasing rows that end with {num_rows}, got {ends[-3:].tolist()}"
            raise arrays.error(what, name)
        return ends.tolist(), True

    def _check_length(self, arrays: Arrays, name: str, num_rows: int) -> None:
        if arrays.lengths()[name] != num_rows:
            what = f"{arrays.lengths()[name]} rows, but other arrays have {num_rows}"
            raise arrays.error(what, name)

    def _flags(self, arrays: Arrays, name: str, begin: int, end: int) -> np.ndarray:
        rows = arrays.rows(name, begin, end).reshape(end - begin, -1)
        if rows.shape[1:] != (1,) or rows.dtype.kind not in "biuf":
            raise arrays.error(f"{rows.dtype} of shape {rows.shape}, expected a flag a row", name)
        wrong = np.flatnonzero((rows != 0) & (rows != 1))
        if len(wrong):
            what = f"{rows[wrong[0], 0]}, expected 0 or 1"
            raise arrays.error(what, name, begin + int(wrong[0]))
        return np.asarray(rows[:, 0] != 0)

    def _is_set(self, arrays: Arrays, name: str, begin: int, end: int, num_rows: int) -> bool:
        """Whether a flag is set at the end of an episode.

        Raises:
          SourceError: It is set earlier.
        """
        length = arrays.lengths()[name]
        if self._layout.one_per and (length is None or (length == 1 and num_rows != 1)):
            return bool(self._flags(arrays, name, 0, 1)[0])
        if self._layout.one_per:
            end = int(length or 0)
            if end not in (num_rows, num_rows + (self._layout.final == "extra")):
                self._check_length(arrays, name, num_rows)
        flags = self._flags(arrays, name, begin, end)
        # What arrives with an observation is in the last row only.
        is_with_action = self._layout.order == "sar" and self._layout.final == "row"
        early = np.flatnonzero(flags[: num_rows - 1 - is_with_action])
        if len(early):
            what = f"set in step {early[0]} of {len(flags)}; do episodes end elsewhere?"
            raise arrays.error(what, name, begin + int(early[0]))
        return bool(flags.any())

    def _bounds(self, index: int) -> tuple[Arrays, int, int]:
        """Returns the rows of the actions of an episode."""
        unit, begin, end, _ = self._places[index]
        arrays = self._arrays(unit)
        if end is not None:
            return arrays, begin, end
        missing = self._layout.arrays - {*self._layout.leave_out} - arrays.lengths().keys()
        if missing:
            raise arrays.error("no such array; the first episode has it", min(missing))
        is_extra = self._layout.final == "extra"
        rows = {
            name: (arrays.lengths()[name] or 0) - (is_extra and not self._is_of_transitions(it))
            for it in self._layout.steps
            for name in it.arrays
        }
        if len({*rows.values()}) != 1 or min(rows.values()) < 1:
            found = {name: arrays.lengths()[name] for name in rows}
            extra = ", expected one row more unless of: transition" if is_extra else ""
            raise arrays.error(f"rows: {found}{extra}")
        return arrays, 0, next(iter(rows.values()))

    def _is_of_transitions(self, field: LayoutField) -> bool:
        return self.table.is_of_transitions(field.path)

    @override
    def _run(self, split: str, index: int) -> EpisodeRows:
        layout, (arrays, begin, end) = self._layout, self._bounds(index)
        count, terminal, is_cut = end - begin, layout.terminal, False
        if layout.final == "row" and count < 2:
            raise arrays.error("an episode without a transition", row=begin)
        if isinstance(terminal, str):
            terminal = self._is_set(arrays, terminal, begin, end, count)
        if layout.truncated:
            is_cut = self._is_set(arrays, layout.truncated, begin, end, count)
        transitions = count - (layout.final == "row")
        is_cut |= bool(layout.time_limit) and transitions == layout.time_limit
        origin = Origin(self._name(self._places[index].unit), begin, end)
        complete = self._places[index].complete
        return EpisodeRows(
            origin, count, terminal and not is_cut and complete, layout.final, complete
        )

    @override
    def _rows(self, split: str, index: int, paths: Collection[str]) -> dict[str, np.ndarray]:
        arrays, begin, end = self._bounds(index)
        columns = {}
        for field in self._layout.steps:
            if field.path in paths:
                is_longer = self._layout.final == "extra" and not self._is_of_transitions(field)
                columns[field.path] = self._column(arrays, field, begin, end + is_longer)
        if self._layout.final == "next":
            self._check_next(arrays, columns, begin, end)
        return columns

    def _column(self, arrays: Arrays, field: LayoutField, begin: int, end: int) -> np.ndarray:
        expected = self._described[field.path]
        found = self._field(arrays, field)
        if (found.shape, found.encoding, found.is_text) != (
            expected.shape,
            expected.encoding,
            expected.is_text,
        ):
            what = f"{found}, but the first episode has {expected}"
            raise arrays.error(what, field.arrays[0])
        parts = [arrays.rows(name, begin, end) for name in field.arrays]
        if not (expected.is_text or expected.encoding):
            parts = [self._cast(arrays, field, part) for part in parts]
        rows = parts[0]
        if len(parts) > 1:
            rows = np.concatenate([part.reshape(end - begin, -1) for part in parts], axis=1)
        if expected.encoding:
            for number, data in enumerate(rows):
                with source_errors(arrays.path, field=field.arrays[0], row=begin + number):
                    image = image_field(data)
                    if (image.dtype, image.shape) != (expected.dtype, expected.shape):
                        raise ValueError(f"an image of {image}, expected {expected}")
        return rows

    def _cast(self, arrays: Arrays, field: LayoutField, rows: np.ndarray) -> np.ndarray:
        """Returns rows in the dtype of the field; rounds only if the layout says so."""
        dtype = self._described[field.path].column_dtype
        if (equal := equal_in(rows, dtype)) is not None:
            return np.asarray(equal)
        with np.errstate(over="ignore"):
            rounded = rows.astype(dtype)
        is_rounding = field.dtype is not None and dtype.kind == "f"
        if not is_rounding or np.any(np.isfinite(rounded) != np.isfinite(rows)):
            row = next(row for row in rows if equal_in(row, dtype) is None)
            what = f"{row} does not fit into {dtype}; state another dtype in the layout"
            raise arrays.error(what, field.arrays[0])
        return rounded

    def _check_next(
        self, arrays: Arrays, columns: Mapping[str, np.ndarray], begin: int, end: int
    ) -> None:
        """Checks that next observations are the observations of the next rows."""
        for path, name in self._layout.next.items():
            if path in columns:
                following = arrays.rows(name, begin, end - 1)
                found = columns[path][1:]
                same = (found == following) | ((found != found) & (following != following))
                wrong = np.flatnonzero(~same.reshape(len(found), -1).all(axis=1))
                if len(wrong):
                    what = "not the observation of the next row: does an episode end here?"
                    raise arrays.error(what, name, begin + int(wrong[0]))

    @override
    def _final(self, split: str, index: int) -> Any:
        arrays, _, end = self._bounds(index)
        finals = {
            path: arrays.rows(name, end - 1, end)[0] for path, name in self._layout.next.items()
        }
        return nest(finals)[rlds.OBSERVATION]

    @override
    def _values(self, split: str, index: int, paths: Collection[str]) -> Mapping[str, Any]:
        arrays, begin, end = self._bounds(index)
        return {
            field.path: self._value(arrays, field, begin, end)
            for field in self._layout.episode
            if field.path in paths
        }

    def _value(self, arrays: Arrays, field: LayoutField, begin: int, end: int) -> Any:
        (name,) = field.arrays
        if self._value_field(arrays, field) != self._of_episode[field.path]:
            raise arrays.error("other values than in the first episode", name)
        if not self._is_constant(arrays, name):
            return arrays.value(name)
        rows = arrays.rows(name, begin, end)
        if len(different := np.flatnonzero([np.any(row != rows[0]) for row in rows])):
            what = "another value than in the first row of the episode; make it a field of steps"
            raise arrays.error(what, name, begin + int(different[0]))
        return rows[0]

    # --- The dataset.

    def _name(self, unit: int) -> str:
        path, group = self._units[unit]
        name = os.path.relpath(path, self._root) if path != self._root else os.path.basename(path)
        return f"{name}/{group}" if group else name

    @override
    def key(self, split: str, index: int) -> str:
        place = self._places[index]
        return self._name(place.unit) + ("" if place.end is None else f"-{place.begin:07d}")

    @override
    def num_episodes(self, split: str) -> int:
        return len(self._places)

    @property
    @override
    def can(self) -> Can:
        return Can(lengths=None if self._layout.one_per else self._lengths)

    @override
    def _lengths(self, split: str) -> Lengths:
        extra = self._layout.final == "next"
        lengths = [(place.end or 0) - place.begin + extra for place in self._places]
        # Without final observations, flags say which last steps are transitions.
        return Lengths.of(lengths, final_observation_known=bool(self._layout.final) or None)

    @functools.cached_property
    @override
    def about(self) -> About:
        return About(
            description="Episodes in files of their own layout.",
            metadata={"layout": {"text": self._layout.text}},
            options={"layout": self._layout.text},
        )

    @override
    def inputs(self) -> Sequence[str]:
        units = range(len(self._units))
        if stores.as_path(self._units[0].path).is_dir():
            return [file for unit in units for file in self._arrays(unit).files()]
        return list(dict.fromkeys(self._units[unit].path for unit in units))


def _parts_of(field: Field) -> dict[str, Any]:
    return {name: getattr(field, name) for name in ("dtype", "shape", "encoding", "names")}
