"""The columns of the table of episodes on pages, and the cells of its rows."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import rlds
from rlds.labels import Labels
from rlds.sources.audit_rows import COLUMN as AUDIT
from rlds.sources.episode_table import audit_of, row_maker
from rlds.sources.label_rows import COLUMN as LABEL
from rlds_creator.viewing.values import as_json
from rlds_ecosystem.model.columns import known_field
from rlds_ecosystem.model.fields import Field
from rlds_ecosystem.model.nests import leaves_at

__all__ = [
    "SORT_COLUMNS",
    "Column",
    "default_columns",
    "labels_sort_key",
    "list_columns",
    "rank_columns",
    "read_cell",
    "row_labels",
    "sort_episodes",
    "table_columns",
]

# The columns that the table hides: for internal use, or shown elsewhere on pages.
_HIDDEN_COLUMNS = ("split", "index", "digest", "error")
_DEFAULT_COLUMNS = ("steps", "duration", "return", "instruction")
# Names without quotes in SQL. No reserved word has an underscore; any word may follow a dot.
_PLAIN_NAME = re.compile(r"[a-z][a-z0-9]*_[a-z0-9_]*|success|task|seed|action|reward|discount")
_NAME_PART = re.compile(r"[a-z][a-z0-9_]*")
_MAX_EXAMPLES = 8


class Column(NamedTuple):
    """A column of the table of episodes.

    Attributes:
      kind: The kind of its values: "number", "flag" or "text".
      path: The keys of a cell in a row, from the outside in.
    """

    kind: str
    path: tuple[str, ...]


SORT_COLUMNS = {"index": Column("number", ("index",)), "labels": Column("text", (LABEL,))}
"""Columns to sort by that conditions cannot name."""


def table_columns(labels: Labels, split: str) -> dict[str, Column]:
    """Returns the columns of the table of labelled episodes, by their names in conditions."""
    source = labels.episodes.source
    maker = row_maker(source, split)
    leaves = leaves_at(labels.episodes.spec[rlds.STEPS], None)
    flags = {maker.columns.get(f"{rlds.STEPS}/{p}") for p, field in leaves if _is_flag(field)}
    columns = {}
    for field in maker.schema:
        name = field.name if field.name in maker.fixed else _quote(field.name)
        if hasattr(field.type, "fields"):  # The column has statistics.
            for statistic in (field.type[index].name for index in range(field.type.num_fields)):
                kind = "flag" if field.name in flags and statistic != "mean" else "number"
                columns[f"{name}.{statistic}"] = Column(kind, (field.name, statistic))
        elif field.name not in (*_HIDDEN_COLUMNS, *map(known_field, maker.schema.names)):
            columns[name] = Column(_kind_of(str(field.type)), (field.name,))
    for layer, kind in labels.layers().items():
        kind = kind if kind in ("number", "flag") else "text"
        columns[f"{LABEL}.{_quote(layer, _NAME_PART)}"] = Column(kind, (LABEL, layer))
        columns[f'{LABEL}."{layer}.n"'] = Column("number", (LABEL, f"{layer}.n"))
    if (audit := audit_of(source, split)) is not None:
        for field in audit.schema.field(AUDIT).type:
            if (kind := _kind_of(str(field.type))) == "number":
                columns[f"{AUDIT}.{field.name}"] = Column(kind, (AUDIT, field.name))
    return columns


def _is_flag(field: Any) -> bool:
    return isinstance(field, Field) and field.column_dtype.kind == "b"


def _kind_of(arrow_type: str) -> str:
    is_number = re.match("u?int|float|double|halffloat", arrow_type)
    return "flag" if arrow_type == "bool" else "number" if is_number else "text"


def _quote(name: str, plain: re.Pattern[str] = _PLAIN_NAME) -> str:
    return name if plain.fullmatch(name) else '"' + name.replace('"', '""') + '"'


def default_columns(columns: Mapping[str, Column]) -> list[str]:
    """Returns the names of the columns that a page shows by default."""
    success = [
        name
        for name, (kind, path) in columns.items()
        if kind == "flag" and "success" in path[0].lower() and path[-1] != "min"
    ]
    return [*_DEFAULT_COLUMNS[:3], *success[:1], *_DEFAULT_COLUMNS[3:]]


def rank_columns(names: Iterable[str], columns: Mapping[str, Column]) -> dict[str, Column]:
    """Returns the rank columns of the audit scores among columns, by the names of the scores."""
    ranked = {name: columns.get(f"{name.removesuffix('_rank')}_rank") for name in names}
    return {name: rank for name, rank in ranked.items() if rank and rank.path[0] == AUDIT}


def read_cell(row: Mapping[str, Any], column: Column) -> Any:
    """Returns the value of a column in a row; None if it is missing."""
    value: Any = row
    for name in column.path:
        value = value.get(name) if isinstance(value, Mapping) else None
    return bool(value) if column.kind == "flag" and value is not None else value


def row_labels(row: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Returns the labels of a row: {"layer", "value", "disagree"}; None for values of steps."""
    label = row.get(LABEL) or {}
    layers = [name.removesuffix(".n") for name, n in label.items() if name.endswith(".n") and n]
    return [
        {"layer": layer, "value": label[layer], "disagree": label[f"{layer}.disagree"]}
        for layer in layers
    ]


def labels_sort_key(row: Mapping[str, Any]) -> list[tuple[Any, ...]] | None:
    """Returns the sort key of the labels of a row; None if it has no labels.

    Rows are sorted by layer; in a layer, labels of steps come first, disagreements last.
    """
    return [
        (
            label["layer"],
            label["disagree"],
            label["value"] is not None,
            label["value"] if isinstance(label["value"], int | float) else -math.inf,
            str(label["value"]),
        )
        for label in row_labels(row)
    ] or None


def sort_episodes(indices: Sequence[int], cells: Sequence[Any], *, reverse: bool) -> list[int]:
    """Sorts episode indices by cells; episodes without a value come last.

    >>> sort_episodes([4, 5, 6], [2.0, None, 7.0], reverse=True)
    [6, 4, 5]
    """
    valued_rows = [row for row, value in enumerate(cells) if value is not None]
    valued_rows.sort(key=lambda row: cells[row], reverse=reverse)
    empty_rows = [row for row, value in enumerate(cells) if value is None]
    return [int(indices[row]) for row in (*valued_rows, *empty_rows)]


def list_columns(columns: Mapping[str, Column], rows: Iterable[Mapping[str, Any]]) -> Iterator[Any]:
    """Yields columns with example values: {"name", "title", "kind", "examples"}.

    The examples are the smallest and largest number, or the most frequent texts.
    """
    rows = [*rows]
    for name, column in columns.items():
        values = [value for row in rows if (value := read_cell(row, column)) is not None]
        if column.kind == "number":
            examples = [min(values), max(values)] if values else []
        else:
            examples = [value for value, _ in Counter(values).most_common(_MAX_EXAMPLES)]
        title = " ".join(column.path) if column.path[0] != LABEL else f"label {column.path[1]}"
        examples = [as_json(example) for example in dict.fromkeys(examples)]
        yield {"name": name, "title": title, "kind": column.kind, "examples": examples}
