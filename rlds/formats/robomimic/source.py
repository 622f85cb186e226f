"""Demonstrations of simulators in robomimic's HDF5 format (`data/demo_0`).

Writers are robosuite, robomimic, MimicGen, LIBERO (as published, and as replayed for OpenVLA),
RoboCasa up to 0.2 and Isaac Lab. Files of these projects have the same names, with different
meanings: a row of LIBERO's `obs` is the observation after the action of the row.
"""

from __future__ import annotations

import contextlib
import functools
import os
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any, Literal

import numpy as np
from etils import epath
from typing_extensions import override

import rlds
from rlds.alignment import derived_columns
from rlds.formats.hdf5_source import INSTRUCTION, Hdf5Table
from rlds.formats.robomimic.dialects import (
    DIALECTS,
    detect_dialect,
    instruction_of_demo,
    instruction_of_file,
    with_names,
)
from rlds.formats.robomimic.files import Demo, DemoFile, OpenDemo
from rlds.formats.robomimic.merging import NEXT, merge, skip_damaged
from rlds.raw_files.input_files import files_at
from rlds.raw_files.untrusted import SourceError, source_errors
from rlds.sources.conventions import check_option
from rlds.sources.episode_fields import RESERVED
from rlds.sources.source import (
    ALL_ROWS,
    DERIVED_DISCOUNT,
    Capabilities,
    Fields,
    Origin,
    Source,
    SourceEpisode,
    SourceInfo,
)
from rlds.sources.texts import as_texts
from rlds_ecosystem.model.columns import known_field, missing
from rlds_ecosystem.model.fields import Field
from rlds_ecosystem.model.nests import Paths, conflicts, has, is_below, nest, root_of

__all__ = ["ATTRIBUTES", "EP_META", "MASKS", "METADATA_KEY", "TABLE", "RobomimicSource"]

# The metadata key for the attributes, masks and other content of files.
METADATA_KEY = "robomimic"
ATTRIBUTES, MASKS, FIRST, LAST = "attributes", "masks", "first_rows", "last_rows"
TABLE = Hdf5Table(
    steps={"obs": rlds.OBSERVATION, "actions": rlds.ACTION, "rewards": rlds.REWARD},
    actions="actions",
    with_final_row=("obs",),
)
_SUFFIXES = (".hdf5", ".h5")
EP_META = "ep_meta"
# Placeholders of missing values.
_PLACEHOLDERS = {"numbers": 0, "text": "", "bytes": b""}


