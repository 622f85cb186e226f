"""Importance ratios of recorded actions for off-policy evaluation, and the weights of episodes.

Ratios and weights are logarithms, as the product of a thousand ratios overflows a float.
"""

from __future__ import annotations

import dataclasses
import warnings
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
from typing_extensions import override

from rlds.evaluation.estimates import Statistic, WeightReport
from rlds.evaluation.evaluation_set import EvaluationSet, check_gamma
from rlds.evaluation.policies import Policy, with_row_location

__all__ = [
    "EstimateWarning",
    "StepRatios",
    "StepWeights",
    "log_ratios",
    "warnings_of",
    "weight_report",
    "with_weights",
]

# The number of transitions in a batch of a policy.
_BLOCK_TRANSITIONS = 1 << 16
# The largest matrix product of counts and weights, in elements.
_MAX_BLOCK_PRODUCTS = 1 << 22
# With a smaller effective sample size, an estimate is unreliable.
_MIN_SAMPLE_SIZE = 10


class EstimateWarning(UserWarning):
    """An estimate is unreliable; its `warnings` have the reasons."""


def log_ratios(
    data: EvaluationSet,
    target: Policy | np.ndarray,
    behaviour: Policy | None = None,
    clip_log_ratio: tuple[float, float] | None = None,
) -> tuple[np.ndarray, float]:
    """Returns the log importance ratio of each recorded action: target over behaviour policy.

    Args:
      data: The recorded data.
      target: The target policy, or the log-probabilities of the recorded actions under it, `[M]`.
      behaviour: The policy that acted; if None, `data.log_probs` are used.
      clip_log_ratio: The lower and the upper limit of the logarithms.

    Returns:
      The logarithms of the ratios, float64, `[M]`; -inf if the target never takes the recorded
      action. The second value is the fraction of clipped logarithms.

    Raises:
      TypeError: A policy has no probabilities.
      ValueError: A probability is missing or invalid; the message has the location and the remedy.
    """
    if behaviour is None and data.log_probs is None:
        raise ValueError(
            "the probabilities of the recorded actions are unknown: name their field "
            "(collect(..., log_prob=...)), or pass the policy that acted (behaviour=...)"
        )
    logs = np.empty(len(data.rewards))
    size = _BLOCK_TRANSITIONS
    for begin in range(0, len(logs), size):
        block = slice(begin, begin + size)
        with with_row_location(data.locate, begin):
            logs[block] = _block_log_ratios(data, target, behaviour, block)
    is_wrong = np.isnan(logs) | (logs == np.inf)
    if is_wrong.any():
        _raise_invalid_ratio(data, target, behaviour, int(np.argmax(is_wrong)))
    if clip_log_ratio is None:
        return logs, 0.0
    lowest, highest = clip_log_ratio
    if not lowest <= highest:
        raise ValueError(f"clip_log_ratio must be a lower and an upper bound, got {clip_log_ratio}")
    clipped = np.clip(logs, lowest, highest)
    return clipped, float(np.mean(clipped != logs)) if len(logs) else 0.0


def _block_log_ratios(
    data: EvaluationSet, target: Policy | np.ndarray, behaviour: Policy | None, block: slice
) -> np.ndarray:
    """Returns the log importance ratios of a block of transitions."""
    if isinstance(target, Policy) and behaviour is not None:
        observations, actions = data.observations_at(data.rows[block]), data.actions_at(block)
        return _check_per_action(
            target.log_ratio(behaviour, observations, actions), "log_ratio", block, data
        )
    with np.errstate(invalid="ignore"):  # `_raise_invalid_ratio` reports differences of infinities.
        logs: np.ndarray = _log_probs(data, target, block) - _log_probs(data, behaviour, block)
    return logs


def _log_probs(data: EvaluationSet, policy: Any, block: slice) -> np.ndarray:
    """Returns log-probabilities of a block of actions; without a policy, the recorded ones."""
    if policy is None:
        assert data.log_probs is not None
        return data.log_probs[block]
    if isinstance(policy, Policy):
        observations, actions = data.observations_at(data.rows[block]), data.actions_at(block)
        return _check_per_action(policy.log_prob(observations, actions), "log_prob", block, data)
    logs = np.asarray(policy)
    if logs.shape != data.rewards.shape or logs.dtype.kind not in "iuf":
        raise ValueError(
            "target must be a policy, or the logarithms of the probabilities of the recorded "
            f"actions, of shape {data.rewards.shape}; got {logs.dtype} of shape {logs.shape}"
        )
    return logs[block].astype(np.float64)


