"""Importance sampling, against numbers that are known exactly."""

import math
import tracemalloc
from fractions import Fraction

import evaluation_problems as problems
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rlds.evaluation import (
    CategoricalPolicy,
    DeterministicPolicy,
    EstimateWarning,
    EvaluationSet,
    importance_sampling,
    ratios,
)

pytestmark = pytest.mark.filterwarnings("ignore::rlds.evaluation.EstimateWarning")

KINDS = [(weighted, per_decision) for weighted in (False, True) for per_decision in (False, True)]


def slowly(data, factors, gamma, kind, *, horizon=None, counts=None):
    """The definitions, one number after the other; exact if the factors are fractions."""
    (weighted, per_decision), numbers = kind, range(data.num_episodes)
    counts = [1] * len(numbers) if counts is None else counts
    number = type(factors[0])
    longest = int(data.num_transitions.max()) if horizon is None else horizon
    weights, rewards, observed = [], [], []
    for i in numbers:
        weight, discount = 1, 1
        weights.append([])
        rewards.append([])
        for t in range(longest):
            if t < data.num_transitions[i]:
                row = int(data.splits[i]) + t
                weight = weight * factors[row]
                rewards[i].append(discount * number(data.rewards[row]))
                stored = 1 if data.discounts is None else number(data.discounts[row])
                discount = discount * number(gamma) * stored
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
def test_importance_sampling_of_four_episodes_is_exact(weighted, per_decision, expected):
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
    ends = found.end_counts
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


@settings(max_examples=25, deadline=None)
@given(cases(), st.sampled_from([0, 0.5, 0.9, 1]), st.sampled_from([None, 1, 3, 50]))
def test_estimates_equal_their_definitions(case, gamma, horizon):
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


def of_length(length, number=40, seed=0, **others):
    """Episodes with terminal ends."""
    rng = np.random.default_rng(seed)
    given = {
        "num_transitions": np.full(number, length),
        "is_terminal": np.ones(number, bool),
        "final_observation_known": np.zeros(number, bool),
        "observations": rng.integers(3, size=number * length),
        "actions": rng.integers(2, size=number * length),
        "rewards": rng.normal(size=number * length),
        "log_probs": rng.normal(size=number * length),
    }
    return EvaluationSet(**{**given, **others})


def test_one_episode_may_be_much_longer_than_the_others(monkeypatch):
    """A padded matrix of it would have 5 GB."""
    monkeypatch.setattr(ratios, "_MAX_BLOCK_PRODUCTS", 10_000)
    lengths = np.full(5001, 5)
    lengths[0] = 130_000
    count = int(lengths.sum())
    data = EvaluationSet(
        num_transitions=lengths,
        is_terminal=np.ones(5001, bool),
        final_observation_known=np.zeros(5001, bool),
        observations=np.zeros(count),
        actions=np.zeros(count),
        rewards=np.random.default_rng(0).normal(size=count),
        log_probs=np.zeros(count),
    )
    returns = np.bincount(data.episodes, data.rewards * 0.999**data.times)
    tracemalloc.start()
    try:
        for weighted in (False, True):  # The policy is the one that acted.
            options = {"gamma": 0.999, "weighted": weighted}
            found = importance_sampling(data, data.log_probs, **options)
            assert found.value == pytest.approx(returns.mean())
            values = found.statistic.values(np.full((2, 5001), 3.0))
            assert values == pytest.approx(found.value)
            assert (found.weights.effective_sample_size, found.warnings) == (5001, ())
        assert tracemalloc.get_traced_memory()[1] < 100 << 20
    finally:
        tracemalloc.stop()


def test_weights_that_are_lost_beside_others():
    """A sample without the others has no estimate, rather than one of 0."""
    data = of_length(3, 3)
    far = data.log_probs + np.repeat([0, -900, -np.inf], 3)
    rewards = data.rewards.reshape(3, 3)
    samples = np.array([[1, 1, 0], [0, 1, 0], [0, 0, 1], [5, 0, 5]])
    for per_decision in (False, True):
        found = importance_sampling(data, far, gamma=1, per_decision=per_decision)
        expected = pytest.approx(rewards[0].sum())
        assert found.value == expected
        values = found.statistic.values(samples.astype(float))
        assert (values[0], values[3]) == (expected, expected)
        assert np.isnan(values[1:3]).all()


def test_clipping_limits_the_log_ratios_and_reports_their_share():
    data = of_length(4)
    target = data.log_probs + np.random.default_rng(1).normal(size=160) * 3
    target[5] = -np.inf
    found = importance_sampling(data, target, gamma=0.9, clip_log_ratio=(-2, 1))
    clipped = np.clip(target - data.log_probs, -2, 1)
    same = importance_sampling(data, data.log_probs + clipped, gamma=0.9)
    assert found.value == pytest.approx(same.value)
    share = np.mean(abs(target - data.log_probs + 0.5) > 1.5)
    assert (found.weights.clipped, same.weights.clipped) == (pytest.approx(share), 0)
    assert f"{share:.1%} of the ratios were clipped" in str(found)
    with pytest.raises(ValueError, match="must be a lower and an upper bound"):
        importance_sampling(data, target, gamma=0.9, clip_log_ratio=(1, -2))


