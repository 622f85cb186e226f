"""`rlds label`: summaries of labels, label files, and inter-annotator agreement."""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from typing_extensions import override

from rlds import labels as rlds_labels
from rlds.labels import Agreement, Label, Labels
from rlds.labels.label_files import as_text
from rlds_tools.editing import parse_episodes, parse_span
from rlds_tools.results import Block, Result, Table, count, next_commands

__all__ = [
    "Agreements",
    "LabelTransfer",
    "LayerSummary",
    "Layers",
    "add",
    "agreement",
    "export_labels",
    "import_labels",
    "show",
]

# The maximum number of shown values of a layer.
_MAX_SHOWN_VALUES = 6


@dataclasses.dataclass(frozen=True)
class LayerSummary:
    """A layer of labels.

    Attributes:
      name: The name of the layer.
      type: The type of its values.
      labels: The number of its labels.
      episodes: The number of episodes with labels.
      unlabelled: The number of episodes without labels.
      disagree: The number of episodes whose annotators disagree about the episode.
      values: The frequency of each value; minimum, mean and maximum of a layer of numbers.
      annotators: The number of labels of each annotator.
    """

    name: str
    type: str
    labels: int
    episodes: int
    unlabelled: int
    disagree: int
    values: Mapping[str, float]
    annotators: Mapping[str, int]


@dataclasses.dataclass(frozen=True)
class Layers(Result):
    """The labels of a dataset.

    Attributes:
      path: The path of the dataset.
      episodes: The number of its episodes.
      layers: The layers.
    """

    path: str
    episodes: int
    layers: tuple[LayerSummary, ...]

    @override
    def blocks(self) -> Iterator[Block]:
        num_labels = sum(layer.labels for layer in self.layers)
        yield f"{self.path}: {count(self.episodes, 'episode')}, {count(num_labels, 'label')}"
        if not self.layers:
            yield next_commands(["label", "add", self.path, "quality", 0, "good", "--by", "NAME"])
            return
        columns = ["layer", "type", ">labels", ">episodes", ">unlabelled", ">disagree"]
        rows = [[*map(_cell, vars(layer).values())] for layer in self.layers]
        yield Table([*columns, "values", "by"], rows)
        yield next_commands(
            ["label", "agreement", self.path], ["label", "export", self.path, "labels.csv"]
        )


@dataclasses.dataclass(frozen=True)
class LabelTransfer(Result):
    """Labels that were added, written or read.

    Attributes:
      path: The path of the dataset.
      labels: The number of labels.
      what: The description of the operation, such as "added".
    """

    path: str
    labels: int
    what: str

    @override
    def blocks(self) -> Iterator[Block]:
        yield f"{self.path}: {count(self.labels, 'label')} {self.what}"
        yield next_commands(["label", self.path])


@dataclasses.dataclass(frozen=True)
class Agreements(Result):
    """The inter-annotator agreement of the layers of a dataset.

    Attributes:
      path: The path of the dataset.
      compared: The result of `rlds.labels.agreement` for each layer.
    """

    path: str
    compared: Sequence[Agreement]

    @override
    def blocks(self) -> Iterator[Block]:
        yield f"{self.path}: Krippendorff's alpha"
        rows = [
            [
                *(labels.layer, ", ".join(labels.annotators)),
                "-" if labels.alpha is None else f"{labels.alpha:.3f}",
                "-" if labels.equal is None else f"{labels.equal:.0%}",
                f"{labels.units:,}",
            ]
            for labels in self.compared
        ]
        yield Table(["layer", "annotators", ">alpha", ">equal", ">compared"], rows)
        if any(labels.alpha is None for labels in self.compared):
            yield "-: not defined, as all values are equal, or no episode has several annotators"


def _cell(value: Any) -> str:
    if not isinstance(value, Mapping):
        return f"{value:,}" if isinstance(value, int) else str(value)
    texts = [f"{name} {frequency:,.6g}" for name, frequency in value.items()]
    suffix = (
        [f"and {len(texts) - _MAX_SHOWN_VALUES} more"] if len(texts) > _MAX_SHOWN_VALUES else []
    )
    return ", ".join([*texts[:_MAX_SHOWN_VALUES], *suffix])


