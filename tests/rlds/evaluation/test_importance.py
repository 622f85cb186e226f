"""Importance sampling equals exact numbers and plain loops."""

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


def compute_slowly(data, factors, gamma, kind, *, horizon=None, counts=None):
    """Implements the definitions by loops; exact if the factors are fractions."""
    (weighted, per_decision), indices = kind, range(data.num_episodes)
    counts = [1] * len(indices) if counts is None else counts
    convert = type(factors[0])
    longest = int(data.num_transitions.max()) if horizon is None else horizon
    weights, rewards, observed = [], [], []
    for i in indices:
        weight, discount = 1, 1
        weights.append([])
        rewards.append([])
        for t in range(longest):
            if t < data.num_transitions[i]:
                row = int(data.splits[i]) + t
                weight = weight * factors[row]
                rewards[i].append(discount * convert(data.rewards[row]))
                stored = 1 if data.discounts is None else convert(data.discounts[row])
                discount = discount * convert(gamma) * stored
            else:
                rewards[i].append(0)
            weights[i].append(weight)
        observed.append(
            [t < data.num_transitions[i] or data.is_terminal[i] for t in range(longest)]
        )
    if not per_decision:
        terms = [(counts[i], weights[i][-1], sum(rewards[i])) for i in indices]
        return average(terms, weighted)
    if not weighted and all(data.is_terminal[i] or horizon is None for i in indices):
        returns = [sum(w * r for w, r in zip(weights[i], rewards[i])) for i in indices]
        return average([(counts[i], 1, returns[i]) for i in indices], True)
    steps = [
        average(
            [(counts[i], weights[i][t], rewards[i][t]) for i in indices if observed[i][t]], weighted
        )
        for t in range(longest)
    ]
    return sum(step for step in steps if step == step) if steps[0] == steps[0] else math.nan


def average(terms, weighted):
    """Averages terms of (count, weight, value)."""
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
    estimate = importance_sampling(
        data, target, gamma=0.5, weighted=weighted, per_decision=per_decision
    )
    assert estimate.value == pytest.approx(float(expected), abs=1e-14)
    ratios = [Fraction(3, 2), Fraction(3, 2), Fraction(1, 2), Fraction(3, 2), Fraction(3, 2)]
    ratios += [Fraction(1, 2), Fraction(1, 2), Fraction(3, 2)]
    assert compute_slowly(data, ratios, Fraction(1, 2), (weighted, per_decision)) == expected
    assert estimate.weights.effective_sample_size == pytest.approx(2.995624, abs=1e-6)
    assert estimate.weights.largest == pytest.approx(18 / 37)
    ends = estimate.end_counts
    assert (ends.terminal, ends.truncated, ends.unknown, ends.censored) == (2, 1, 1, 0)


@pytest.mark.parametrize("horizon", [1, 2, 3, 4])
def test_expectations_are_exact(horizon):
    """Over all trajectories with their probabilities, both unweighted estimates are unbiased."""
    mdp = problems.MdpA
    data, probabilities = mdp.all_trajectories(horizon)
    options = {"gamma": mdp.gamma, "horizon": horizon, "episode_weights": probabilities}
    variances = []
    for per_decision in (False, True):
        estimate = importance_sampling(
            data, mdp.target, weighted=False, per_decision=per_decision, **options
        )
        assert estimate.value == pytest.approx(mdp.values_of_horizons[horizon - 1], abs=1e-13)
        variances.append(probabilities @ (estimate.statistic.terms - estimate.value) ** 2)
        # With all probabilities, the weights sum up to 1, so normalizing changes nothing.
        estimate = importance_sampling(
            data, mdp.target, weighted=True, per_decision=per_decision, **options
        )
        assert estimate.value == pytest.approx(mdp.values_of_horizons[horizon - 1], abs=1e-13)
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
        estimate = importance_sampling(data, target, gamma=1.0, per_decision=per_decision)
        assert estimate.value == pytest.approx(2000)
        assert estimate.weights.effective_sample_size == pytest.approx(2)


@st.composite
def draw_case(draw):
    """Draws episodes of any lengths and ends, ratios (some are 0), and weights of episodes."""
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    num_episodes = draw(st.integers(1, 12))
    lengths = rng.integers(0, draw(st.integers(1, 30)), num_episodes, endpoint=True)
    lengths[0] = draw(st.integers(1, 40))
    if draw(st.booleans()):
        lengths[:] = lengths[0]
    is_known, count = rng.random(num_episodes) < 0.5, int(lengths.sum())
    data = EvaluationSet(
        num_transitions=lengths,
        is_terminal=rng.random(num_episodes) < 0.5,
        final_observation_known=is_known,
        observations=np.zeros(count + is_known.sum()),
        actions=np.zeros(count),
        rewards=rng.normal(size=count).round(draw(st.integers(0, 3))),
        log_probs=rng.normal(size=count),
        discounts=rng.choice([0, 0.5, 1], count) if draw(st.booleans()) else None,
    )
    is_impossible = rng.random(count) < draw(st.sampled_from([0, 0, 0.05]))
    target = np.where(is_impossible, -np.inf, data.log_probs + rng.normal(size=count))
    weights = rng.integers(1, 4, num_episodes) if draw(st.booleans()) else None
    return data, target, weights, rng