def test_censored_episodes_are_refused_observed_or_dropped():
    """Ends of the four: terminal after 2 and 1 steps, truncated after 3, and after 2."""
    data, target = problems.four_episodes()
    options = {"gamma": 0.5, "horizon": 3}
    with pytest.raises(
        ValueError, match=r"1 of 4 episodes were cut before step 3, .* episode 3, aft"
    ):
        importance_sampling(data, target, **options)
    found = importance_sampling(data, target, **options, censored="observed")
    assert found.value == pytest.approx(15681 / 5704)
    assert "1 of 4 episodes were cut" in found.warnings[-1]
    assert (found.end_counts.unknown, found.end_counts.censored) == (1, 1)
    # Without weights, each step is divided by how many episodes are observed there.
    found = importance_sampling(data, target, **options, censored="observed", weighted=False)
    steps = [(1.5 * 1 + 0.5 * 4 + 0.5 * 2) / 4, (2.25 * 2 + 2.25 * 2 + 0.75 * 4) / 4, 1.125 * 8 / 3]
    assert found.value == pytest.approx(steps[0] + steps[1] / 2 + steps[2] / 4)
    found = importance_sampling(data, target, **options, censored="drop")
    others = importance_sampling(data.select([0, 1, 2]), target, **options)
    assert found.value == others.value
    assert (found.num_episodes, found.end_counts.unknown, found.end_counts.censored) == (3, 0, 0)
    assert "1 of 4 episodes were cut before step 3 and left out" in found.warnings[-1]
    found = importance_sampling(
        data, target, **options, censored="drop", episode_weights=[0, 3, 1, 1]
    )
    others = importance_sampling(data.select([1, 1, 1, 2]), target, **options)
    assert found.value == pytest.approx(others.value)
    found = importance_sampling(data, target, gamma=0.5, horizon=9, censored="observed")
    assert found.value == pytest.approx(15681 / 5704)
    assert "No episode goes on after step 3" in found.warnings[-1]
    # Nothing is censored at a horizon that all have reached.
    importance_sampling(data, target, gamma=0.5, horizon=2)


@pytest.mark.filterwarnings("error")
def test_an_estimate_says_when_it_means_little():
    data = of_length(4)
    rare = data.log_probs + np.where(data.episodes == 7, 3, 0)
    with pytest.warns(EstimateWarning, match="effective sample size is below 10") as caught:
        found = importance_sampling(data, rare, gamma=0.9)
    assert (len(caught), caught[0].filename) == (1, __file__)
    assert "An effective sample size of 1.0, of 40 episodes, is too small" in found.warnings[0]
    with pytest.warns(EstimateWarning):
        found = importance_sampling(data, np.full(160, -np.inf), gamma=0.9)
    assert math.isnan(found.value)
    assert "all weights are 0" in found.warnings[0]
    with pytest.warns(EstimateWarning):
        assert importance_sampling(data, np.full(160, -np.inf), gamma=1, weighted=False).value == 0
    # Nothing after the first two steps is what the target would do.
    never = np.where(data.times < 2, data.log_probs, -np.inf)
    with pytest.warns(EstimateWarning):
        found = importance_sampling(data, never, gamma=0.9)
    assert "In 2 of the steps all weights are 0" in found.warnings[1]
    shorter = importance_sampling(data, never, gamma=0.9, horizon=2)
    assert found.value == pytest.approx(shorter.value)
    assert shorter.warnings == ()
    found = importance_sampling(data, data.log_probs + 800, gamma=0.9, weighted=False)
    assert "too large for a float" in str(found)


@pytest.mark.parametrize(
    ("changed", "error", "message"),
    [
        ({"log_probs": None}, ValueError, "log_prob=.* or pass the policy that acted"),
        ({"target": np.zeros(3)}, ValueError, r"of shape \(160,\); got float64 of shape \(3,\)"),
        (
            {"target": np.where(np.arange(160) == 9, np.inf, 0)},
            ValueError,
            "episode 2, step 1: .* is inf",
        ),
        ({"target": DeterministicPolicy(lambda o: o)}, TypeError, "not with importance sampling"),
        (
            {"behaviour": CategoricalPolicy.from_table([[1, 0], [0.5, 0.5], [0.5, 0.5]])},
            ValueError,
            "episode 1, step 1, action: the behaviour policy never takes 1",
        ),
        ({"gamma": 1.5}, ValueError, "gamma must be between 0 and 1"),
        ({"horizon": 0}, ValueError, "horizon must be positive"),
        ({"censored": "keep"}, ValueError, "censored must be"),
        ({"episode_weights": np.ones(3)}, ValueError, r"must have shape \(40,\)"),
        ({"episode_weights": -np.arange(40)}, ValueError, "got -1.0 for episode 1"),
        ({"episode_weights": np.zeros(40)}, ValueError, "all 0"),
    ],
)
def test_impossible_targets_and_data_are_rejected(changed, error, message, monkeypatch):
    monkeypatch.setattr(ratios, "_BLOCK_TRANSITIONS", 3)
    data = of_length(4, **{k: v for k, v in changed.items() if k == "log_probs"})
    target = CategoricalPolicy.from_table(np.full((3, 2), 0.5))
    options = {"target": target, "gamma": 0.9} | changed
    options.pop("log_probs", None)
    with pytest.raises(error, match=message):
        importance_sampling(data, **options)
