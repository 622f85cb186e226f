"""The direct method and doubly robust estimates: values of a policy by a Q-function."""

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
from rlds.evaluation.linear_q import LinearQ, return_of_all_steps
from rlds.evaluation.policies import Policy, rows_located
from rlds.evaluation.q_functions import QFunction
from rlds.evaluation.ratios import StepRatios, StepWeights, log_ratios, warnings_of, weight_report

__all__ = ["direct_method", "doubly_robust"]

# The number of transitions that a Q-function takes at once.
_BLOCK_TRANSITIONS = 1 << 16
_AS_IT_IS = "the interval ignores the error of the Q-function: if that was fitted, it is too narrow"


def direct_method(
    data: EvaluationSet, q: QFunction, *, gamma: float, episode_weights: Any = None
) -> Estimate:
    """Estimates the value of a policy by a Q-function alone: its mean value at the starts.

    It is as good as the Q-function. Intervals come from fitting again a `LinearQ` that was fitted
    to the same data; any other is taken as it is, so that they say no more than how much starts
    differ.

    Args:
      data: The recorded data; see `collect`.
      q: The Q-function of the policy.
      gamma: The discount of each step that the Q-function is for.
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
    if _is_of(q, data, estimate):
        return dataclasses.replace(estimate, statistic=q.estimate().statistic)
    return dataclasses.replace(estimate, interval_warnings=(_AS_IT_IS,))


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

    The error of the Q-function at each recorded transition counts with the weight of the actions up
    to it. If either the Q-function or the probabilities are right, so is the estimate, apart from
    noise; and the better the Q-function, the less the weights matter. Where an episode is cut, the
    value by the Q-function stands for what would have followed, so the estimate is that of all
    steps.

    Args:
      data: The recorded data; see `collect`.
      target: The policy that is evaluated, or the logarithms of the probabilities of the recorded
        actions under it, `[M]`.
      q: Its Q-function, such as one of `fitted_q`. One that was fitted to other episodes than these
        has no bias that comes from fitting.
      behaviour: The policy that acted; by default, `data.log_probs` say how probable its actions
        were.
      gamma: The discount of each step, that of the Q-function.
      horizon: The number of steps of each episode that correct the Q-function; after these, its
        value stands. Fewer steps have less unequal weights, and trust the Q-function more.
      weighted: Whether to divide by the sum of the weights rather than by their number: a small
        bias for less variance.
      clip_log_ratio: The smallest and the largest logarithm of a ratio, such as `(-6, 2)`; others
        count as these.
      time_limit: See `fitted_q`.
      episode_weights: The weight of each episode, `[N]`; if None, 1.

    Returns:
      The estimate, with the effective sample size. Where episodes are cut, its intervals come from
      fitting again a `LinearQ` that was fitted to the same data. Otherwise they take the Q-function
      as it is, and say so if that makes them too narrow.

    Raises:
      TypeError: A policy has no probabilities, as it is deterministic.
      ValueError: An argument is wrong, or a value in the data; the message names it.

    Warns:
      EstimateWarning: The effective sample size is below 10.
    """
    is_followed = data.is_followed(time_limit)
    # Transitions that are left out are the last ones of their episodes.
    lengths = np.bincount(data.episodes[is_followed], minlength=data.num_episodes)
    name = f"{'weighted ' * weighted}doubly robust"
    if (horizon := check_horizon(horizon)) is not None:
        lengths = np.minimum(lengths, horizon)
        name += f", corrected for {horizon} steps"
    ratios, clipped = log_ratios(data, target, behaviour, clip_log_ratio)
    corrections = _Corrections(data, ratios, gamma, lengths, weighted)
    steps = corrections.steps(_errors(data, q, gamma))
    starts = Mean(_start_values(data, q))
    statistic: Statistic
    if weighted:
        statistic = _Corrected(starts, steps.averages())
    else:
        statistic = Mean(starts.terms + steps.weighted_sums())
    estimate = _estimate(data, statistic, name, gamma, episode_weights)
    report = weight_report(steps.log_weights, estimate.episode_weights, clipped)
    warnings = warnings_of(report, data.num_episodes)
    if not weighted and not np.isfinite(estimate.value):
        warnings.append("A weight is too large for a float: use weighted=True.")
    ends = data.ends(left_out=int((~is_followed).sum()))
    estimate = dataclasses.replace(estimate, ends=ends, weights=report, warnings=tuple(warnings))
    if steps.is_terminal.all():  # Elsewhere nothing corrects the value after the cut.
        return estimate
    if _is_of(q, data, estimate):
        return dataclasses.replace(estimate, statistic=_Refitted(q, corrections))
    return dataclasses.replace(estimate, interval_warnings=(_AS_IT_IS,))


