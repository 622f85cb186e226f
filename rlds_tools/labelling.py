"""`rlds label`: what labels data has, files of them, and how far annotators agree."""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from typing_extensions import override

from rlds import labels as rlds_labels
from rlds.labels import Agreement, Label, Labels
from rlds.labels.label_files import as_text
from rlds_tools.editing import numbers_of, span_of
from rlds_tools.results import Block, Result, Spread, Table, count

__all__ = [
    "Agreements",
    "Layer",
    "Layers",
    "Moved",
    "add",
    "agreement",
    "export_labels",
    "import_labels",
    "show",
]

# So many of the values of a layer are shown.
_SHOWN = 6


@dataclasses.dataclass(frozen=True)
class Layer:
    """A layer of labels.

    Attributes:
      name: Its name.
      type: Its type.
      labels: How many labels it has.
      values: How often each value is there; that of other types than numbers.
      numbers: How numbers are spread.
      annotators: How many labels each annotator has added.
      episodes: How many episodes have labels.
      unlabelled: How many have none.
      disagree: Of how many episodes annotators say different things as a whole.
    """

    name: str
    type: str
    labels: int
    values: Mapping[str, int]
    numbers: Spread | None
    annotators: Mapping[str, int]
    episodes: int
    unlabelled: int
    disagree: int


@dataclasses.dataclass(frozen=True)
class Layers(Result):
    """The labels of a dataset.

    Attributes:
      path: The dataset.
      episodes: How many episodes it has.
      layers: The layers.
    """

    path: str
    episodes: int
    layers: tuple[Layer, ...]

    @override
    def blocks(self) -> Iterator[Block]:
        number = sum(layer.labels for layer in self.layers)
        yield f"{self.path}: {count(self.episodes, 'episode')}, {count(number, 'label')}"
        if not self.layers:
            yield f"next: rlds label add {self.path} quality 0 good --by NAME"
            return
        columns = ["layer", "type", ">labels", ">episodes", ">unlabelled", ">disagree"]
        rows = [
            [
                *(layer.name, layer.type, f"{layer.labels:,}", f"{layer.episodes:,}"),
                *(f"{layer.unlabelled:,}", f"{layer.disagree:,}"),
                _counted(layer.values) if layer.numbers is None else _spread(layer.numbers),
                _counted(layer.annotators),
            ]
            for layer in self.layers
        ]
        yield Table([*columns, "values", "by"], rows)
        yield f"next: rlds label agreement {self.path} · rlds label export {self.path} labels.csv"


@dataclasses.dataclass(frozen=True)
class Moved(Result):
    """Labels that were added, written or read.

    Attributes:
      path: The dataset.
      labels: How many.
      what: What was done with them.
    """

    path: str
    labels: int
    what: str

    @override
    def blocks(self) -> Iterator[Block]:
        yield f"{self.path}: {count(self.labels, 'label')} {self.what}"
        yield f"next: rlds label {self.path}"


@dataclasses.dataclass(frozen=True)
class Agreements(Result):
    """How far annotators agree.

    Attributes:
      path: The dataset.
      layers: What `rlds.labels.agreement` returns, by the names of layers.
    """

    path: str
    layers: Mapping[str, Agreement]

    @override
    def blocks(self) -> Iterator[Block]:
        yield f"{self.path}: Krippendorff's alpha"
        rows = []
        for layer, found in self.layers.items():
            names = {"all": found} if len(found.pairs) != 1 else {}
            names |= {f"{one}, {other}": each for (one, other), each in found.pairs.items()}
            rows += [[layer, who, *_agreed(each)] for who, each in names.items()]
        yield Table(["layer", "annotators", ">alpha", ">equal", ">compared"], rows)
        if any("-" in row for row in rows):
            yield "-: not defined, as all values are equal, or nobody labels what others label"

    @override
    def to_dict(self) -> dict[str, Any]:
        def plain(found: Agreement) -> dict[str, Any]:
            facts = {"alpha": found.alpha, "units": found.units, "equal": found.equal}
            pairs = [{"annotators": [*who], **plain(each)} for who, each in found.pairs.items()]
            return {**facts, "pairs": pairs}

        return {"path": self.path, "layers": {n: plain(f) for n, f in self.layers.items()}}


