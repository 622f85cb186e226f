"""A linear Q-function of a policy, in closed form."""

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
from rlds.evaluation.policies import Policy, rows_located

__all__ = ["LinearQ", "fitted_q", "possible_values", "return_of_all_steps"]

# The approximate number of feature values in a block of episodes: 32 MiB.
_BLOCK = 1 << 22
# The approximate number of values in the matrices of a block of samples: 256 MiB.
_SAMPLES_BLOCK = 1 << 25
# If the matrix multiplies errors more than this, digits of the solution are lost.
_LARGEST_CONDITION = 1e12
_MOST_NAMES = 5


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

    The function is the one that fitted Q-evaluation converges to with these features. It needs no
    probabilities of the recorded actions, and the policy may be deterministic. Where the features
    cannot express the Q-function, it is wrong however much data there is.

    After a terminal end the value is 0, after a truncated one it is that of the final observation.
    Where the final observation of a truncated episode is not known, the last transition is left
    out.

    Args:
      data: The recorded data.
      target: The policy.
      features: The features of the Q-function.
      gamma: The discount of each step.
      ridge: A constant added to the diagonal of the matrix, with features scaled to a mean square
        of 1. It makes a weight 0 where the data says nothing of it. With 0, that is an error.
      time_limit: After how many steps the environment cut the episodes, if it did. Only with it
        are ends of such episodes without a bias, where final observations are not known: step
        `time_limit - 1` of these episodes is left out also if it was terminal, for otherwise
        just the terminal ones of these steps are left.
      episode_weights: The weight of each episode, `[N]`; by default all are equal.

    Raises:
      ValueError: The features are not finite or do not determine Q, or an argument does not fit.

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
    is_used = data.is_followed(time_limit)
    if not is_used.any():
        raise ValueError(
            f"no transition can be fitted: the successors of all {len(is_used)} are unknown"
        )
    discounts = data.step_discounts(gamma)
    return _Problem(data, target, features, gamma, discounts, is_used, weights).solve(ridge)


def return_of_all_steps(gamma: float) -> str:
    """Describes the estimand of a Q-function."""
    return f"the {'discounted ' * (gamma < 1)}return of all steps"


def possible_values(data: EvaluationSet, gamma: float) -> tuple[float, float]:
    """Returns the smallest and the largest value that rewards like the recorded ones allow."""
    if gamma == 1:
        return -np.inf, np.inf
    low, high = (extreme(data.rewards, initial=0.0) / (1 - gamma) for extreme in (np.min, np.max))
    return float(low), float(high)


class _Block(NamedTuple):
    """Some episodes: the features of their transitions that count.

    Attributes:
      episodes: The numbers of the episodes.
      splits: The offset of the first transition of each, and the end of the last.
      transitions: The numbers of the transitions.
      features: Of each transition.
      after: The features that are expected after it; 0 after a terminal end.
      discounts: The discount of the value after each; 0 after a terminal end.
      start: The features that are expected at the start of each episode.
    """

    episodes: slice
    splits: np.ndarray
    transitions: np.ndarray
    features: np.ndarray
    after: np.ndarray
    discounts: np.ndarray
    start: np.ndarray

    @property
    def differences(self) -> np.ndarray:
        """The features, less the discounted next ones: their weighted sum is the reward."""
        return self.features - self.discounts[:, None] * self.after


