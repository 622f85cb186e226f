"""Reading of files with a layout, a description of their arrays; see docs/layouts.md."""

from __future__ import annotations

import dataclasses
import fnmatch
import functools
import itertools
import os
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from typing_extensions import override

import rlds
from rlds.formats.layout.arrays import KINDS, Arrays, list_files, list_groups, open_arrays
from rlds.formats.layout.layouts import LAYOUT_FILE, FileLayout, LayoutField
from rlds.formats.rows_source import EpisodeRows, RowsSource, RowsTable
from rlds.raw_files.image_files import image_field
from rlds.raw_files.input_files import files_at, natural_order
from rlds.raw_files.untrusted import folders_in, source_errors
from rlds.sources.conventions import warn_of_convention
from rlds.sources.source import Capabilities, Lengths, Origin, SourceError, SourceInfo
from rlds_ecosystem.files import stores
from rlds_ecosystem.model.columns import cast_exact
from rlds_ecosystem.model.fields import Field
from rlds_ecosystem.model.names import suggest_names
from rlds_ecosystem.model.nests import nest

__all__ = ["LayoutSource"]


class _Location(NamedTuple):
    """The rows of an episode in a file, folder or group; all rows if `end` is None."""

    path: str
    group: str = ""
    start: int = 0
    end: int | None = None
    complete: bool = True


