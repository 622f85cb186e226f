"""Common fields of merged datasets for the values of each dataset without loss."""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Mapping
from typing import Any

import numpy as np
from typing_extensions import override

from rlds.editing.changes import Change, as_field_value, as_step_column, fields_of, path_in
from rlds.editing.metadata_merging import Policy
from rlds.sources.episodes import as_values
from rlds.sources.source import Source
from rlds.sources.texts import as_text, as_texts
from rlds.sources.view import RowContext
from rlds_ecosystem.model.fields import MEANING_ATTRIBUTES, Field

__all__ = ["UnifyView", "unify"]


class UnifyView(Change):
    """A view of one of several merged datasets, with their common fields.

    Args:
      base: The dataset.
      fields: The common fields.
      defaults: The values of the fields that the dataset lacks.
    """

    def __init__(
        self, base: Source, fields: Mapping[str, Any], defaults: Mapping[str, Any]
    ) -> None:
        super().__init__(base, fields)
        old_fields = fields_of(base)
        self._defaults = {
            path: as_field_value(defaults[path], field, path)
            for path, field in fields.items()
            if path not in old_fields
        }
        self._changed = {
            path: field
            for path, field in old_fields.items()
            if path in fields and _get_storage_type(field) != _get_storage_type(fields[path])
        }
        self._dropped = old_fields.keys() - fields.keys()
        self._assumptions = [
            f"{path}: {attribute} is assumed to be {value}, as in the other datasets"
            for path, field in old_fields.items()
            for attribute, value in getattr(fields.get(path), "meaning", {}).items()
            if isinstance(field, Field) and not getattr(field, attribute)
        ]

    @property
    def notes(self) -> list[str]:
        """The changes to the fields, in sentences."""
        widened = [f"{p}: {f} becomes {self._new_fields[p]}" for p, f in self._changed.items()]
        filled = [f"{path}: filled with {value}" for path, value in self._defaults.items()]
        dropped = [f"{path}: left out" for path in sorted(self._dropped)]
        return [*widened, *filled, *dropped, *self._assumptions]

    @override
    def make(
        self, values: dict[str, Any], rows: RowContext, fields: Collection[str] | None
    ) -> dict[str, Any]:
        unified = {path: value for path, value in values.items() if path not in self._dropped}
        for path, field in self._changed.items():
            if path in values:
                unified[path] = _convert(values[path], field, self._new_fields[path])
        for path, value in self._defaults.items():
            unified[path] = as_step_column(path, value, values)
        return unified

    @override
    def changed_episodes(self, split: str, episodes: np.ndarray) -> np.ndarray:
        return np.full(len(episodes), bool(self._changed or self._defaults or self._dropped))


def unify(
    datasets: Mapping[str, Source],
    defaults: Mapping[str, Any],
    *,
    drops_missing: bool,
    policy: Policy = "error",
) -> list[UnifyView]:
    """Returns views of several datasets with common fields.

    Numbers become wider, texts become `str`, images of different encodings become pixels.

    Args:
      datasets: The datasets, by their names.
      defaults: The values of fields that some datasets lack.
      drops_missing: Whether missing fields without a value in `defaults` are left out.
      policy: The treatment of different action kinds, see `metadata` of `Merge`.

    Raises:
      ValueError: A field is missing in a dataset, or types do not match; the message has the
        remedy.
    """
    all_fields = {name: fields_of(source) for name, source in datasets.items()}
    paths = dict.fromkeys(path for fields in all_fields.values() for path in fields)
    defaults = {path_in(paths, name): value for name, value in defaults.items()}
    common_fields: dict[str, Any] = {}
    for path in paths:
        without = [name for name, fields in all_fields.items() if path not in fields]
        if without and path not in defaults:
            if drops_missing:
                continue
            raise ValueError(
                f"merge: {' and '.join(without)} has no field {path!r}: map another field to it "
                f"(fields, --map THEIRS={path}), fill it with a value (defaults, --fill "
                f"{path}=VALUE), or leave out such fields (missing='drop', "
                "--drop-missing)"
            )
        variants = {name: fields[path] for name, fields in all_fields.items() if path in fields}
        common_fields[path] = _unify_field(path, variants, policy)
    if unknown := defaults.keys() - paths.keys():
        raise ValueError(f"merge: no field {min(unknown)!r} to fill in any dataset")
    return [UnifyView(source, common_fields, defaults) for source in datasets.values()]


def _get_storage_type(field: Any) -> Any:
    """Returns the dtype, shape and encoding of a field, without its meaning."""
    if not isinstance(field, Field):
        return field
    return np.dtype(field.dtype), field.shape, field.encoding


def _unify_field(path: str, fields: Mapping[str, Any], policy: Policy) -> Any:
    """Returns a field that can hold the values of a field of all merged datasets."""
    (name, first), *other_fields = fields.items()
    for other, field in other_fields:
        diff = f"merge: {path!r} is {first} in {name}, and {field} in {other}"
        if not (isinstance(first, Field) and isinstance(field, Field)):
            if first != field:
                raise ValueError(diff)
            continue
        for attribute in MEANING_ATTRIBUTES:
            old, new = getattr(first, attribute), getattr(field, attribute)
            if old and new and old != new and (attribute != "kind" or policy == "error"):
                advice = ". Choose with metadata='first' (--metadata first)" * (attribute == "kind")
                raise ValueError(f"{diff}: {attribute} differs, {old} and {new}{advice}")
        if first.codes != field.codes:
            raise ValueError(f"{diff}: only one holds codes; decode it first")
        if first.shape != field.shape or first.is_text != field.is_text:
            raise ValueError(
                f"{diff}: these do not fit into one field; drop it, or rename it in one dataset"
            )
        first = dataclasses.replace(
            first,
            dtype=_unify_dtype(first, field, diff),
            encoding=first.encoding if first.encoding == field.encoding else "",
            doc=first.doc if first.doc == field.doc else "",
            **{**field.meaning, **first.meaning},
        )
    kinds = {field.kind for field in fields.values() if isinstance(field, Field)} - {""}
    if len(kinds) > 1:  # The merged field has a kind only with the policy "first".
        kind = fields[name].kind if policy == "first" else ""
        first = dataclasses.replace(first, kind=kind)
    return first


def _unify_dtype(first: Field, second: Field, diff: str) -> Any:
    if first.dtype == second.dtype:
        return first.dtype
    if first.is_text:
        return str
    dtype = np.result_type(first.column_dtype, second.column_dtype)
    kinds = {first.column_dtype.kind, second.column_dtype.kind}
    if dtype.kind not in kinds or (len(kinds) > 1 and not kinds <= {"i", "u"}):
        raise ValueError(f"{diff}: integers, floats and flags are not converted; convert one first")
    return dtype


def _convert(value: Any, old: Field, new: Field) -> Any:
    if old.encoding and not new.encoding:
        value = as_values(value, old)
    if new.is_text:
        return as_texts(value) if isinstance(value, np.ndarray) else as_text(value)
    return np.asarray(value).astype(new.column_dtype)[()]
