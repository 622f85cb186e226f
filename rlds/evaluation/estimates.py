"""Off-policy estimates of policy values: their statistics, confidence intervals and warnings.

An estimate is a function of episode weights, so it can be computed again for resampled episodes.
This module does not read data.
"""

from __future__ import annotations

import abc
import dataclasses
import functools
import math
import textwrap

import numpy as np
from typing_extensions import override

__all__ = [
    "EndCounts",
    "Estimate",
    "Interval",
    "Mean",
    "RatioSum",
    "Statistic",
    "WeightReport",
    "student_quantile",
]

# The largest number of bootstrap draws in a block.
_MAX_BLOCK_DRAWS = 1 << 22
# With fewer effective episodes, all intervals except Bernstein's are too narrow.
_MIN_EFFECTIVE_EPISODES = 30


class Statistic(abc.ABC):
    """The data of an estimate, from which it can be recomputed for resampled episodes.

    Intervals recompute the full estimate for resampled episodes, including its normalization.
    """

    @abc.abstractmethod
    def values(self, counts: np.ndarray) -> np.ndarray:
        """Returns the estimate for each of B samples of episodes.

        Args:
          counts: The count of each episode in each sample, or its weight, float64, `[B, N]`.

        Returns:
          The estimates, float64, `[B]`; NaN for samples without an estimate.
        """


@dataclasses.dataclass(frozen=True)
class Mean(Statistic):
    """The mean of one value per episode, with intervals in closed form.

    Attributes:
      terms: The value of each episode, float64, `[N]`.
    """

    terms: np.ndarray

    @override
    def values(self, counts: np.ndarray) -> np.ndarray:
        with np.errstate(invalid="ignore", divide="ignore"):
            return (counts @ self.terms) / counts.sum(axis=1)


@dataclasses.dataclass(frozen=True)
class RatioSum(Statistic):
    """A sum of K ratios of two sums over episodes.

    Attributes:
      numerators: float64, `[N, K]`.
      denominators: float64, `[N, K]`. A ratio with a denominator of 0 is 0; if all denominators are
        0, there is no estimate.
    """

    numerators: np.ndarray
    denominators: np.ndarray

    @override
    def values(self, counts: np.ndarray) -> np.ndarray:
        sums, divisors = counts @ self.numerators, counts @ self.denominators
        ratios = np.divide(sums, divisors, out=np.zeros_like(sums), where=divisors != 0)
        return np.where((divisors != 0).any(axis=1), ratios.sum(axis=1), np.nan)


@dataclasses.dataclass(frozen=True)
class WeightReport:
    """A report on importance weights: effective sample size, largest weight, clipping.

    Attributes:
      effective_sample_size: (sum of w)² / sum of w², of the weights of full episodes: the number
        of on-policy episodes with the same information.
      largest: The largest weight as a fraction of the sum of all weights.
      clipped: The fraction of the transitions with a clipped ratio.
    """

    effective_sample_size: float
    largest: float
    clipped: float = 0.0


@dataclasses.dataclass(frozen=True)
class EndCounts:
    """Counts of the episodes of an estimate, by their ends: terminal, truncated, unknown.

    Attributes:
      terminal: Episodes that ended in a terminal state.
      truncated: Truncated episodes with a known final observation.
      unknown: Truncated episodes without a final observation.
      censored: Truncated episodes that are shorter than the horizon.
      left_out: The number of excluded transitions, whose successors are unknown.
    """

    terminal: int
    truncated: int
    unknown: int
    censored: int = 0
    left_out: int = 0


@dataclasses.dataclass(frozen=True)
class Interval:
    """A confidence interval of the value of a policy.

    Attributes:
      lower: The lower bound.
      upper: The upper bound.
      level: The confidence level.
      method: The method, for example "bootstrap".
      warnings: Reasons to doubt the interval, in sentences.
    """

    lower: float
    upper: float
    level: float
    method: str
    warnings: tuple[str, ...] = ()

    def __str__(self) -> str:
        summary = f"{self.lower:.5g} to {self.upper:.5g} ({self.level * 100:g} %, {self.method})"
        return "\n  ".join([summary, *(f"warning: {warning}" for warning in self.warnings)])