@settings(max_examples=25, deadline=None)
@given(draw_case(), st.sampled_from([0, 0.5, 0.9, 1]), st.sampled_from([None, 1, 3, 50]))
def test_estimates_equal_their_definitions(case, gamma, horizon):
    data, target, weights, rng = case
    ratios = np.exp(target - data.log_probs).tolist()
    counts = np.ones(data.num_episodes) if weights is None else weights
    order = rng.permutation(data.num_episodes)
    targets = np.split(target, data.splits[1:-1])
    reordered = data.select(order), np.concatenate([targets[i] for i in order])
    drawn = counts * np.bincount(rng.integers(data.num_episodes, size=20), minlength=len(counts))
    is_cut = horizon is not None and (~data.is_terminal & (data.num_transitions < horizon)).any()
    for kind in KINDS:
        options = {"gamma": gamma, "horizon": horizon, "censored": "observed"}
        options |= {"weighted": kind[0], "per_decision": kind[1]}
        if is_cut and not kind[1]:
            with pytest.raises(ValueError, match="goes with per_decision=True"):
                importance_sampling(data, target, **options)
            continue
        estimate = importance_sampling(data, target, **options, episode_weights=weights)
        assert estimate.value == close(
            compute_slowly(data, ratios, gamma, kind, horizon=horizon, counts=counts)
        )
        if weights is not None:
            options["episode_weights"] = weights[order]
        assert importance_sampling(*reordered, **options).value == close(estimate.value)
        # Samples of the episodes, like those of a bootstrap.
        resampled = estimate.statistic.values(np.stack([drawn, counts]))
        expected = compute_slowly(data, ratios, gamma, kind, horizon=horizon, counts=drawn)
        assert resampled.tolist() == close([expected, estimate.value])


def close(expected):
    return pytest.approx(expected, rel=1e-9, abs=1e-9, nan_ok=True)


def make_episodes(length, num_episodes=40, seed=0, **changes):
    """Returns episodes with terminal ends."""
    rng = np.random.default_rng(seed)
    defaults = {
        "num_transitions": np.full(num_episodes, length),
        "is_terminal": np.ones(num_episodes, bool),
        "final_observation_known": np.zeros(num_episodes, bool),
        "observations": rng.integers(3, size=num_episodes * length),
        "actions": rng.integers(2, size=num_episodes * length),
        "rewards": rng.normal(size=num_episodes * length),
        "log_probs": rng.normal(size=num_episodes * length),
    }
    return EvaluationSet(**{**defaults, **changes})


def test_one_episode_may_be_much_longer_than_all_other_episodes(monkeypatch):
    """A padded matrix would take 5 GB."""
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
        for weighted in (False, True):  # The target is the behaviour policy.
            options = {"gamma": 0.999, "weighted": weighted}
            estimate = importance_sampling(data, data.log_probs, **options)
            assert estimate.value == pytest.approx(returns.mean())
            values = estimate.statistic.values(np.full((2, 5001), 3.0))
            assert values == pytest.approx(estimate.value)
            assert (estimate.weights.effective_sample_size, estimate.warnings) == (5001, ())
        assert tracemalloc.get_traced_memory()[1] < 100 << 20
    finally:
        tracemalloc.stop()


def test_samples_with_only_tiny_weights_have_no_estimate():
    """Their value is NaN, not 0."""
    data = make_episodes(3, 3)
    far = data.log_probs + np.repeat([0, -900, -np.inf], 3)
    rewards = data.rewards.reshape(3, 3)
    samples = np.array([[1, 1, 0], [0, 1, 0], [0, 0, 1], [5, 0, 5]])
    for per_decision in (False, True):
        estimate = importance_sampling(data, far, gamma=1, per_decision=per_decision)
        expected = pytest.approx(rewards[0].sum())
        assert estimate.value == expected
        values = estimate.statistic.values(samples.astype(float))
        assert (values[0], values[3]) == (expected, expected)
        assert np.isnan(values[1:3]).all()


