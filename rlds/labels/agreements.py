"""How far annotators agree."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Mapping
from typing import Any

import numpy as np

from rlds.labels.labels import Labels
from rlds.sources.label_rows import Label
from rlds_ecosystem import import_extra
from rlds_ecosystem.names import what_there_is

__all__ = ["Agreement", "agreement"]


@dataclasses.dataclass(frozen=True)
class Agreement:
    """How far annotators agree about one layer.

    Attributes:
      alpha: Krippendorff's alpha: 1 if they always agree, 0 if as often as by chance, less if less
        often. None if it is not defined, as all values are equal, or nobody labels what others do.
      units: Of how many episodes and steps several annotators say something.
      equal: Of which part of them all say the same; None if there are none.
      pairs: The same for each two annotators.
    """

    alpha: float | None
    units: int
    equal: float | None
    pairs: Mapping[tuple[str, str], Agreement] = dataclasses.field(default_factory=dict)


def agreement(labels: Labels, layer: str) -> Agreement:
    """Returns how far annotators agree about a layer.

    Labels of an episode are compared as wholes, those of steps step by step. Where somebody labels
    some steps of an episode, it is a value of its own to say nothing of the others; numbers are
    compared only where there are some. Numbers differ by their distance, all else does or not.

    Args:
      labels: The labels.
      layer: The layer.

    Raises:
      ImportError: krippendorff is not installed.
      KeyError: There is no such layer.
    """
    known = labels.layers()
    if layer not in known:
        raise KeyError(f"no layer {layer!r}; {what_there_is(layer, known)}")
    is_number = known[layer] == "number"
    rows = [row for row in labels if row.layer == layer]
    codes = {value: number for number, value in enumerate(dict.fromkeys(r.value for r in rows))}
    annotators = sorted({row.annotator for row in rows})
    lengths = dict(zip(labels.digests, labels.lengths))
    blocks = [np.empty((len(annotators), 0))]
    for (episode, is_whole), some in _grouped(rows).items():
        block = np.full((len(annotators), 1 if is_whole else lengths[episode]), np.nan)
        for row in some:
            of_row = block[annotators.index(row.annotator)]
            if not (is_whole or is_number) and np.isnan(of_row).all():
                of_row[:] = -1
            of_row[row.begin : row.end] = row.value if is_number else codes[row.value]
        blocks.append(block)
    values, level = np.concatenate(blocks, axis=1), "interval" if is_number else "nominal"
    pairs = {
        (annotators[one], annotators[other]): _agreement(values[[one, other]], level)
        for one, other in itertools.combinations(range(len(annotators)), 2)
    }
    return dataclasses.replace(_agreement(values, level), pairs=pairs)


def _grouped(rows: list[Label]) -> dict[tuple[str, bool], list[Label]]:
    found: dict[tuple[str, bool], list[Label]] = {}
    for row in rows:
        found.setdefault((row.episode, row.end is None), []).append(row)
    return found


def _agreement(values: np.ndarray, level: str) -> Agreement:
    krippendorff: Any = import_extra("krippendorff")
    values = values[:, (~np.isnan(values)).sum(axis=0) > 1]
    if not values.size:
        return Agreement(None, 0, None)
    least, most = np.nanmin(values, axis=0), np.nanmax(values, axis=0)
    alpha = None
    if least.min() < most.max():  # Otherwise there is no chance to compare with.
        alpha = float(krippendorff.alpha(reliability_data=values, level_of_measurement=level))
    return Agreement(alpha, values.shape[1], float((least == most).mean()))
