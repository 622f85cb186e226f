"""Demonstrations as episodes: which row of an array belongs to which step."""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import json
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any, Literal

import numpy as np

import rlds
from rlds.formats.robomimic.dialects import (
    Dialect,
    instruction_of_demo,
    instruction_of_file,
    with_names,
)
from rlds.formats.robomimic.files import Array, Demo, DemoFile, OpenDemo
from rlds.raw_files.untrusted import SourceError
from rlds.sources.episode_fields import RESERVED
from rlds.sources.source import Origin, Outline, SourceEpisode, outline_of
from rlds.sources.texts import as_text
from rlds_ecosystem.columns import known_field, missing, step_flags
from rlds_ecosystem.fields import Field
from rlds_ecosystem.nests import excludes, is_in, nest, root_of

__all__ = [
    "ATTRIBUTES",
    "FIRST",
    "INSTRUCTION",
    "LAST",
    "LAYOUT",
    "MASKS",
    "METADATA_KEY",
    "NEXT",
    "RecordedDemos",
    "Rows",
    "place_of",
    "rows_of",
]

# Under this name, the metadata of a dataset holds what the files say.
METADATA_KEY = "robomimic"
ATTRIBUTES, MASKS, LAYOUT = "attributes", "masks", "layout"
FIRST, LAST, NEXT = "first_rows", "last_rows", "next_obs"
# What has a row for each action, if it has that in a single demonstration.
_OF_STEPS = ("obs", NEXT, "rewards", "dones", "states")
INSTRUCTION = "language_instruction"
_MODEL, _EP_META = "model_file", "ep_meta"
_FIELDS = {"actions": rlds.ACTION, "rewards": rlds.REWARD, "obs": rlds.OBSERVATION}


@dataclasses.dataclass(frozen=True)
class Rows:
    """Which rows of an array are steps.

    Attributes:
      begin: The first row that is a step; those before it are before the first step.
      end: The row after the last one that is a step.
      before: How many steps come before the first row.
      after: How many come after the last one.
    """

    begin: int
    end: int
    before: int
    after: int


def rows_of(num_rows: int, num_steps: int, offset: int) -> Rows:
    """Returns which rows are steps, where row `t + offset` belongs to step `t`.

    >>> rows_of(5, 6, 0)
    Rows(begin=0, end=5, before=0, after=1)
    >>> rows_of(5, 5, 1)
    Rows(begin=1, end=5, before=0, after=1)
    >>> rows_of(5, 5, -1)
    Rows(begin=0, end=4, before=1, after=0)
    """
    begin, end = max(0, offset), min(num_rows, num_steps + offset)
    before = max(0, -offset)
    return Rows(begin, end, before, num_steps - before - (end - begin))


def place_of(path: str) -> str:
    """Returns the path that an array has in a step.

    >>> place_of("obs/robot0_eef_pos")
    'observation/robot0_eef_pos'
    """
    root = root_of(path)
    return _FIELDS.get(root, root) + path.removeprefix(root)


@dataclasses.dataclass
class _Merged:
    """An array, as all demonstrations have it.

    Attributes:
      array: The widest of its types, and its shape where it is the same in all.
      shape: The shape of a row, or of the value; None where a size is not the same in all.
      rows: How many rows it has; None if they are not as many in all; empty for a single value.
      count: How many demonstrations have it.
      is_of_steps: Whether it has a row for each step.
    """

    array: Array
    shape: tuple[int | None, ...]
    rows: tuple[int | None, ...]
    count: int
    is_of_steps: bool

    def field(self, doc: str = "", rows: tuple[int | None, ...] = ()) -> Field:
        """Returns the field of a row of it, or of some."""
        dtype: Any = self.array.dtype
        if self.array.kind != "numbers":
            dtype = str if self.array.kind == "text" else bytes
        return Field(dtype, (*rows, *self.shape), doc=doc)