@dataclasses.dataclass(frozen=True)
class _Problem:
    """The linear equations of a Q-function."""

    data: EvaluationSet
    target: Policy
    features: Features
    gamma: float
    step_discounts: np.ndarray
    is_used: np.ndarray
    episode_weights: np.ndarray

    @functools.cached_property
    def num_used(self) -> np.ndarray:
        """The number of transitions of each episode that count, `[N]`."""
        return np.bincount(self.data.episodes[self.is_used], minlength=self.data.num_episodes)

    @functools.cached_property
    def num_features(self) -> int:
        return int(self.of_transitions(np.flatnonzero(self.is_used)[:1]).shape[1])

    def blocks(self) -> Iterator[_Block]:
        """Blocks of consecutive episodes, which together are all episodes."""
        rng = np.random.default_rng(self.features.seed)
        data, used = self.data, np.flatnonzero(self.is_used)
        splits = np.concatenate([[0], np.cumsum(self.num_used)])
        # The sums of each episode are a matrix, also of a short episode.
        sizes = np.maximum(self.num_used, self.num_features) * self.num_features
        for first, end in _runs(np.cumsum(sizes) // _BLOCK):
            transitions = used[splits[first] : splits[end]]
            follows = ~data.next_is_terminal[transitions]
            after = np.zeros((len(transitions), self.num_features))
            after[follows] = self._after(transitions[follows], rng)
            yield _Block(
                slice(first, end),
                splits[first : end + 1] - splits[first],
                transitions,
                self.of_transitions(transitions),
                after,
                np.where(follows, self.step_discounts[transitions], 0),
                self._at_start(first, end, rng),
            )

    def _after(self, transitions: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        rows = self.data.rows[transitions] + 1
        return self._expected(rows, rng, lambda row: f"after {self.data.place(transitions[row])}")

    def _at_start(self, first: int, end: int, rng: np.random.Generator) -> np.ndarray:
        rows = self.data.first_rows[first:end]
        return self._expected(rows, rng, lambda row: f"at the start of episode {first + row}")

    def _expected(
        self, rows: np.ndarray, rng: np.random.Generator, locate: Callable[[int], str]
    ) -> np.ndarray:
        observations = self.data.observations_at(rows)
        return _finite(lambda: self.features.expected(observations, self.target, rng), locate)

    def of_transitions(self, transitions: np.ndarray) -> np.ndarray:
        """The features of the given transitions."""
        observations = self.data.observations_at(self.data.rows[transitions])
        actions = self.data.actions_at(transitions)
        return _finite(
            lambda: self.features(observations, actions),
            lambda row: self.data.place(transitions[row]),
        )

    def solve(self, ridge: float) -> LinearQ:
        """Solves the equations for all episodes."""
        d = self.num_features
        matrix, right, start, squares = np.zeros((d, d)), np.zeros(d), np.zeros(d), np.zeros(d)
        seen, reached = np.array([[np.inf], [-np.inf]] * 2).repeat(d, axis=1).reshape(2, 2, d)
        for block in self.blocks():
            weights = self.episode_weights[self.data.episodes[block.transitions], None]
            weighted = weights * block.features
            matrix += weighted.T @ block.differences
            right += weighted.T @ self.data.rewards[block.transitions]
            squares += (weighted * block.features).sum(axis=0)
            start += self.episode_weights[block.episodes] @ block.start
            _widen(seen, block.features)
            _widen(reached, block.start)
            _widen(reached, block.after[block.discounts > 0])
        total = self.episode_weights @ self.num_used
        if not total:
            raise ValueError("episode_weights are 0 for all episodes that have transitions")
        scales = np.sqrt(squares / total)
        scales[scales == 0] = 1
        equations = matrix / np.outer(scales, scales) / total + ridge * np.eye(d)
        condition = float(np.linalg.cond(equations))
        warnings = []
        if not condition < _LARGEST_CONDITION:
            # The null space has the features that the data does not determine.
            left, sizes, _ = np.linalg.svd(equations)
            empty = left[:, sizes <= sizes[0] / _LARGEST_CONDITION]
            message = (
                f"the data does not determine the Q-function (condition number {condition:.1e}): "
                "these features are 0 or constant in all transitions, or follow from others: "
                f"{self._names(np.abs(empty).max(axis=1) > 0.01)}"
            )
            if not ridge:
                raise ValueError(f"{message}. Leave them out, or pass a ridge, such as 1e-9.")
            warnings.append(f"{message[0].upper()}{message[1:]}.")
        margin = 1e-9 * (1 + np.abs(seen[0]))
        is_guess = (reached[0] < seen[0] - margin) | (reached[1] > seen[1] + margin)
        is_guess &= seen[0] == seen[1]
        if is_guess.any():
            warnings.append(
                "The policy leaves the data: these features have one value in all transitions, and "
                f"other values under the policy: {self._names(is_guess)}."
            )
        coefficients = np.linalg.solve(equations, right / scales / total) / scales
        start /= self.episode_weights.sum()
        warnings += self._out_of_reach(float(start @ coefficients))
        return LinearQ(
            coefficients, condition, tuple(warnings), self, scales, ridge, equations, start
        )

    def _out_of_reach(self, value: float) -> list[str]:
        """A warning, if no sum of rewards like the recorded ones is as large, or as small."""
        low, high = possible_values(self.data, self.gamma)
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
        """The coefficients by each of B samples of the episodes, and the mean start, `[B, d]`."""
        d, num_samples = self.num_features, len(counts)
        matrices, rights = np.zeros((num_samples, d * d)), np.zeros((num_samples, d))
        starts = np.zeros((num_samples, d))
        for block in self.blocks():
            features, differences = block.features / scales, block.differences / scales
            rewards = self.data.rewards[block.transitions]
            chosen = counts[:, block.episodes]
            products, sums = np.empty((chosen.shape[1], d, d)), np.empty((chosen.shape[1], d))
            for episode, (first, end) in enumerate(itertools.pairwise(block.splits)):
                np.matmul(features[first:end].T, differences[first:end], out=products[episode])
                np.matmul(rewards[first:end], features[first:end], out=sums[episode])
            matrices += chosen @ products.reshape(len(products), d * d)
            rights += chosen @ sums
            starts += chosen @ block.start
        with np.errstate(invalid="ignore", divide="ignore"):
            totals = (counts @ self.num_used)[:, None]
            matrices, rights = matrices / totals, rights / totals
            starts /= counts.sum(axis=1)[:, None]
        equations = matrices.reshape(num_samples, d, d) + ridge * np.eye(d)
        coefficients = np.full((num_samples, d), np.nan)
        for sample in np.flatnonzero(np.isfinite(equations).all(axis=(1, 2))):
            with contextlib.suppress(np.linalg.LinAlgError):
                coefficients[sample] = np.linalg.solve(equations[sample], rights[sample]) / scales
        return coefficients, starts

    def _names(self, is_named: np.ndarray) -> str:
        """Returns the names of features, for messages."""
        columns, first = np.flatnonzero(is_named), np.arange(1)
        observations, actions = self.data.observations_at(first), self.data.actions_at(first)
        names = [self.features.name(int(i), observations, actions) for i in columns[:_MOST_NAMES]]
        num_more = len(columns) - len(names)
        return ", ".join(names) + (f" and {num_more} more" if num_more else "")


def _runs(numbers: np.ndarray) -> Iterator[tuple[int, int]]:
    """Yields the begin and the end of each run of equal numbers in an array."""
    cuts = np.flatnonzero(np.diff(numbers)) + 1
    yield from zip([0, *cuts.tolist()], [*cuts.tolist(), len(numbers)], strict=True)


def _widen(bounds: np.ndarray, rows: np.ndarray) -> None:
    """Extends the smallest and the largest values of columns to those of more rows."""
    if len(rows):
        bounds[0] = np.minimum(bounds[0], rows.min(axis=0))
        bounds[1] = np.maximum(bounds[1], rows.max(axis=0))


def _finite(compute: Callable[[], np.ndarray], locate: Callable[[int], str]) -> np.ndarray:
    """Computes features; an error names rows without finite ones."""
    with rows_located(locate):
        features = compute()
    wrong = np.flatnonzero(~np.isfinite(features).all(axis=1))
    if len(wrong):
        row = int(wrong[0])
        raise ValueError(f"{locate(row)}: the features are not finite, {features[row]}")
    return features


@dataclasses.dataclass(frozen=True)
class _Refit(Statistic):
    """Fits again to other episodes."""

    q: LinearQ

    @override
    def values(self, counts: np.ndarray) -> np.ndarray:
        coefficients, starts = self.q.refits(counts)
        return (coefficients * starts).sum(axis=1)


@dataclasses.dataclass(frozen=True, repr=False)
class LinearQ:
    """A Q-function that is a weighted sum of features; `fitted_q` makes it.

    Attributes:
      coefficients: The weight of each feature, `[d]`.
      condition_number: The amplification of errors by the equations, with features scaled to a mean
        square of 1. Above 1e12 there is a warning.
      warnings: Reasons to doubt it, in sentences.
    """

    coefficients: np.ndarray
    condition_number: float
    warnings: tuple[str, ...]
    _problem: _Problem
    _scales: np.ndarray
    _ridge: float
    _equations: np.ndarray
    _start: np.ndarray

    def __repr__(self) -> str:
        num_used = self._problem.is_used.sum()
        return f"LinearQ({len(self.coefficients)} features, fitted to {num_used} transitions)"

    @property
    def data(self) -> EvaluationSet:
        """The data that it was fitted to."""
        return self._problem.data

    @property
    def episode_weights(self) -> np.ndarray:
        """The weight of each episode in the fit, `[N]`."""
        return self._problem.episode_weights

    @property
    def gamma(self) -> float:
        """The discount of each step."""
        return self._problem.gamma

    @property
    def is_used(self) -> np.ndarray:
        """A mask of the transitions in the fit, `[M]`."""
        return self._problem.is_used

    def q(self, observations: Any, actions: Any) -> np.ndarray:
        """See `QFunction`."""
        return self.features(observations, actions) @ self.coefficients

    def v(self, observations: Any) -> np.ndarray:
        """See `QFunction`."""
        return self.expected_features(observations) @ self.coefficients

    def features(self, observations: Any, actions: Any) -> np.ndarray:
        """Returns the features that the coefficients weight in `q`, `[n, d]`."""
        return self._problem.features(observations, actions)

    def expected_features(self, observations: Any) -> np.ndarray:
        """Returns the features that the coefficients weight in `v`, `[n, d]`."""
        return self._problem.features.expected(observations, self._problem.target)

    def refits(self, counts: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Fits again to B samples of the episodes.

        Args:
          counts: The count of each episode in each sample, or its weight, `[B, N]`.

        Returns:
          The coefficients, NaN where a sample does not determine them; and the mean of the expected
          features at the starts of the episodes; both `[B, d]`.
        """
        size = max(1, _SAMPLES_BLOCK // len(self.coefficients) ** 2)
        parts = [
            self._problem.refits(counts[i : i + size], self._scales, self._ridge)
            for i in range(0, len(counts), size)
        ]
        coefficients, starts = zip(*parts, strict=True)
        return np.concatenate(coefficients), np.concatenate(starts)

    def estimate(self) -> Estimate:
        """Returns an estimate of the value of the policy at the recorded starts.

        Its intervals come from fitting again to other episodes.
        """
        problem = self._problem
        return Estimate(
            value=float(self._start @ self.coefficients),
            estimator="fitted Q-function",
            estimand=return_of_all_steps(problem.gamma),
            gamma=problem.gamma,
            horizon=None,
            statistic=_Refit(self),
            ends=problem.data.ends(left_out=int((~problem.is_used).sum())),
            warnings=self.warnings,
            episode_weights=problem.episode_weights,
        )

    def occupancy_ratios(self) -> np.ndarray:
        """Returns how much more often the policy comes to each transition than the data does.

        That is the discounted frequency of its observation and action under the policy, over their
        frequency in the transitions that the fit used, as far as the features tell them apart. The
        mean of `ratios * rewards` over these transitions is the estimate, times 1 - gamma.

        The mean of the ratios is below 1 where episodes end in terminal states, so do not normalize
        it. Where ratios are clearly negative, the features do not tell enough apart.

        Returns:
          float64, `[M]`.

        Raises:
          ValueError: Gamma is 1, so that there are no such frequencies.
        """
        gamma, data = self._problem.gamma, self._problem.data
        if gamma == 1:
            raise ValueError("with a gamma of 1 there are no frequencies of discounted steps")
        start = (1 - gamma) * self._start / self._scales
        dual = np.linalg.solve(self._equations.T, start) / self._scales
        return self._problem.of_transitions(np.arange(len(data.rewards))) @ dual
