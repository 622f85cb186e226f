"""Off-policy evaluation by a Q-function: the direct method and doubly robust estimates."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable
from typing import Any, TypeGuard

import numpy as np
from typing_extensions import override

from rlds.evaluation.estimates import Estimate, Mean, Statistic
from rlds.evaluation.evaluation_set import (
    EvaluationSet,
    check_episode_weights,
    check_gamma,
    check_horizon,
)
from rlds.evaluation.linear_q import LinearQ, q_estimand
from rlds.evaluation.policies import Policy, with_row_location
from rlds.evaluation.q_functions import QFunction
from rlds.evaluation.ratios import StepRatios, StepWeights, log_ratios, warnings_of, weight_report

__all__ = ["direct_method", "doubly_robust"]

# The number of transitions in a batch of a Q-function.
_BLOCK_TRANSITIONS = 1 << 16
_FIXED_Q_WARNING = (
    "the interval ignores the error of the Q-function: it is too narrow for a fitted Q-function"
)


def direct_method(
    data: EvaluationSet, q: QFunction, *, gamma: float, episode_weights: Any = None
) -> Estimate:
    """Estimates the value of a policy by a Q-function alone: its mean value at the starts.

    The error is the error of the Q-function. Intervals refit a `LinearQ` that was fitted to the
    same data; any other Q-function stays fixed, so they cover only the variance of the starts.

    Args:
      data: The recorded data; see `collect`.
      q: The Q-function of the policy.
      gamma: The discount of each step in the Q-function.
      episode_weights: The weight of each episode, `[N]`; if None, 1.

    Raises:
      ValueError: An argument is wrong, or a value of the Q-function; the message names it.

    >>> from rlds.evaluation.policies import CategoricalPolicy
    >>> from rlds.evaluation.q_functions import TabularQ
    >>> data = EvaluationSet([1], [True], [False], np.array([0]), np.array([1]), [3.0])
    >>> q = TabularQ([[2.0, 3.0]], CategoricalPolicy.from_table([[0.25, 0.75]]))
    >>> round(direct_method(data, q, gamma=0.9).value, 3)
    2.75
    """
    check_gamma(gamma)
    statistic = Mean(_start_values(data, q))
    estimate = _estimate(data, statistic, "direct method", gamma, episode_weights)
    if _is_fitted_to(q, data, estimate):
        return dataclasses.replace(estimate, statistic=q.estimate().statistic)
    return dataclasses.replace(estimate, interval_warnings=(_FIXED_Q_WARNING,))


def doubly_robust(
    data: EvaluationSet,
    target: Policy | np.ndarray,
    q: QFunction,
    *,
    behaviour: Policy | None = None,
    gamma: float,
    horizon: int | None = None,
    weighted: bool = True,
    clip_log_ratio: tuple[float, float] | None = None,
    time_limit: int | None = None,
    episode_weights: Any = None,
) -> Estimate:
    """Estimates the value of a policy by a Q-function, corrected by importance sampling.

    The error of the Q-function at each recorded transition is weighted by the importance of the
    actions up to it. The estimate is unbiased if either the Q-function or the probabilities are
    right; a better Q-function reduces the influence of the weights. For truncated episodes, the
    Q-function estimates the value of the missing steps, so the estimate covers all steps.

    Args:
      data: The recorded data; see `collect`.
      target: The target policy, or the log-probabilities of the recorded actions under it, `[M]`.
      q: The Q-function of the target, for example by `fitted_q`. Fit it to other episodes to avoid
        the bias of overfitting.
      behaviour: The policy that acted; by default, `data.log_probs` are used.
      gamma: The discount of each step, as in the Q-function.
      horizon: The number of steps of each episode that correct the Q-function. Fewer steps reduce
        the variance of the weights, and rely more on the Q-function.
      weighted: True to divide by the sum of the weights, instead of their count: a small bias for
        less variance.
      clip_log_ratio: The lower and the upper limit of the logarithm of a ratio, such as `(-6, 2)`.
      time_limit: See `fitted_q`.
      episode_weights: The weight of each episode, `[N]`; if None, 1.

    Returns:
      The estimate, with the effective sample size. If episodes are truncated, intervals refit a
      `LinearQ` that was fitted to the same data. Any other Q-function stays fixed, with a warning
      if the intervals are too narrow.

    Raises:
      TypeError: A policy has no probabilities, as it is deterministic.
      ValueError: An argument is wrong, or a value in the data; the message names it.

    Warns:
      EstimateWarning: The effective sample size is below 10.
    """
    has_successor = data.has_successor(time_limit)
    # Only the last transition of an episode may be left out.
    lengths = np.bincount(data.episodes[has_successor], minlength=data.num_episodes)
    name = f"{'weighted ' * weighted}doubly robust"
    if (horizon := check_horizon(horizon)) is not None:
        lengths = np.minimum(lengths, horizon)
        name += f", corrected for {horizon} steps"
    ratios, clipped = log_ratios(data, target, behaviour, clip_log_ratio)
    corrections = _Corrections(data, ratios, gamma, lengths, weighted)
    steps = corrections.steps(_compute_td_errors(data, q, gamma))
    starts = Mean(_start_values(data, q))
    statistic: Statistic
    if weighted:
        statistic = _CorrectedMean(starts, steps.averages())
    else:
        statistic = Mean(starts.terms + steps.weighted_sums())
    estimate = _estimate(data, statistic, name, gamma, episode_weights)
    report = weight_report(steps.log_weights, estimate.episode_weights, clipped)
    warnings = warnings_of(report, data.num_episodes)
    if not weighted and not np.isfinite(estimate.value):
        warnings.append("A weight is too large for a float: use weighted=True.")
    counts = data.count_ends(left_out=int((~has_successor).sum()))
    estimate = dataclasses.replace(estimate, end_counts=counts, weights=report)
    estimate = dataclasses.replace(estimate, warnings=tuple(warnings))
    if steps.is_terminal.all():  # Truncated episodes rely on the Q-function after their ends.
        return estimate
    if _is_fitted_to(q, data, estimate):
        return dataclasses.replace(estimate, statistic=_RefitDoublyRobust(q, corrections))
    return dataclasses.replace(estimate, interval_warnings=(_FIXED_Q_WARNING,))


def _is_fitted_to(q: QFunction, data: EvaluationSet, estimate: Estimate) -> TypeGuard[LinearQ]:
    """True if a Q-function was fitted to the same episodes as an estimate."""
    if not isinstance(q, LinearQ) or q.data is not data or q.gamma != estimate.gamma:
        return False
    weights = estimate.episode_weights
    return np.array_equal(
        q.episode_weights, np.ones(data.num_episodes) if weights is None else weights
    )


@dataclasses.dataclass(frozen=True)
class _Corrections:
    """Importance-weighted sums over transitions, which correct a Q-function."""

    data: EvaluationSet
    log_ratios: np.ndarray
    gamma: float
    num_transitions: np.ndarray
    is_weighted: bool

    def steps(self, values: np.ndarray) -> StepWeights:
        """Returns values of transitions with their importance weights."""
        return StepWeights(
            self.data, self.log_ratios, values, self.gamma, num_transitions=self.num_transitions
        )

    def values(self, transition_values: np.ndarray, counts: np.ndarray) -> np.ndarray:
        """Returns the weighted sums in each of B samples of the episodes, `[B]`."""
        steps = self.steps(transition_values)
        statistic = steps.averages() if self.is_weighted else Mean(steps.weighted_sums())
        return statistic.values(counts)


@dataclasses.dataclass(frozen=True)
class _CorrectedMean(Statistic):
    """The mean value of the Q-function at the starts, plus corrections."""

    starts: Mean
    corrections: StepRatios

    @override
    def values(self, counts: np.ndarray) -> np.ndarray:
        return self.starts.values(counts) + self.corrections.values(counts)


@dataclasses.dataclass(frozen=True)
class _RefitDoublyRobust(Statistic):
    """The doubly robust estimate with a Q-function refitted to each bootstrap sample."""

    q: LinearQ
    corrections: _Corrections

    @functools.cached_property
    def _features(self) -> np.ndarray:
        """The features of each transition minus the discounted next features, `[M, d]`."""
        q, data = self.q, self.q.data
        has_next = data.next_is_known & ~data.next_is_terminal
        next_values = q.expected_features(data.observations_at(data.rows[has_next] + 1))
        features = np.array(q.features(data.observations_at(data.rows), data.actions))
        features[has_next] -= data.step_discounts(q.gamma)[has_next, None] * next_values
        return features

    @override
    def values(self, counts: np.ndarray) -> np.ndarray:
        coefficients, starts = self.q.refits(counts)
        totals = self.corrections.values(self.q.data.rewards, counts)
        for coefficient, start, feature in zip(
            coefficients.T, starts.T, self._features.T, strict=True
        ):
            totals += coefficient * (start - self.corrections.values(feature, counts))
        return totals


def _estimate(
    data: EvaluationSet, statistic: Statistic, name: str, gamma: float, episode_weights: Any
) -> Estimate:
    counts = np.ones(data.num_episodes)
    if episode_weights is not None:
        counts = episode_weights = check_episode_weights(episode_weights, data.num_episodes)
    return Estimate(
        value=float(statistic.values(counts[np.newaxis])[0]),
        estimator=name,
        estimand=q_estimand(gamma),
        gamma=float(gamma),
        horizon=None,
        statistic=statistic,
        end_counts=data.count_ends(),
        episode_weights=episode_weights,
    )


def _compute_td_errors(data: EvaluationSet, q: QFunction, gamma: float) -> np.ndarray:
    """Returns the temporal-difference error of each transition, `[M]`.

    The error of the last transition is invalid if the final observation is unknown.
    """
    total, locate = len(data.rewards), data.locate
    values = _compute_by_block(
        total, lambda block: q.v(data.observations_at(data.rows[block])), "v", locate
    )
    next_values = np.append(values[1:], 0.0)
    next_values[data.is_last] = 0.0
    truncated_rows = np.flatnonzero(data.is_last & data.next_is_known & ~data.next_is_terminal)
    next_values[truncated_rows] = _compute_by_block(
        len(truncated_rows),
        lambda block: q.v(data.observations_at(data.rows[truncated_rows[block]] + 1)),
        "v",
        lambda row: f"after {locate(truncated_rows[row])}",
    )
    q_values = _compute_by_block(
        total,
        lambda block: q.q(data.observations_at(data.rows[block]), data.actions_at(block)),
        "q",
        locate,
    )
    return data.rewards + data.step_discounts(gamma) * next_values - q_values


def _start_values(data: EvaluationSet, q: QFunction) -> np.ndarray:
    """Returns the value of the first observation of each episode, `[N]`."""
    return _compute_by_block(
        data.num_episodes,
        lambda block: q.v(data.observations_at(data.first_rows[block])),
        "v",
        lambda episode: f"at the start of episode {episode}",
    )


def _compute_by_block(
    num_rows: int, compute: Callable[[slice], Any], method: str, locate: Callable[[int], str]
) -> np.ndarray:
    """Returns the values of a Q-function, computed by blocks of rows and checked to be finite."""
    results = np.empty(num_rows)
    for begin in range(0, num_rows, _BLOCK_TRANSITIONS):
        block = slice(begin, min(begin + _BLOCK_TRANSITIONS, num_rows))
        with with_row_location(locate, begin):
            values = np.asarray(compute(block), np.float64)
        if values.shape != results[block].shape:
            raise ValueError(
                f"{method} of the Q-function must have one number for each row, of shape "
                f"{results[block].shape}, got {values.shape}"
            )
        results[block] = values
    invalid = np.flatnonzero(~np.isfinite(results))
    if len(invalid):
        row = int(invalid[0])
        raise ValueError(f"{locate(row)}: {method} of the Q-function is {results[row]}")
    return results