def _check_per_action(values: Any, method: str, block: slice, data: EvaluationSet) -> np.ndarray:
    array = np.asarray(values, np.float64)
    expected = (len(data.rewards[block]),)
    if array.shape != expected:
        raise ValueError(
            f"{method} of a policy must have one number for each action, of shape {expected}, got "
            f"{array.shape}. Do the actions belong to the policy?"
        )
    return array


def _raise_invalid_ratio(
    data: EvaluationSet, target: Policy | np.ndarray, behaviour: Policy | None, index: int
) -> None:
    """Raises the error of an undefined importance ratio."""
    row = slice(index, index + 1)
    target_log, behaviour_log = (
        _log_probs(data, target, row)[0],
        _log_probs(data, behaviour, row)[0],
    )
    location = data.locate(index)
    if np.isneginf(behaviour_log):
        raise ValueError(
            f"{location}: the behaviour policy never takes the recorded action (its probability is "
            "0), so it is not the policy that acted. Pass that policy, or leave out the episode "
            "(data.select)"
        )
    if not np.isfinite(behaviour_log):
        raise ValueError(f"{location}: log_prob of the behaviour policy is {behaviour_log}")
    raise ValueError(
        f"{location}: log_prob of the target policy is {target_log}, expected a number or -inf"
    )


class _Block(NamedTuple):
    """A range of steps of all episodes that are long enough."""

    first: int
    # The indices of the episodes in this block, [n].
    episodes: np.ndarray | slice
    # Discounted values, [n, k]; 0 after the end of an episode.
    values: np.ndarray
    # Logarithms of weights, [n, k]; the last transition's weight after the end of an episode.
    log_weights: np.ndarray
    # A mask of the transitions before the ends of episodes, [n, k]; None for full blocks.
    is_transition: np.ndarray | None


