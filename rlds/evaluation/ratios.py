"""Importance ratios: probabilities of recorded actions under another policy, and episode weights.

All of it is in logarithms: a product of a thousand ratios is no number that a float can hold.
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
from rlds.evaluation.policies import Policy, rows_located

__all__ = [
    "EstimateWarning",
    "StepRatios",
    "StepWeights",
    "log_ratios",
    "warnings_of",
    "weight_report",
    "with_weights",
]

# The number of transitions that a policy takes at once.
_BLOCK_TRANSITIONS = 1 << 16
# The largest product of counts and weights, in numbers.
_BLOCK_PRODUCTS = 1 << 22
# With fewer episodes than that, an estimate means little.
_FEW_EPISODES = 10


class EstimateWarning(UserWarning):
    """An estimate means little; its `warnings` have the reasons."""


def log_ratios(
    data: EvaluationSet,
    target: Policy | np.ndarray,
    behaviour: Policy | None = None,
    clip_log_ratio: tuple[float, float] | None = None,
) -> tuple[np.ndarray, float]:
    """Returns how much more probable each recorded action is under another policy.

    Args:
      data: The recorded data.
      target: The other policy, or the logarithms of the probabilities that the recorded actions
        have under it, `[M]`.
      behaviour: The policy that acted; if None, `data.log_probs` count.
      clip_log_ratio: The smallest and the largest logarithm that counts; others count as these.

    Returns:
      The logarithms of the ratios, float64, `[M]`; -inf where the target never does what was done.
      And the share of them that were clipped.

    Raises:
      TypeError: A policy has no probabilities.
      ValueError: A probability is missing, or is none; has the location and the remedy.
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
        with rows_located(data.place, begin):
            logs[block] = _ratios_of(data, target, behaviour, block)
    is_wrong = np.isnan(logs) | (logs == np.inf)
    if is_wrong.any():
        _explain(data, target, behaviour, int(np.argmax(is_wrong)))
    if clip_log_ratio is None:
        return logs, 0.0
    lowest, highest = clip_log_ratio
    if not lowest <= highest:
        raise ValueError(f"clip_log_ratio must be a lower and an upper bound, got {clip_log_ratio}")
    clipped = np.clip(logs, lowest, highest)
    return clipped, float(np.mean(clipped != logs)) if len(logs) else 0.0


def _ratios_of(
    data: EvaluationSet, target: Policy | np.ndarray, behaviour: Policy | None, block: slice
) -> np.ndarray:
    """The logarithms of the ratios of some transitions."""
    if isinstance(target, Policy) and behaviour is not None:
        observations, actions = data.observations_at(data.rows[block]), data.actions_at(block)
        return _numbers(
            target.log_ratio(behaviour, observations, actions), "log_ratio", block, data
        )
    with np.errstate(invalid="ignore"):  # Of two infinities; `_explain` raises the error.
        logs: np.ndarray = _log_probs(data, target, block) - _log_probs(data, behaviour, block)
    return logs


def _log_probs(data: EvaluationSet, policy: Any, block: slice) -> np.ndarray:
    """The logarithms of the probabilities of some recorded actions; for None, those recorded."""
    if policy is None:
        assert data.log_probs is not None
        return data.log_probs[block]
    if isinstance(policy, Policy):
        observations, actions = data.observations_at(data.rows[block]), data.actions_at(block)
        return _numbers(policy.log_prob(observations, actions), "log_prob", block, data)
    logs = np.asarray(policy)
    if logs.shape != data.rewards.shape or logs.dtype.kind not in "iuf":
        raise ValueError(
            "target must be a policy, or the logarithms of the probabilities of the recorded "
            f"actions, of shape {data.rewards.shape}; got {logs.dtype} of shape {logs.shape}"
        )
    return logs[block].astype(np.float64)


