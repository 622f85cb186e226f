"""Offline ranking of policies, such as checkpoints of one training run, by recorded data."""

from __future__ import annotations

import dataclasses
import functools
import textwrap
import types
import warnings
from collections.abc import Mapping, Sequence
from typing import Any, cast

import numpy as np

from rlds.evaluation.evaluation_set import EvaluationSet
from rlds.evaluation.features import Features, as_vectors
from rlds.evaluation.linear_q import LinearQ, fitted_q, value_bounds
from rlds.evaluation.policies import CategoricalPolicy, Policy, with_row_location
from rlds.evaluation.ratios import EstimateWarning
from rlds.evaluation.robust import doubly_robust
from rlds.statistics.ranks import midranks

__all__ = ["WEIGHTS", "RankedPolicy", "Ranking", "rank"]

# Weights fitted by `benchmarks/ranking.py --fit` to five simulators; docs/evaluation.md has the
# result for each simulator with weights fitted to the other four.
WEIGHTS: Mapping[str, float] = types.MappingProxyType(
    {
        "action_error": 0.09,
        "sampled_error": 0.4,
        "early_error": 0.04,
        "late_error": 0.05,
        "window_error": 0.0,
        "novel_error": 0.0,
        "log_likelihood": 0.0,
        "one_step_q": 0.21,
        "fitted_q": 0.08,
        "doubly_robust": 0.12,
    }
)
# The number of rows whose errors `window_error` averages before squaring.
_WINDOW_ROWS = 16
# The fraction of the rows that `novel_error` uses.
_NOVEL_FRACTION = 0.25
# The largest number of training observations (evenly spaced) in a nearest-neighbour search, and the
# number of rows in one of its blocks.
_MAX_TRAINING_ROWS, _BLOCK_ROWS = 1 << 12, 1 << 10


@dataclasses.dataclass(frozen=True)
class RankedPolicy:
    """A policy of a ranking.

    Attributes:
      name: The name of the policy.
      value: The ranking criterion: the weighted mean of `relative_ranks`, from 0 to 1; None without
        a score of positive weight.
      scores: The computed scores by name.
      relative_ranks: By score, the fraction of the other policies that are worse; ties count half.
      missing: The reasons for missing scores, by name.
      warnings: Reasons to doubt a score, in sentences.
    """

    name: str
    value: float | None
    scores: Mapping[str, float]
    relative_ranks: Mapping[str, float]
    missing: Mapping[str, str]
    warnings: tuple[str, ...]


@dataclasses.dataclass(frozen=True)
class Ranking:
    """Policies in the order of their expected return.

    Attributes:
      policies: The policies, the best one first. Policies without a value are last.
      weights: The weight of each score.
    """

    policies: tuple[RankedPolicy, ...]
    weights: Mapping[str, float]

    def __str__(self) -> str:
        names = [name for name in WEIGHTS if any(name in policy.scores for policy in self.policies)]
        rows = [["policy", "value", *names]]
        for policy in self.policies:
            values = [policy.value, *(policy.scores.get(name) for name in names)]
            rows.append([policy.name, *("-" if x is None else f"{x:.4g}" for x in values)])
        widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
        lines = [
            "  ".join([row[0].ljust(widths[0]), *map(str.rjust, row[1:], widths[1:])])
            for row in rows
        ]
        reasons: dict[str, list[str]] = {}
        for policy in self.policies:
            for name, reason in policy.missing.items():
                reasons.setdefault(f"no {name}: {reason}", []).append(policy.name)
            for reason in policy.warnings:
                reasons.setdefault(f"warning: {reason}", []).append(policy.name)
        for reason, names in reasons.items():
            suffix = "" if len(names) == len(self.policies) else f" ({', '.join(names)})"
            lines.append(textwrap.fill(reason + suffix, 88, subsequent_indent="  "))
        return "\n".join(lines)