@dataclasses.dataclass(frozen=True, repr=False)
class Estimate:
    """The estimated value of a policy.

    Attributes:
      value: The estimate.
      estimator: The name of the estimator, for example "per-decision WIS".
      estimand: The estimated quantity, for example "the discounted return of 1000 steps".
      gamma: The discount of each step.
      horizon: The number of evaluated steps; None for all.
      statistic: The statistic of the estimate.
      end_counts: Counts of the episodes by their ends.
      weights: The report on the importance weights; None without weights.
      warnings: Reasons to doubt the estimate, in sentences.
      episode_weights: The weight of each episode, float64, `[N]`; None if all are 1.
      interval_warnings: Reasons to doubt the intervals, in sentences.
    """

    value: float
    estimator: str
    estimand: str
    gamma: float
    horizon: int | None
    statistic: Statistic
    end_counts: EndCounts
    weights: WeightReport | None = None
    warnings: tuple[str, ...] = ()
    episode_weights: np.ndarray | None = None
    interval_warnings: tuple[str, ...] = ()

    def interval(
        self,
        level: float = 0.95,
        method: str = "bootstrap",
        num_samples: int = 1000,
        seed: int = 0,
        value_range: float | None = None,
    ) -> Interval:
        """Returns a confidence interval of the value, over samples of the episodes.

        It ignores other errors: unsuitable features, clipped ratios, or actions of the policy that
        are missing in the data.

        Args:
          level: The confidence level.
          method: `"bootstrap"`: episodes are drawn with replacement, and the full estimate is
            recomputed from each sample; for every estimator. `"t"`: Student's t, for means over
            episodes. `"bernstein"`: holds for any number of episodes, and is much wider; for means.
          num_samples: The number of bootstrap samples.
          seed: The seed of the bootstrap. The same seed draws the same episodes.
          value_range: For `"bernstein"`, the largest possible difference between the values of two
            episodes, for the largest possible weight, not the largest difference in the data.

        Raises:
          ValueError: There is no interval; the message has the reason and the remedy.
        """
        if not 0.0 < level < 1.0:
            raise ValueError(f"level must be between 0 and 1, such as 0.95, got {level}")
        if (value_range is None) == (method == "bernstein"):
            raise ValueError(
                "value_range and method 'bernstein' need each other: the range is the largest "
                "possible difference between the weighted returns of two episodes"
            )
        weights = _get_weights(self)
        if method == "bootstrap":
            lower, upper, warnings = _bootstrap(self.statistic, weights, level, num_samples, seed)
        elif method not in ("t", "bernstein"):
            raise ValueError(f"method must be 'bootstrap', 't' or 'bernstein', got {method!r}")
        elif not isinstance(self.statistic, Mean):
            raise ValueError(
                f"method {method!r} is for the mean of one number per episode. {self.estimator} is "
                "computed from all episodes together: use method 'bootstrap'"
            )
        else:
            has_weight = weights > 0
            terms, weights = self.statistic.terms[has_weight], weights[has_weight]
            half_width = (
                _student_half_width(terms, weights, level)
                if value_range is None
                else _bernstein_half_width(terms, weights, level, value_range)
            )
            lower, upper, warnings = self.value - half_width, self.value + half_width, []
        if method != "bernstein":
            warnings += _warn_of_few_episodes(self, weights)
        return Interval(lower, upper, level, method, (*self.interval_warnings, *warnings))

    def __repr__(self) -> str:
        summary = [f"{self.value:.5g}", self.estimator, _plural(self.num_episodes, "episode")]
        if self.weights is not None:
            summary.append(f"effective sample size {self.weights.effective_sample_size:.1f}")
        if self.warnings:
            summary.append(_plural(len(self.warnings), "warning"))
        return f"Estimate({', '.join(summary)})"

    def __str__(self) -> str:
        lines = [("what", f"{self.estimand} (gamma {self.gamma:g})"), ("from", self._list_inputs())]
        if self.weights is not None:
            lines.append(("weights", self._compute_effective_size(self.weights)))
        lines += [("warning", warning) for warning in self.warnings]
        wrapped = (
            textwrap.fill(text, 88, initial_indent=f"  {key + ':':10}", subsequent_indent=" " * 12)
            for key, text in lines
        )
        return "\n".join([f"{self.value:.5g}, by {self.estimator}", *wrapped])

    @property
    def num_episodes(self) -> int:
        """N, the number of episodes."""
        return self.end_counts.terminal + self.end_counts.truncated + self.end_counts.unknown

    def _list_inputs(self) -> str:
        ends = self.end_counts
        kinds = {
            "terminal": ends.terminal,
            "truncated": ends.truncated,
            "cut without a final observation": ends.unknown,
        }
        text = ", ".join(f"{count} {kind}" for kind, count in kinds.items() if count)
        text = f"{_plural(self.num_episodes, 'episode')} ({text})"
        if ends.censored:
            text += f", {ends.censored} of them shorter than the horizon"
        if ends.left_out:
            left_out = _plural(ends.left_out, "transition")
            text += f", without {left_out} with unknown successors"
        return text

    def _compute_effective_size(self, weights: WeightReport) -> str:
        text = (
            f"worth {weights.effective_sample_size:.1f} episodes of the policy itself (the "
            f"effective sample size); the largest is {weights.largest:.1%} of their sum"
        )
        if weights.clipped:
            text += f"; {weights.clipped:.1%} of the ratios were clipped"
        return text