def _numbers(values: Any, method: str, block: slice, data: EvaluationSet) -> np.ndarray:
    numbers = np.asarray(values, np.float64)
    expected = (len(data.rewards[block]),)
    if numbers.shape != expected:
        raise ValueError(
            f"{method} of a policy must have one number for each action, of shape {expected}, got "
            f"{numbers.shape}. Are the actions those of the policy?"
        )
    return numbers


def _explain(
    data: EvaluationSet, target: Policy | np.ndarray, behaviour: Policy | None, wrong: int
) -> None:
    """Raises the error of a ratio that is none."""
    row = slice(wrong, wrong + 1)
    target_log, behaviour_log = (
        _log_probs(data, target, row)[0],
        _log_probs(data, behaviour, row)[0],
    )
    where = f"{data.place(wrong)}:"
    if np.isneginf(behaviour_log):
        raise ValueError(
            f"{where} the behaviour policy never takes the recorded action (its probability is 0), "
            "so it is not the policy that acted. Pass that policy, or leave out the episode "
            "(data.select)"
        )
    if not np.isfinite(behaviour_log):
        raise ValueError(f"{where} log_prob of the behaviour policy is {behaviour_log}")
    raise ValueError(
        f"{where} log_prob of the target policy is {target_log}, expected a number or -inf"
    )


class _Block(NamedTuple):
    """Some steps of all episodes that have not ended before them."""

    first: int
    # The numbers of the episodes, [n].
    episodes: np.ndarray | slice
    # [n, k], discounted; 0 after the end.
    values: np.ndarray
    # [n, k]; after the end of an episode the weight of its last transition.
    log_weights: np.ndarray
    # A mask of the existing transitions, [n, k]; None if all exist.
    is_there: np.ndarray | None


