"""Demonstrations as episodes: which row of an array belongs to which step."""

from __future__ import annotations

import contextlib
import dataclasses
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any, Literal, NamedTuple

import numpy as np

import rlds
from rlds.formats.robomimic.dialects import (
    Dialect,
    instruction_of_demo,
    instruction_of_file,
    with_names,
)
from rlds.formats.robomimic.files import Demo, DemoFile, OpenDemo
from rlds.raw_files.hdf5_arrays import StoredArray
from rlds.raw_files.untrusted import SourceError
from rlds.sources.episode_fields import RESERVED
from rlds.sources.source import Origin, SourceEpisode
from rlds.sources.texts import as_text
from rlds_ecosystem.columns import known_field, missing, step_flags
from rlds_ecosystem.fields import Field
from rlds_ecosystem.nests import conflicts, is_in, nest, root_of

__all__ = [
    "ATTRIBUTES",
    "INSTRUCTION",
    "MASKS",
    "METADATA_KEY",
    "NEXT",
    "RecordedDemos",
    "place_of",
]

# Under this name, the metadata of a dataset holds what the files say.
METADATA_KEY = "robomimic"
ATTRIBUTES, MASKS = "attributes", "masks"
FIRST, LAST, NEXT = "first_rows", "last_rows", "next_obs"
# What has a row for each action, if it has that in a single demonstration.
_OF_STEPS = ("obs", NEXT, "rewards", "dones", "states")
INSTRUCTION = "language_instruction"
_EP_META = "ep_meta"
# What stands in the place of a value.
_EMPTY = {"numbers": 0, "text": "", "bytes": b""}
_FIELDS = {"actions": rlds.ACTION, "rewards": rlds.REWARD, "obs": rlds.OBSERVATION}


class Rows(NamedTuple):
    """Which rows of an array are steps.

    Attributes:
      begin: The first row that is a step; those before it are before the first step.
      end: The row after the last one that is a step.
      before: How many steps come before the first row.
    """

    begin: int
    end: int
    before: int