def show(path: str, **options: Any) -> Layers:
    """Returns a summary of the labels of data.

    Args:
      path: The path of the data.
      **options: Options of `rlds.sources.open`, such as `format`.
    """
    labels = rlds_labels.open(path, **options)
    rows_by_layer: dict[str, list[Label]] = {}
    for row in labels:
        rows_by_layer.setdefault(row.layer, []).append(row)
    layers = tuple(_summarize(rows, labels) for _, rows in sorted(rows_by_layer.items()))
    return Layers(path, len(labels.digests), layers)


def _summarize(rows: Sequence[Label], labels: Labels) -> LayerSummary:
    copies = Counter(labels.digests)  # Several episodes may have the same steps.
    values_by_digest: dict[str, set[Any]] = {row.episode: set() for row in rows}
    for row in rows:
        values_by_digest[row.episode] |= {row.value} if row.end is None else set()
    episodes = sum(copies[digest] for digest in values_by_digest)
    statistics: dict[str, float] = dict(Counter(as_text(row.value) for row in rows).most_common())
    if rows[0].type == "number":
        values = [float(row.value or 0) for row in rows]
        statistics = {"min": min(values), "mean": sum(values) / len(rows), "max": max(values)}
    return LayerSummary(
        rows[0].layer,
        rows[0].type,
        len(rows),
        episodes,
        len(labels.digests) - episodes,
        sum(copies[digest] for digest, several in values_by_digest.items() if len(several) > 1),
        statistics,
        dict(Counter(row.annotator for row in rows).most_common()),
    )


def add(
    path: str,
    layer: str,
    episodes: str,
    value: str,
    *,
    by: str,
    steps: str | None = None,
    type: str | None = None,
    **options: Any,
) -> LabelTransfer:
    """Adds a label to episodes. If an error occurs, no label is added.

    Args:
      path: The path of the data.
      layer: The layer.
      episodes: The indices of the episodes, such as `3,7,10:15`.
      value: The value.
      by: The annotator.
      steps: The steps, as BEGIN:END; the whole episode if None.
      type: The type of a new layer.
      **options: Options of `rlds.sources.open`, such as `format`.
    """
    labels = rlds_labels.open(path, **options)
    label = {"layer": layer, "type": type, "value": value, "annotator": by, "tool": "rlds label"}
    rows = []
    for index in parse_episodes(episodes, "EPISODES"):
        if not 0 <= index < len(labels.digests):
            raise IndexError(
                f"no episode {index}; the dataset has {count(len(labels.digests), 'episode')}"
            )
        begin, end = (None, None) if steps is None else parse_span(steps, "--steps")
        end = labels.lengths[index] if steps is not None and end is None else end
        rows.append({**label, "episode": labels.digests[index], "begin": begin, "end": end})
    new_labels = rlds_labels.as_labels(rows, labels)
    labels.add_rows(new_labels)
    return LabelTransfer(path, len(new_labels), "added")


def export_labels(path: str, file: str, **options: Any) -> LabelTransfer:
    """Writes labels to a file; see `rlds.labels.write`."""
    num_labels = rlds_labels.write(rlds_labels.open(path, **options), file)
    return LabelTransfer(path, num_labels, f"written to {file}")


def import_labels(path: str, file: str, **options: Any) -> LabelTransfer:
    """Adds the new labels of a file, or no label if any is invalid; see `rlds.labels.read`."""
    labels = rlds_labels.open(path, **options)
    imported = rlds_labels.read(file, labels)
    labels.add_rows(imported)
    return LabelTransfer(path, len(imported), f"added from {file}")


def agreement(path: str, layer: str | None = None, **options: Any) -> Agreements:
    """Computes the agreement of annotators; see `rlds.labels.agreement`.

    Args:
      path: The path of the data.
      layer: The layer; all if None.
      **options: Options of `rlds.sources.open`, such as `format`.

    Raises:
      ValueError: The dataset has no labels.
    """
    labels = rlds_labels.open(path, **options)
    names = sorted({row.layer for row in labels}) if layer is None else [layer]
    if not names:
        raise ValueError(f"{path}: no labels to compare. Add labels with `rlds label add`.")
    return Agreements(path, [a for n in names for a in rlds_labels.agreement(labels, n)])
