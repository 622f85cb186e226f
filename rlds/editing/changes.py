"""Views of episodes with renamed, dropped, filled or added fields.

Fields are named by paths, as in `Episodes.spec`: `steps/observation/state` is a step field,
`instruction` is an episode field. Values by path are columns of steps, or values of the episode.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from typing_extensions import override

import rlds
from rlds.sources.episode_fields import COMPLETE, IMAGE_FILE, TRUNCATED
from rlds.sources.episode_rows import column_of
from rlds.sources.source import (
    TRANSITION_FIELDS,
    AnySource,
    Fields,
    Source,
    SourceEpisode,
    SourceInfo,
    is_derived,
)
from rlds.sources.texts import as_text, is_instruction
from rlds.sources.view import RowContext, View, flat, nested, num_steps_of, with_values
from rlds.video import CLIP, VIDEO
from rlds.video.fields import camera_path
from rlds_ecosystem.model.columns import fits
from rlds_ecosystem.model.fields import KINDS, Field, as_fields
from rlds_ecosystem.model.names import suggest_names
from rlds_ecosystem.model.nests import is_below, root_of, suggest_fields

__all__ = [
    "AddView",
    "Change",
    "DropView",
    "FillView",
    "MeaningView",
    "RenameView",
    "as_field_value",
    "as_step_column",
    "fields_of",
    "path_in",
    "resolve_alias",
]

STEPS = f"{rlds.STEPS}/"
INSTRUCTION = "instruction"

# Attributes of an episode that can be set like fields.
_EPISODE_ATTRIBUTES: Mapping[str, Field] = {TRUNCATED: Field(np.bool_), COMPLETE: Field(np.bool_)}
_NO_ALIASES: Mapping[str, str] = {}


class Change(View):
    """A view of episodes with changed fields, or with changed values in some episodes.

    Args:
      base: The source.
      fields: The fields by path, see `fields_of`.
    """

    keeps_values = True

    def __init__(self, base: Source, fields: Mapping[str, Any]) -> None:
        super().__init__(base)
        self._new_fields = fields

    @property
    @override
    def fields(self) -> Fields:
        return Fields(*nested(self._new_fields), super().fields.flags)

    @property
    @override
    def source_info(self) -> SourceInfo:
        info = super().source_info
        paths = [path for path in info.finite_fields if STEPS + path in self._new_fields]
        return info.replace(finite_fields=tuple(paths))


class RenameView(Change):
    """A view of episodes with a renamed field or nest; a camera is renamed with its video.

    Args:
      base: The source.
      old: The old path.
      new: The new path; `steps/` is optional for a step field.
      aliases: The paths of fields by their names in the format, see `SourceInfo`.

    Raises:
      ValueError: There is no such field, or the new path is used.
    """

    def __init__(
        self, base: Source, old: str, new: str, aliases: Mapping[str, str] = _NO_ALIASES
    ) -> None:
        fields = fields_of(base)
        self._old = _clip_or_path(fields, path_in(fields, old, aliases))
        self._new = resolve_alias(new, aliases)
        for root in (STEPS, f"{VIDEO}/"):
            if self._old.startswith(root):
                camera = camera_path(self._new).removeprefix(STEPS)
                self._new = root + camera.removeprefix(root)
        renamed: dict[str, Any] = {}
        for path, field in fields.items():
            name = _rename_path(path, self._old, self._new)
            _check_path_is_free(renamed, name, "rename")
            renamed[name] = field
        super().__init__(base, renamed)

    @functools.cached_property
    @override
    def base_paths(self) -> Mapping[str, str]:
        return {_rename_path(path, self._old, self._new): path for path in self.paths}

    @override
    def needs(self, fields: Collection[str]) -> Collection[str]:
        return {_rename_path(path, self._new, self._old) for path in fields}

    @override
    def make(
        self, values: dict[str, Any], rows: RowContext, fields: Collection[str] | None
    ) -> dict[str, Any]:
        return {_rename_path(path, self._old, self._new): value for path, value in values.items()}


class DropView(Change):
    """A view of episodes without a field or nest; a camera is dropped with its video.

    Args:
      base: The source.
      path: The path of the field or nest.
      aliases: The paths of fields by their names in the format, see `SourceInfo`.

    Raises:
      ValueError: There is no such field.
    """

    def __init__(self, base: Source, path: str, aliases: Mapping[str, str] = _NO_ALIASES) -> None:
        fields = fields_of(base)
        self._dropped_paths = _find_paths(_clip_or_path(fields, path_in(fields, path, aliases)))
        super().__init__(base, self._select_remaining(fields))

    @override
    def make(
        self, values: dict[str, Any], rows: RowContext, fields: Collection[str] | None
    ) -> dict[str, Any]:
        return self._select_remaining(values)

    def _select_remaining(self, items: Mapping[str, Any]) -> dict[str, Any]:
        return {
            path: item
            for path, item in items.items()
            if not any(is_below(path, dropped) for dropped in self._dropped_paths)
        }


class MeaningView(Change):
    """A view of episodes with a declared meaning of a field; values do not change.

    Args:
      base: The source.
      path: The path of a numeric field.
      meaning: The declared attributes of the field: `kind`, `unit`, `names`. Empty values mean
        unknown.
      aliases: The paths of fields by their names in the format, see `SourceInfo`.

    Raises:
      ValueError: There is no such numeric field, or the meaning does not match it.
    """

    def __init__(
        self,
        base: Source,
        path: str,
        meaning: Mapping[str, Any],
        aliases: Mapping[str, str] = _NO_ALIASES,
    ) -> None:
        fields = fields_of(base)
        path = path_in(fields, path, aliases)
        field = fields.get(path)
        if not isinstance(field, Field) or field.encoding or field.column_dtype.kind not in "iuf":
            raise ValueError(f"set_meaning: {path!r} is not a field of numbers")
        kind, names = meaning.get("kind"), (*meaning.get("names", ()),)
        if kind and kind not in KINDS:
            raise ValueError(f"set_meaning: no kind {kind!r}; {suggest_names(kind, KINDS)}")
        if names and (*field.shape, None)[-2:][0] != len(names):
            raise ValueError(f"set_meaning: {path}: {len(names)} names, but it is {field}")
        unknown = Field(field.dtype)
        new_meaning = {name: value or getattr(unknown, name) for name, value in meaning.items()}
        new_meaning |= {"names": names} if names else {}
        super().__init__(base, {**fields, path: dataclasses.replace(field, **new_meaning)})


class FillView(Change):
    """A view of episodes with a field set to a constant in some of them; step fields in all steps.

    Placeholders in the step of the final observation do not change.

    Args:
      base: The source, with one split.
      path: The path; `instruction` stands for the instruction field of any name.
      value: The constant.
      mask: A mask of the episodes with the constant.
      aliases: The paths of fields by their names in the format, see `SourceInfo`.

    Raises:
      ValueError: There is no such field, or the value does not fit it.
    """

    def __init__(
        self,
        base: Source,
        path: str,
        value: Any,
        mask: np.ndarray,
        aliases: Mapping[str, str] = _NO_ALIASES,
    ) -> None:
        fields = fields_of(base)
        settable = {**_EPISODE_ATTRIBUTES, **fields}
        if path == INSTRUCTION and path not in settable:
            texts = (n for n, f in settable.items() if isinstance(f, Field) and f.is_text)
            path = next(filter(is_instruction, texts), path)
        self._path = path_in(settable, path, aliases)
        if self._path not in settable:
            members = [name for name in settable if is_below(name, self._path)]
            raise ValueError(f"set: {self._path!r} is a group of fields; set one of {members}")
        self._value = as_field_value(value, settable[self._path], self._path)
        self._mask = mask
        self._is_attribute = self._path not in fields
        if is_derived(self._path.removeprefix(STEPS), fields.get(self._path)):
            fields[self._path] = Field(np.float32)
        root = root_of(self._path.removeprefix(STEPS))
        self._is_of_transitions = self._path.startswith(STEPS) and root in TRANSITION_FIELDS
        super().__init__(base, fields)

    @property
    def columns(self) -> set[str]:
        """The columns of the episode table that hold the values of the field."""
        column = self._path if self._is_attribute else column_of(self._path)
        return {column, INSTRUCTION} if is_instruction(self._path) else {column}

    def column_values(self, old_values: Sequence[Any]) -> list[Any]:
        """Returns the values of one of `columns` after the change."""
        value = as_text(self._value) if isinstance(self._value, bytes) else self._value
        return [value if is_set else old for old, is_set in zip(old_values, self._mask)]

    @override
    def needs_all_steps(self, fields: Collection[str] | None) -> bool:
        """True for transition fields: the last step of an episode may hold a placeholder."""
        return self._is_of_transitions and (fields is None or self._path in fields)

    @override
    def make(
        self, values: dict[str, Any], rows: RowContext, fields: Collection[str] | None
    ) -> dict[str, Any]:
        episodes = rows.episodes if rows.episode_index is None else rows.episode_index
        if self._path not in values or not self._mask[episodes].any():
            return values
        filled = as_step_column(self._path, self._value, values)
        if rows.episode_index is None:
            is_kept = ~self._mask[rows.episodes]
            filled[is_kept] = values[self._path][is_kept]
        if self._is_of_transitions and values[rlds.FINAL_OBSERVATION_KNOWN]:
            filled[-1] = values[self._path][-1]
        return {**values, self._path: filled}

    @override
    def changed_episodes(self, split: str, episodes: np.ndarray) -> np.ndarray:
        mask: np.ndarray = self._mask[episodes]
        return mask


class AddView(Change):
    """A view of episodes with an added field that a function computes.

    Args:
      base: The source.
      path: The path of the field; a step field if it begins with `steps/`.
      function: Takes an episode; returns a column for its steps, or a value.
      example: An episode of `base`, which determines the dtype and the shape of the field.

    Raises:
      ValueError: The path is used.
    """

    uses_all_steps = True

    def __init__(
        self,
        base: Source,
        path: str,
        function: Callable[[SourceEpisode], Any],
        example: SourceEpisode,
    ) -> None:
        fields = fields_of(base)
        _check_path_is_free(fields, path, "add")
        self._path, self._function, self.changed_paths = path, function, {path}
        value = np.asarray(self._compute(example))
        shape = value.shape[1:] if path.startswith(STEPS) else value.shape
        self._field = Field(str if value.dtype.kind in "USO" else value.dtype, shape)
        super().__init__(base, {**fields, path: self._field})

    def _compute(self, episode: SourceEpisode) -> Any:
        try:
            return self._function(episode)
        except Exception as error:
            problem = f"add: the function for {self._path!r} failed with episode {episode.key!r}"
            raise ValueError(f"{problem}: {error!r}") from error

    @override
    def needs(self, fields: Collection[str]) -> Collection[str] | None:
        return None if self._path in fields else fields

    @override
    def make(
        self, values: dict[str, Any], rows: RowContext, fields: Collection[str] | None
    ) -> dict[str, Any]:
        assert rows.episode is not None
        key = rows.episode.key
        value = self._compute(with_values(rows.episode, values))
        if not self._path.startswith(STEPS):
            return {**values, self._path: as_field_value(value, self._field, self._path)}
        column = np.asarray(value, object if self._field.is_text else None)
        expected = (len(rows.steps), *self._field.shape)
        if column.shape != expected:
            raise ValueError(
                f"add: episode {key!r}: the function for {self._path!r} returned an array "
                f"of shape {column.shape}, expected {expected}"
            )
        if not self._field.is_text:
            field = dataclasses.replace(self._field, shape=expected)
            column = as_field_value(column, field, f"add: episode {key!r}: {self._path}")
        return {**values, self._path: column}


def _check_path_is_free(fields: Mapping[str, Any], path: str, operation: str) -> None:
    if any(is_below(path, name) or is_below(name, path) for name in fields):
        raise ValueError(f"{operation}: the dataset already has a field {path!r}")


def fields_of(source: AnySource) -> dict[str, Any]:
    """Returns the fields of steps, without the flags, and of episodes, by path."""
    fields = source.fields
    return flat(as_fields(fields.steps), as_fields(fields.episode))


def path_in(fields: Iterable[str], name: str, aliases: Mapping[str, str] = _NO_ALIASES) -> str:
    """Returns the path of a field or of a group of fields; the name may omit `steps/`.

    Args:
      fields: The paths of all fields.
      name: The path, or an alias.
      aliases: The paths of fields by their names in the format, see `SourceInfo`.

    Raises:
      ValueError: There is no such field; the message lists the fields.
    """
    fields = list(fields)
    for path in (name, STEPS + name, resolve_alias(name, aliases)):
        if any(is_below(field, parent) for field in fields for parent in _find_paths(path)):
            return path
    all_names = dict.fromkeys(map(camera_path, fields))
    all_names |= {
        alias + field.removeprefix(path): None
        for alias, path in aliases.items()
        for field in [*all_names]
        if is_below(field, path) and path != rlds.STEPS
    }
    raise ValueError(f"there is no field {name!r}; {suggest_fields(name, all_names)}")


def resolve_alias(name: str, aliases: Mapping[str, str]) -> str:
    """Resolves the name of an existing or a new field to its path.

    >>> resolve_alias("observation.grip", {"observation.state": "steps/observation/state"})
    'steps/observation/grip'
    """
    matches = [key for key, path in aliases.items() if is_below(name, key) and path != rlds.STEPS]
    if matches:
        alias = max(matches, key=len)
        return aliases[alias] + name.removeprefix(alias)
    is_dotted = "." in name and "/" not in name and any("." in alias for alias in aliases)
    return STEPS + name.replace(".", "/") if is_dotted else name


def _clip_or_path(fields: Mapping[str, Any], path: str) -> str:
    """Returns the path of a field; for a field of a video clip, the path of the clip."""
    clip = path.rpartition("/")[0]
    is_in_clip = path in fields and path != camera_path(path) and f"{clip}/{CLIP}" in fields
    return clip if is_in_clip else path


def _find_paths(path: str) -> Sequence[str]:
    """Returns the path of a field; for a camera, also the paths of its video and file names."""
    if not path.startswith(STEPS):
        return (path,)
    name = path.removeprefix(STEPS)
    return path, f"{VIDEO}/{name}", f"{STEPS}{IMAGE_FILE}/{name}"


def _rename_path(path: str, old: str, new: str) -> str:
    for old_path, new_path in zip(_find_paths(old), _find_paths(new)):
        if is_below(path, old_path):
            return new_path + path[len(old_path) :]
    return path


def as_step_column(path: str, value: Any, values: Mapping[str, Any]) -> Any:
    """Returns a value; for a step field, a column with the value in each row."""
    if not path.startswith(STEPS):
        return value
    column = np.empty((num_steps_of(values), *np.shape(value)), getattr(value, "dtype", object))
    column[...] = value
    return column


def as_field_value(value: Any, field: Any, path: str) -> Any:
    """Returns a value in the dtype of a field.

    Raises:
      ValueError: The value does not fit into the field.
    """
    mismatch = f"{path}: got {value!r}, expected {field}"
    if not isinstance(field, Field) or field.encoding:
        raise ValueError(f"{mismatch}. Only numbers, flags and texts can be set")
    if field.is_text and not field.shape:
        if not isinstance(value, str | bytes):
            raise ValueError(mismatch)
        is_bytes = np.dtype(field.dtype).kind == "S"
        return value.encode() if isinstance(value, str) and is_bytes else value
    array = np.asarray(value)
    try:
        with np.errstate(invalid="ignore", over="ignore"):
            converted = array.astype(field.column_dtype)
    except (TypeError, ValueError, OverflowError):
        raise ValueError(mismatch) from None
    is_float = field.column_dtype.kind == "f" and array.dtype.kind in "iuf"
    if is_float and not np.array_equal(np.isfinite(converted), np.isfinite(array)):
        raise ValueError(f"{mismatch}, which cannot hold it")
    is_number = array.dtype.kind not in "USO"
    is_exact = is_number and (is_float or np.array_equal(converted, array))
    if not (is_exact and fits(converted.shape, field.shape)):
        raise ValueError(mismatch)
    return converted[()]
