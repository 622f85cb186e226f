"""Importance sampling: off-policy evaluation from the probabilities of recorded actions."""

from __future__ import annotations

from typing import Literal

import numpy as np

from rlds.evaluation.estimates import Estimate, Mean, RatioSum, Statistic
from rlds.evaluation.evaluation_set import (
    EvaluationSet,
    check_episode_weights,
    check_gamma,
    check_horizon,
)
from rlds.evaluation.policies import Policy
from rlds.evaluation.ratios import StepWeights, log_ratios, warnings_of, weight_report, with_weights

__all__ = ["importance_sampling"]


def importance_sampling(
    data: EvaluationSet,
    target: Policy | np.ndarray,
    *,
    behaviour: Policy | None = None,
    gamma: float,
    horizon: int | None = None,
    weighted: bool = True,
    per_decision: bool = True,
    clip_log_ratio: tuple[float, float] | None = None,
    censored: Literal["error", "drop", "observed"] = "error",
    episode_weights: np.ndarray | None = None,
) -> Estimate:
    """Estimates the value of a policy by importance sampling.

    The weight of an episode is the ratio of its probabilities under the target policy and under the
    policy that acted. The environment may be unknown. The weights multiply the ratios of all
    steps, so the weights of long episodes differ by orders of magnitude.

    Args:
      data: The recorded data; see `collect`.
      target: The target policy, or the log-probabilities of the recorded actions under it, `[M]`.
      behaviour: The policy that acted; by default, `data.log_probs` are used.
      gamma: The discount of each step, between 0 and 1.
      horizon: The number of evaluated steps. If None, the value covers the steps up to the ends
        of the recorded episodes, terminal or truncated.
      weighted: True to divide by the sum of the weights, instead of their count: a small bias for
        much less variance.
      per_decision: True to weight a reward by the actions up to it, instead of all actions of the
        episode; better in nearly all cases.
      clip_log_ratio: The lower and the upper limit of the logarithm of a ratio, such as `(-6, 2)`.
      censored: The treatment of episodes that were truncated before the horizon: "error" refuses
        them; "drop" leaves them out, which is biased if the length of episodes depends on their
        returns; "observed" averages each step over the episodes observed there, with less bias.
      episode_weights: The weight of each episode, `[N]`; if None, 1.

    Returns:
      The estimate, with the effective sample size; print it to see its warnings.

    Raises:
      TypeError: A policy has no probabilities, as it is deterministic.
      ValueError: An argument is wrong, or a value in the data; the message names it.

    Warns:
      EstimateWarning: The effective sample size is below 10.

    >>> from rlds.evaluation.policies import CategoricalPolicy
    >>> rng = np.random.default_rng(0)
    >>> actions = rng.integers(2, size=1000)
    >>> data = EvaluationSet(
    ...     num_transitions=np.full(500, 2),
    ...     is_terminal=np.ones(500, bool),
    ...     final_observation_known=np.zeros(500, bool),
    ...     observations=np.zeros(1000, int),
    ...     actions=actions,
    ...     rewards=actions.astype(float),
    ...     log_probs=np.full(1000, np.log(0.5)),
    ... )
    >>> target = CategoricalPolicy.from_table([[0.2, 0.8]])
    >>> round(importance_sampling(data, target, gamma=1.0, horizon=2).value, 1)
    1.6
    """
    horizon = check_horizon(horizon)
    if censored not in ("error", "drop", "observed"):
        raise ValueError(f"censored must be 'error', 'drop' or 'observed', got {censored!r}")
    check_gamma(gamma)
    if episode_weights is not None:
        episode_weights = check_episode_weights(episode_weights, data.num_episodes)
    ratios, clipped = log_ratios(data, target, behaviour, clip_log_ratio)
    lengths = data.num_transitions if horizon is None else np.minimum(data.num_transitions, horizon)
    episodes, num_censored, warnings = _censor(data, horizon, censored, per_decision)
    if episodes is not None and episode_weights is not None:
        episode_weights = episode_weights[episodes]
    steps = StepWeights(
        data, ratios, data.rewards, gamma, num_transitions=lengths, episodes=episodes
    )
    counts = np.ones(steps.num_episodes) if episode_weights is None else episode_weights
    report = weight_report(steps.log_weights, episode_weights, clipped)
    statistic: Statistic
    if not per_decision:
        statistic = _full_episode_statistic(steps, weighted)
    elif weighted or (num_censored and censored == "observed"):
        statistic = steps.averages(normalize=weighted)
        if statistic.num_without_weight:
            warnings.append(
                f"In {statistic.num_without_weight} of the steps all weights are 0: these steps "
                "count as 0."
            )
    else:
        statistic = Mean(steps.weighted_sums())
    value = float(statistic.values(counts[np.newaxis])[0])
    if not weighted and not np.isfinite(value):
        warnings.append("A weight is too large for a float: use weighted=True.")
    return Estimate(
        value=value,
        estimator=f"{'per-decision ' if per_decision else ''}{'W' if weighted else ''}IS",
        estimand=_estimand(gamma, horizon),
        gamma=float(gamma),
        horizon=horizon,
        statistic=statistic,
        end_counts=data.count_ends(episodes, censored=num_censored if episodes is None else 0),
        weights=report,
        warnings=(*warnings_of(report, steps.num_episodes), *warnings),
        episode_weights=episode_weights,
    )


