"""Importance sampling, against numbers that are known exactly."""

import math
from fractions import Fraction

import evaluation_problems as problems
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rlds.evaluation import EvaluationSet, importance_sampling

pytestmark = pytest.mark.filterwarnings("ignore::rlds.evaluation.EstimateWarning")

KINDS = [(weighted, per_decision) for weighted in (False, True) for per_decision in (False, True)]


def slowly(data, ratios, gamma, kind, *, horizon=None, counts=None):
    """The definitions, one number after the other; exact if the ratios are fractions."""
    (weighted, per_decision), numbers = kind, range(data.num_episodes)
    counts = [1] * len(numbers) if counts is None else counts
    longest = int(data.num_transitions.max()) if horizon is None else horizon
    weights, rewards, observed = [], [], []
    for i in numbers:
        weight, discount = 1, 1
        weights.append([])
        rewards.append([])
        for t in range(longest):
            if t < data.num_transitions[i]:
                row = int(data.splits[i]) + t
                weight = weight * ratios[row]
                rewards[i].append(discount * Fraction(data.rewards[row]))
                stored = 1 if data.discounts is None else Fraction(data.discounts[row])
                discount = discount * Fraction(gamma) * stored
            else:
                rewards[i].append(0)
            weights[i].append(weight)
        observed.append(
            [t < data.num_transitions[i] or data.is_terminal[i] for t in range(longest)]
        )
    if not per_decision:
        terms = [(counts[i], weights[i][-1], sum(rewards[i])) for i in numbers]
        return average(terms, weighted)
    if not weighted and all(data.is_terminal[i] or horizon is None for i in numbers):
        returns = [sum(w * r for w, r in zip(weights[i], rewards[i])) for i in numbers]
        return average([(counts[i], 1, returns[i]) for i in numbers], True)
    steps = [
        average(
            [(counts[i], weights[i][t], rewards[i][t]) for i in numbers if observed[i][t]], weighted
        )
        for t in range(longest)
    ]
    return sum(step for step in steps if step == step) if steps[0] == steps[0] else math.nan


def average(terms, weighted):
    """The average of values: of (how often it counts, weight, value)."""
    below = sum(n * w if weighted else n for n, w, _ in terms)
    return sum(n * w * x for n, w, x in terms) / below if below else math.nan


@pytest.mark.parametrize(
    ("weighted", "per_decision", "expected"),
    [
        (False, False, Fraction(103, 32)),
        (True, False, Fraction(103, 37)),
        (False, True, Fraction(51, 16)),
        (True, True, Fraction(15681, 5704)),
    ],
)
def test_four_episodes(weighted, per_decision, expected):
    data, target = problems.four_episodes()
    found = importance_sampling(
        data, target, gamma=0.5, weighted=weighted, per_decision=per_decision
    )
    assert found.value == pytest.approx(float(expected), abs=1e-14)
    ratios = [Fraction(3, 2), Fraction(3, 2), Fraction(1, 2), Fraction(3, 2), Fraction(3, 2)]
    ratios += [Fraction(1, 2), Fraction(1, 2), Fraction(3, 2)]
    assert slowly(data, ratios, Fraction(1, 2), (weighted, per_decision)) == expected
    assert found.weights.effective_sample_size == pytest.approx(2.995624, abs=1e-6)
    assert found.weights.largest == pytest.approx(18 / 37)
    ends = found.ends
    assert (ends.terminal, ends.truncated, ends.unknown, ends.censored) == (2, 1, 1, 0)


@pytest.mark.parametrize("horizon", [1, 2, 3, 4])
def test_expectations_are_exact(horizon):
    """Over all trajectories with their probabilities, both unweighted estimates are unbiased."""
    mdp = problems.MdpA
    data, probabilities = mdp.all_trajectories(horizon)
    options = {"gamma": mdp.gamma, "horizon": horizon, "episode_weights": probabilities}
    variances = []
    for per_decision in (False, True):
        found = importance_sampling(
            data, mdp.target, weighted=False, per_decision=per_decision, **options
        )
        assert found.value == pytest.approx(mdp.values_of_horizons[horizon - 1], abs=1e-13)
        variances.append(probabilities @ (found.statistic.terms - found.value) ** 2)
        # With all probabilities at hand, normalizing changes nothing: the weights sum up to 1.
        found = importance_sampling(
            data, mdp.target, weighted=True, per_decision=per_decision, **options
        )
        assert found.value == pytest.approx(mdp.values_of_horizons[horizon - 1], abs=1e-13)
    if horizon == 3:
        assert variances == pytest.approx([22.5375, 14.9023], abs=5e-5)