class RobomimicSource(Source):
    """A file of demonstrations in robomimic's format or one of its dialects, or a folder of them.

    An episode is a demonstration; `data/demo_2` comes before `data/demo_10`. The key of an episode
    is its name, or `file.hdf5/demo_2` in a folder. With `T` actions, it has `T + 1` steps if
    `next_obs` has the observation after the last action; otherwise `T` steps.

    `actions`, `rewards` and `obs` become `action`, `reward` and `observation`. Further arrays with
    a row for each action are fields of the steps, with their names. If a demonstration lacks such
    an array, the steps have placeholders, and `<name>_known` is false. Fields of the episode are:

    * arrays with a different number of rows, with their names;
    * `next_obs`: its rows, unless they repeat the observations of the next steps;
    * `first_rows` and `last_rows`: rows of shifted arrays that belong to no step;
    * `attributes`: attributes of the demonstration, and of its arrays and groups by path;
    * `masks`: the names of the masks with the demonstration.

    `language_instruction`, a field of the steps, is the task description of LIBERO and RoboCasa.

    Args:
      path: The file, or a folder of files of one dataset.
      dialect: The dialect of the names; by default, detected from the first file.
      alignment: The alignment of LIBERO's observations, which are stored with the previous action.
        "as_stored" keeps these rows. "shift" moves observations to the next action; the first
        action, without an observation, moves to `first_rows`. (The `states` of Isaac Lab have the
        same alignment; they are always shifted, because the file has the initial state as well.)
      terminal: The condition for a terminal state at the end of a demonstration. "success": in the
        last row, `dones` is set and the reward is 1 or more. "dones": `dones` is set in the last
        row. "never": no demonstration is terminal.
      per_episode: Names of arrays that belong to the episode in spite of a row for each action.
      follow_links: True to read data that a file links from other files; by default, an error.

    Raises:
      FileNotFoundError: There is no such file.
      SourceError: The file is damaged or truncated; no demonstration can be read.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        dialect: Literal[
            "isaac_lab", "libero", "libero_regenerated", "mimicgen", "robosuite", "robomimic"
        ]
        | None = None,
        alignment: Literal["as_stored", "shift"] = "as_stored",
        terminal: Literal["success", "dones", "never"] = "success",
        per_episode: Sequence[str] = (),
        follow_links: bool = False,
    ) -> None:
        check_option("dialect", dialect, list(DIALECTS))
        self._options = {
            "dialect": dialect,
            "alignment": alignment,
            "terminal": terminal,
            "per_episode": list(per_episode),
            "follow_links": follow_links,
        }
        self._terminal = terminal
        paths = files_at(path, lambda name: name.endswith(_SUFFIXES))
        if not paths:
            raise FileNotFoundError(f"{os.fspath(path)!r} has no files {' or '.join(_SUFFIXES)}")
        with source_errors(os.fspath(path)):
            self._files, self._truncated_files = _open_files(paths, follow_links)
            first = self._files[0]
            self._demos = [demo for file in self._files for demo in file.demos]
            self._keys = [
                f"{demo.file.name}/{demo.name}" if len(paths) > 1 else demo.name
                for demo in self._demos
            ]
            # Exports use the names of robomimic itself.
            self._is_exported = first.is_exported and len(paths) == 1
            arrays = next((demo.arrays for demo in skip_damaged(first.demos)), ())
            attributes = first.attributes
            detected = "robomimic" if self._is_exported else detect_dialect(attributes, arrays)
            self._dialect = DIALECTS[dialect or detected]
            self._is_shifted = alignment == "shift" and "obs" in self._dialect.after_action
            initial_group = self._dialect.initial_group
            self._episode_arrays = (NEXT, *per_episode, *([initial_group] if initial_group else []))
            self._merge()
            steps, self._episode_fields = self._fields_of_steps(), self._fields_of_episodes()
            self._fields = Fields(nest(steps), nest(self._episode_fields))

    def _merge(self) -> None:
        """Merges the arrays of the demonstrations, and counts the steps of each."""
        arrays, self._attributes = merge(self._demos, self._has_steps)
        if not arrays:
            damage = next((demo.damage for demo in self._demos), None)
            raise damage or self._files[0].hdf5.error("no demonstrations", "data")
        self._steps = {path: entry for path, entry in arrays.items() if entry.has_step_rows}
        self._values = {path: entry for path, entry in arrays.items() if not entry.has_step_rows}
        self._initials = {path: self._initial_path(path) for path in self._steps}
        for demo in skip_damaged(self._demos):
            demo.num_steps = demo.length + (not self._is_shifted and self._has_final(demo))

    def _has_steps(self, demo: Demo, path: str) -> bool:
        """Returns True if an array may have a row for each step."""
        if path not in demo.rows or any(is_below(path, name) for name in self._episode_arrays):
            return False
        return demo.rows[path] - demo.length in (0, 1)

    @property
    @override
    def fields(self) -> Fields:
        return self._fields

    @functools.cached_property
    @override
    def source_info(self) -> SourceInfo:
        files = {
            file.name: {
                "demos": [demo.name for demo in file.demos],
                "attributes": file.attributes,
                "masks": file.masks,
                "others": file.outside_demos,
            }
            for file in self._files
        }
        return SourceInfo(
            description="Demonstrations in a simulator, in robomimic's format.",
            homepage="https://robomimic.github.io",
            metadata={METADATA_KEY: {"dialect": self._dialect.name, "files": files}},
            options=self._options,
            aliases=TABLE.aliases,
        )

    @property
    @override
    def capabilities(self) -> Capabilities:
        return Capabilities(
            reads_rows=True,
            totals=self._totals,
            hold_open=self._hold_open,
            sidecar=self._sidecar if self._is_exported else None,
        )

    def _sidecar(self) -> Any:
        # The import is here because only exported files need this module.
        from rlds.formats.hdf5_sidecar import read_hdf5_sidecar

        return read_hdf5_sidecar(self._files[0].hdf5)

    @override
    def inputs(self) -> Sequence[epath.Path]:
        return [path for file in self._files for path in file.hdf5.inputs()]

    @override
    def num_episodes(self, split: str) -> int:
        # A truncated file counts as an episode.
        return len(self._keys) + len(self._truncated_files)

    def _totals(self, split: str) -> Mapping[str, int]:
        return {"rows": sum(demo.length for demo in skip_damaged(self._demos))}

    @override
    def key(self, split: str, index: int) -> str:
        count = len(self._keys)
        return self._keys[index] if index < count else self._truncated_files[index - count][0]

    @contextlib.contextmanager
    def _hold_open(self) -> Iterator[None]:
        with contextlib.ExitStack() as stack:
            for file in self._files:  # Each file is opened once.
                stack.enter_context(file.hdf5)
            yield

    @override
    def read(
        self, split: str, index: int, fields: Collection[str] | None = None, rows: slice = ALL_ROWS
    ) -> SourceEpisode:
        if index >= len(self._keys):
            raise self._truncated_files[index - len(self._keys)][1]
        with self._demos[index].open() as demo_file:
            demo = demo_file.demo
            is_terminal = self._ends_terminal(demo_file)
            is_final_known = self._is_shifted or demo.num_steps > demo.length
            paths = self.fields.step_paths(fields)
            start, end, _ = rows.indices(demo.num_steps)
            # Arrays are read completely here, and cached for the steps.
            metadata = {p: self._value(demo_file, p) for p in self.fields.episode_paths(fields)}
            num_transitions = demo.num_steps - is_final_known
            flags = derived_columns(demo.num_steps, num_transitions, terminal=is_terminal)
            steps = {path: flags[path][start:end] for path in paths if path in flags}
            steps |= self._columns(demo_file, paths, start, max(start, end))
            return SourceEpisode(
                key=self._keys[index],
                steps=nest(steps),
                origin=Origin(demo.file.name, 0, demo.length),
                truncated=not is_terminal,
                final_observation_known=is_final_known,
                metadata=nest(metadata),
                counts={"rows": demo.length},
            )

    # --- Fields.

    def _fields_of_steps(self) -> dict[str, Field]:
        fields: Paths[Field | None] = Paths(dict.fromkeys(rlds.STEP_FLAGS))
        for path, array in self._steps.items():
            field = array.field(array.shape[1:], self._doc(path))
            name = TABLE.field_path(path)
            if name == rlds.ACTION:
                field = with_names(field, self._files[0].attributes)
            self._add_field(fields, name, field, path)
            if array.count < len(skip_damaged(self._demos)):
                self._add_field(fields, known_field(name), Field(np.bool_), path)
        if not has(fields, rlds.DISCOUNT):
            fields[rlds.DISCOUNT] = DERIVED_DISCOUNT
        if INSTRUCTION not in {*self._steps, *self._values}:
            with skip_damaged(self._demos)[0].open() as demo_file:
                has_instruction = self._instruction(demo_file) or any(map(self._task, self._files))
            if has_instruction:
                self._add_field(fields, INSTRUCTION, Field(str), INSTRUCTION)
        return {name: field for name, field in fields.items() if field is not None}

    def _add_field(self, fields: Paths[Field | None], name: str, field: Field, path: str) -> None:
        """Declares the field of the array at a path."""
        if name in fields or conflicts(fields, name):
            raise self._files[0].hdf5.error("another field has this name: rename it", path)
        fields[name] = field

    def _fields_of_episodes(self) -> dict[str, Field]:
        demos = skip_damaged(self._demos)
        reserved_names = (*RESERVED, ATTRIBUTES, MASKS, FIRST, LAST)
        fields: Paths[Field | None] = Paths(dict.fromkeys(reserved_names))
        for path, array in self._values.items():
            field = array.field(array.shape, self._doc(path))
            if root_of(path) == NEXT:
                doc = "The rows, unless they repeat the observations of the next steps."
                field = array.field((None, *array.shape[1:]), doc)
            self._add_field(fields, path, field, path)
        for path, array in self._steps.items():
            field, offset = array.field((None, *array.shape[1:])), self._offset(path)
            if offset > 0:
                fields[f"{FIRST}/{path}"] = field
            if any(demo.rows.get(path, 0) > demo.num_steps + offset for demo in demos):
                fields[f"{LAST}/{path}"] = field
        for path, array in self._attributes.items():
            fields[f"{ATTRIBUTES}/{path}"] = array.field(array.shape)
            if array.count < len(demos):
                fields[f"{ATTRIBUTES}/{known_field(path)}"] = Field(np.bool_)
        if any(file.masks for file in self._files):
            fields[MASKS] = Field(str, (None,), doc="The masks that name the demonstration.")
        return {name: field for name, field in fields.items() if field is not None}

    def _doc(self, path: str) -> str:
        doc = [self._dialect.doc(path)]
        if self._is_after_action(path) and not self._is_shifted and not self._initials.get(path):
            doc.append("As stored: the values after the action of the step.")
        return " ".join(filter(None, doc))

    # --- Rows of steps.

    def _is_after_action(self, path: str) -> bool:
        return any(is_below(path, name) for name in self._dialect.after_action)

    def _offset(self, path: str) -> int:
        """Returns the row of an array for the first step."""
        if self._is_shifted:
            return int(not self._is_after_action(path))
        return -1 if self._is_after_action(path) and self._initials[path] else 0

    def _initial_path(self, path: str) -> str:
        """Returns the array with the value before the first action; "" if a demo lacks it."""
        if not self._dialect.initial_group:
            return ""
        initial_path = f"{self._dialect.initial_group}/{path.partition('/')[2]}"
        for demo in skip_damaged(self._demos):
            is_present = demo.rows.get(initial_path) == 1 and _are_alike(demo, initial_path, path)
            if path in demo.arrays and not is_present:
                return ""
        return initial_path

    def _has_final(self, demo: Demo) -> bool:
        """Returns True if the observation after the last action is stored."""
        length = demo.length
        paths = [path for path in demo.rows if root_of(path) == "obs" and path in self._steps]
        if not paths or "obs" in self._dialect.after_action:
            return False
        if all(demo.rows[path] == length + 1 for path in paths):
            return True
        return all(
            demo.rows[path] == demo.rows.get(_next(path)) == length
            and _are_alike(demo, path, _next(path))
            for path in paths
        )

    # --- One demonstration.

    def _columns(
        self, demo_file: OpenDemo, paths: Collection[str], start: int, end: int
    ) -> dict[str, np.ndarray]:
        """Reads the rows of some steps from arrays, and the instruction."""
        columns: dict[str, np.ndarray] = {}
        if INSTRUCTION in paths:
            columns[INSTRUCTION] = np.full(end - start, self._instruction(demo_file), object)
        for path, array in self._steps.items():
            name, is_present = TABLE.field_path(path), path in demo_file.demo.rows
            if known_field(name) in paths:
                columns[known_field(name)] = np.full(end - start, is_present)
            if name in paths and is_present:
                column = self._column(demo_file, path, start, end)
                columns[name] = column.astype(array.dtype, copy=False)
            elif name in paths:
                sizes = [size or 0 for size in array.shape[1:]]
                columns[name] = missing((end - start, *sizes), array.dtype)
        return columns

    def _column(self, demo_file: OpenDemo, path: str, start: int, end: int) -> np.ndarray:
        demo, offset = demo_file.demo, self._offset(path)
        begin, stop = max(0, start + offset), min(end + offset, demo.rows[path])
        column = demo_file.array(path, slice(begin, max(begin, stop)))
        pieces = [column]
        if start + offset < 0 < end:
            pieces.insert(0, demo_file.array(self._initials[path]))
        num_after = end - start - sum(map(len, pieces))
        if num_after and root_of(path) == "obs" and not self._is_shifted:
            pieces.append(demo_file.array(_next(path), slice(demo.length - 1, None)))
        elif num_after:
            shape = (num_after, *column.shape[1:])
            pieces.append(np.full(shape, _PLACEHOLDERS[self._steps[path].kind], column.dtype))
        return np.concatenate(pieces) if len(pieces) > 1 else column

    def _ends_terminal(self, demo_file: OpenDemo) -> bool:
        """Returns True if a demonstration ended in a terminal state."""
        demo, last_row = demo_file.demo, {}
        for name in ("dones", "rewards"):
            array = demo.arrays.get(name)
            if array and array.kind == "numbers" and array.shape == (demo.length,):
                last_row[name] = demo_file.array(name, slice(demo.length - 1, None))[0]
        if self._terminal == "never" or not last_row.get("dones"):
            return False
        return self._terminal == "dones" or bool(last_row.get("rewards", 0) >= 1)

    def _task(self, file: DemoFile) -> str:
        """Returns the instruction of all demonstrations of a file."""
        return instruction_of_file(file.attributes, self._dialect.name, file.name)

    def _instruction(self, demo_file: OpenDemo) -> str:
        has_meta = EP_META in demo_file.demo.attributes
        text = instruction_of_demo(demo_file.attribute(EP_META)) if has_meta else ""
        return text or self._task(demo_file.demo.file)

    def _value(self, demo_file: OpenDemo, path: str) -> Any:
        """Returns a field of an episode; a placeholder if the demonstration lacks it."""
        field, value = self._episode_fields[path], self._stored_value(demo_file, path)
        if value is None:
            value = missing(tuple(size or 0 for size in field.shape), field.column_dtype)
        if field.dtype == str:
            value = as_texts(np.asarray(value, object))
        return np.asarray(value, field.column_dtype)[()]

    def _stored_value(self, demo_file: OpenDemo, path: str) -> Any:
        demo = demo_file.demo
        root, _, suffix = path.partition("/")
        if root == ATTRIBUTES:
            if suffix in self._attributes:
                return demo_file.attribute(suffix) if suffix in demo.attributes else None
            return suffix.removesuffix(known_field("")) in demo.attributes
        if path == MASKS:
            return [name for name, demos in demo.file.masks.items() if demo.name in demos]
        array = suffix if root in (FIRST, LAST) else path
        if array not in demo.arrays:
            return None
        if root == FIRST:
            return demo_file.array(array, slice(0, self._offset(array)))
        if root == LAST:
            return demo_file.array(array, slice(demo.num_steps + self._offset(array), None))
        values = demo_file.array(array)
        obs_path = f"obs{path.removeprefix(NEXT)}"
        if root == NEXT and demo.num_steps > demo.length == demo.rows.get(obs_path):
            # Rows that equal the observations are derived from them on reading.
            return values[:0] if _is_equal(values[:-1], demo_file.array(obs_path)[1:]) else values
        return values


def _next(path: str) -> str:
    """Returns the path of the array with the next observations."""
    return NEXT + path.removeprefix("obs")


def _are_alike(demo: Demo, path: str, other: str) -> bool:
    """Returns True if the rows of two arrays have the same type."""
    one, two = demo.arrays.get(path), demo.arrays.get(other)
    if one is None or two is None:
        return False
    return (one.dtype, one.kind, one.shape[1:]) == (two.dtype, two.kind, two.shape[1:])


def _is_equal(one: np.ndarray, other: np.ndarray) -> bool:
    if one.dtype == object:
        return one.shape == other.shape and one.tolist() == other.tolist()
    return one.shape == other.shape and one.tobytes() == other.tobytes()


def _open_files(
    paths: Sequence[epath.Path], follow_links: bool
) -> tuple[list[DemoFile], list[tuple[str, SourceError]]]:
    """Opens files; skips truncated files if there are several."""
    files: list[DemoFile] = []
    truncated: list[tuple[str, SourceError]] = []
    for path in paths:
        path.name.encode()  # The key of an episode is text.
        try:
            files.append(DemoFile(path, follow_links=follow_links))
        except SourceError as error:
            truncated.append((path.name, error))
    if not files:
        raise truncated[0][1]
    return files, truncated