def _counted(values: Mapping[str, int]) -> str:
    shown = [f"{value} {number}" for value, number in values.items()]
    more = [f"and {len(shown) - _SHOWN} more"] if len(shown) > _SHOWN else []
    return ", ".join([*shown[:_SHOWN], *more])


def _spread(numbers: Spread) -> str:
    least, _, mean, most = numbers.cells()
    return f"{least} … {most}, mean {mean}"


def _agreed(found: Agreement) -> list[str]:
    alpha, equal = (f"{found.alpha:.3f}" if found.alpha is not None else "-", found.equal)
    return [alpha, "-" if equal is None else f"{equal:.0%}", f"{found.units:,}"]


def show(path: str, format: str | None = None) -> Layers:
    """Returns what labels data has.

    Args:
      path: The data.
      format: Its format, if it cannot be recognized.
    """
    labels = rlds_labels.open(path, format=format)
    found: dict[str, list[Label]] = {}
    for row in labels:
        found.setdefault(row.layer, []).append(row)
    layers = tuple(_layer(rows, labels) for _, rows in sorted(found.items()))
    return Layers(path, len(labels.digests), layers)


def _layer(rows: Sequence[Label], labels: Labels) -> Layer:
    is_number, of_episodes = rows[0].type == "number", Counter(labels.digests)
    whole: dict[str, set[Any]] = {}
    for row in rows:
        values = whole.setdefault(row.episode, set())
        if row.end is None:
            values.add(row.value)
    episodes = sum(of_episodes[episode] for episode in whole)
    counts = Counter(as_text(row.value) for row in rows)
    return Layer(
        rows[0].layer,
        rows[0].type,
        len(rows),
        {} if is_number else dict(counts.most_common()),
        Spread.of([float(row.value or 0) for row in rows]) if is_number else None,
        dict(Counter(row.annotator for row in rows).most_common()),
        episodes,
        len(labels.digests) - episodes,
        sum(of_episodes[episode] for episode, values in whole.items() if len(values) > 1),
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
    format: str | None = None,
) -> Moved:
    """Adds a label to episodes, to all or to none.

    Args:
      path: The data.
      layer: The layer.
      episodes: The numbers of the episodes, such as `3,7,10:15`.
      value: The value.
      by: Who says so.
      steps: The steps, as BEGIN:END; the whole episode if None.
      type: The type of a new layer.
      format: The format of the data, if it cannot be recognized.
    """
    labels = rlds_labels.open(path, format=format)
    rows = []
    for number in numbers_of(episodes, "EPISODES"):
        if not 0 <= number < len(labels.digests):
            raise IndexError(f"no episode {number}, there are {len(labels.digests)}")
        begin, end = (None, None) if steps is None else span_of(steps, "--steps")
        end = labels.lengths[number] if steps is not None and end is None else end
        where = {"episode": labels.digests[number], "begin": begin, "end": end, "type": type}
        said = {"layer": layer, "value": value, "annotator": by, "tool": "rlds label"}
        rows.append({**where, **said})
    found = rlds_labels.as_labels(rows, labels)
    labels.add_rows(found)
    return Moved(path, len(found), "added")


def export_labels(path: str, file: str, format: str | None = None) -> Moved:
    """Writes labels to a file; see `rlds.labels.write`."""
    written = rlds_labels.write(rlds_labels.open(path, format=format), file)
    return Moved(path, written, f"in {file}")


def import_labels(path: str, file: str, format: str | None = None) -> Moved:
    """Adds the labels of a file that are not there, all or none; see `rlds.labels.read`."""
    labels = rlds_labels.open(path, format=format)
    found = rlds_labels.read(file, labels)
    labels.add_rows(found)
    return Moved(path, len(found), f"of {file} added")


def agreement(path: str, layer: str | None = None, format: str | None = None) -> Agreements:
    """Returns how far annotators agree; see `rlds.labels.agreement`.

    Args:
      path: The data.
      layer: The layer; all if None.
      format: The format of the data, if it cannot be recognized.

    Raises:
      ValueError: There are no labels.
    """
    labels = rlds_labels.open(path, format=format)
    names = sorted({row.layer for row in labels}) if layer is None else [layer]
    if not names:
        raise ValueError(f"{path}: no labels of its episodes; add some first")
    return Agreements(path, {name: rlds_labels.agreement(labels, name) for name in names})
