"""What is estimated, from what, and what speaks against believing it."""

from __future__ import annotations

import abc
import dataclasses
import textwrap
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from rlds.evaluation.intervals import Interval

__all__ = ["Ends", "Estimate", "Mean", "RatioSum", "Statistic", "WeightReport"]


class Statistic(abc.ABC):
    """What an estimate is computed from, so that it can be computed again from other episodes.

    An interval comes from computing the whole estimate again for resampled episodes, with all that
    is normalized in it.
    """

    @property
    @abc.abstractmethod
    def num_episodes(self) -> int:
        """N, how many episodes there are."""

    @abc.abstractmethod
    def values(self, counts: np.ndarray) -> np.ndarray:
        """Returns the estimate for each of B samples of episodes.

        Args:
          counts: How often each episode is in each sample, or its weight, float64, `[B, N]`.

        Returns:
          The estimates, float64, `[B]`; NaN where a sample has none.
        """


@dataclasses.dataclass(frozen=True)
class Mean(Statistic):
    """The mean of one number for each episode: of these, intervals are known in closed form.

    Attributes:
      terms: The numbers, float64, `[N]`.
    """

    terms: np.ndarray

    @property
    def num_episodes(self) -> int:
        """See `Statistic`."""
        return len(self.terms)

    def values(self, counts: np.ndarray) -> np.ndarray:
        """See `Statistic`."""
        with np.errstate(invalid="ignore", divide="ignore"):
            found: np.ndarray = (counts @ self.terms) / counts.sum(axis=1)
            return found


@dataclasses.dataclass(frozen=True)
class RatioSum(Statistic):
    """A sum of K ratios, each of a sum over the episodes and another one.

    Attributes:
      numerators: float64, `[N, K]`.
      denominators: float64, `[N, K]`. A ratio whose denominators are all 0 counts as 0; if those
        of all ratios are, there is no estimate.
    """

    numerators: np.ndarray
    denominators: np.ndarray

    @property
    def num_episodes(self) -> int:
        """See `Statistic`."""
        return len(self.numerators)

    def values(self, counts: np.ndarray) -> np.ndarray:
        """See `Statistic`."""
        above, below = counts @ self.numerators, counts @ self.denominators
        ratios = np.divide(above, below, out=np.zeros_like(above), where=below != 0)
        found: np.ndarray = np.where((below != 0).any(axis=1), ratios.sum(axis=1), np.nan)
        return found


@dataclasses.dataclass(frozen=True)
class WeightReport:
    """How unequal the weights of the episodes are.

    Attributes:
      effective_sample_size: (sum of w)² / sum of w², of the weights of whole episodes: how many
        episodes of the policy itself would say as much.
      largest: The share of the largest weight in the sum of all.
      clipped: The share of the transitions whose ratio was clipped.
    """

    effective_sample_size: float
    largest: float
    clipped: float = 0.0


@dataclasses.dataclass(frozen=True)
class Ends:
    """How the episodes of an estimate end.

    Attributes:
      terminal: How many ended in a terminal state.
      truncated: How many were cut where the final observation is known.
      unknown: How many were cut where it is not known.
      censored: How many of those that were cut are shorter than the horizon.
      left_out: How many transitions were left out, because what followed them is not known.
    """

    terminal: int
    truncated: int
    unknown: int
    censored: int = 0
    left_out: int = 0


@dataclasses.dataclass(frozen=True, repr=False)
class Estimate:
    """What a policy is worth, as estimated.

    Attributes:
      value: The estimate.
      estimator: How it was computed, such as "per-decision WIS".
      estimand: Of what it is an estimate, in words: "the discounted return of 1000 steps".
      gamma: The discount of each step.
      horizon: How many steps count; None if all do.
      statistic: What it was computed from.
      ends: How the episodes end.
      weights: How unequal the weights of the episodes are; None if there are no weights.
      warnings: What speaks against believing it, in sentences.
      episode_weights: How often each episode counts, float64, `[N]`; None if each counts once.
      interval_warnings: What speaks against believing its intervals, in sentences.
    """

    value: float
    estimator: str
    estimand: str
    gamma: float
    horizon: int | None
    statistic: Statistic
    ends: Ends
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
        """Returns how far the value may be off, because there are only so many episodes.

        It knows nothing of other errors: features that do not fit, clipped ratios, or policies that
        do what the data never shows.

        Args:
          level: In which share of data sets such as this one the interval holds the true value.
          method: `"bootstrap"`: episodes are drawn with replacement, and the whole estimate is
            computed again from each draw; for every estimator. `"t"`: Student's t, for means over
            episodes. `"bernstein"`: holds for any number of episodes, and is much wider; for means.
          num_samples: How often the bootstrap draws.
          seed: Of the bootstrap. The same seed draws the same episodes.
          value_range: For `"bernstein"`, how much the numbers of two episodes can differ at most,
            with the largest weight that can be. The largest difference found will not do.

        Raises:
          ValueError: There is no interval; says why, and what to do.
        """
        from rlds.evaluation.intervals import interval

        return interval(self, level, method, num_samples, seed, value_range)

    def __repr__(self) -> str:
        parts = [f"{self.value:.5g}", self.estimator, _counted(self.num_episodes, "episode")]
        if self.weights is not None:
            parts.append(f"effective sample size {self.weights.effective_sample_size:.1f}")
        if self.warnings:
            parts.append(_counted(len(self.warnings), "warning"))
        return f"Estimate({', '.join(parts)})"

    def __str__(self) -> str:
        lines = [("what", f"{self.estimand} (gamma {self.gamma:g})"), ("from", self._from())]
        if self.weights is not None:
            lines.append(("weights", self._worth(self.weights)))
        lines += [("warning", warning) for warning in self.warnings]
        told = (
            textwrap.fill(text, 88, initial_indent=f"  {key + ':':10}", subsequent_indent=" " * 12)
            for key, text in lines
        )
        return "\n".join([f"{self.value:.5g}, by {self.estimator}", *told])

    @property
    def num_episodes(self) -> int:
        """N, how many episodes there are."""
        return self.statistic.num_episodes

    def _from(self) -> str:
        ends = self.ends
        kinds = {
            "terminal": ends.terminal,
            "truncated": ends.truncated,
            "cut without a final observation": ends.unknown,
        }
        told = ", ".join(f"{number} {kind}" for kind, number in kinds.items() if number)
        told = f"{_counted(self.num_episodes, 'episode')} ({told})"
        if ends.censored:
            told += f", {ends.censored} of them shorter than the horizon"
        if ends.left_out:
            left_out = _counted(ends.left_out, "transition")
            told += f", without {left_out} after which nothing is known"
        return told

    def _worth(self, weights: WeightReport) -> str:
        told = (
            f"worth {weights.effective_sample_size:.1f} episodes of the policy itself (the "
            f"effective sample size); the largest is {weights.largest:.1%} of their sum"
        )
        if weights.clipped:
            told += f"; {weights.clipped:.1%} of the ratios were clipped"
        return told


def _counted(number: int, what: str) -> str:
    return f"{number} {what}{'s' * (number != 1)}"