class RecordedDemos:
    """The demonstrations of files, as they were recorded; can be pickled.

    Args:
      files: The files.
      dialect: The dialect that they are in.
      alignment: See `RobomimicSource`.
      terminal: Likewise.
      per_episode: Likewise.

    Attributes:
      demos: All of them, in order.
      step_fields: The fields of a step, by path.
      episode_fields: The fields of an episode, by path.

    Raises:
      SourceError: None of them can be read.
    """

    def __init__(
        self,
        files: Sequence[DemoFile],
        dialect: Dialect,
        *,
        alignment: Literal["as_stored", "shift"],
        terminal: Literal["success", "dones", "never"],
        per_episode: Sequence[str],
    ) -> None:
        self._files, self._dialect = files, dialect
        self._terminal, self._per_episode = terminal, per_episode
        self._alignment = alignment
        self._is_shifted = alignment == "shift" and "obs" in dialect.following
        self.demos = [demo for file in files for demo in file.demos]
        self._merged = self._merge()
        self._of_steps = {path: each for path, each in self._merged.items() if each.is_of_steps}
        self._initials = {path: self._initial(path) for path in self._of_steps}
        for demo in self._sound_demos:
            demo.num_steps = demo.length + (not self._is_shifted and self._has_final(demo))
        number = len(list(self._sound_demos))
        self._marked = [path for path, each in self._of_steps.items() if each.count < number]
        self._types = self._merge_attributes()
        self._has_table = self._models_repeat()
        self._instructions = [
            instruction_of_file(file.attributes, dialect.name, file.name) for file in files
        ]
        self.step_fields = self._fields_of_steps()
        self.episode_fields = self._fields_of_episodes()
        self._check_names()

    # --- What all have in common.

    @property
    def _sound_demos(self) -> Iterator[Demo]:
        return (demo for demo in self.demos if demo.damage is None)

    def _merge(self) -> dict[str, _Merged]:
        known: dict[str, _Merged] = {}
        seen = set()
        for demo in self._sound_demos:
            if not demo.length:
                file = self._files[demo.file].hdf5
                demo.damage = file.error("there is not a single row", "actions")
                demo.damage.locate(episode=demo.name)
            elif demo.structure not in seen:
                demo.damage = self._objection(demo, known)
                if demo.damage is None:
                    seen.add(demo.structure)
        self._find_odd_demos()
        merged: dict[str, _Merged] = {}
        for demo in self._sound_demos:
            for path in demo.structure.arrays:
                _add(merged, demo, path, self._has_steps(demo, path))
        if not merged:
            damage = next((demo.damage for demo in self.demos), None)
            raise damage or self._files[0].hdf5.error("there is no demonstration", "data")
        return merged

    def _find_odd_demos(self) -> None:
        """Finds demonstrations with too few or too many rows of what has a row for each step."""
        fitting: dict[str, Counter[bool]] = {}
        for demo in self._sound_demos:
            for path in demo.rows:
                fitting.setdefault(path, Counter())[self._fits(demo, path)] += 1
        # An array of the episode may have as many rows as there are actions by chance.
        of_steps = {
            path
            for path, found in fitting.items()
            if found[True] >= max(1, found[False]) or (found[True] and root_of(path) in _OF_STEPS)
        }
        for demo in self._sound_demos:
            for path in of_steps & demo.rows.keys():
                if demo.damage is None and not self._fits(demo, path):
                    what = (
                        f"{demo.rows[path]} rows, but there are {demo.length} actions; if it is not"
                        " meant to have a row for each, name it in per_episode"
                    )
                    file = self._files[demo.file].hdf5.path
                    demo.damage = SourceError(what, file=file, episode=demo.name, field=path)

    def _fits(self, demo: Demo, path: str) -> bool:
        """Whether an array has a row for each action, or, like observations, one more."""
        more = demo.rows[path] - demo.length
        return more == 0 if root_of(path) == NEXT else self._has_steps(demo, path)

    def _objection(self, demo: Demo, known: dict[str, _Merged]) -> SourceError | None:
        """Says why a demonstration is no episode of one dataset with those before it."""
        for path, array in demo.structure.arrays.items():
            before, what = known.get(path), None
            if excludes(known, path):
                what = "an array, but a group in those before, or a group, but an array there"
            elif before is not None and before.array.kind != array.kind:
                what = f"{array.kind}, but {before.array.kind} in those before"
            elif before is not None and _rank(before.array) != _rank(array):
                what = f"rows of shape {array.shape}, but {before.array.shape} in those before"
            if what is not None:
                file = self._files[demo.file].hdf5.path
                return SourceError(what, file=file, episode=demo.name, field=path)
        for path in demo.structure.arrays:
            _add(known, demo, path, True)
        return None

    def _has_steps(self, demo: Demo, path: str) -> bool:
        if path not in demo.rows or any(is_in(path, name) for name in self._per_episode):
            return False
        if self._dialect.initial and is_in(path, self._dialect.initial):
            return False
        return root_of(path) != NEXT and demo.rows[path] - demo.length in (0, 1)

    def _merge_attributes(self) -> dict[str, Field]:
        """The attributes that all demonstrations have, each in one dtype."""
        first, *others = {demo.structure: None for demo in self._sound_demos}
        fields = {}
        for name, facts in first.attributes.items():
            field = _field_of(facts)
            for other in others:
                field = _common_field(field, _field_of(other.attributes.get(name)))
            if field is not None:
                fields[name] = field
        return fields

    def _models_repeat(self) -> bool:
        """Whether a table of the models is shorter than the models of all demonstrations."""
        if _MODEL not in self._types or self._types[_MODEL] != Field(str):
            return False
        digests = [digest for digest, _ in self._models()]
        return 2 * len(set(digests)) <= len(digests)

    def _models(self) -> Iterator[tuple[str, str]]:
        for file in self._files:
            with file.hdf5.read() as opened:
                for demo in file.demos:
                    if demo.damage is None:
                        text = as_text(OpenDemo(file, opened, demo).attribute(_MODEL))
                        yield _digest(text), text

    def _fields_of_steps(self) -> dict[str, Field]:
        fields: dict[str, Field] = {}
        for path, merged in self._of_steps.items():
            fields[place_of(path)] = merged.field(self._doc(path))
        if rlds.DISCOUNT not in fields:
            fields[rlds.DISCOUNT] = Field(np.float32)
        if rlds.ACTION in fields:
            fields[rlds.ACTION] = with_names(fields[rlds.ACTION], self._files[0].attributes)
        for path in self._marked:
            fields[known_field(place_of(path))] = Field(np.bool_)
        if INSTRUCTION not in self._merged and (
            any(self._instructions) or self._first_instruction()
        ):
            fields[INSTRUCTION] = Field(str)
        return fields

    def _first_instruction(self) -> str:
        index = next(i for i, demo in enumerate(self.demos) if demo.damage is None)
        with self._opened(index) as opened:
            return self._instruction(opened)

    def _doc(self, path: str) -> str:
        doc = [self._dialect.doc(path)]
        if self._follows(path) and not self._is_shifted and not self._initials.get(path):
            doc.append("As stored: what followed the action of the step.")
        return " ".join(filter(None, doc))

    def _fields_of_episodes(self) -> dict[str, Field]:
        fields = {
            path: merged.field(self._doc(path), merged.rows)
            for path, merged in self._merged.items()
            if not merged.is_of_steps and root_of(path) != NEXT
        }
        for path, merged in self._merged.items():
            if root_of(path) == NEXT:
                doc = "The rows, unless they are the observations of the steps after."
                fields[path] = merged.field(doc, (None,))
        for path, merged in self._of_steps.items():
            found = [
                (self._rows(d, path), d.rows[path]) for d in self._sound_demos if path in d.rows
            ]
            if any(rows.begin for rows, _ in found):
                fields[f"{FIRST}/{path}"] = merged.field(rows=(None,))
            if any(rows.end < number for rows, number in found):
                fields[f"{LAST}/{path}"] = merged.field(rows=(None,))
        for name, field in self._types.items():
            is_digest = name == _MODEL and self._has_table
            doc = "A digest: the metadata of the dataset has the text." if is_digest else ""
            fields[f"{ATTRIBUTES}/{name}"] = dataclasses.replace(field, doc=doc)
        if self._mask_names:
            fields[MASKS] = Field(str, (None,), doc="The masks that name the demonstration.")
        fields[LAYOUT] = Field(str, doc="In JSON, how the demonstration is laid out in its file.")
        return fields

    @property
    def _mask_names(self) -> list[str]:
        return list(dict.fromkeys(name for file in self._files for name in file.masks))

    def _check_names(self) -> None:
        places = [place_of(path) for path in self._of_steps]
        own = (*RESERVED, ATTRIBUTES, MASKS, LAYOUT, FIRST, LAST)
        wrong = [
            *(
                path
                for path in places
                if root_of(path) in rlds.STEP_FLAGS or places.count(path) > 1
            ),
            *(path for path in self.step_fields if excludes(self.step_fields, path)),
            *(
                path
                for path in self._merged
                if path not in self._of_steps
                and (root_of(path) in own or excludes(self.episode_fields, path))
            ),
        ]
        for path in wrong:
            raise self._files[0].hdf5.error("another field has this name: rename it", path)

    # --- Which row belongs to which step.

    def _follows(self, path: str) -> bool:
        return any(is_in(path, name) for name in self._dialect.following)

    def _offset(self, path: str) -> int:
        """How much later the row of a step is than the step."""
        if self._is_shifted:
            return int(not self._follows(path))
        return -1 if self._follows(path) and self._initials[path] else 0

    def _initial(self, path: str) -> str:
        """The array with what was there before the first action; empty if one lacks it."""
        if not self._dialect.initial:
            return ""
        initial = f"{self._dialect.initial}/{path.partition('/')[2]}"
        for demo in self._sound_demos:
            arrays = demo.structure.arrays
            if path in arrays and (
                arrays.get(initial) != arrays[path] or demo.rows.get(initial) != 1
            ):
                return ""
        return initial

    def is_final_known(self, demo: Demo) -> bool:
        """Whether the observation after the last action is known."""
        return self._is_shifted or demo.num_steps > demo.length

    def _has_final(self, demo: Demo) -> bool:
        arrays, length = demo.structure.arrays, demo.length
        observed = [
            path
            for path in arrays
            if root_of(path) == "obs" and path in self._of_steps and path in demo.rows
        ]
        if not observed or "obs" in self._dialect.following:
            return False
        if all(demo.rows[path] == length + 1 for path in observed):
            return True
        following = [NEXT + path.removeprefix("obs") for path in observed]
        return all(
            demo.rows[path] == demo.rows.get(other) == length and arrays[path] == arrays[other]
            for path, other in zip(observed, following)
        )

    def _rows(self, demo: Demo, path: str) -> Rows:
        return rows_of(demo.rows[path], demo.num_steps, self._offset(path))

    # --- One demonstration.

    def read(self, index: int, key: str) -> SourceEpisode:
        """Reads a demonstration."""
        with self._opened(index) as opened:
            steps = self._steps(opened, list(self.step_fields))
            return self._episode(opened, key, steps)

    def peek(self, index: int, key: str) -> SourceEpisode:
        """Reads what is said of it as a whole, and the flags."""
        with self._opened(index) as opened:
            steps = self._steps(opened, [rlds.DISCOUNT])
            return self._episode(opened, key, steps)

    def columns(
        self, index: int, paths: Sequence[str], begin: int = 0, end: int | None = None
    ) -> dict[str, Any]:
        """Reads some fields of some steps, with the flags."""
        with self._opened(index) as opened:
            return nest(self._steps(opened, paths, begin, end))

    def outline(self, index: int) -> Outline:
        """Returns how long a demonstration is."""
        with self._opened(index) as opened:
            return outline_of(self._steps(opened, ()), self.is_final_known(opened.demo))

    @contextlib.contextmanager
    def _opened(self, index: int) -> Iterator[OpenDemo]:
        demo = self.demos[index]
        if demo.damage is not None:
            raise demo.damage
        file = self._files[demo.file]
        with file.hdf5.read(demo.name) as opened:
            yield OpenDemo(file, opened, demo)

    def _episode(self, opened: OpenDemo, key: str, steps: Mapping[str, Any]) -> SourceEpisode:
        length = opened.demo.length
        return SourceEpisode(
            key=key,
            steps=nest(steps),
            origin=Origin(opened.file.name, 0, length),
            truncated=not steps[rlds.IS_TERMINAL][-1],
            final_observation_known=self.is_final_known(opened.demo),
            metadata=nest(self._metadata(opened)),
            counts={"rows": length},
        )

    def _steps(
        self, opened: OpenDemo, paths: Collection[str], begin: int = 0, end: int | None = None
    ) -> dict[str, Any]:
        demo = opened.demo
        number = demo.num_steps
        begin, end, _ = slice(begin, end).indices(number)
        end = max(begin, end)
        columns: dict[str, Any] = {}
        for path, merged in self._of_steps.items():
            place = place_of(path)
            if place in paths:
                column = self._column(opened, path, begin, end)
                columns[place] = column.astype(merged.array.dtype, copy=False)
            if known_field(place) in paths:
                columns[known_field(place)] = np.full(end - begin, path in demo.rows)
        is_terminal = self._ends(opened)
        if rlds.DISCOUNT in paths and rlds.DISCOUNT not in columns:
            discount = np.ones(number, np.float32)
            known = self.is_final_known(demo)
            discount[max(0, number - 1 - known * is_terminal) :] = 0 if known or is_terminal else 1
            columns[rlds.DISCOUNT] = discount[begin:end]
        if INSTRUCTION in paths and INSTRUCTION not in columns:
            columns[INSTRUCTION] = np.full(end - begin, self._instruction(opened), object)
        for name, flag in step_flags([number], [is_terminal]).items():
            columns[name] = flag[begin:end]
        return columns

    def _column(self, opened: OpenDemo, path: str, begin: int, end: int) -> np.ndarray:
        """A field of some steps."""
        demo, merged = opened.demo, self._merged[path]
        if path not in demo.rows:
            sizes = [size or 0 for size in merged.shape]
            return missing((end - begin, *sizes), merged.array.dtype)
        rows = self._rows(demo, path)
        first, last = (
            min(max(step - rows.before, 0), rows.end - rows.begin) + rows.begin
            for step in (begin, end)
        )
        whole = first == 0 and last == demo.rows[path]
        column = opened.array(path, slice(None) if whole else slice(first, last))
        num_before = max(0, min(end, rows.before) - begin)
        num_after = end - begin - num_before - len(column)
        pieces = [column]
        if num_before:
            pieces.insert(0, opened.array(self._initials[path]))
        if num_after:
            if root_of(path) == "obs" and not self._is_shifted:
                following = NEXT + path.removeprefix("obs")
                if whole:  # All of them are compared, too.
                    pieces.append(opened.array(following)[-1:])
                else:
                    pieces.append(opened.array(following, slice(demo.length - 1, None)))
            else:
                shape = (num_after, *column.shape[1:])
                pieces.append(np.full(shape, merged.array.empty, column.dtype))
        return np.concatenate(pieces) if len(pieces) > 1 else column

    def _ends(self, opened: OpenDemo) -> bool:
        """Whether a demonstration ended in a terminal state."""
        demo, last = opened.demo, {}
        for name in ("dones", "rewards"):
            array = demo.structure.arrays.get(name)
            if array is None or array.shape != () or array.kind != "numbers":
                continue
            if demo.rows[name] == demo.length:
                last[name] = opened.array(name, slice(demo.length - 1, None))[0]
        if self._terminal == "never" or not last.get("dones"):
            return False
        return self._terminal == "dones" or bool(last.get("rewards", 0) >= 1)

    def _instruction(self, opened: OpenDemo) -> str:
        found = ""
        if _EP_META in opened.demo.structure.attributes:
            found = instruction_of_demo(opened.attribute(_EP_META))
        return found or self._instructions[opened.demo.file]

    def _metadata(self, opened: OpenDemo) -> dict[str, Any]:
        found: dict[str, Any] = {}
        for path, field in self.episode_fields.items():
            value = self._of_episode(opened, path)
            if value is None:
                value = missing(tuple(size or 0 for size in field.shape), field.column_dtype)
            found[path] = _fitted(value, field)
        return found

    def _of_episode(self, opened: OpenDemo, path: str) -> Any:
        """A field of an episode; None if the demonstration lacks it."""
        demo = opened.demo
        root, _, rest = path.partition("/")
        if root == ATTRIBUTES:
            value = opened.attribute(rest)
            return _digest(as_text(value)) if rest == _MODEL and self._has_table else value
        if path == MASKS:
            masks = opened.file.masks.items()
            names = [name for name, demos in masks if demo.name in demos]
            return np.array([*names, None], object)[:-1]
        if path == LAYOUT:
            return self._layout(opened)
        array = rest if root in (FIRST, LAST) else path
        if array not in demo.structure.arrays:
            return None
        if root == NEXT:
            return self._next_rows(opened, path)
        if root in (FIRST, LAST):
            rows = self._rows(demo, array)
            part = slice(0, rows.begin) if root == FIRST else slice(rows.end, demo.rows[array])
            return opened.array(array, part)
        return opened.array(path)

    def _layout(self, opened: OpenDemo) -> str:
        """What is not the same for all demonstrations, and has no field."""
        structure = opened.demo.structure
        layout: dict[str, Any] = {"structure": structure.name}
        odd = [name for name in structure.attributes if name not in self._types]
        if odd:
            described = opened.attributes()
            layout["attributes"] = {name: described[name] for name in odd}
        if opened.demo.layout:
            layout["arrays"] = opened.demo.layout
        return json.dumps(layout)

    def _next_rows(self, opened: OpenDemo, path: str) -> np.ndarray:
        """The next observations, unless they follow from the observations."""
        demo, rows = opened.demo, opened.array(path)
        observed = "obs" + path.removeprefix(NEXT)
        is_next = demo.num_steps > demo.length and demo.rows.get(observed) == demo.length
        return rows[:0] if is_next and _same(rows[:-1], opened.array(observed)[1:]) else rows

    # --- What is said of all of them.

    def metadata(self) -> dict[str, Any]:
        """Returns what the files say, in the types of JSON."""
        files = {
            file.name: {
                "demos": [demo.name for demo in file.demos],
                "attributes": file.attributes,
                "masks": dict(file.masks),
                "description": file.description,
            }
            for file in self._files
        }
        said: dict[str, Any] = {
            "dialect": self._dialect.name,
            "alignment": self._alignment,
            "terminal": self._terminal,
            "per_episode": list(self._per_episode),
            "is_folder": len(self._files) > 1,
            "offsets": {path: self._offset(path) for path in self._of_steps if self._offset(path)},
            "files": files,
            "structures": {
                demo.structure.name: demo.structure.description for demo in self._sound_demos
            },
        }
        if self._has_table:
            said["model_files"] = dict(self._models())
        return {METADATA_KEY: said}


