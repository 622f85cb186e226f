"""What is estimated, from what, and what speaks against believing it."""

from __future__ import annotations

import abc
import dataclasses

import numpy as np

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
      denominators: float64, `[N, K]`. Where all are 0, the ratio counts as 0.
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
        found: np.ndarray = ratios.sum(axis=1)
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


@dataclasses.dataclass(frozen=True)
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
    """

    value: float
    estimator: str
    estimand: str
    gamma: float
    horizon: int | None
    statistic: Statistic = dataclasses.field(repr=False)
    ends: Ends
    weights: WeightReport | None = None
    warnings: tuple[str, ...] = ()