def rank(
    data: EvaluationSet,
    policies: Mapping[str, Policy],
    *,
    training: Any = None,
    logs: EvaluationSet | None = None,
    features: Features | None = None,
    gamma: float | None = None,
    behaviour: Policy | None = None,
    ridge: float = 1e-3,
    time_limit: int | None = None,
    weights: Mapping[str, float] = WEIGHTS,
) -> Ranking:
    """Ranks policies by their expected return, without running them.

    Each score becomes a relative rank among the policies, as scores have different units, and the
    ranks are averaged. Scores that a policy lacks are left out, and the result has the reason. The
    scores, of which errors are better if they are smaller:

    - `action_error`: the mean squared difference between the actions of the policy without noise
      and the recorded actions, over the variance of each element. Constant elements are left out.
      For discrete actions, the fraction of the rows with another action.
    - `sampled_error`: the same for sampled actions.
    - `early_error`, `late_error`: `action_error` in the first and in the second half of episodes.
    - `window_error`: the same for the mean difference over 16 rows, which reduces the influence of
      noise in the recorded actions.
    - `novel_error`: `action_error` of the quarter of the rows whose observations are farthest from
      the nearest training observation (of at most 4096).
    - `log_likelihood`: the mean logarithm of the probability, or density, of a recorded action.
    - `one_step_q`: the mean value of the actions of the policy in the logs, if `behaviour` acts
      afterwards, by `fitted_q` of `behaviour`.
    - `fitted_q`: the value by `fitted_q`.
    - `doubly_robust`: the value by `doubly_robust` with the Q-function of `fitted_q`.

    Values outside the bounds from the recorded rewards are not used as scores.

    Args:
      data: Demonstrations, or other episodes with good actions, held out of training.
      policies: The policies by name.
      training: The observations that the policies were trained on, `[n, ...]`.
      logs: Episodes with rewards, including failures, for the last three scores; by default `data`.
      features: The features of the Q-functions.
      gamma: The discount of each step.
      behaviour: The policy that acted in the logs. Without it there is no `one_step_q`, and
        `doubly_robust` uses `logs.log_probs`.
      ridge: See `fitted_q`. Policies whose actions differ from the logs need a large one.
      time_limit: See `fitted_q`.
      weights: The weight of each score, 0 or more. The defaults were fitted to five simulators.

    Raises:
      ValueError: There are no policies, a weight is wrong, or no score has a positive weight.

    >>> from rlds.evaluation.policies import DeterministicPolicy
    >>> data = EvaluationSet([4], [True], [False], np.arange(4.0), np.arange(4), np.ones(4))
    >>> policies = {
    ...     "always 2": DeterministicPolicy(lambda observations: np.full(len(observations), 2)),
    ...     "rounded": DeterministicPolicy(lambda observations: np.round(observations)),
    ... }
    >>> best, worst = rank(data, policies).policies
    >>> best.name, best.value, round(worst.scores["action_error"], 6)
    ('rounded', 1.0, 0.75)
    """
    if not policies:
        raise ValueError("rank: there are no policies")
    if not len(data.rewards):
        raise ValueError("rank: the data has no transitions")
    for name, weight in weights.items():
        if name not in WEIGHTS or not (np.isfinite(weight) and weight >= 0):
            names = ", ".join(WEIGHTS)
            raise ValueError(f"rank: weight {name!r} is {weight}, expected 0 or more, for {names}")
    logs = data if logs is None else logs
    inputs = _ScoringData(data, training, logs, features, gamma, behaviour, ridge, time_limit)
    scored = [_score(name, policy, inputs) for name, policy in policies.items()]
    ranked = [
        dataclasses.replace(policy, value=_average_ranks(ranks, weights), relative_ranks=ranks)
        for policy, ranks in zip(scored, _compute_relative_ranks(scored))
    ]
    if all(policy.value is None for policy in ranked):
        raise ValueError(f"rank: no policy has a weighted score: {dict(ranked[0].missing)}")
    ranked.sort(key=lambda policy: -1.0 if policy.value is None else policy.value, reverse=True)
    return Ranking(tuple(ranked), dict(weights))