class StepWeights:
    """Numbers of transitions, with the weights of their episodes up to there.

    Episodes may differ much in length: they are put together by blocks of steps that are at least
    half full.

    Args:
      data: The episodes.
      log_ratios: See `log_ratios`, `[M]`.
      values: A number for each transition, `[M]`, such as the reward.
      gamma: The discount of each step.
      num_transitions: The number of transitions of each episode that count, from its first one on,
        `[N]`; all by default.
      episodes: The numbers of the episodes that count; all by default.

    Attributes:
      num_episodes: N, how many episodes count.
      is_terminal: Whether each of them ended in a terminal state; with fewer transitions than it
        has, that is as if it had been cut.
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
        chosen = slice(None) if episodes is None else episodes
        full_lengths = data.num_transitions[chosen]
        self._lengths = full_lengths if num_transitions is None else num_transitions[chosen]
        self._starts = data.splits[:-1][chosen]
        # Whether transition t of episode i is number i * T + t.
        self._is_grid = episodes is None and bool((full_lengths == full_lengths[0]).all())
        self.num_episodes = len(full_lengths)
        self.is_terminal = data.is_terminal[chosen] & (self._lengths == full_lengths)
        self.log_weights = np.zeros(self.num_episodes)
        self._blocks = list(self._make_blocks(data, log_ratios, values, gamma))

    def _make_blocks(
        self, data: EvaluationSet, log_ratios: np.ndarray, values: np.ndarray, gamma: float
    ) -> Iterator[_Block]:
        factors = data.step_discounts(gamma) if data.discounts is not None else None
        discounts = np.ones(self.num_episodes)
        for first, last, episodes in self._bounds():
            is_there = np.arange(first, last) < self._lengths[episodes, None]
            is_full = bool(is_there.all())
            grid = self._taken(values, first, last, episodes)
            grid = grid if is_full else np.where(is_there, grid, 0.0)
            if factors is None:
                grid = grid * gamma ** np.arange(first, last)
            else:
                steps = self._taken(factors, first, last, episodes).copy()
                steps[:, 0] *= discounts[episodes]
                np.cumprod(steps, axis=1, out=steps)
                grid = grid * np.column_stack([discounts[episodes], steps[:, :-1]])
                discounts[episodes] = steps[:, -1]
            ratios = self._taken(log_ratios, first, last, episodes)
            ratios = ratios.copy() if is_full else np.where(is_there, ratios, 0.0)
            ratios[:, 0] += self.log_weights[episodes]
            weights = np.cumsum(ratios, axis=1, out=ratios)
            self.log_weights[episodes] = weights[:, -1]
            yield _Block(first, episodes, grid, weights, None if is_full else is_there)

    def _bounds(self) -> Iterator[tuple[int, int, np.ndarray | slice]]:
        """The first step and the end of each block, and the episodes that reach it."""
        order = np.argsort(-self._lengths, kind="stable")
        lengths = self._lengths[order]
        reaching, first = int(np.count_nonzero(lengths)), 0
        while reaching:
            last = int(lengths[(reaching - 1) // 2])
            are_all = reaching == self.num_episodes
            yield first, last, slice(None) if are_all else order[:reaching]
            reaching, first = int(np.count_nonzero(lengths > last)), last

    def _taken(
        self, flat: np.ndarray, first: int, last: int, episodes: np.ndarray | slice
    ) -> np.ndarray:
        """The steps of a block, of numbers for all transitions; anything after the end."""
        if self._is_grid:
            return flat.reshape(self.num_episodes, -1)[episodes, first:last]
        indices = self._starts[episodes, None] + np.arange(first, last)
        return np.take(flat, indices, mode="clip")

    def sums(self) -> np.ndarray:
        """Returns the discounted sum over each episode of its values, `[N]`."""
        sums = np.zeros(self.num_episodes)
        for block in self._blocks:
            sums[block.episodes] += block.values.sum(axis=1)
        return sums

    def weighted_sums(self) -> np.ndarray:
        """Returns the same of the values with their weights."""
        sums = np.zeros(self.num_episodes)
        with np.errstate(invalid="ignore"):  # Weights may overflow.
            for block in self._blocks:
                sums[block.episodes] += with_weights(block.values, block.log_weights).sum(axis=1)
        return sums

    def averages(self, *, normalize: bool = True) -> StepRatios:
        """Returns the sum over the steps of the average value with its weight.

        The average at a step is over the episodes that are observed there: those that have a
        transition, and those that have reached a terminal state, whose weight stays, and whose
        value is 0.

        Args:
          normalize: Whether to divide by the sum of the weights, rather than by the number.
        """
        steps, first, largest, num_without = [], -1, -np.inf, 0
        for block in self._blocks:
            # Terminated episodes count in later averages, with the weights that they ended with.
            is_over = (self._lengths > first) & (self._lengths <= block.first) & self.is_terminal
            ended, before, first = np.flatnonzero(is_over), largest, block.first
            ended_logs = self.log_weights[ended] if normalize else np.zeros(len(ended))
            largest = max(largest, float(ended_logs.max(initial=-np.inf)))
            logs = block.log_weights if normalize else np.zeros_like(block.log_weights)
            if block.is_there is not None:
                is_observed = block.is_there | self.is_terminal[block.episodes, None]
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
                _Steps(
                    block.episodes,
                    numerators,
                    denominators,
                    ended,
                    np.exp(ended_logs - reference),
                    float(np.exp(before - reference)),
                    np.exp(largest - scales),
                    bool(np.count_nonzero(denominators) < np.count_nonzero(logs > -np.inf)),
                )
            )
        return StepRatios(tuple(steps), num_without)


def with_weights(values: np.ndarray, log_weights: np.ndarray) -> np.ndarray:
    """Returns values times their weights, which may be too large for a float."""
    with np.errstate(over="ignore", invalid="ignore"):
        weights = np.exp(log_weights)
        products: np.ndarray = weights * values
        if np.isinf(weights.max(initial=0.0)):
            products[values == 0] = 0.0
    return products


class _Steps(NamedTuple):
    """Some steps of `StepRatios`."""

    # The episodes that have not ended before, [n]; numerators and denominators are [n, k].
    episodes: np.ndarray | slice
    numerators: np.ndarray
    denominators: np.ndarray
    # The episodes that end here, their final weights, and the factor for weights ended before.
    ended: np.ndarray
    ended_weights: np.ndarray
    decay: float
    # The factor of weights that stay, in each of the steps, [k].
    carried: np.ndarray
    # Whether there are weights that are too small beside the largest one for a float.
    has_lost: bool


@dataclasses.dataclass(frozen=True, eq=False, repr=False)
class StepRatios(Statistic):
    """A sum over steps of ratios, each of a sum over the episodes and another one.

    The same as a `RatioSum` with a ratio for each step, in memory that grows with the number of
    transitions only. A ratio counts as 0 where no episode has any weight; if that is so from the
    first step on, or because what weights there are got lost in rounding, there is no estimate.

    Attributes:
      steps: The steps to sum.
      num_without_weight: At how many steps no episode has any weight.
    """

    steps: tuple[_Steps, ...]
    num_without_weight: int

    @override
    def values(self, counts: np.ndarray) -> np.ndarray:
        sums = np.zeros(len(counts))
        for index, (above, below, has_lost) in enumerate(self._sums(counts)):
            has_weight = below != 0
            if has_lost:
                sums[~has_weight.all(axis=1)] = np.nan
            elif not index:
                sums[~has_weight[:, 0]] = np.nan
            sums += np.divide(above, below, out=np.zeros_like(above), where=has_weight).sum(axis=1)
        return sums

    def _sums(self, counts: np.ndarray) -> Iterator[tuple[np.ndarray, np.ndarray, bool]]:
        """Yields numerators and denominators of blocks of steps, `[B, k]`; and if any has lost."""
        ended = np.zeros(len(counts))
        width = max(_BLOCK_PRODUCTS // len(counts), 1)
        for steps in self.steps:
            ended = ended * steps.decay + counts[:, steps.ended] @ steps.ended_weights
            of_block = counts[:, steps.episodes]
            for begin in range(0, len(steps.carried), width):
                columns = slice(begin, begin + width)
                carried = np.outer(ended, steps.carried[columns])
                below = _product(of_block, steps.denominators[:, columns]) + carried
                yield _product(of_block, steps.numerators[:, columns]), below, steps.has_lost


def _product(counts: np.ndarray, numbers: np.ndarray) -> np.ndarray:
    """The product of matrices. One row is not worth the threads that would share the work."""
    return counts @ numbers if len(counts) > 1 else np.einsum("bn,nk->bk", counts, numbers)


def weight_report(
    log_weights: np.ndarray, episode_weights: np.ndarray | None = None, clipped: float = 0.0
) -> WeightReport:
    """Returns how unequal weights are.

    Args:
      log_weights: Their logarithms, `[N]`.
      episode_weights: The weight of each episode, `[N]`; if None, 1.
      clipped: The share of the transitions whose ratio was clipped.
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
    """Returns reasons for doubt from weights; warns if the effective sample size is below 10.

    Args:
      report: The inequality of the weights.
      num_episodes: The number of episodes.
      stacklevel: Whom the warning is for; see `warnings.warn`.
    """
    reasons = []
    size = report.effective_sample_size
    if size == 0:
        reasons.append(
            "The target policy never takes some action of each episode, so all weights are 0."
        )
    elif size < _FEW_EPISODES:
        reasons.append(
            f"An effective sample size of {size:.1f}, of {num_episodes} episodes, is too small: "
            "the value means little. More data, a shorter horizon or a fitted Q-function may help."
        )
    if report.clipped:
        reasons.append(
            f"{report.clipped:.1%} of the ratios were clipped: the value belongs to a policy "
            "between the target and the one that acted."
        )
    if size < _FEW_EPISODES:
        # A constant text, so that Python shows the warning once for each line of code.
        warnings.warn(
            f"The effective sample size is below {_FEW_EPISODES}, so the estimate means little: "
            "print it for details.",
            EstimateWarning,
            stacklevel=stacklevel,
        )
    return reasons