def _censor(
    data: EvaluationSet, horizon: int | None, censored: str, per_decision: bool
) -> tuple[np.ndarray | None, int, list[str]]:
    """Returns the episodes to keep (None: all), the number cut before the horizon, and warnings."""
    if horizon is None:
        return None, 0, []
    is_cut = ~data.is_terminal & (data.num_transitions < horizon)
    num_cut, index = int(is_cut.sum()), int(np.argmax(is_cut))
    if not num_cut:
        return None, 0, []
    problem = f"{num_cut} of {data.num_episodes} episodes were cut before step {horizon}"
    if censored == "error":
        raise ValueError(
            f"{problem}, the first of them episode {index}, after {data.num_transitions[index]} "
            "transitions, so their returns are unknown. Pass a shorter horizon, or None for the "
            "value up to the end of each episode. Or pass censored='drop' to leave them out, or "
            "censored='observed' to average each step over the episodes observed there."
        )
    if censored == "drop":
        keep = np.flatnonzero(~is_cut)
        if not len(keep):
            raise ValueError(f"{problem}, so no episode is left. Pass a shorter horizon.")
        return (
            keep,
            num_cut,
            [f"{problem} and left out: the remaining episodes may have higher or lower returns."],
        )
    if not per_decision:
        raise ValueError(
            f"{problem}: censored='observed' goes with per_decision=True, because the weight of "
            "an episode needs all its steps"
        )
    warnings = [
        f"{problem}: later steps are averaged over the episodes observed there, which may have "
        "higher or lower returns."
    ]
    longest = int(data.num_transitions.max())
    if longest < horizon:
        warnings.append(f"No episode goes on after step {longest}: later steps count as 0.")
    return None, num_cut, warnings


def _full_episode_statistic(steps: StepWeights, is_weighted: bool) -> Statistic:
    """Returns the statistic of the weighted returns of full episodes."""
    returns, logs = steps.sums(), steps.log_weights
    if not is_weighted:
        return Mean(with_weights(returns, logs))
    largest = logs.max()
    weights = np.exp(logs - (0.0 if np.isneginf(largest) else largest))[:, np.newaxis]
    return RatioSum(weights * returns[:, np.newaxis], weights)


def _estimand(gamma: float, horizon: int | None) -> str:
    name = "the return" if gamma == 1 else "the discounted return"
    return (
        f"{name} {'up to the ends of the episodes' if horizon is None else f'of {horizon} steps'}"
    )