class LayoutSource(RowsSource):
    """Episodes in custom files (HDF5, npz, CSV, Parquet, images) with a layout in YAML.

    Args:
      path: A file or a folder.
      layout: The path of the layout, or its text; by default, the file `rlds_layout.yaml` in the
        folder.

    Raises:
      FileNotFoundError: There is no such file.
      ValueError: There is no layout.
      SourceError: A file is damaged, or its arrays differ from the layout; or the layout has an
        error, or a line with `???` to fill in. The message has the line.
    """

    def __init__(self, path: str | os.PathLike[str], *, layout: str = "") -> None:
        self._root = os.fspath(path)
        if not layout and not stores.as_path(os.path.join(self._root, LAYOUT_FILE)).exists():
            raise ValueError(
                "layout: missing; pass a layout in YAML (`rlds inspect PATH` proposes one)"
            )
        self._layout = FileLayout.load(layout or os.path.join(self._root, LAYOUT_FILE))
        self.table: RowsTable = self._layout.table
        self._open_arrays: tuple[tuple[str, str], Arrays] | None = None
        self._read = {name for name in self._layout.arrays if name not in self._layout.leave_out}
        self._locations = self._find_locations()
        first = self._arrays(self._locations[0])
        self._check_names(first)
        self.step_fields = {
            path: self._field(first, path, field) for path, field in self._layout.steps.items()
        }
        self.value_fields = {
            path: self._value_field(first, path, field)
            for path, field in self._layout.episode.items()
        }
        if not self._layout.episodes.one_per:
            self._locations = [*itertools.chain(*map(self._find_episodes, self._locations))]

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_open_arrays": None}

    # --- Files.

    def _find_locations(self) -> list[_Location]:
        """Returns the files, folders or groups with episodes."""
        layout, root = self._layout, stores.as_path(self._root)
        if not root.exists():
            raise FileNotFoundError(f"{self._root!r} does not exist.")
        has_many = root.is_dir() and (layout.files or layout.episodes.one_per)
        paths = self._matching_paths() if has_many else [self._root]
        if layout.episodes.one_per != "group":
            return [_Location(path) for path in paths]
        groups = [_Location(path, g) for path in paths for g in list_groups(path, layout.groups)]
        if not groups:
            raise SourceError(f"no groups match {layout.groups!r}", file=self._root)
        return groups

    def _matching_paths(self) -> list[str]:
        """Returns the files or folders that match the pattern in the layout."""
        is_folder, pattern = self._layout.episodes.one_per == "folder", self._layout.files or "*"
        if is_folder:
            names = folders_in(self._root)
        else:
            files = files_at(self._root, lambda name: os.path.splitext(name)[1] in KINDS)
            names = [str(file.name) for file in files]
        names = sorted(fnmatch.filter(names, pattern), key=natural_order)
        kinds = ", ".join(sorted({os.path.splitext(name)[1] for name in names}))
        if not names:
            kind = "folder" if is_folder else "file"
            raise SourceError(f"no {kind} matches {pattern!r}", file=self._root)
        if not is_folder and "," in kinds:
            problem = f"files of several kinds ({kinds}); name those to read with files:"
            raise SourceError(problem, file=self._root)
        return [os.path.join(self._root, name) for name in names]

    def _arrays(self, location: _Location) -> Arrays:
        """Returns the arrays of a file, folder or group; caches the last ones."""
        key = location[:2]
        if self._open_arrays is None or self._open_arrays[0] != key:
            self._open_arrays = key, open_arrays(*key, self._layout.arrays)
        return self._open_arrays[1]

    def _check_names(self, first: Arrays) -> None:
        layout = self._layout
        for name in sorted(self._read - first.keys()):
            problem = f"no array {name!r} in {first.path}; {suggest_names(name, first)}"
            raise SourceError(f"{layout.lines[layout.arrays[name]]}: {problem}")
        unread = sorted(first.keys() - layout.arrays)
        if unread:
            warn_of_convention(
                self._root,
                f"not in the layout, and not read: {', '.join(map(repr, unread[:8]))}. Add them to "
                "steps, or to leave_out",
            )

    # --- Fields.

    def _field(self, arrays: Arrays, path: str, entry: LayoutField) -> Field:
        location = self._layout.lines[f"steps/{path}"]
        field, *further = array_fields = [arrays[name].field() for name in entry.arrays]
        if further:
            if any(
                array_field.is_text or array_field.encoding or len(array_field.shape) > 1
                for array_field in array_fields
            ):
                raise SourceError(f"{location}: only numbers and vectors can be joined")
            sizes = [
                int(array_field.shape[0] or 0) if array_field.shape else 1
                for array_field in array_fields
            ]
            dtype = np.result_type(*(array_field.column_dtype for array_field in array_fields))
            is_named = all(not array_field.shape for array_field in array_fields)
            field = Field(dtype, (sum(sizes),), names=entry.arrays if is_named else None)
        if entry.names and field.shape[-1:] != (len(entry.names),):
            raise SourceError(f"{location}: {len(entry.names)} names for {field}")
        if entry.dtype and (field.is_text or field.encoding):
            raise SourceError(f"{location}: got dtype {entry.dtype} for {field}")
        return dataclasses.replace(
            field,
            dtype=np.dtype(entry.dtype) if entry.dtype else field.dtype,
            names=entry.names or field.names,
            **_meaning(entry),
        )

    def _value_field(self, arrays: Arrays, path: str, entry: LayoutField) -> Field:
        if len(entry.arrays) > 1:
            raise SourceError(f"{self._layout.lines[f'episode/{path}']}: expected one array")
        array = arrays[entry.arrays[0]]
        field = array.field()
        has_all_rows = not self._is_constant(arrays, entry.arrays[0]) and array.length is not None
        shape = (None, *field.shape) if has_all_rows else field.shape
        return dataclasses.replace(field, shape=shape, **_meaning(entry))

    def _is_constant(self, arrays: Arrays, name: str) -> bool:
        """Returns True if an array of an episode field has a row for each step."""
        return not self._layout.episodes.one_per or arrays[name].is_column

    # --- Episodes.

    def _num_rows(self, arrays: Arrays) -> int:
        """Returns the number of rows of actions."""
        if missing := self._read - arrays.keys():
            raise arrays.error("no such array; the first episode has it", min(missing))
        rows = {
            name: (arrays[name].length or 0) - self._has_extra_row(path)
            for path, field in self._layout.steps.items()
            for name in field.arrays
        }
        if len({*rows.values()}) != 1 or min(rows.values()) < 1:
            lengths = {name: arrays[name].length for name in rows}
            is_extra = self._layout.final == "extra"
            hint = ", expected one row more unless of: transition" if is_extra else ""
            raise arrays.error(f"rows: {lengths}{hint}")
        return rows.popitem()[1]

    def _has_extra_row(self, path: str) -> bool:
        """Returns True if a field has one more row than actions."""
        return self._layout.final == "extra" and not self.table.has_transition_rows(path)

    def _find_episodes(self, location: _Location) -> Iterator[_Location]:
        """Yields the episodes of a file."""
        arrays, rule = self._arrays(location), self._layout.episodes
        with source_errors(arrays.path):
            num_rows = self._num_rows(arrays)
            for name in sorted(self._read - {rule.end_rows, rule.lengths}):
                self._check_length(arrays, name, num_rows)
            if rule.ends:
                flags = [self._flags(arrays, name, 0, num_rows) for name in rule.ends]
                is_end = np.logical_or.reduce(flags)
                end_rows, is_complete = (
                    np.union1d(np.flatnonzero(is_end) + 1, num_rows),
                    bool(is_end[-1]),
                )
            else:
                end_rows, is_complete = self._episode_ends(arrays, num_rows), True
        for start, end in itertools.pairwise([0, *end_rows.tolist()]):
            complete = is_complete or end < num_rows
            yield location._replace(start=start, end=end, complete=complete)

    def _episode_ends(self, arrays: Arrays, num_rows: int) -> np.ndarray:
        """Returns the end rows of episodes from an array of integers."""
        rule = self._layout.episodes
        name = rule.end_rows or rule.lengths or rule.number
        values = np.asarray(arrays.value(name)).reshape(-1)
        if values.dtype.kind not in "iu" and not (rule.number and values.dtype == object):
            raise arrays.error(f"{values.dtype}, expected integers", name)
        if rule.number:
            changes = np.flatnonzero(values[1:] != values[:-1]) + 1
            episode_ids = values[[0, *changes]].tolist()
            if len({*episode_ids}) < len(episode_ids):
                raise arrays.error("the rows of an episode are not consecutive", name)
            return np.append(changes, num_rows)
        values = values.astype(np.int64)  # Differences of unsigned integers are never negative.
        rows = np.cumsum(values) if rule.lengths else values
        if not len(rows) or rows[-1] != num_rows or np.any(np.diff(rows, prepend=0) <= 0):
            problem = f"expected increasing rows that end with {num_rows}, got {rows[-3:].tolist()}"
            raise arrays.error(problem, name)
        return rows

    def _check_length(self, arrays: Arrays, name: str, num_rows: int) -> None:
        if arrays[name].length != num_rows:
            problem = f"{arrays[name].length} rows, but other arrays have {num_rows}"
            raise arrays.error(problem, name)

    def _flags(self, arrays: Arrays, name: str, start: int, end: int) -> np.ndarray:
        rows = arrays[name].rows(start, end).reshape(end - start, -1)
        if rows.shape[1:] != (1,) or rows.dtype.kind not in "biuf":
            raise arrays.error(f"{rows.dtype} of shape {rows.shape}, expected a flag a row", name)
        invalid = np.flatnonzero((rows != 0) & (rows != 1))
        if len(invalid):
            problem = f"{rows[invalid[0], 0]}, expected 0 or 1"
            raise arrays.error(problem, name, start + int(invalid[0]))
        return np.asarray(rows[:, 0] != 0)

    def _is_set(self, arrays: Arrays, name: str, start: int, end: int) -> bool:
        """Returns True if a flag is set at the end of an episode.

        Raises:
          SourceError: The flag is set earlier.
        """
        num_rows = end - start
        if self._layout.episodes.one_per:
            length = arrays[name].length
            if length is None or (length == 1 and num_rows != 1):
                return bool(self._flags(arrays, name, 0, 1)[0])
            if length not in (num_rows, num_rows + (self._layout.final == "extra")):
                self._check_length(arrays, name, num_rows)
            end = length
        flags = self._flags(arrays, name, start, end)
        # The flags of observations are in the last row.
        is_with_action = self._layout.order == "sar" and self._layout.final == "row"
        early_rows = np.flatnonzero(flags[: num_rows - 1 - is_with_action])
        if len(early_rows):
            problem = f"set in step {early_rows[0]} of {len(flags)}; do episodes end elsewhere?"
            raise arrays.error(problem, name, start + int(early_rows[0]))
        return bool(flags.any())

    @override
    def _find_rows(self, split: str, index: int) -> EpisodeRows:
        layout, location = self._layout, self._locations[index]
        arrays, start, end = self._arrays(location), location.start, location.end
        end = self._num_rows(arrays) if end is None else end
        if layout.final == "row" and end - start < 2:
            raise arrays.error("an episode without a transition", row=start)
        terminal, is_truncated = (
            self._is_set(arrays, flag, start, end) if isinstance(flag, str) and flag else bool(flag)
            for flag in (layout.terminal, layout.truncated)
        )
        num_transitions = end - start - (layout.final == "row")
        is_truncated |= num_transitions == layout.time_limit
        return EpisodeRows(
            Origin(self._name(location), start, end),
            end - start,
            terminal and not is_truncated and location.complete,
            layout.final,
            location.complete,
            arrays,
        )

    @override
    def _read_rows(self, episode: EpisodeRows, paths: Collection[str]) -> dict[str, np.ndarray]:
        entries = {path: field for path, field in self._layout.steps.items() if path in paths}
        columns = {path: self._column(episode, path, field) for path, field in entries.items()}
        for path, name in self._layout.next.items():
            if path in columns:
                self._check_next(episode, name, columns[path])
        return columns

    def _column(self, episode: EpisodeRows, path: str, entry: LayoutField) -> np.ndarray:
        arrays, expected, (name, *further) = episode.handle, self.step_fields[path], entry.arrays
        field = self._field(arrays, path, entry)
        if _kind(field) != _kind(expected):
            raise arrays.error(f"{field}, but the first episode has {expected}", name)
        start, end = episode.origin.begin, episode.origin.end + self._has_extra_row(path)
        columns = [arrays[array].rows(start, end) for array in entry.arrays]
        if expected.encoding:
            for row, data in enumerate(columns[0], start):
                with source_errors(arrays.path, field=name, row=row):
                    image = image_field(data)
                    if (image.dtype, image.shape) != (expected.dtype, expected.shape):
                        raise ValueError(f"an image of {image}, expected {expected}")
        elif not expected.is_text:
            columns = [self._cast(arrays, path, entry, column) for column in columns]
        if not further:
            return columns[0]
        return np.concatenate([column.reshape(end - start, -1) for column in columns], axis=1)

    def _cast(self, arrays: Arrays, path: str, entry: LayoutField, rows: np.ndarray) -> np.ndarray:
        """Converts rows to the dtype of the field; rounds only with a dtype in the layout."""
        dtype = self.step_fields[path].column_dtype
        if (equal := cast_exact(rows, dtype)) is not None:
            return np.asarray(equal)
        with np.errstate(over="ignore"):
            rounded = rows.astype(dtype)
        is_rounding = entry.dtype and dtype.kind == "f"
        if not is_rounding or np.any(np.isfinite(rounded) != np.isfinite(rows)):
            row = next(row for row in rows if cast_exact(row, dtype) is None)
            problem = f"{row} does not fit into {dtype}; change the dtype in the layout"
            raise arrays.error(problem, entry.arrays[0])
        return rounded

    def _check_next(self, episode: EpisodeRows, name: str, rows: np.ndarray) -> None:
        """Checks that next observations are the observations of the next rows."""
        rows, start = rows[1:], episode.origin.begin
        next_rows = episode.handle[name].rows(start, episode.origin.end - 1)
        is_equal = (rows == next_rows) | ((rows != rows) & (next_rows != next_rows))
        invalid = np.flatnonzero(~is_equal.reshape(len(rows), -1).all(axis=1))
        if len(invalid):
            problem = "not the observation of the next row: does an episode end here?"
            raise episode.handle.error(problem, name, start + int(invalid[0]))

    @override
    def _final(self, episode: EpisodeRows) -> Any:
        arrays, end = episode.handle, episode.origin.end
        finals = {p: arrays[name].rows(end - 1, end)[0] for p, name in self._layout.next.items()}
        return nest(finals)[rlds.OBSERVATION]

    @override
    def _values(self, episode: EpisodeRows, paths: Collection[str]) -> Mapping[str, Any]:
        entries = {path: field for path, field in self._layout.episode.items() if path in paths}
        return {path: self._value(episode, path, field) for path, field in entries.items()}

    def _value(self, episode: EpisodeRows, path: str, entry: LayoutField) -> Any:
        arrays, (name,) = episode.handle, entry.arrays
        if self._value_field(arrays, path, entry) != self.value_fields[path]:
            raise arrays.error("other values than in the first episode", name)
        if not self._is_constant(arrays, name):
            return arrays.value(name)
        rows = arrays[name].rows(episode.origin.begin, episode.origin.end)
        if len(differing := np.flatnonzero([np.any(row != rows[0]) for row in rows])):
            problem = "another value than in the first row of the episode; make it a field of steps"
            raise arrays.error(problem, name, episode.origin.begin + int(differing[0]))
        return rows[0]

    # --- The dataset.

    def _name(self, location: _Location) -> str:
        path, group = location[:2]
        name = os.path.relpath(path, self._root) if path != self._root else os.path.basename(path)
        return f"{name}/{group}" if group else name

    @override
    def key(self, split: str, index: int) -> str:
        location = self._locations[index]
        rows = "" if location.end is None else f"-{location.start:07d}"
        return self._name(location) + rows

    @override
    def num_episodes(self, split: str) -> int:
        return len(self._locations)

    @property
    @override
    def capabilities(self) -> Capabilities:
        return Capabilities(lengths=None if self._layout.episodes.one_per else self._lengths)

    @override
    def _lengths(self, split: str) -> Lengths:
        extra = self._layout.final == "next"
        lengths = [(location.end or 0) - location.start + extra for location in self._locations]
        # If final observations are missing, the last step may or may not be a transition.
        return Lengths.create(lengths, final_observation_known=bool(self._layout.final) or None)

    @functools.cached_property
    @override
    def source_info(self) -> SourceInfo:
        return SourceInfo(
            description="Episodes in files with a custom layout.",
            metadata={"layout": {"text": self._layout.text}},
            options={"layout": self._layout.text},
        )

    @override
    def inputs(self) -> Sequence[str]:
        paths = dict.fromkeys(location.path for location in self._locations)
        if not stores.as_path(next(iter(paths))).is_dir():
            return [*paths]
        return [os.path.join(path, name) for path in paths for name in list_files(path)]


def _kind(field: Field) -> tuple[Any, ...]:
    return field.shape, field.encoding, field.is_text


def _meaning(entry: LayoutField) -> dict[str, Any]:
    return {"doc": entry.doc, "unit": None if entry.unit == "unknown" else entry.unit}
