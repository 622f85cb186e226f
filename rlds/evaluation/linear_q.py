"""Fitted Q-evaluation with linear features in closed form (LSTD-Q), for off-policy evaluation."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import itertools
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np
from typing_extensions import override

from rlds.evaluation.estimates import Estimate, Statistic
from rlds.evaluation.evaluation_set import EvaluationSet, check_episode_weights
from rlds.evaluation.features import Features
from rlds.evaluation.policies import Policy, with_row_location

__all__ = ["LinearQ", "fitted_q", "q_estimand", "value_bounds"]

# The approximate number of feature values in a block of episodes, 32 MiB.
_BLOCK_VALUES = 1 << 22
# The approximate number of values in the matrices of a block of bootstrap samples, 256 MiB.
_BOOTSTRAP_BLOCK_VALUES = 1 << 25
# With a larger condition number, the solution loses most of its digits.
_MAX_CONDITION_NUMBER = 1e12
_MAX_SHOWN = 5


def fitted_q(
    data: EvaluationSet,
    target: Policy,
    *,
    features: Features,
    gamma: float,
    ridge: float = 1e-9,
    time_limit: int | None = None,
    episode_weights: Any = None,
) -> LinearQ:
    """Fits a linear Q-function of a policy to recorded transitions: LSTD-Q.

    Fitted Q-evaluation with the same features converges to this function. The function needs no
    probabilities of the recorded actions, and the policy may be deterministic. If the features
    cannot express the Q-function, the fit is biased for any amount of data.

    The value after a terminal end is 0; after a truncated end, it is the value of the final
    observation. If that is unknown, the last transition is left out.

    Args:
      data: The recorded data.
      target: The policy.
      features: The features of the Q-function.
      gamma: The discount of each step.
      ridge: A constant added to the diagonal of the matrix, with features scaled to a mean square
        of 1. Coefficients that the data does not determine become 0; with a ridge of 0, they are an
        error.
      time_limit: The steps after which the environment truncates episodes, if it does. The limit
        removes a bias if final observations are unknown: step `time_limit - 1` of these episodes is
        left out even if it is terminal, as its truncated counterparts are left out.
      episode_weights: The weight of each episode, `[N]`; by default all are equal.

    Raises:
      ValueError: The features are not finite or do not determine Q, or an argument is invalid.

    >>> from rlds.evaluation.features import OneHot
    >>> from rlds.evaluation.policies import CategoricalPolicy
    >>> data = EvaluationSet([2], [True], [True], np.array([0, 1, 1]), np.array([0, 0]), [1.0, 4.0])
    >>> target = CategoricalPolicy.from_table([[1.0], [1.0]])
    >>> q = fitted_q(data, target, features=OneHot(2, 1), gamma=0.5, ridge=0)
    >>> q.coefficients.tolist()
    [3.0, 4.0]
    """
    if not (np.isfinite(ridge) and ridge >= 0):
        raise ValueError(f"ridge must be 0 or more, got {ridge}")
    weights = (
        np.ones(data.num_episodes)
        if episode_weights is None
        else check_episode_weights(episode_weights, data.num_episodes)
    )
    is_used = data.has_successor(time_limit)
    if not is_used.any():
        raise ValueError(
            f"no transition can be fitted: the successors of all {len(is_used)} are unknown"
        )
    discounts = data.step_discounts(gamma)
    return _Equations(data, target, features, gamma, discounts, is_used, weights).solve(ridge)


def q_estimand(gamma: float) -> str:
    """Describes the estimand of a Q-function: the return of all steps."""
    return f"the {'discounted ' * (gamma < 1)}return of all steps"


def value_bounds(data: EvaluationSet, gamma: float) -> tuple[float, float]:
    """Returns the smallest and the largest value that the range of recorded rewards allows."""
    if gamma == 1:
        return -np.inf, np.inf
    low, high = (extreme(data.rewards, initial=0.0) / (1 - gamma) for extreme in (np.min, np.max))
    return float(low), float(high)


class _Block(NamedTuple):
    """A block of episodes, with the features of the fitted transitions.

    Attributes:
      episodes: The indices of the episodes.
      splits: The offset of the first transition of each episode, and the end of the last.
      transitions: The indices of the transitions.
      features: The features of each transition.
      next_features: The expected features of the next step; 0 after a terminal end.
      discounts: The discount of the next value; 0 after a terminal end.
      start: The expected features at the start of each episode.
    """

    episodes: slice
    splits: np.ndarray
    transitions: np.ndarray
    features: np.ndarray
    next_features: np.ndarray
    discounts: np.ndarray
    start: np.ndarray

    @property
    def differences(self) -> np.ndarray:
        """The features minus the discounted next features; their weighted sum is the reward."""
        return self.features - self.discounts[:, None] * self.next_features


@dataclasses.dataclass(frozen=True)
class _Equations:
    """The linear equations of a Q-function (LSTD-Q)."""

    data: EvaluationSet
    target: Policy
    features: Features
    gamma: float
    step_discounts: np.ndarray
    is_used: np.ndarray
    episode_weights: np.ndarray

    @functools.cached_property
    def num_used(self) -> np.ndarray:
        """The number of fitted transitions of each episode, `[N]`."""
        return np.bincount(self.data.episodes[self.is_used], minlength=self.data.num_episodes)

    @functools.cached_property
    def num_features(self) -> int:
        return int(self.transition_features(np.flatnonzero(self.is_used)[:1]).shape[1])

    def blocks(self) -> Iterator[_Block]:
        """Yields blocks of consecutive episodes, which cover all episodes."""
        rng = np.random.default_rng(self.features.seed)
        data, used = self.data, np.flatnonzero(self.is_used)
        splits = np.concatenate([[0], np.cumsum(self.num_used)])
        # Each episode, even a short one, needs at least a square matrix of sums.
        sizes = np.maximum(self.num_used, self.num_features) * self.num_features
        for begin, end in _runs(np.cumsum(sizes) // _BLOCK_VALUES):
            transitions = used[splits[begin] : splits[end]]
            has_next = ~data.next_is_terminal[transitions]
            next_features = np.zeros((len(transitions), self.num_features))
            next_features[has_next] = self._average_next(transitions[has_next], rng)
            yield _Block(
                slice(begin, end),
                splits[begin : end + 1] - splits[begin],
                transitions,
                self.transition_features(transitions),
                next_features,
                np.where(has_next, self.step_discounts[transitions], 0),
                self._start_features(begin, end, rng),
            )

    def _average_next(self, transitions: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        rows = self.data.rows[transitions] + 1
        return self._average(rows, rng, lambda row: f"after {self.data.locate(transitions[row])}")

    def _start_features(self, begin: int, end: int, rng: np.random.Generator) -> np.ndarray:
        rows = self.data.first_rows[begin:end]
        return self._average(rows, rng, lambda row: f"at the start of episode {begin + row}")

    def _average(
        self, rows: np.ndarray, rng: np.random.Generator, locate: Callable[[int], str]
    ) -> np.ndarray:
        observations = self.data.observations_at(rows)
        return _check_features(
            lambda: self.features.expected(observations, self.target, rng), locate
        )

    def transition_features(self, transitions: np.ndarray) -> np.ndarray:
        """Returns the features of transitions, `[n, d]`."""
        observations = self.data.observations_at(self.data.rows[transitions])
        actions = self.data.actions_at(transitions)
        return _check_features(
            lambda: self.features(observations, actions),
            lambda row: self.data.locate(transitions[row]),
        )

    def solve(self, ridge: float) -> LinearQ:
        """Solves the equations for all episodes."""
        d = self.num_features
        matrix, rhs, start, squares = np.zeros((d, d)), np.zeros(d), np.zeros(d), np.zeros(d)
        bounds = np.array([[np.inf], [-np.inf]]).repeat(d, axis=1)
        policy_bounds = bounds.copy()
        for block in self.blocks():
            weights = self.episode_weights[self.data.episodes[block.transitions], None]
            weighted = weights * block.features
            matrix += weighted.T @ block.differences
            rhs += weighted.T @ self.data.rewards[block.transitions]
            squares += (weighted * block.features).sum(axis=0)
            start += self.episode_weights[block.episodes] @ block.start
            _widen(bounds, block.features)
            _widen(policy_bounds, block.start)
            _widen(policy_bounds, block.next_features[block.discounts > 0])
        total = self.episode_weights @ self.num_used
        if not total:
            raise ValueError("episode_weights are 0 for all episodes that have transitions")
        scales = np.sqrt(squares / total)
        scales[scales == 0] = 1
        equations = matrix / np.outer(scales, scales) / total + ridge * np.eye(d)
        condition = float(np.linalg.cond(equations))
        warnings = []
        if not condition < _MAX_CONDITION_NUMBER:
            # The null space is the features that the data does not determine.
            left, sizes, _ = np.linalg.svd(equations)
            null_space = left[:, sizes <= sizes[0] / _MAX_CONDITION_NUMBER]
            message = (
                f"the data does not determine the Q-function (condition number {condition:.1e}): "
                "these features are 0 or constant in all transitions, or follow from the rest: "
                f"{self._list_names(np.abs(null_space).max(axis=1) > 0.01)}"
            )
            if not ridge:
                raise ValueError(f"{message}. Leave them out, or pass a ridge, such as 1e-9.")
            warnings.append(f"{message[0].upper()}{message[1:]}.")
        low, high = bounds
        margin = 1e-9 * (1 + np.abs(low))
        is_extrapolated = (policy_bounds[0] < low - margin) | (policy_bounds[1] > high + margin)
        is_extrapolated &= low == high
        if is_extrapolated.any():
            warnings.append(
                "The policy leaves the data: these features have one value in all transitions, and "
                f"other values under the policy: {self._list_names(is_extrapolated)}."
            )
        coefficients = np.linalg.solve(equations, rhs / scales / total) / scales
        start /= self.episode_weights.sum()
        warnings += self._warn_of_impossible_value(float(start @ coefficients))
        return LinearQ(
            coefficients, condition, tuple(warnings), self, scales, ridge, equations, start
        )

    def _warn_of_impossible_value(self, value: float) -> list[str]:
        """Returns a warning if the value is outside the bounds from the recorded rewards."""
        low, high = value_bounds(self.data, self.gamma)
        if self.gamma == 1 or low <= value <= high:
            return []
        worst, best = (extreme(self.data.rewards, initial=0.0) for extreme in (np.min, np.max))
        return [
            f"The estimate, {value:.6g}, is impossible: the recorded rewards, {worst:.6g} to "
            f"{best:.6g}, allow {low:.6g} to {high:.6g}. Use other features or more data."
        ]

    def refits(
        self, counts: np.ndarray, scales: np.ndarray, ridge: float
    ) -> tuple[np.ndarray, np.ndarray]:
        """Returns the coefficients and mean start features of B bootstrap samples, `[B, d]`."""
        d, num_samples = self.num_features, len(counts)
        matrices, rhs = np.zeros((num_samples, d * d)), np.zeros((num_samples, d))
        starts = np.zeros((num_samples, d))
        for block in self.blocks():
            features, differences = block.features / scales, block.differences / scales
            rewards = self.data.rewards[block.transitions]
            block_counts = counts[:, block.episodes]
            length = block_counts.shape[1]
            products, sums = np.empty((length, d, d)), np.empty((length, d))
            for episode, (begin, end) in enumerate(itertools.pairwise(block.splits)):
                np.matmul(features[begin:end].T, differences[begin:end], out=products[episode])
                np.matmul(rewards[begin:end], features[begin:end], out=sums[episode])
            matrices += block_counts @ products.reshape(length, d * d)
            rhs += block_counts @ sums
            starts += block_counts @ block.start
        with np.errstate(invalid="ignore", divide="ignore"):
            totals = (counts @ self.num_used)[:, None]
            matrices, rhs = matrices / totals, rhs / totals
            starts /= counts.sum(axis=1)[:, None]
        equations = matrices.reshape(num_samples, d, d) + ridge * np.eye(d)
        coefficients = np.full((num_samples, d), np.nan)
        for sample in np.flatnonzero(np.isfinite(equations).all(axis=(1, 2))):
            with contextlib.suppress(np.linalg.LinAlgError):
                coefficients[sample] = np.linalg.solve(equations[sample], rhs[sample]) / scales
        return coefficients, starts

    def _list_names(self, is_named: np.ndarray) -> str:
        """Returns the names of features, for messages."""
        columns, rows = np.flatnonzero(is_named), np.arange(1)
        observations, actions = self.data.observations_at(rows), self.data.actions_at(rows)
        names = [self.features.name(int(i), observations, actions) for i in columns[:_MAX_SHOWN]]
        num_more = len(columns) - len(names)
        return ", ".join(names) + (f" and {num_more} more" if num_more else "")


def _runs(keys: np.ndarray) -> Iterator[tuple[int, int]]:
    """Yields the start and the end of each run of equal keys."""
    cuts = np.flatnonzero(np.diff(keys)) + 1
    yield from zip([0, *cuts.tolist()], [*cuts.tolist(), len(keys)], strict=True)


def _widen(bounds: np.ndarray, rows: np.ndarray) -> None:
    """Extends the lower and upper bounds of columns to further rows."""
    if len(rows):
        bounds[0] = np.minimum(bounds[0], rows.min(axis=0))
        bounds[1] = np.maximum(bounds[1], rows.max(axis=0))


def _check_features(compute: Callable[[], np.ndarray], locate: Callable[[int], str]) -> np.ndarray:
    """Computes features, and checks that they are finite."""
    with with_row_location(locate):
        features = compute()
    invalid = np.flatnonzero(~np.isfinite(features).all(axis=1))
    if len(invalid):
        row = int(invalid[0])
        raise ValueError(f"{locate(row)}: the features are not finite, {features[row]}")
    return features


@dataclasses.dataclass(frozen=True)
class _RefitStatistic(Statistic):
    """The statistic of a Q-function that is fitted again to resampled episodes."""

    q: LinearQ

    @override
    def values(self, counts: np.ndarray) -> np.ndarray:
        coefficients, starts = self.q.refits(counts)
        return (coefficients * starts).sum(axis=1)


@dataclasses.dataclass(frozen=True, repr=False)
class LinearQ:
    """A Q-function that is a weighted sum of features; see `fitted_q`.

    Attributes:
      coefficients: The weight of each feature, `[d]`.
      condition_number: The condition number of the equations, with features scaled to a mean square
        of 1. Values above 1e12 cause a warning.
      warnings: Reasons to doubt the fit, in sentences.
    """

    coefficients: np.ndarray
    condition_number: float
    warnings: tuple[str, ...]
    _equations: _Equations
    _scales: np.ndarray
    _ridge: float
    _matrix: np.ndarray
    _mean_start: np.ndarray

    def __repr__(self) -> str:
        num_used = self._equations.is_used.sum()
        return f"LinearQ({len(self.coefficients)} features, fitted to {num_used} transitions)"

    @property
    def data(self) -> EvaluationSet:
        """The data of the fit."""
        return self._equations.data

    @property
    def episode_weights(self) -> np.ndarray:
        """The weight of each episode in the fit, `[N]`."""
        return self._equations.episode_weights

    @property
    def gamma(self) -> float:
        """The discount of each step."""
        return self._equations.gamma

    @property
    def is_used(self) -> np.ndarray:
        """A mask of the transitions in the fit, `[M]`."""
        return self._equations.is_used

    def q(self, observations: Any, actions: Any) -> np.ndarray:
        """See `QFunction`."""
        return self.features(observations, actions) @ self.coefficients

    def v(self, observations: Any) -> np.ndarray:
        """See `QFunction`."""
        return self.expected_features(observations) @ self.coefficients

    def features(self, observations: Any, actions: Any) -> np.ndarray:
        """Returns the features that the coefficients weight in `q`, `[n, d]`."""
        return self._equations.features(observations, actions)

    def expected_features(self, observations: Any) -> np.ndarray:
        """Returns the features that the coefficients weight in `v`, `[n, d]`."""
        return self._equations.features.expected(observations, self._equations.target)

    def refits(self, counts: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Fits again to B samples of the episodes.

        Args:
          counts: The count of each episode in each sample, or its weight, `[B, N]`.

        Returns:
          The coefficients, NaN if a sample does not determine them; and the mean of the expected
          features at the starts of the episodes; both `[B, d]`.
        """
        size = max(1, _BOOTSTRAP_BLOCK_VALUES // len(self.coefficients) ** 2)
        refits = [
            self._equations.refits(counts[i : i + size], self._scales, self._ridge)
            for i in range(0, len(counts), size)
        ]
        coefficients, starts = zip(*refits, strict=True)
        return np.concatenate(coefficients), np.concatenate(starts)

    def estimate(self) -> Estimate:
        """Returns an estimate of the value of the policy at the recorded starts.

        Its intervals refit the function to resampled episodes.
        """
        problem = self._equations
        return Estimate(
            value=float(self._mean_start @ self.coefficients),
            estimator="fitted Q-function",
            estimand=q_estimand(problem.gamma),
            gamma=problem.gamma,
            horizon=None,
            statistic=_RefitStatistic(self),
            end_counts=problem.data.count_ends(left_out=int((~problem.is_used).sum())),
            warnings=self.warnings,
            episode_weights=problem.episode_weights,
        )

    def occupancy_ratios(self) -> np.ndarray:
        """Returns the occupancy ratio of each transition: frequency under the policy over data.

        The discounted frequency of an observation and action under the policy is divided by their
        frequency in the transitions of the fit, within the resolution of the features. The mean of
        `ratios * rewards` over these transitions is the estimate, times 1 - gamma.

        The mean of the ratios is below 1 if episodes end in terminal states, so do not normalize
        it. Clearly negative ratios show that the features distinguish too little.

        Returns:
          float64, `[M]`.

        Raises:
          ValueError: Gamma is 1, so discounted frequencies are undefined.
        """
        gamma, data = self._equations.gamma, self._equations.data
        if gamma == 1:
            raise ValueError("with a gamma of 1 there are no frequencies of discounted steps")
        start = (1 - gamma) * self._mean_start / self._scales
        dual = np.linalg.solve(self._matrix.T, start) / self._scales
        return self._equations.transition_features(np.arange(len(data.rewards))) @ dual