def rows_of(num_rows: int, num_steps: int, offset: int) -> Rows:
    """Returns which rows are steps, where row `t + offset` belongs to step `t`.

    >>> rows_of(5, 5, 1)
    Rows(begin=1, end=5, before=0)
    >>> rows_of(5, 5, -1)
    Rows(begin=0, end=4, before=1)
    """
    return Rows(max(0, offset), min(num_rows, num_steps + offset), max(0, -offset))


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

    array: StoredArray
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
        self._is_shifted = alignment == "shift" and "obs" in dialect.following
        self.demos = [demo for file in files for demo in file.demos]
        self._merged = self._merge()
        self._of_steps = {path: each for path, each in self._merged.items() if each.is_of_steps}
        self._attributes = self._merge_attributes()
        self._initials = {path: self._initial(path) for path in self._of_steps}
        for demo in self._sound_demos:
            demo.num_steps = demo.length + (not self._is_shifted and self._has_final(demo))
        self._number = len(list(self._sound_demos))
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
        for demo in self._sound_demos:
            if not demo.length:
                file = self._files[demo.file].hdf5
                demo.damage = file.error("there is not a single row", "actions")
                demo.damage.locate(episode=demo.name)
            else:
                demo.damage = self._why_unlike(demo, demo.arrays, known)
        self._find_odd_demos()
        merged: dict[str, _Merged] = {}
        for demo in self._sound_demos:
            for path, array in demo.arrays.items():
                _add(merged, path, array, array.shape[1:], self._has_steps(demo, path))
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

    def _why_unlike(
        self, demo: Demo, arrays: Mapping[str, StoredArray], known: dict[str, _Merged]
    ) -> SourceError | None:
        """Says why a demonstration is no episode of one dataset with those before it."""
        for path, array in arrays.items():
            before, what = known.get(path), None
            if conflicts(known, path):
                what = "an array, but a group in those before, or a group, but an array there"
            elif before is not None and before.array.kind != array.kind:
                what = f"{array.kind}, but {before.array.kind} in those before"
            elif before is not None and len(before.array.shape) != len(array.shape):
                what = f"shape {array.shape}, but {before.array.shape} in those before"
            if what is not None:
                file = self._files[demo.file].hdf5.path
                return SourceError(what, file=file, episode=demo.name, field=path)
        for path, array in arrays.items():
            _add(known, path, array, array.shape, is_of_steps=False)
        return None

    def _has_steps(self, demo: Demo, path: str) -> bool:
        if path not in demo.rows or any(is_in(path, name) for name in self._per_episode):
            return False
        if self._dialect.initial and is_in(path, self._dialect.initial):
            return False
        return root_of(path) != NEXT and demo.rows[path] - demo.length in (0, 1)

    def _merge_attributes(self) -> dict[str, _Merged]:
        found: dict[str, _Merged] = {}
        for demo in self._sound_demos:
            demo.damage = self._why_unlike(demo, demo.attributes, found)
        return found

    def _fields_of_steps(self) -> dict[str, Field]:
        fields: dict[str, Field] = {}
        for path, merged in self._of_steps.items():
            fields[place_of(path)] = merged.field(self._doc(path))
        if rlds.DISCOUNT not in fields:
            fields[rlds.DISCOUNT] = Field(np.float32)
        if rlds.ACTION in fields:
            fields[rlds.ACTION] = with_names(fields[rlds.ACTION], self._files[0].attributes)
        for path, merged in self._of_steps.items():
            if merged.count < self._number:
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
        for path, merged in self._attributes.items():
            fields[f"{ATTRIBUTES}/{path}"] = merged.field()
            if merged.count < self._number:
                fields[f"{ATTRIBUTES}/{known_field(path)}"] = Field(np.bool_)
        if self._mask_names:
            fields[MASKS] = Field(str, (None,), doc="The masks that name the demonstration.")
        return fields

    @property
    def _mask_names(self) -> list[str]:
        return list(dict.fromkeys(name for file in self._files for name in file.masks))

    def _check_names(self) -> None:
        places = [place_of(path) for path in self._of_steps]
        own = (*RESERVED, ATTRIBUTES, MASKS, FIRST, LAST)
        wrong = [
            *(
                path
                for path in places
                if root_of(path) in rlds.STEP_FLAGS or places.count(path) > 1
            ),
            *(path for path in self.step_fields if conflicts(self.step_fields, path)),
            *(
                path
                for path in self._merged
                if path not in self._of_steps
                and (root_of(path) in own or conflicts(self.episode_fields, path))
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
            is_there = demo.rows.get(initial) == 1 and _are_alike(demo, initial, path)
            if path in demo.arrays and not is_there:
                return ""
        return initial

    def _is_final_known(self, demo: Demo) -> bool:
        """Whether the observation after the last action is known."""
        return self._is_shifted or demo.num_steps > demo.length

    def _has_final(self, demo: Demo) -> bool:
        arrays, length = demo.arrays, demo.length
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
            demo.rows[path] == demo.rows.get(other) == length and _are_alike(demo, path, other)
            for path, other in zip(observed, following)
        )

    def _rows(self, demo: Demo, path: str) -> Rows:
        return rows_of(demo.rows[path], demo.num_steps, self._offset(path))

    # --- One demonstration.

    def read(
        self,
        index: int,
        key: str,
        step_paths: Collection[str],
        episode_paths: Iterable[str],
        rows: slice,
    ) -> SourceEpisode:
        """Reads some fields of a demonstration."""
        with self._opened(index) as opened:
            demo = opened.demo
            is_terminal = self._ends(opened)
            begin, end, _ = rows.indices(demo.num_steps)
            metadata = {path: self._of_episode(opened, path) for path in episode_paths}
            return SourceEpisode(
                key=key,
                steps=nest(self._steps(opened, step_paths, begin, max(begin, end), is_terminal)),
                origin=Origin(opened.file.name, 0, demo.length),
                truncated=not is_terminal,
                final_observation_known=self._is_final_known(demo),
                metadata=nest(metadata),
                counts={"rows": demo.length},
            )

    @contextlib.contextmanager
    def _opened(self, index: int) -> Iterator[OpenDemo]:
        demo = self.demos[index]
        if demo.damage is not None:
            raise demo.damage
        file = self._files[demo.file]
        with file.hdf5.read(demo.name) as opened:
            yield OpenDemo(file, opened, demo)

    def _steps(
        self, opened: OpenDemo, paths: Collection[str], begin: int, end: int, is_terminal: bool
    ) -> dict[str, Any]:
        demo, number = opened.demo, opened.demo.num_steps
        columns: dict[str, Any] = {}
        for path, merged in self._of_steps.items():
            place = place_of(path)
            if place in paths:
                column = self._column(opened, path, begin, end)
                columns[place] = column.astype(merged.array.dtype, copy=False)
            if known_field(place) in paths:
                columns[known_field(place)] = np.full(end - begin, path in demo.rows)
        if rlds.DISCOUNT in paths and rlds.DISCOUNT not in columns:
            discount = np.ones(number, np.float32)
            known = self._is_final_known(demo)
            discount[max(0, number - 1 - known * is_terminal) :] = 0 if known or is_terminal else 1
            columns[rlds.DISCOUNT] = discount[begin:end]
        if INSTRUCTION in paths and INSTRUCTION not in columns:
            columns[INSTRUCTION] = np.full(end - begin, self._instruction(opened), object)
        for name, flag in step_flags([number], [is_terminal]).items():
            if name in paths:
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
                pieces.append(np.full(shape, _EMPTY[merged.array.kind], column.dtype))
        return np.concatenate(pieces) if len(pieces) > 1 else column

    def _ends(self, opened: OpenDemo) -> bool:
        """Whether a demonstration ended in a terminal state."""
        demo, last = opened.demo, {}
        for name in ("dones", "rewards"):
            array = demo.arrays.get(name)
            if array is None or len(array.shape) != 1 or array.kind != "numbers":
                continue
            if demo.rows[name] == demo.length:
                last[name] = opened.array(name, slice(demo.length - 1, None))[0]
        if self._terminal == "never" or not last.get("dones"):
            return False
        return self._terminal == "dones" or bool(last.get("rewards", 0) >= 1)

    def _instruction(self, opened: OpenDemo) -> str:
        found = ""
        if _EP_META in opened.demo.attributes:
            found = instruction_of_demo(opened.attribute(_EP_META))
        return found or self._instructions[opened.demo.file]

    def _of_episode(self, opened: OpenDemo, path: str) -> Any:
        """A field of an episode; what stands for none if the demonstration lacks it."""
        field, value = self.episode_fields[path], self._recorded(opened, path)
        if value is None:
            value = missing(tuple(size or 0 for size in field.shape), field.column_dtype)
        return _fitted(value, field)

    def _recorded(self, opened: OpenDemo, path: str) -> Any:
        demo = opened.demo
        root, _, rest = path.partition("/")
        if root == ATTRIBUTES:
            if rest in self._attributes:
                return opened.attribute(rest) if rest in demo.attributes else None
            return rest.removesuffix(known_field("")) in demo.attributes
        if path == MASKS:
            masks = opened.file.masks.items()
            names = [name for name, demos in masks if demo.name in demos]
            return np.array([*names, None], object)[:-1]
        array = rest if root in (FIRST, LAST) else path
        if array not in demo.arrays:
            return None
        if root == NEXT:
            return self._next_rows(opened, path)
        if root in (FIRST, LAST):
            rows = self._rows(demo, array)
            part = slice(0, rows.begin) if root == FIRST else slice(rows.end, demo.rows[array])
            return opened.array(array, part)
        return opened.array(path)

    def _next_rows(self, opened: OpenDemo, path: str) -> np.ndarray:
        """The next observations, unless they follow from the observations."""
        demo, rows = opened.demo, opened.array(path)
        observed = "obs" + path.removeprefix(NEXT)
        is_next = demo.num_steps > demo.length and demo.rows.get(observed) == demo.length
        return rows[:0] if is_next and _same(rows[:-1], opened.array(observed)[1:]) else rows

    # --- What is said of all of them.

    def metadata(self) -> dict[str, Any]:
        """Returns what the files say beside the demonstrations, in the types of JSON."""
        files = {
            file.name: {
                "demos": [demo.name for demo in file.demos],
                "attributes": dict(file.attributes),
                "masks": file.masks,
                "others": file.others,
            }
            for file in self._files
        }
        return {METADATA_KEY: {"dialect": self._dialect.name, "files": files}}


def _add(
    merged: dict[str, _Merged],
    path: str,
    array: StoredArray,
    shape: tuple[int, ...],
    is_of_steps: bool,
) -> None:
    known = merged.get(path)
    rows = array.shape[: len(array.shape) - len(shape)]
    if known is None:
        merged[path] = _Merged(array, shape, rows, 1, is_of_steps)
        return
    known.count += 1
    known.is_of_steps &= is_of_steps
    known.rows, known.shape = _common(known.rows, rows), _common(known.shape, shape)
    if array.dtype != known.array.dtype:
        dtype = np.result_type(array.dtype, known.array.dtype)
        known.array = known.array._replace(dtype=dtype)


def _are_alike(demo: Demo, path: str, other: str) -> bool:
    """Whether the rows of two arrays hold the same."""
    one, two = demo.arrays.get(path), demo.arrays.get(other)
    if one is None or two is None:
        return False
    return (one.dtype, one.kind, one.shape[1:]) == (two.dtype, two.kind, two.shape[1:])


def _common(shape: tuple[int | None, ...], other: tuple[int | None, ...]) -> tuple[int | None, ...]:
    return tuple(one if one == two else None for one, two in zip(shape, other))


def _same(one: np.ndarray, other: np.ndarray) -> bool:
    if one.dtype == object:
        return one.shape == other.shape and one.tolist() == other.tolist()
    return one.shape == other.shape and one.tobytes() == other.tobytes()


def _fitted(value: Any, field: Field) -> Any:
    """A value as its field has it: no array where that has no dimensions."""
    if field.dtype == str:
        texts = [as_text(item) for item in np.asarray(value, object).reshape(-1)]
        value = np.array([*texts, None], object)[:-1].reshape(np.shape(value))
    return np.asarray(value, field.column_dtype)[()]