def _is_of(q: QFunction, data: EvaluationSet, estimate: Estimate) -> TypeGuard[LinearQ]:
    """True if a Q-function was fitted to the same episodes as an estimate."""
    if not isinstance(q, LinearQ) or q.data is not data or q.gamma != estimate.gamma:
        return False
    weights = estimate.episode_weights
    return np.array_equal(
        q.episode_weights, np.ones(data.num_episodes) if weights is None else weights
    )


@dataclasses.dataclass(frozen=True)
class _Corrections:
    """Weighted sums of values of transitions, which correct a Q-function."""

    data: EvaluationSet
    log_ratios: np.ndarray
    gamma: float
    num_transitions: np.ndarray
    is_weighted: bool

    def steps(self, values: np.ndarray) -> StepWeights:
        """Returns values of transitions, with their weights."""
        return StepWeights(
            self.data, self.log_ratios, values, self.gamma, num_transitions=self.num_transitions
        )

    def values(self, transition_values: np.ndarray, counts: np.ndarray) -> np.ndarray:
        """Returns the weighted sums in each of B samples of the episodes, `[B]`."""
        steps = self.steps(transition_values)
        statistic = steps.averages() if self.is_weighted else Mean(steps.weighted_sums())
        return statistic.values(counts)


@dataclasses.dataclass(frozen=True)
class _Corrected(Statistic):
    """The mean value at the starts, plus its corrections."""

    starts: Mean
    corrections: StepRatios

    @override
    def values(self, counts: np.ndarray) -> np.ndarray:
        return self.starts.values(counts) + self.corrections.values(counts)


@dataclasses.dataclass(frozen=True)
class _Refitted(Statistic):
    """The doubly robust estimate with a Q-function refitted to each bootstrap sample."""

    q: LinearQ
    corrections: _Corrections

    @functools.cached_property
    def _features(self) -> np.ndarray:
        """The features of each transition minus the discounted next ones, `[M, d]`."""
        q, data = self.q, self.q.data
        follows = data.next_is_known & ~data.next_is_terminal
        after = q.expected_features(data.observations_at(data.rows[follows] + 1))
        features = np.array(q.features(data.observations_at(data.rows), data.actions))
        features[follows] -= data.step_discounts(q.gamma)[follows, None] * after
        return features

    @override
    def values(self, counts: np.ndarray) -> np.ndarray:
        coefficients, starts = self.q.refits(counts)
        totals = self.corrections.values(self.q.data.rewards, counts)
        for by_sample, start, feature in zip(
            coefficients.T, starts.T, self._features.T, strict=True
        ):
            totals += by_sample * (start - self.corrections.values(feature, counts))
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
        estimand=return_of_all_steps(gamma),
        gamma=float(gamma),
        horizon=None,
        statistic=statistic,
        ends=data.ends(),
        episode_weights=episode_weights,
    )


def _errors(data: EvaluationSet, q: QFunction, gamma: float) -> np.ndarray:
    """Returns the temporal-difference error of each transition, `[M]`.

    The last one of a truncated episode is nonsense if the final observation is not known.
    """
    total, locate = len(data.rewards), data.place
    values = _by_blocks(
        total, lambda block: q.v(data.observations_at(data.rows[block])), "v", locate
    )
    after = np.append(values[1:], 0.0)
    after[data.is_last] = 0.0
    ends = np.flatnonzero(data.is_last & data.next_is_known & ~data.next_is_terminal)
    after[ends] = _by_blocks(
        len(ends),
        lambda block: q.v(data.observations_at(data.rows[ends[block]] + 1)),
        "v",
        lambda row: f"after {locate(ends[row])}",
    )
    q_values = _by_blocks(
        total,
        lambda block: q.q(data.observations_at(data.rows[block]), data.actions_at(block)),
        "q",
        locate,
    )
    return data.rewards + data.step_discounts(gamma) * after - q_values


def _start_values(data: EvaluationSet, q: QFunction) -> np.ndarray:
    """Returns the value of the first observation of each episode, `[N]`."""
    return _by_blocks(
        data.num_episodes,
        lambda block: q.v(data.observations_at(data.first_rows[block])),
        "v",
        lambda episode: f"at the start of episode {episode}",
    )


def _by_blocks(
    num_rows: int, compute: Callable[[slice], Any], method: str, locate: Callable[[int], str]
) -> np.ndarray:
    """Calls a method of a Q-function on blocks of rows, and raises an error if it is not finite."""
    results = np.empty(num_rows)
    for first in range(0, num_rows, _BLOCK_TRANSITIONS):
        block = slice(first, min(first + _BLOCK_TRANSITIONS, num_rows))
        with rows_located(locate, first):
            values = np.asarray(compute(block), np.float64)
        if values.shape != results[block].shape:
            raise ValueError(
                f"{method} of the Q-function must have one number for each row, of shape "
                f"{results[block].shape}, got {values.shape}"
            )
        results[block] = values
    wrong = np.flatnonzero(~np.isfinite(results))
    if len(wrong):
        row = int(wrong[0])
        raise ValueError(f"{locate(row)}: {method} of the Q-function is {results[row]}")
    return results
