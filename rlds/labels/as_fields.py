"""Labels as fields of episodes and steps."""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from typing_extensions import override

import rlds
from rlds.labels.labels import Labels
from rlds.sources.episodes import Episodes
from rlds.sources.label_rows import COLUMN, TYPES, Label
from rlds.sources.source import Fields, Source, files_of, with_random_access
from rlds.sources.view import RowContext, View, flat
from rlds_ecosystem.model.fields import Field
from rlds_ecosystem.model.names import suggest_names

__all__ = ["LabelledSource", "labelled"]

# Placeholders of missing labels, and of labels on which annotators disagree.
_PLACEHOLDERS: Mapping[type, Any] = {bool: False, str: "", float: np.nan}


def labelled(episodes: Episodes, layers: Iterable[str] | None = None) -> Episodes:
    """Adds labels as fields to episodes and steps.

    Labels of episodes are in the episode field `label/<layer>`, labels of steps in the step field
    of the same name. All annotators must agree on the value. If annotators disagree, or there is no
    label, text is empty, a number is NaN, and a flag and its mask field `<layer>_known` are False.

    Args:
      episodes: The episodes.
      layers: The names of layers; all if None.

    Raises:
      KeyError: There is no such layer.
      TypeError: The source has no random access.
      ValueError: The episodes already have a field `label`, or there are no labels.
    """
    source = with_random_access(episodes.source)
    labels = Labels(Episodes(source, "+".join(source.splits)))
    layer_types = labels.layers()
    names = set(layer_types if layers is None else layers)
    for name in names - layer_types.keys():
        raise KeyError(f"no layer {name!r}; {suggest_names(name, layer_types)}")
    rows = [row for row in labels if row.layer in names]
    if not rows:
        raise ValueError(f"{files_of(source)}: its episodes have no labels; add some first")
    return episodes.through(LabelledSource, labels, rows)


class LabelledSource(View):
    """A view with the labels of episodes and steps as fields; see `labelled`.

    Args:
      source: The source.
      labels: The labels of the source.
      rows: The labels that become fields.

    Raises:
      ValueError: The source already has a field `label`.
    """

    shares_table = True

    def __init__(self, source: Source, labels: Labels, rows: Iterable[Label]) -> None:
        super().__init__(source)
        self._types: dict[bool, dict[str, type]] = {False: {}, True: {}}
        self._rows: dict[str, list[Label]] = {}
        for row in rows:
            self._types[row.begin is not None][row.layer] = TYPES[row.type]
            self._rows.setdefault(row.episode, []).append(row)
        ids = " ".join(row.id for rows in self._rows.values() for row in rows)
        self.options = {COLUMN: hashlib.sha256(ids.encode()).hexdigest()}
        step_fields = self._list_fields(of_steps=True)
        self.changed_paths = flat(step_fields, self._list_fields(of_steps=False)).keys()
        locate = labels.episodes.locate
        digests = [(locate(n), d) for n, d in enumerate(labels.digests) if d in self._rows]
        self._digests = dict(digests)
        if COLUMN in source.fields.steps or COLUMN in source.fields.episode:
            raise ValueError(f"{files_of(source)}: the field {COLUMN!r} already exists: rename it")

    def _list_fields(self, *, of_steps: bool) -> dict[str, Any]:
        fields = {}
        for layer, kind in sorted(self._types[of_steps].items()):
            fields[layer] = Field(kind)
            if kind is bool:
                fields[f"{layer}_known"] = Field(bool)
        return {COLUMN: fields} if fields else {}

    @property
    @override
    def fields(self) -> Fields:
        fields = super().fields
        return fields.replace(
            steps={**fields.steps, **self._list_fields(of_steps=True)},
            episode={**fields.episode, **self._list_fields(of_steps=False)},
        )

    @override
    def make(
        self, values: dict[str, Any], rows: RowContext, fields: Collection[str] | None
    ) -> dict[str, Any]:
        new_values = dict(values)
        for episode in np.unique(rows.episodes).tolist():
            mask = rows.episodes == episode
            labels = self._rows.get(self._digests.get((rows.split, episode), ""), [])
            step_labels = [row for row in labels if row.end is not None]
            for path, column in self._columns(step_labels, rows.steps[mask], of_steps=True).items():
                path = f"{rlds.STEPS}/{path}"
                if path not in new_values:
                    new_values[path] = np.empty(len(rows.steps), column.dtype)
                new_values[path][mask] = column
            episode_labels = [row for row in labels if row.end is None]
            for path, [value] in self._columns(episode_labels, np.zeros(1), of_steps=False).items():
                new_values[path] = value
        return new_values

    def _columns(
        self, rows: Sequence[Label], steps: np.ndarray, *, of_steps: bool
    ) -> dict[str, np.ndarray]:
        """Returns the columns of layers by path: for steps, or for an episode (one row)."""
        columns: dict[str, np.ndarray] = {}
        for layer, kind in self._types[of_steps].items():
            votes: dict[str, np.ndarray] = {}
            for row in rows:
                if row.layer == layer:
                    column = votes.setdefault(row.annotator, np.full(len(steps), None, object))
                    end = np.inf if row.end is None else row.end
                    column[(steps >= (row.begin or 0)) & (steps < end)] = row.value
            values = [{*row} - {None} for row in zip(*votes.values())] or [set()] * len(steps)
            is_known = np.array([len(value) == 1 for value in values], np.bool_)
            cells = [next(iter(v)) if k else _PLACEHOLDERS[kind] for v, k in zip(values, is_known)]
            columns[f"{COLUMN}/{layer}"] = np.array(cells, object if kind is str else kind)
            if kind is bool:
                columns[f"{COLUMN}/{layer}_known"] = is_known
        return columns