def _compute_relative_ranks(scored: Sequence[RankedPolicy]) -> list[dict[str, float]]:
    """Returns the fraction of the other policies that each policy outperforms, by score."""
    relative_ranks: list[dict[str, float]] = [{} for _ in scored]
    for name in dict.fromkeys(name for policy in scored for name in policy.scores):
        indices = [index for index, policy in enumerate(scored) if name in policy.scores]
        scores = np.array([scored[index].scores[name] for index in indices])
        ranks = midranks(-scores if name.endswith("_error") else scores)
        for index, rank in zip(indices, ranks.tolist()):
            relative_ranks[index][name] = rank / max(len(indices) - 1, 1)
    return relative_ranks


def _average_ranks(ranks: Mapping[str, float], weights: Mapping[str, float]) -> float | None:
    """Returns the weighted mean of the relative ranks of a policy; None if all weights are 0."""
    factors = [weights.get(name, 0.0) for name in ranks]
    return float(np.dot(factors, [*ranks.values()]) / sum(factors)) if any(factors) else None


@dataclasses.dataclass(frozen=True)
class _ScoringData:
    """The data and settings of the scores of all policies."""

    data: EvaluationSet
    training: Any
    logs: EvaluationSet
    features: Features | None
    gamma: float | None
    behaviour: Policy | None
    ridge: float
    time_limit: int | None

    @functools.cached_property
    def observations(self) -> Any:
        return self.data.observations_at(self.data.rows)

    @functools.cached_property
    def is_novel(self) -> np.ndarray:
        """A mask of the rows whose observations are farthest from the training observations."""
        if self.training is None:
            raise ValueError("the training observations are unknown: pass training")
        training = as_vectors(self.training, "observation")
        training = training[:: -(-len(training) // _MAX_TRAINING_ROWS)]
        rows = as_vectors(self.observations, "observation")
        scales = np.concatenate([training, rows]).std(axis=0)
        scales[scales == 0] = 1
        distances = _find_nearest_distances(rows / scales, training / scales)
        if distances.max() < 1e-9:
            raise ValueError("all are training observations")
        is_novel: np.ndarray = distances >= np.quantile(distances, 1 - _NOVEL_FRACTION)
        return is_novel

    def fit_q(self, policy: Policy) -> LinearQ:
        """Returns the fitted Q-function of a policy."""
        if self.features is None or self.gamma is None:
            raise ValueError("it needs features and gamma")
        if not self.logs.rewards.any():
            raise ValueError("all rewards are 0")
        return fitted_q(
            self.logs,
            policy,
            features=self.features,
            gamma=self.gamma,
            ridge=self.ridge,
            time_limit=self.time_limit,
        )

    @functools.cached_property
    def behaviour_q(self) -> LinearQ:
        if self.behaviour is None:
            raise ValueError("it needs the policy that acted: pass behaviour")
        return self.fit_q(self.behaviour)


def _find_nearest_distances(rows: np.ndarray, training_rows: np.ndarray) -> np.ndarray:
    """Returns the squared distance of each row to the nearest training row."""
    squares, blocks = (training_rows**2).sum(axis=1), range(_BLOCK_ROWS, len(rows), _BLOCK_ROWS)
    nearest = [
        (squares - 2 * block @ training_rows.T).min(axis=1) for block in np.split(rows, blocks)
    ]
    return (rows**2).sum(axis=1) + np.concatenate(nearest)


def _score(name: str, policy: Policy, inputs: _ScoringData) -> RankedPolicy:
    """Returns a policy with its scores, without a value."""
    computed = _Scores(policy, inputs, [])
    scores, missing = {}, {}
    for score in WEIGHTS:
        try:
            value = float(getattr(computed, score)())
            if np.isnan(value):
                raise ValueError("it is NaN")
            scores[score] = value
        except (TypeError, ValueError) as error:
            missing[score] = str(error)
    return RankedPolicy(name, None, scores, {}, missing, tuple(computed.warnings))


@dataclasses.dataclass(frozen=True)
class _Scores:
    """The scores of one policy; each is a method."""

    policy: Policy
    inputs: _ScoringData
    warnings: list[str]

    def _compute_differences(self, actions: Any) -> np.ndarray:
        """Returns scaled action differences; the sum of their squares is the error of a row."""
        data = self.inputs.data
        recorded = data.actions
        if isinstance(recorded, np.ndarray) and np.shape(actions) != recorded.shape:
            raise ValueError(f"actions of shape {np.shape(actions)}, recorded: {recorded.shape}")
        predicted, actual = as_vectors(actions, "action"), as_vectors(recorded, "action")
        if not np.isfinite(predicted).all():
            row = int(np.argmin(np.isfinite(predicted).all(axis=1)))
            raise ValueError(f"{data.locate(row)}: the action of the policy is {predicted[row]}")
        is_discrete = np.ndim(recorded) == 1 and recorded.dtype.kind in "biu"
        if is_discrete or isinstance(self.policy, CategoricalPolicy):
            values, indices = np.unique(np.stack([predicted, actual]), return_inverse=True)
            one_hot = np.eye(len(values))[indices.reshape(2, -1)]
            return (one_hot[0] - one_hot[1]) / np.sqrt(2)
        is_varying = np.ptp(actual, axis=0) > 0
        if not is_varying.any():
            raise ValueError("all recorded actions are equal, so that errors have no scale")
        scaled: np.ndarray = (predicted - actual)[:, is_varying] / actual[:, is_varying].std(axis=0)
        return scaled / np.sqrt(is_varying.sum())

    @functools.cached_property
    def _mode_differences(self) -> np.ndarray:
        with with_row_location(self.inputs.data.locate):
            return self._compute_differences(self.policy.mode(self.inputs.observations))

    def _error(self, rows: Any = slice(None)) -> float:
        squares = (self._mode_differences**2).sum(axis=1)[rows]
        return float(squares.mean()) if len(squares) else np.nan

    def action_error(self) -> float:
        return self._error()

    def sampled_error(self) -> float:
        with with_row_location(self.inputs.data.locate):
            actions = self.policy.sample(self.inputs.observations, np.random.default_rng(0))
        return float((self._compute_differences(actions) ** 2).sum(axis=1).mean())

    @property
    def _is_early(self) -> np.ndarray:
        data = self.inputs.data
        return data.times < data.num_transitions[data.episodes] / 2

    def early_error(self) -> float:
        return self._error(self._is_early)

    def late_error(self) -> float:
        return self._error(~self._is_early)

    def window_error(self) -> float:
        data = self.inputs.data
        window_starts = np.flatnonzero(data.times % _WINDOW_ROWS == 0)
        counts = np.diff(np.append(window_starts, len(data.times)))
        sums = np.add.reduceat(self._mode_differences, window_starts)
        return float((sums**2).sum(axis=1) @ (1 / counts) / counts.sum())

    def novel_error(self) -> float:
        return self._error(self.inputs.is_novel)

    def log_likelihood(self) -> float:
        data = self.inputs.data
        with with_row_location(data.locate):
            return float(self.policy.log_prob(self.inputs.observations, data.actions).mean())

    def one_step_q(self) -> float:
        q, logs = self.inputs.behaviour_q, self.inputs.logs
        observations = logs.observations_at(logs.rows)
        features = cast("Features", self.inputs.features)
        values = features.expected(observations, self.policy) @ q.coefficients
        return self._check_value(float(values.mean()))

    def _check_value(self, value: float) -> float:
        """Returns a value within the bounds of the recorded rewards, as Q-functions may diverge."""
        low, high = value_bounds(self.inputs.logs, cast("float", self.inputs.gamma))
        if not low <= value <= high:
            raise ValueError(f"the value {value:.4g} is impossible: {low:.4g} to {high:.4g}")
        return value

    @functools.cached_property
    def _q(self) -> LinearQ:
        return self.inputs.fit_q(self.policy)

    def fitted_q(self) -> float:
        estimate = self._q.estimate()
        value = self._check_value(estimate.value)
        self.warnings.extend(estimate.warnings)
        return value

    def doubly_robust(self) -> float:
        inputs, q = self.inputs, self._q
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", EstimateWarning)  # The result lists the warning.
            estimate = doubly_robust(
                inputs.logs,
                self.policy,
                q,
                behaviour=inputs.behaviour,
                gamma=q.gamma,
                time_limit=inputs.time_limit,
            )
        value = self._check_value(estimate.value)
        self.warnings.extend(estimate.warnings)
        return value