def _plural(count: int, noun: str) -> str:
    return f"{count} {noun}{'s' * (count != 1)}"


def _get_weights(estimate: Estimate) -> np.ndarray:
    """Returns the weight of each episode, `[N]`; checks that at least two are positive."""
    num_episodes = estimate.num_episodes
    weights = estimate.episode_weights
    weights = np.ones(num_episodes) if weights is None else np.asarray(weights, np.float64)
    num_weighted = int(np.count_nonzero(weights))
    report = estimate.weights
    if not num_episodes:
        reason = "the data has no episodes"
    elif not num_weighted:
        reason = "the weights of all episodes are 0"
    elif num_weighted == 1:
        scarcity = (
            "there is only one episode" if num_episodes == 1 else "only one episode has a weight"
        )
        reason = f"{scarcity}, so their spread is unknown; collect more"
    elif report is not None and not report.effective_sample_size > 0:
        reason = "the policy never takes the recorded actions, so all weights are 0"
    elif not math.isfinite(estimate.value):
        reason = f"the estimate is {estimate.value}"
    else:
        return weights
    raise ValueError(f"there is no interval: {reason}")


def _warn_of_few_episodes(estimate: Estimate, weights: np.ndarray) -> list[str]:
    """Returns warnings of an interval from too few episodes."""
    num_weighted, effective = np.count_nonzero(weights), weights.sum() ** 2 / (weights @ weights)
    if estimate.weights is not None:
        effective = min(effective, estimate.weights.effective_sample_size)
    if num_weighted < _MIN_EFFECTIVE_EPISODES:
        reason = f"there are only {num_weighted} episodes"
    elif effective < _MIN_EFFECTIVE_EPISODES:
        reason = f"the effective number of episodes is {effective:.1f}"
    else:
        return []
    return [f"{reason}: such intervals are mostly too narrow"]