def test_clipping_limits_the_log_ratios_and_reports_their_share():
    data = make_episodes(4)
    target = data.log_probs + np.random.default_rng(1).normal(size=160) * 3
    target[5] = -np.inf
    estimate = importance_sampling(data, target, gamma=0.9, clip_log_ratio=(-2, 1))
    clipped = np.clip(target - data.log_probs, -2, 1)
    clipped_before = importance_sampling(data, data.log_probs + clipped, gamma=0.9)
    assert estimate.value == pytest.approx(clipped_before.value)
    share = np.mean(abs(target - data.log_probs + 0.5) > 1.5)
    assert (estimate.weights.clipped, clipped_before.weights.clipped) == (pytest.approx(share), 0)
    assert f"{share:.1%} of the ratios were clipped" in str(estimate)
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
    estimate = importance_sampling(data, target, **options, censored="observed")
    assert estimate.value == pytest.approx(15681 / 5704)
    assert "1 of 4 episodes were cut" in estimate.warnings[-1]
    assert (estimate.end_counts.unknown, estimate.end_counts.censored) == (1, 1)
    # Unweighted, each step is divided by the number of episodes observed there.
    estimate = importance_sampling(data, target, **options, censored="observed", weighted=False)
    steps = [(1.5 * 1 + 0.5 * 4 + 0.5 * 2) / 4, (2.25 * 2 + 2.25 * 2 + 0.75 * 4) / 4, 1.125 * 8 / 3]
    assert estimate.value == pytest.approx(steps[0] + steps[1] / 2 + steps[2] / 4)
    estimate = importance_sampling(data, target, **options, censored="drop")
    expected = importance_sampling(data.select([0, 1, 2]), target, **options)
    assert estimate.value == expected.value
    ends = estimate.end_counts
    assert (estimate.num_episodes, ends.unknown, ends.censored) == (3, 0, 0)
    assert "1 of 4 episodes were cut before step 3 and left out" in estimate.warnings[-1]
    estimate = importance_sampling(
        data, target, **options, censored="drop", episode_weights=[0, 3, 1, 1]
    )
    expected = importance_sampling(data.select([1, 1, 1, 2]), target, **options)
    assert estimate.value == pytest.approx(expected.value)
    estimate = importance_sampling(data, target, gamma=0.5, horizon=9, censored="observed")
    assert estimate.value == pytest.approx(15681 / 5704)
    assert "No episode goes on after step 3" in estimate.warnings[-1]
    # No episode is censored at a horizon that all episodes reach.
    importance_sampling(data, target, gamma=0.5, horizon=2)


@pytest.mark.filterwarnings("error")
def test_unreliable_estimates_cause_warnings():
    data = make_episodes(4)
    rare = data.log_probs + np.where(data.episodes == 7, 3, 0)
    with pytest.warns(EstimateWarning, match="effective sample size is below 10") as caught:
        estimate = importance_sampling(data, rare, gamma=0.9)
    assert (len(caught), caught[0].filename) == (1, __file__)
    assert "An effective sample size of 1.0, of 40 episodes, is too small" in estimate.warnings[0]
    with pytest.warns(EstimateWarning):
        estimate = importance_sampling(data, np.full(160, -np.inf), gamma=0.9)
    assert math.isnan(estimate.value)
    assert "all weights are 0" in estimate.warnings[0]
    with pytest.warns(EstimateWarning):
        assert importance_sampling(data, np.full(160, -np.inf), gamma=1, weighted=False).value == 0
    # The target never takes the actions after the first two steps.
    two_steps = np.where(data.times < 2, data.log_probs, -np.inf)
    with pytest.warns(EstimateWarning):
        estimate = importance_sampling(data, two_steps, gamma=0.9)
    assert "In 2 of the steps all weights are 0" in estimate.warnings[1]
    shorter = importance_sampling(data, two_steps, gamma=0.9, horizon=2)
    assert estimate.value == pytest.approx(shorter.value)
    assert shorter.warnings == ()
    estimate = importance_sampling(data, data.log_probs + 800, gamma=0.9, weighted=False)
    assert "too large for a float" in str(estimate)


@pytest.mark.parametrize(
    ("changes", "error", "message"),
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
def test_impossible_targets_and_data_are_rejected(changes, error, message, monkeypatch):
    monkeypatch.setattr(ratios, "_BLOCK_TRANSITIONS", 3)
    data = make_episodes(4, **{k: v for k, v in changes.items() if k == "log_probs"})
    target = CategoricalPolicy.from_table(np.full((3, 2), 0.5))
    options = {"target": target, "gamma": 0.9} | changes
    options.pop("log_probs", None)
    with pytest.raises(error, match=message):
        importance_sampling(data, **options)