def _add(merged: dict[str, _Merged], demo: Demo, path: str, is_of_steps: bool) -> None:
    array = demo.structure.arrays[path]
    rows = (demo.rows[path],) if path in demo.rows else ()
    known = merged.get(path)
    if known is None:
        merged[path] = _Merged(array, array.shape or (), rows, 1, is_of_steps)
        return
    known.count += 1
    known.is_of_steps &= is_of_steps
    known.rows = _common(known.rows, rows)
    if known.array is not array:
        known.shape = _common(known.shape, array.shape or ())
        dtype = known.array.dtype
        if array.dtype != dtype:
            dtype = np.result_type(array.dtype, dtype)
            known.array = dataclasses.replace(known.array, dtype=dtype)


def _rank(array: Array) -> int:
    return -1 if array.shape is None else len(array.shape)


def _common(shape: tuple[int | None, ...], other: tuple[int | None, ...]) -> tuple[int | None, ...]:
    return tuple(one if one == two else None for one, two in zip(shape, other))


def _same(one: np.ndarray, other: np.ndarray) -> bool:
    if one.dtype == object:
        return one.shape == other.shape and one.tolist() == other.tolist()
    return one.shape == other.shape and one.tobytes() == other.tobytes()


def _field_of(facts: Mapping[str, Any] | None) -> Field | None:
    """The field of an attribute; None if it has no value, or is not there."""
    if facts is None or facts["shape"] is None:
        return None
    is_text = isinstance(facts["dtype"], dict)
    return Field(str if is_text else facts["dtype"], tuple(facts["shape"]))


def _common_field(one: Field | None, other: Field | None) -> Field | None:
    if one is None or other is None or len(one.shape) != len(other.shape):
        return None
    return Field(one.dtype, _common(one.shape, other.shape)) if one.dtype == other.dtype else None


def _digest(text: str) -> str:
    return hashlib.blake2b(text.encode(), digest_size=8).hexdigest()


def _fitted(value: Any, field: Field) -> Any:
    """A value as its field has it: no array where that has no dimensions."""
    if field.dtype == str:
        texts = [as_text(item) for item in np.asarray(value, object).reshape(-1)]
        value = np.array([*texts, None], object)[:-1].reshape(np.shape(value))
    return np.asarray(value, field.column_dtype)[()]
