"""Inter-annotator agreement of labels: Krippendorff's alpha."""

from __future__ import annotations

import dataclasses
import itertools

import numpy as np

from rlds.labels.labels import Labels
from rlds_ecosystem.model.names import suggest_names

__all__ = ["Agreement", "agreement", "alpha_of"]


@dataclasses.dataclass(frozen=True)
class Agreement:
    """The inter-annotator agreement about a layer.

    Attributes:
      layer: The layer.
      annotators: The names of the annotators.
      alpha: Krippendorff's alpha: 1 for perfect agreement, 0 for agreement by chance, negative for
        less. None if undefined: all values are equal, or no unit has labels of two annotators.
      equal: The fraction of the units with equal labels of all annotators; None without units.
      units: The number of episodes and steps with labels of several annotators.
    """

    layer: str
    annotators: tuple[str, ...]
    alpha: float | None
    equal: float | None
    units: int


def agreement(labels: Labels, layer: str) -> list[Agreement]:
    """Returns the inter-annotator agreement on a layer: of all annotators, and of each pair.

    The units are episodes for labels of whole episodes, and otherwise steps. If an annotator labels
    some steps of an episode, the other steps count as a separate value; for numbers, they do not
    count. Numbers differ by their distance, other values are equal or not.

    Args:
      labels: The labels.
      layer: The layer.

    Raises:
      KeyError: There is no such layer.
    """
    layer_types = labels.layers()
    if layer not in layer_types:
        raise KeyError(f"no layer {layer!r}; {suggest_names(layer, layer_types)}")
    is_number = layer_types[layer] == "number"
    rows = [row for row in labels if row.layer == layer]
    codes = {value: code for code, value in enumerate(dict.fromkeys(r.value for r in rows))}
    annotators = sorted({row.annotator for row in rows})
    lengths = dict(zip(labels.digests, labels.lengths))
    blocks: dict[tuple[str, bool], np.ndarray] = {}
    for row in rows:
        is_of_episode = row.end is None
        shape = len(annotators), 1 if is_of_episode else lengths[row.episode]
        block = blocks.setdefault((row.episode, is_of_episode), np.full(shape, np.nan))
        ratings = block[annotators.index(row.annotator)]
        if not (is_of_episode or is_number) and np.isnan(ratings).all():
            ratings[:] = -1
        ratings[row.begin : row.end] = row.value if is_number else codes[row.value]
    values = np.concatenate([np.empty((len(annotators), 0)), *blocks.values()], axis=1)
    all_annotators = range(len(annotators))
    pairs = itertools.combinations(all_annotators, 2) if len(annotators) > 2 else ()
    return [
        Agreement(
            layer,
            tuple(annotators[index] for index in group),
            *_compare(values[[*group]], is_number=is_number),
        )
        for group in (all_annotators, *pairs)
    ]


def _compare(values: np.ndarray, *, is_number: bool) -> tuple[float | None, float | None, int]:
    values = values[:, (~np.isnan(values)).sum(axis=0) > 1]
    if not values.size:
        return None, None, 0
    lowest, highest = np.nanmin(values, axis=0), np.nanmax(values, axis=0)
    alpha = None
    if lowest.min() < highest.max():  # If all are equal, alpha is undefined.
        alpha = alpha_of(values, is_number=is_number)
    return alpha, float((lowest == highest).mean()), values.shape[1]


def alpha_of(values: np.ndarray, *, is_number: bool) -> float:
    """Returns Krippendorff's alpha ("Computing Krippendorff's Alpha-Reliability", 2011).

    Args:
      values: The ratings, `[annotators, units]`; NaN for none. Each unit has at least two ratings.
      is_number: True for the interval metric (squared distance); False for nominal codes.

    >>> alpha_of(np.array([[0, 1, 1, 0], [0, 1, 0, np.nan]])[:, :3], is_number=False)
    0.4444444444444444
    """
    sizes = (~np.isnan(values)).sum(axis=0)
    total = sizes.sum()
    # Sums over pairs of values: pairs within a unit, and all pairs.
    if is_number:
        deviations = np.nan_to_num(values - np.nanmean(values))
        within_units = sizes * (deviations**2).sum(axis=0) - deviations.sum(axis=0) ** 2
        overall = total * (deviations**2).sum() - deviations.sum() ** 2
    else:
        codes = np.unique(values[~np.isnan(values)])
        counts = np.array([(values == code).sum(axis=0) for code in codes])
        within_units = (sizes**2 - (counts**2).sum(axis=0)) / 2
        overall = (total**2 - (counts.sum(axis=1) ** 2).sum()) / 2
    observed, expected = (within_units / (sizes - 1)).sum() / total, overall / (total * (total - 1))
    return float(1 - observed / expected)
