"""A Markdown page of a dataset, for a catalogue."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

from rlds_tools.inspection import Field
from rlds_tools.markdown import code, fenced, paragraphs, plain_text, table
from rlds_tools.reporting.charts import number
from rlds_tools.reporting.gathering import Material
from rlds_tools.reporting.sections import how_much
from rlds_tools.results import size_of

__all__ = ["markdown_of"]


def markdown_of(material: Material) -> str:
    """Returns the page."""
    inspection, source = material.inspection, material.episodes.source
    parts = [
        f"# {plain_text(inspection.name or material.path)}",
        paragraphs(inspection.description),
    ]
    parts.append(_table(["", ""], [row for row in _facts(material) if row[1]]))
    parts += ["## Fields of a step", _fields(material)]
    if inspection.episode_fields:
        rows = [[_kind(field), field.notes] for field in inspection.episode_fields]
        names = [field.name for field in inspection.episode_fields]
        parts += ["## Fields of an episode", _table(["field", "type", "notes"], rows, names)]
    if material.survey.instructions:
        tasks = material.survey.instructions.most_common(20)
        rows = [[text, f"{episodes:,}"] for text, episodes in tasks]
        parts += ["## Tasks", _table(["instruction", ">episodes"], rows)]
    rows = [[found.severity, found.text, found.where] for found in material.findings]
    parts += ["## Findings", _table(["", "what", "where"], rows) if rows else "None."]
    if source.citation:
        parts += ["## Citation", fenced(source.citation, "bibtex")]
    return "\n\n".join(filter(None, parts)) + "\n"


def _facts(material: Material) -> Iterable[Sequence[str]]:
    inspection, source, table = material.inspection, material.episodes.source, material.survey.table
    yield ["Version", inspection.version]
    yield ["Homepage", source.homepage]
    yield ["License", source.license]
    yield ["Split", material.episodes.split]
    yield ["Episodes", how_much(material)]
    yield ["Steps", f"{material.survey.num_steps:,}"]
    lengths = table.length
    middle = number(float(np.median(lengths)))
    yield ["Length", f"{lengths.min():,} to {lengths.max():,}, median {middle}"]
    returns, others = material.returns()
    if len(returns):
        low, mean, high = map(number, (returns.min(), returns.mean(), returns.max()))
        yield ["Return", f"{low} to {high}, mean {mean}{others}"]
    if inspection.num_bytes is not None:
        yield ["Size", size_of(inspection.num_bytes)]


def _fields(material: Material) -> str:
    rows = []
    for field in material.inspection.step_fields:
        numbers = material.survey.numbers.get(field.name)
        bounds = ""
        if numbers is not None and numbers.count:
            bounds = f"{number(numbers.min.min())} to {number(numbers.max.max())}"
        rows.append([_kind(field), bounds, field.notes])
    names = [field.name for field in material.inspection.step_fields]
    return _table(["field", "type", "range", "notes"], rows, names)


def _kind(field: Field) -> str:
    sizes = " \u00d7 ".join("any" if size is None else str(size) for size in field.shape)
    return f"{field.dtype} {sizes}".strip()


def _table(
    headings: Sequence[str], rows: Iterable[Sequence[str]], names: Sequence[str] = ()
) -> str:
    """A table of text, with the names of fields as its first column."""
    cells = [list(map(plain_text, row)) for row in rows]
    return table(headings, [[code(name), *row] for name, row in zip(names, cells)] or cells)