def _bootstrap(
    statistic: Statistic, weights: np.ndarray, level: float, num_samples: int, seed: int
) -> tuple[float, float, list[str]]:
    """Returns the bootstrap interval of an estimate, with warnings."""
    minimum = math.ceil(round(2 / (1 - level), 6))
    if num_samples < minimum:
        raise ValueError(f"num_samples must be at least {minimum} for level {level}: {num_samples}")
    values = _resample(statistic, weights, num_samples, np.random.default_rng(seed))
    finite_values = values[~np.isnan(values)]
    num_missing = num_samples - len(finite_values)
    if 2 * num_missing > num_samples:
        raise ValueError(
            f"there is no interval: {num_missing} of {num_samples} samples of the episodes have no "
            "estimate, so too few episodes tell about the policy; collect more"
        )
    lower, upper = np.quantile(finite_values, [(1 - level) / 2, (1 + level) / 2])
    warnings = [f"{num_missing} of {num_samples} samples have no estimate and were left out"]
    return float(lower), float(upper), warnings[: bool(num_missing)]


def _resample(
    statistic: Statistic, weights: np.ndarray, num_samples: int, rng: np.random.Generator
) -> np.ndarray:
    """Returns the estimate of each bootstrap sample of the episodes with a positive weight."""
    episodes, total = np.flatnonzero(weights), len(weights)
    block, values = max(1, _MAX_BLOCK_DRAWS // total), []
    for begin in range(0, num_samples, block):
        rows = min(block, num_samples - begin)
        resampled = episodes[rng.integers(len(episodes), size=(rows, len(episodes)))]
        if isinstance(statistic, Mean):  # Sums of the drawn terms are faster than counts.
            sums = (weights * statistic.terms)[resampled].sum(axis=1)
            values.append(sums / weights[resampled].sum(axis=1))
        else:
            resampled += total * np.arange(rows)[:, None]
            counts = np.bincount(resampled.ravel(), minlength=rows * total).reshape(rows, total)
            values.append(statistic.values(counts * weights))
    return np.concatenate(values)


def _student_half_width(terms: np.ndarray, weights: np.ndarray, level: float) -> float:
    """Returns half the width of Student's confidence interval of a mean."""
    num_episodes, fractions = len(terms), weights / weights.sum()
    deviations = fractions * (terms - fractions @ terms)
    error = math.sqrt(num_episodes / (num_episodes - 1) * float(deviations @ deviations))
    return student_quantile(level, num_episodes - 1) * error


@functools.lru_cache
def student_quantile(level: float, degrees_of_freedom: int) -> float:
    """Returns the quantile of the absolute value of Student's t for a probability.

    The probability is the integral of a power of a cosine up to arctan(t / sqrt(degrees of
    freedom)). Newton's method approaches it from below, as the cosine decreases.

    >>> round(student_quantile(0.95, 1), 9)
    12.706204736
    """
    nodes, node_weights = np.polynomial.legendre.leggauss(64)
    power = degrees_of_freedom - 1
    scale = 2 / math.sqrt(math.pi)
    scale *= math.exp(math.lgamma((power + 2) / 2) - math.lgamma((power + 1) / 2))
    angle = 0.0
    for _ in range(100):
        probability = scale * angle / 2 * node_weights @ np.cos(angle / 2 * (nodes + 1)) ** power
        step = (level - probability) / (scale * math.cos(angle) ** power)
        angle += step
        if step < 1e-14 * angle:
            break
    return math.sqrt(degrees_of_freedom) * math.tan(angle)


def _bernstein_half_width(
    terms: np.ndarray, weights: np.ndarray, level: float, value_range: float
) -> float:
    """Returns half the width of the empirical Bernstein interval of a mean."""
    if (weights != weights[0]).any():
        raise ValueError(
            "method 'bernstein' is for episodes of equal weight: leave out episode_weights,"
            " or use method 'bootstrap'"
        )
    if (spread := np.ptp(terms)) > value_range:
        raise ValueError(f"value_range is {value_range}, but episodes differ by {spread:.5g}")
    num_episodes, log_term = len(terms), math.log(4 / (1 - level))
    spread_term = math.sqrt(2 * float(terms.var(ddof=1)) * log_term / num_episodes)
    return spread_term + 7 * value_range * log_term / (3 * (num_episodes - 1))