class StepWeights:
    """Values of transitions with cumulative importance weights, for per-decision estimates.

    Episodes of different lengths are padded in blocks of steps; at most half of a block is padding.

    Args:
      data: The episodes.
      log_ratios: See `log_ratios`, `[M]`.
      values: A value of each transition, `[M]`, for example the reward.
      gamma: The discount of each step.
      num_transitions: The number of first transitions of each episode in the estimate, `[N]`; all
        by default.
      episodes: The indices of the episodes in the estimate; all by default.

    Attributes:
      num_episodes: N, the number of episodes in the estimate.
      is_terminal: A mask of the episodes that end in a terminal state within the estimate.
      log_weights: The logarithm of the product of all ratios of each episode, `[N]`.
    """

    def __init__(
        self,
        data: EvaluationSet,
        log_ratios: np.ndarray,
        values: np.ndarray,
        gamma: float,
        *,
        num_transitions: np.ndarray | None = None,
        episodes: np.ndarray | None = None,
    ) -> None:
        check_gamma(gamma)
        selection = slice(None) if episodes is None else episodes
        full_lengths = data.num_transitions[selection]
        self._lengths = full_lengths if num_transitions is None else num_transitions[selection]
        self._starts = data.splits[:-1][selection]
        # True if all episodes have T transitions, so transition t of episode i is at i * T + t.
        self._is_regular = episodes is None and bool((full_lengths == full_lengths[0]).all())
        self.num_episodes = len(full_lengths)
        self.is_terminal = data.is_terminal[selection] & (self._lengths == full_lengths)
        self.log_weights = np.zeros(self.num_episodes)
        self._blocks = list(self._make_blocks(data, log_ratios, values, gamma))

    def _make_blocks(
        self, data: EvaluationSet, log_ratios: np.ndarray, values: np.ndarray, gamma: float
    ) -> Iterator[_Block]:
        factors = data.step_discounts(gamma) if data.discounts is not None else None
        discounts = np.ones(self.num_episodes)
        for start, end, episodes in self._list_blocks():
            is_transition = np.arange(start, end) < self._lengths[episodes, None]
            is_full = bool(is_transition.all())
            block_values = self._take_block(values, start, end, episodes)
            block_values = block_values if is_full else np.where(is_transition, block_values, 0.0)
            if factors is None:
                block_values = block_values * gamma ** np.arange(start, end)
            else:
                steps = self._take_block(factors, start, end, episodes).copy()
                steps[:, 0] *= discounts[episodes]
                np.cumprod(steps, axis=1, out=steps)
                block_values = block_values * np.column_stack([discounts[episodes], steps[:, :-1]])
                discounts[episodes] = steps[:, -1]
            ratios = self._take_block(log_ratios, start, end, episodes)
            ratios = ratios.copy() if is_full else np.where(is_transition, ratios, 0.0)
            ratios[:, 0] += self.log_weights[episodes]
            weights = np.cumsum(ratios, axis=1, out=ratios)
            self.log_weights[episodes] = weights[:, -1]
            yield _Block(start, episodes, block_values, weights, None if is_full else is_transition)

    def _list_blocks(self) -> Iterator[tuple[int, int, np.ndarray | slice]]:
        """Yields the first step and the end of each block, and the episodes that reach it."""
        order = np.argsort(-self._lengths, kind="stable")
        lengths = self._lengths[order]
        num_active, start = int(np.count_nonzero(lengths)), 0
        while num_active:
            end = int(lengths[(num_active - 1) // 2])
            is_every_episode = num_active == self.num_episodes
            yield start, end, slice(None) if is_every_episode else order[:num_active]
            num_active, start = int(np.count_nonzero(lengths > end)), end

    def _take_block(
        self, values: np.ndarray, start: int, end: int, episodes: np.ndarray | slice
    ) -> np.ndarray:
        """Returns the values of a block of transitions; padding is arbitrary."""
        if self._is_regular:
            return values.reshape(self.num_episodes, -1)[episodes, start:end]
        indices = self._starts[episodes, None] + np.arange(start, end)
        return np.take(values, indices, mode="clip")

    def sums(self) -> np.ndarray:
        """Returns the discounted sum of the values of each episode, `[N]`."""
        sums = np.zeros(self.num_episodes)
        for block in self._blocks:
            sums[block.episodes] += block.values.sum(axis=1)
        return sums

    def weighted_sums(self) -> np.ndarray:
        """Returns the discounted sum of the weighted values of each episode, `[N]`."""
        sums = np.zeros(self.num_episodes)
        with np.errstate(invalid="ignore"):  # Infinite weights may give NaN.
            for block in self._blocks:
                sums[block.episodes] += with_weights(block.values, block.log_weights).sum(axis=1)
        return sums

    def averages(self, *, normalize: bool = True) -> StepRatios:
        """Returns the sum over steps of the weighted mean of the values at each step.

        The mean at a step is over the episodes observed there: episodes with a transition, and
        terminated episodes, with their final weight and a value of 0.

        Args:
          normalize: True to divide by the sum of the weights, instead of the number of episodes.
        """
        steps, first, largest, num_without = [], -1, -np.inf, 0
        for block in self._blocks:
            # Later means include terminated episodes, with their final weights.
            has_ended = (self._lengths > first) & (self._lengths <= block.first) & self.is_terminal
            ended, previous, first = np.flatnonzero(has_ended), largest, block.first
            ended_logs = self.log_weights[ended] if normalize else np.zeros(len(ended))
            largest = max(largest, float(ended_logs.max(initial=-np.inf)))
            logs = block.log_weights if normalize else np.zeros_like(block.log_weights)
            if block.is_transition is not None:
                is_observed = block.is_transition | self.is_terminal[block.episodes, None]
                logs = np.where(is_observed, logs, -np.inf)
            scales = np.maximum(logs.max(axis=0), largest)
            num_without += int(np.isneginf(scales).sum())
            scales[np.isneginf(scales)] = 0.0
            reference = 0.0 if np.isneginf(largest) else largest
            denominators = np.exp(logs - scales)
            numerators = (
                denominators * block.values
                if normalize
                else with_weights(block.values, block.log_weights)
            )
            steps.append(
                _StepBlock(
                    block.episodes,
                    numerators,
                    denominators,
                    ended,
                    np.exp(ended_logs - reference),
                    float(np.exp(previous - reference)),
                    np.exp(largest - scales),
                    bool(np.count_nonzero(denominators) < np.count_nonzero(logs > -np.inf)),
                )
            )
        return StepRatios(tuple(steps), num_without)


def with_weights(values: np.ndarray, log_weights: np.ndarray) -> np.ndarray:
    """Returns values times their importance weights, which may overflow a float."""
    with np.errstate(over="ignore", invalid="ignore"):
        weights = np.exp(log_weights)
        products: np.ndarray = weights * values
        if np.isinf(weights.max(initial=0.0)):
            products[values == 0] = 0.0
    return products


class _StepBlock(NamedTuple):
    """A range of steps of `StepRatios`."""

    # The episodes that reach the range, [n]; numerators and denominators are [n, k].
    episodes: np.ndarray | slice
    numerators: np.ndarray
    denominators: np.ndarray
    # The episodes that end here, their final weights, and the factor of earlier final weights.
    ended: np.ndarray
    ended_weights: np.ndarray
    decay: float
    # The factor of final weights in each step, [k].
    carry_factors: np.ndarray
    # True if some weights are 0 in floats because the largest weight is much larger.
    has_underflow: bool


@dataclasses.dataclass(frozen=True, eq=False, repr=False)
class StepRatios(Statistic):
    """A sum over steps of ratios of two sums over episodes.

    It equals a `RatioSum` with a ratio for each step, but its memory grows only with the number of
    transitions. A ratio is 0 if all weights of the step are 0. There is no estimate if the weights
    are 0 from the first step on, or if they underflow.

    Attributes:
      steps: The ranges of steps to sum.
      num_without_weight: The number of steps at which all weights are 0.
    """

    steps: tuple[_StepBlock, ...]
    num_without_weight: int

    @override
    def values(self, counts: np.ndarray) -> np.ndarray:
        sums = np.zeros(len(counts))
        for index, (total, weight, has_underflow) in enumerate(self._compute_sums(counts)):
            has_weight = weight != 0
            if has_underflow:
                sums[~has_weight.all(axis=1)] = np.nan
            elif not index:
                sums[~has_weight[:, 0]] = np.nan
            sums += np.divide(total, weight, out=np.zeros_like(total), where=has_weight).sum(axis=1)
        return sums

    def _compute_sums(self, counts: np.ndarray) -> Iterator[tuple[np.ndarray, np.ndarray, bool]]:
        """Yields numerators and denominators of ranges of steps, `[B, k]`, and the underflow."""
        ended = np.zeros(len(counts))
        width = max(_MAX_BLOCK_PRODUCTS // len(counts), 1)
        for steps in self.steps:
            ended = ended * steps.decay + counts[:, steps.ended] @ steps.ended_weights
            block_counts = counts[:, steps.episodes]
            for begin in range(0, len(steps.carry_factors), width):
                columns = slice(begin, begin + width)
                carry_factors = np.outer(ended, steps.carry_factors[columns])
                total = _multiply(block_counts, steps.numerators[:, columns])
                weight = _multiply(block_counts, steps.denominators[:, columns]) + carry_factors
                yield total, weight, steps.has_underflow


def _multiply(counts: np.ndarray, values: np.ndarray) -> np.ndarray:
    """Returns a matrix product; a single row avoids the overhead of threads."""
    return counts @ values if len(counts) > 1 else np.einsum("bn,nk->bk", counts, values)


def weight_report(
    log_weights: np.ndarray, episode_weights: np.ndarray | None = None, clipped: float = 0.0
) -> WeightReport:
    """Returns the effective sample size of importance weights, and their largest fraction.

    Args:
      log_weights: The logarithms of the weights, `[N]`.
      episode_weights: The weight of each episode, `[N]`; if None, 1.
      clipped: The fraction of the transitions with a clipped ratio.
    """
    if episode_weights is not None:
        with np.errstate(divide="ignore"):
            log_weights = log_weights + np.log(episode_weights)
    largest = log_weights.max()
    if np.isneginf(largest):
        return WeightReport(0.0, 0.0, clipped)
    weights = np.exp(log_weights - largest)
    total = weights.sum()
    return WeightReport(float(total**2 / (weights**2).sum()), float(1 / total), clipped)


def warnings_of(report: WeightReport, num_episodes: int, stacklevel: int = 3) -> list[str]:
    """Returns warnings about importance weights; warns if the effective sample size is below 10.

    Args:
      report: The report on the weights.
      num_episodes: The number of episodes.
      stacklevel: See `warnings.warn`.
    """
    reasons = []
    size = report.effective_sample_size
    if size == 0:
        reasons.append(
            "The target policy never takes some action of each episode, so all weights are 0."
        )
    elif size < _MIN_SAMPLE_SIZE:
        reasons.append(
            f"An effective sample size of {size:.1f}, of {num_episodes} episodes, is too small: "
            "the value means little. More data, a shorter horizon or a fitted Q-function may help."
        )
    if report.clipped:
        reasons.append(
            f"{report.clipped:.1%} of the ratios were clipped: the value belongs to a policy "
            "between the target and the behaviour policy."
        )
    if size < _MIN_SAMPLE_SIZE:
        # A constant text, so that Python shows the warning once for each line of code.
        warnings.warn(
            f"The effective sample size is below {_MIN_SAMPLE_SIZE}, so the estimate means little: "
            "print it for details.",
            EstimateWarning,
            stacklevel=stacklevel,
        )
    return reasons
