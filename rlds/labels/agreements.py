"""Inter-annotator agreement."""

from __future__ import annotations

import dataclasses
import itertools

import numpy as np

from rlds.labels.labels import Labels
from rlds_ecosystem.model.names import what_there_is

__all__ = ["Agreement", "agreement", "alpha_of"]


@dataclasses.dataclass(frozen=True)
class Agreement:
    """The inter-annotator agreement about a layer.

    Attributes:
      layer: The layer.
      annotators: The names of the annotators.
      alpha: Krippendorff's alpha: 1 if they always agree, 0 if as often as by chance, less if less
        often. None if it is not defined, as all values are equal, or nobody labels what others do.
      equal: The share of the units that all annotators label alike; None if there are no units.
      units: The number of episodes and steps with labels of several annotators.
    """

    layer: str
    annotators: tuple[str, ...]
    alpha: float | None
    equal: float | None
    units: int


def agreement(labels: Labels, layer: str) -> list[Agreement]:
    """Returns the inter-annotator agreement on a layer: of all annotators, and of each pair.

    Labels of whole episodes are compared by episode, labels of steps by step. If an annotator
    labels some steps of an episode, the other steps count as a value of their own; of numbers, only
    labelled steps are compared. Numbers differ by their distance, other values are equal or not.

    Args:
      labels: The labels.
      layer: The layer.

    Raises:
      KeyError: There is no such layer.
    """
    layer_types = labels.layers()
    if layer not in layer_types:
        raise KeyError(f"no layer {layer!r}; {what_there_is(layer, layer_types)}")
    is_number = layer_types[layer] == "number"
    rows = [row for row in labels if row.layer == layer]
    codes = {value: number for number, value in enumerate(dict.fromkeys(r.value for r in rows))}
    annotators = sorted({row.annotator for row in rows})
    lengths = dict(zip(labels.digests, labels.lengths))
    blocks: dict[tuple[str, bool], np.ndarray] = {}
    for row in rows:
        is_whole = row.end is None
        shape = len(annotators), 1 if is_whole else lengths[row.episode]
        block = blocks.setdefault((row.episode, is_whole), np.full(shape, np.nan))
        ratings = block[annotators.index(row.annotator)]
        if not (is_whole or is_number) and np.isnan(ratings).all():
            ratings[:] = -1
        ratings[row.begin : row.end] = row.value if is_number else codes[row.value]
    values = np.concatenate([np.empty((len(annotators), 0)), *blocks.values()], axis=1)
    everybody = range(len(annotators))
    pairs = itertools.combinations(everybody, 2) if len(annotators) > 2 else ()
    return [
        Agreement(
            layer,
            tuple(annotators[number] for number in who),
            *_compared(values[[*who]], is_number=is_number),
        )
        for who in (everybody, *pairs)
    ]


def _compared(values: np.ndarray, *, is_number: bool) -> tuple[float | None, float | None, int]:
    values = values[:, (~np.isnan(values)).sum(axis=0) > 1]
    if not values.size:
        return None, None, 0
    least, greatest = np.nanmin(values, axis=0), np.nanmax(values, axis=0)
    alpha = None
    if least.min() < greatest.max():  # Otherwise the expected disagreement is zero.
        alpha = alpha_of(values, is_number=is_number)
    return alpha, float((least == greatest).mean()), values.shape[1]


def alpha_of(values: np.ndarray, *, is_number: bool) -> float:
    """Returns Krippendorff's alpha ("Computing Krippendorff's Alpha-Reliability", 2011).

    Args:
      values: What annotators say of units, `[annotators, units]`; NaN for nothing. Of each unit,
        two say something.
      is_number: Whether numbers differ by the square of their distance; otherwise values are codes,
        which differ or do not.

    >>> alpha_of(np.array([[0, 1, 1, 0], [0, 1, 0, np.nan]])[:, :3], is_number=False)
    0.4444444444444444
    """
    sizes = (~np.isnan(values)).sum(axis=0)
    number = sizes.sum()
    # Sums over pairs of values: pairs within a unit, and all pairs.
    if is_number:
        apart = np.nan_to_num(values - np.nanmean(values))
        inside = sizes * (apart**2).sum(axis=0) - apart.sum(axis=0) ** 2
        overall = number * (apart**2).sum() - apart.sum() ** 2
    else:
        codes = np.unique(values[~np.isnan(values)])
        counts = np.array([(values == code).sum(axis=0) for code in codes])
        inside = (sizes**2 - (counts**2).sum(axis=0)) / 2
        overall = (number**2 - (counts.sum(axis=1) ** 2).sum()) / 2
    observed, expected = (inside / (sizes - 1)).sum() / number, overall / (number * (number - 1))
    return float(1 - observed / expected)
