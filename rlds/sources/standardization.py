"""Standardized robot datasets: the action and the state on which policies are trained."""

from __future__ import annotations

import warnings
from collections.abc import Collection
from typing import Any

import numpy as np
from typing_extensions import override

import rlds
from rlds.robotics.registry import ACTIONS, STATES, DatasetMeaning, meaning_of
from rlds.robotics.standard import fields_of, standard_columns, widths_of
from rlds.sources.episodes import Episodes
from rlds.sources.source import Fields, Source, SourceInfo, files_of
from rlds.sources.view import RowContext, View
from rlds_ecosystem.model.fields import Field
from rlds_ecosystem.model.nests import is_below, named_leaves, nest

__all__ = ["STANDARD", "StandardizedSource", "name_of", "standardized"]

STANDARD = "standard"
"""The field of a step with the standard action and state."""

_STEPS = f"{rlds.STEPS}/"
_STANDARD = f"{_STEPS}{STANDARD}"


def standardized(episodes: Episodes, name: str | DatasetMeaning | None = None) -> Episodes:
    """Returns the same episodes with the action and the state that Octo and OpenVLA train on.

    The new fields of a step are `standard/action`, `standard/state`, and `standard/is_kept`, which
    is False in steps that the standard leaves out. Stored fields do not change.

    Args:
      episodes: The episodes.
      name: The name of the dataset, or the meaning of its fields; by default, from its files.

    Raises:
      KeyError: The dataset is not in the registry, or a field is missing.
      TypeError: The source has no random access.
      ValueError: The fields differ from the registry, or it has no rule for the standard action.
    """
    source = episodes.source
    if not isinstance(name, DatasetMeaning):
        name = meaning_of(name or name_of(source), source.source_info.metadata)
    if name.confidence == "disputed":
        reasons = "; ".join(map(str, name.disagreements))
        warnings.warn(f"{name.name}: publications disagree: {reasons}", stacklevel=2)
    return episodes.through(StandardizedSource, name)


def name_of(source: Any) -> str:
    """Returns the name of the dataset in the files of a source; may be empty."""
    return str(source.source_info.name)


class StandardizedSource(View):
    """A source whose steps also have the standard action and state; see `standardized`.

    Args:
      source: The source.
      meaning: The meaning of the fields of the source.

    Raises:
      KeyError: A field is missing.
      ValueError: The fields differ from the registry.
    """

    uses_all_steps = True  # Rules use earlier and later steps.

    def __init__(self, source: Source, meaning: DatasetMeaning) -> None:
        super().__init__(source)
        self.meaning = meaning
        leaves = dict(named_leaves(source.fields.steps))
        shapes = {path: getattr(field, "shape", ()) for path, field in leaves.items()}
        if STANDARD in (path.partition("/")[0] for path in leaves):
            raise ValueError(f"{files_of(source)}: the steps have a field {STANDARD!r} already")
        if not meaning.standard_action:
            raise ValueError(f"{meaning.name}: the registry has no rule for the standard action")
        widths = widths_of(meaning, shapes)
        names = {
            "action": ACTIONS.get(meaning.action_encoding, ()),
            "state": STATES.get(meaning.state_encoding, ()),
        }
        self._fields = {
            kind: Field(np.float32, (n,), names=names[kind] if len(names[kind]) == n else None)
            for kind, n in widths.items()
        }
        self._fields["is_kept"] = Field(np.bool_)
        standard = {
            "dataset": meaning.name,
            "action": list(meaning.standard_action),
            "action_encoding": meaning.action_encoding,
            "state": list(meaning.standard_state),
            "state_encoding": meaning.state_encoding,
        }
        self.options = {STANDARD: standard}
        self.changed_paths = {f"{_STANDARD}/{kind}" for kind in self._fields}
        paths = {path for paths in fields_of(meaning).values() for path in paths}
        self._inputs = {_STEPS + path for path in paths}

    @property
    @override
    def source_info(self) -> SourceInfo:
        info = super().source_info
        return info.replace(metadata={**info.metadata, **self.options})

    @property
    @override
    def fields(self) -> Fields:
        fields = super().fields
        return fields.replace(steps={**fields.steps, STANDARD: self._fields})

    @override
    def needs(self, fields: Collection[str]) -> Collection[str]:
        base_fields = {*fields} - self._added
        return base_fields | self._inputs if self.makes(fields) else base_fields

    @override
    def make(
        self, values: dict[str, Any], rows: RowContext, fields: Collection[str] | None
    ) -> dict[str, Any]:
        steps = {p.removeprefix(_STEPS): v for p, v in values.items() if is_below(p, "steps")}
        new_columns = standard_columns(nest(steps), self.meaning)
        return values | {f"{_STANDARD}/{name}": column for name, column in new_columns.items()}
