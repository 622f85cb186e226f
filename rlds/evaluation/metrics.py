"""Metrics of off-policy evaluation against true policy values: error, rank correlation, regret."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from typing import TypeAlias

import numpy as np

from rlds.evaluation.estimates import Estimate
from rlds.statistics.ranks import midranks

__all__ = ["Comparison", "Score", "compare"]

Values: TypeAlias = "Mapping[str, Estimate | float] | Sequence[Estimate | float] | np.ndarray"


@dataclasses.dataclass(frozen=True)
class Score:
    """A metric of a comparison of policy values.

    Attributes:
      value: The metric; NaN if it is undefined.
      error: The standard error over the choice of the compared policies.
    """

    value: float
    error: float

    def __str__(self) -> str:
        return f"{self.value:.4g} ± {self.error:.2g}"


@dataclasses.dataclass(frozen=True)
class Comparison:
    """Scores of estimates against the true values of policies.

    "Normalized" means divided by the range of the true values, from the worst to the best policy.

    Attributes:
      num_policies: The number of policies.
      mean_absolute_error: The mean absolute error of the estimates.
      normalized_mean_absolute_error: The same, normalized.
      rank_correlation: Spearman's rank correlation: 1 for the true order, -1 for the reverse order.
        NaN if all estimates, or all true values, are equal.
      regret: By k, the difference between the best of all policies and the best of the k with the
        largest estimates.
      normalized_regret: The same, normalized.
      precision: By k, the fraction of the k policies with the largest estimates that are among the
        k best.
    """

    num_policies: int
    mean_absolute_error: Score
    normalized_mean_absolute_error: Score
    rank_correlation: Score
    regret: dict[int, Score]
    normalized_regret: dict[int, Score]
    precision: dict[int, Score]

    def __str__(self) -> str:
        rows = [
            ("mean absolute error", self.mean_absolute_error, self.normalized_mean_absolute_error),
            ("rank correlation", self.rank_correlation, None),
            *((f"regret@{k}", self.regret[k], self.normalized_regret[k]) for k in self.regret),
            *((f"precision@{k}", score, None) for k, score in self.precision.items()),
        ]
        lines = [f"{self.num_policies} policies: score ± standard error (normalized)"]
        for name, score, normalized in rows:
            lines.append(f"  {name + ':':21}{score}" + (f"  ({normalized})" if normalized else ""))
        return "\n".join(lines)


def compare(
    truth: Values,
    estimates: Values,
    *,
    k: Sequence[int] = (1, 3, 5),
    cap: float | None = None,
    num_samples: int = 1000,
    seed: int = 0,
) -> Comparison:
    """Compares estimates with the true values of policies.

    Policies with equal estimates, or equal true values, keep their order.

    Args:
      truth: The value of each policy: by name, or as a sequence.
      estimates: The estimate of each policy: by the same names, or in the same order.
      k: The numbers of policies to choose. Numbers above the number of policies are ignored.
      cap: The upper limit of estimates: this multiple of the range of the true values above the
        smallest one. The plots of the DOPE benchmark use 2; None for no limit.
      num_samples: The number of bootstrap samples of policies, for the standard errors.
      seed: The seed of the bootstrap.

    Raises:
      ValueError: The names, or the numbers of policies, differ; there are fewer than 2 policies; a
        number is not finite. The message names the policy.

    >>> print(compare([10, 40, 30, 90, 60], [20, 35, 80, 70, 65], k=[1, 3]))
    5 policies: score ± standard error (normalized)
      mean absolute error: 18 ± 7.5  (0.225 ± 0.094)
      rank correlation:    0.4 ± 0.58
      regret@1:            60 ± 26  (0.75 ± 0.33)
      regret@3:            0 ± 9.9  (0 ± 0.12)
      precision@1:         0 ± 0.47
      precision@3:         0.6667 ± 0.23
    """
    names, true_values, estimated = _pair_values(truth, estimates)
    if len(names) < 2:
        raise ValueError(f"compare: there must be at least 2 policies, got {len(names)}")
    if any(size < 1 for size in k):
        raise ValueError(f"compare: k must hold positive numbers of policies, got {list(k)}")
    for kind, values in [("true value", true_values), ("estimate", estimated)]:
        if not np.isfinite(values).all():
            index = int(np.argmin(np.isfinite(values)))
            raise ValueError(f"compare: the {kind} of {names[index]} is {values[index]}")
    span = float(np.ptp(true_values))
    if cap is not None:
        estimated = np.minimum(estimated, true_values.min() + cap * span)
    k = [size for size in k if size <= len(names)]
    rng = np.random.default_rng(seed)
    samples = rng.integers(len(names), size=(num_samples, len(names)))
    rows = np.concatenate([np.arange(len(names))[None], samples])  # Row 0 is not resampled.
    scores = [
        Score(float(column[0]), _compute_deviation(column[1:]))
        for column in _score(true_values[rows], estimated[rows], k)
    ]
    error, correlation, *by_k = scores
    regret = dict(zip(k, by_k[: len(k)], strict=True))
    return Comparison(
        num_policies=len(names),
        mean_absolute_error=error,
        normalized_mean_absolute_error=_normalize(error, span),
        rank_correlation=correlation,
        regret=regret,
        normalized_regret={size: _normalize(score, span) for size, score in regret.items()},
        precision=dict(zip(k, by_k[len(k) :], strict=True)),
    )


def _pair_values(truth: Values, estimates: Values) -> tuple[list[str], np.ndarray, np.ndarray]:
    """Returns the names of policies for messages, their true values, and their estimates."""
    if isinstance(truth, Mapping) and isinstance(estimates, Mapping):
        for kind, names, counterparts in [
            ("estimate", truth, estimates),
            ("true value", estimates, truth),
        ]:
            if missing := [name for name in names if name not in counterparts]:
                text = ", ".join(map(repr, missing[:5])) + ", ..." * (len(missing) > 5)
                raise ValueError(f"compare: there is no {kind} of {text}")
        labels = [f"policy {name!r}" for name in truth]
        return labels, _as_array(truth.values()), _as_array(estimates[name] for name in truth)
    if isinstance(truth, Mapping) or isinstance(estimates, Mapping):
        raise TypeError("compare: pass two dicts by name, or two sequences in the same order")
    true_values, estimated = _as_array(truth), _as_array(estimates)
    if len(true_values) != len(estimated):
        raise ValueError(f"compare: {len(true_values)} true values, but {len(estimated)} estimates")
    return [f"policy {index}" for index in range(len(true_values))], true_values, estimated


def _as_array(values: Iterable[Estimate | float]) -> np.ndarray:
    return np.array(
        [value.value if isinstance(value, Estimate) else value for value in values], np.float64
    )


def _score(true_values: np.ndarray, estimated: np.ndarray, k: Sequence[int]) -> list[np.ndarray]:
    """Returns the mean absolute error, rank correlation, regret and precision by k of each row."""
    order = np.argsort(-estimated, axis=1, kind="stable")
    best = np.argsort(-true_values, axis=1, kind="stable")
    ranks = np.take_along_axis(np.argsort(best, axis=1), order, axis=1)  # Ranks by true value.
    best_values = np.maximum.accumulate(np.take_along_axis(true_values, order, axis=1), axis=1)
    return [
        np.abs(true_values - estimated).mean(axis=1),
        _rank_correlation(true_values, estimated),
        *(true_values.max(axis=1) - best_values[:, size - 1] for size in k),
        *((ranks[:, :size] < size).mean(axis=1) for size in k),
    ]


def _rank_correlation(true_values: np.ndarray, estimates: np.ndarray) -> np.ndarray:
    true_ranks, ranks = _center_ranks(true_values), _center_ranks(estimates)
    scale = np.sqrt((true_ranks**2).sum(axis=1) * (ranks**2).sum(axis=1))
    correlations = np.full(len(scale), np.nan)
    np.divide((true_ranks * ranks).sum(axis=1), scale, out=correlations, where=scale > 0)
    return correlations


def _center_ranks(rows: np.ndarray) -> np.ndarray:
    """Returns the ranks of values in their row, centred at 0; ties share their mean rank."""
    return np.apply_along_axis(midranks, 1, rows) - (rows.shape[1] - 1) / 2


def _compute_deviation(column: np.ndarray) -> float:
    """Returns the standard deviation of bootstrap scores without NaN; NaN if all are NaN."""
    scores = column[~np.isnan(column)]
    return float(scores.std()) if len(scores) else np.nan


def _normalize(score: Score, span: float) -> Score:
    return Score(score.value / span, score.error / span) if span else Score(np.nan, np.nan)
