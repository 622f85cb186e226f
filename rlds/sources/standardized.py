"""Episodes of a robot that also have the action and the state that policies train on."""

from __future__ import annotations

import dataclasses
import warnings
from collections.abc import Collection, Mapping
from typing import Any

import numpy as np
from typing_extensions import override

import rlds
from rlds.robotics.registry import ACTIONS, STATES, DatasetMeaning, meaning_of
from rlds.robotics.standard import fields_of, standard_columns, widths_of
from rlds.sources import reading
from rlds.sources.episodes import Episodes
from rlds.sources.source import ALL_ROWS, RandomAccessSource, SourceEpisode, files_of
from rlds.sources.wrapped import WrappedSource
from rlds_ecosystem.model.fields import Field
from rlds_ecosystem.model.nests import is_in, named_leaves, nest

__all__ = ["STANDARD", "StandardizedSource", "name_of", "standardized"]

STANDARD = "standard"
"""The field of a step that has the standard action and state."""

_STANDARD = f"{rlds.STEPS}/{STANDARD}"


def standardized(episodes: Episodes, name: str | DatasetMeaning | None = None) -> Episodes:
    """Returns the same episodes with the action and the state that Octo and OpenVLA train on.

    They are new fields of a step: `standard/action`, `standard/state`, and `standard/is_kept`,
    which is false in steps that the standard leaves out. All that is stored stays as it is.

    Args:
      episodes: The episodes.
      name: The name of the dataset, or what its fields mean; what its files say if None.

    Raises:
      KeyError: Nothing is known of the dataset, or a field is missing.
      TypeError: The episodes cannot be read in any order.
      ValueError: The fields are not those that are known, or nobody has said how to make the
        standard.
    """
    source = episodes.source
    if not isinstance(source, RandomAccessSource):
        raise TypeError(f"{files_of(source)}: this format has no random access; convert it first")
    if not isinstance(name, DatasetMeaning):
        name = meaning_of(name or name_of(source), source.metadata())
    if name.confidence == "disputed":
        said = "; ".join(map(str, name.disagreements))
        warnings.warn(f"{name.name}: publications disagree: {said}", stacklevel=2)
    return Episodes(StandardizedSource(source, name), episodes.split, format=episodes.format)


def name_of(source: Any) -> str:
    """Returns the name of the dataset that a source reads, as its files have it; may be empty."""
    return str(getattr(source, "name", ""))


class StandardizedSource(WrappedSource):
    """A source whose steps also have the standard action and state; see `standardized`.

    Args:
      source: The source.
      meaning: What its fields mean.

    Raises:
      KeyError: A field is missing.
      ValueError: The fields are not those that are known.
    """

    def __init__(self, source: RandomAccessSource, meaning: DatasetMeaning) -> None:
        super().__init__(source)
        self.meaning = meaning
        self.reads_rows = True  # Though rules look back and ahead.
        leaves = dict(named_leaves(source.step_fields()))
        shapes = {path: getattr(field, "shape", ()) for path, field in leaves.items()}
        if STANDARD in (path.partition("/")[0] for path in leaves):
            raise ValueError(f"{files_of(source)}: the steps have a field {STANDARD!r} already")
        if not meaning.standard_action:
            raise ValueError(f"{meaning.name}: the registry has no rule for the standard action")
        widths = widths_of(meaning, shapes)
        named = {
            "action": ACTIONS.get(meaning.action_encoding, ()),
            "state": STATES.get(meaning.state_encoding, ()),
        }
        self._fields = {
            kind: Field(
                np.float32,
                (width,),
                names=named[kind] if len(named[kind]) == width else None,
            )
            for kind, width in widths.items()
        }
        self._fields["is_kept"] = Field(np.bool_)
        self._made_of = {path for paths in fields_of(meaning).values() for path in paths}

    def step_fields(self) -> Mapping[str, Any]:
        """Returns those of the source, and `standard`."""
        return {**self.source.step_fields(), STANDARD: self._fields}

    def metadata(self) -> Mapping[str, Any]:
        """Returns that of the source, and under `standard` how it is made."""
        made = {
            "dataset": self.meaning.name,
            "action": list(self.meaning.standard_action),
            "action_encoding": self.meaning.action_encoding,
            "state": list(self.meaning.standard_state),
            "state_encoding": self.meaning.state_encoding,
        }
        return {**self.source.metadata(), STANDARD: made}

    @override
    def options(self) -> Mapping[str, Any]:
        return {**self.source.options(), STANDARD: self.metadata()[STANDARD]}

    def read(
        self,
        split: str,
        index: int,
        fields: Collection[str] | None = None,
        rows: slice = ALL_ROWS,
    ) -> SourceEpisode:
        """Reads an episode, with `standard`: that takes all of its steps, but not all fields."""
        if fields is not None:
            stored = [path for path in fields if not is_in(path, _STANDARD)]
            if len(stored) == len(fields):
                return reading.read(self.source, split, index, stored, rows)
            fields = {*stored, *(f"{rlds.STEPS}/{path}" for path in self._made_of)}
        episode = reading.read(self.source, split, index, fields)
        made = standard_columns(episode.steps, self.meaning)
        steps = {**episode.steps, STANDARD: made}
        if rows != ALL_ROWS:
            steps = nest({path: column[rows] for path, column in named_leaves(steps)})
        return dataclasses.replace(episode, steps=steps)