def test_a_thousand_small_ratios_do_not_underflow():
    data = EvaluationSet(
        num_transitions=[1000, 1000],
        is_terminal=[False, False],
        final_observation_known=[True, True],
        observations=np.zeros(2002),
        actions=np.zeros(2000, int),
        rewards=np.repeat([1.0, 3.0], 1000),
        log_probs=np.zeros(2000),
    )
    target = np.full(2000, np.log(0.1))
    for per_decision in (False, True):
        found = importance_sampling(data, target, gamma=1.0, per_decision=per_decision)
        assert found.value == pytest.approx(2000)
        assert found.weights.effective_sample_size == pytest.approx(2)


@st.composite
def cases(draw):
    """Episodes of any lengths and ends, ratios of which some are 0, and weights of episodes."""
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    number = draw(st.integers(1, 12))
    lengths = rng.integers(0, draw(st.integers(1, 30)), number, endpoint=True)
    lengths[0] = draw(st.integers(1, 40))
    if draw(st.booleans()):
        lengths[:] = lengths[0]
    known, count = rng.random(number) < 0.5, int(lengths.sum())
    data = EvaluationSet(
        num_transitions=lengths,
        is_terminal=rng.random(number) < 0.5,
        final_observation_known=known,
        observations=np.zeros(count + known.sum()),
        actions=np.zeros(count),
        rewards=rng.normal(size=count).round(draw(st.integers(0, 3))),
        log_probs=rng.normal(size=count),
        discounts=rng.choice([0, 0.5, 1], count) if draw(st.booleans()) else None,
    )
    never = rng.random(count) < draw(st.sampled_from([0, 0, 0.05]))
    target = np.where(never, -np.inf, data.log_probs + rng.normal(size=count))
    weights = rng.integers(1, 4, number) if draw(st.booleans()) else None
    return data, target, weights, rng


@settings(max_examples=30, deadline=None)
@given(cases(), st.sampled_from([0, 0.5, 0.9, 1]), st.sampled_from([None, 1, 3, 50]))
def test_same_as_the_definitions(case, gamma, horizon):
    data, target, weights, rng = case
    ratios = np.exp(target - data.log_probs).tolist()
    counts = np.ones(data.num_episodes) if weights is None else weights
    order = rng.permutation(data.num_episodes)
    of_episodes = np.split(target, data.splits[1:-1])
    in_order = data.select(order), np.concatenate([of_episodes[i] for i in order])
    drawn = counts * np.bincount(rng.integers(data.num_episodes, size=20), minlength=len(counts))
    is_cut = horizon is not None and (~data.is_terminal & (data.num_transitions < horizon)).any()
    for kind in KINDS:
        options = {"gamma": gamma, "horizon": horizon, "censored": "observed"}
        options |= {"weighted": kind[0], "per_decision": kind[1]}
        if is_cut and not kind[1]:
            with pytest.raises(ValueError, match="goes with per_decision=True"):
                importance_sampling(data, target, **options)
            continue
        found = importance_sampling(data, target, **options, episode_weights=weights)
        assert found.value == close(
            slowly(data, ratios, gamma, kind, horizon=horizon, counts=counts)
        )
        if weights is not None:
            options["episode_weights"] = weights[order]
        assert importance_sampling(*in_order, **options).value == close(found.value)
        # Other samples of the episodes, such as a bootstrap draws.
        again = found.statistic.values(np.stack([drawn, counts]))
        expected = slowly(data, ratios, gamma, kind, horizon=horizon, counts=drawn)
        assert again.tolist() == close([expected, found.value])


def close(expected):
    return pytest.approx(expected, rel=1e-9, abs=1e-9, nan_ok=True)
