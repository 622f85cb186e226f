"""Linear Q-functions in closed form, on problems with exact answers."""

from dataclasses import replace
from fractions import Fraction

import evaluation_problems as problems
import numpy as np
import pytest

from rlds.evaluation import (
    CategoricalPolicy,
    EvaluationSet,
    OneHot,
    Quadratic,
    Sampled,
    fitted_q,
    linear_q,
)

MDP = problems.MdpA
TABULAR = {"features": OneHot(3, 2), "gamma": MDP.gamma, "ridge": 0}


def test_fitted_q_of_four_episodes_is_exact():
    data, target = problems.four_episodes()
    q = fitted_q(data, target, features=OneHot(2, 2), gamma=0.5, ridge=0)
    expected = [Fraction(425, 107), Fraction(301, 107), Fraction(2), Fraction(1022, 107)]
    np.testing.assert_allclose(q.coefficients, np.array(expected, float), rtol=1e-14)
    estimate = q.estimate()
    assert estimate.value == pytest.approx(float(Fraction(332, 107)), rel=1e-14)
    # The successor of the last transition of the last episode is unobserved.
    assert q.is_used.tolist() == [True] * 7 + [False]
    ends = estimate.end_counts
    assert (ends.terminal, ends.truncated, ends.unknown, ends.left_out) == (2, 1, 1, 1)
    states, actions = np.array([0, 0, 1]), np.array([0, 1, 1])
    np.testing.assert_allclose(q.q(states, actions), q.coefficients[[0, 1, 3]])
    np.testing.assert_allclose(q.v(states[:1]), estimate.value)
    regularized = fitted_q(data, target, features=OneHot(2, 2), gamma=0.5)
    assert regularized.estimate().value == pytest.approx(estimate.value, rel=1e-7)


@pytest.mark.parametrize("horizon", [2, 3])
def test_fitted_q_of_all_trajectories_is_exact(horizon):
    data, probabilities = MDP.all_trajectories(horizon)
    q = fitted_q(data, MDP.target, **TABULAR, episode_weights=probabilities)
    np.testing.assert_allclose(q.coefficients.reshape(3, 2), MDP.q(), atol=1e-11)
    np.testing.assert_allclose(q.v(np.arange(3)), MDP.values, atol=1e-11)
    assert q.estimate().value == pytest.approx(MDP.value, abs=1e-12)
    undiscounted = fitted_q(
        data, MDP.target, **TABULAR | {"gamma": 1.0}, episode_weights=probabilities
    )
    assert undiscounted.estimate().value == pytest.approx(MDP.undiscounted_value, abs=1e-11)
    with pytest.raises(ValueError, match="gamma of 1 there are no frequencies"):
        undiscounted.occupancy_ratios()
    # Discounted visits add up to less than 1, because episodes end.
    shares = probabilities[data.episodes] / probabilities[data.episodes].sum()
    ratios = q.occupancy_ratios()
    moves = np.einsum("sa,sat->st", MDP.target_probs, MDP.next_probs)
    visits = np.linalg.solve(np.eye(3) - MDP.gamma * moves.T, (1 - MDP.gamma) * MDP.start)
    assert shares @ ratios == pytest.approx(visits.sum(), abs=1e-12)
    assert shares @ ratios == pytest.approx(0.378, abs=2e-4)
    assert shares @ (ratios * data.rewards) / (1 - MDP.gamma) == pytest.approx(MDP.value)


def compute_model_based_value(data):
    """Computes the value in an environment with the frequencies of the data."""
    counts, rewards = np.zeros((3, 2, 3)), np.zeros((3, 2))
    visits = np.zeros((3, 2))
    for episode in range(data.num_episodes):
        for t in range(data.splits[episode], data.splits[episode + 1]):
            pair = data.observations[data.rows[t]], data.actions[t]
            visits[pair] += 1
            rewards[pair] += data.rewards[t]
            if not data.next_is_terminal[t]:
                counts[pair][data.observations[data.rows[t] + 1]] += 1
    moves = np.einsum("sa,sat->st", MDP.target_probs, counts / visits[:, :, None])
    gains = (MDP.target_probs * rewards / visits).sum(axis=1)
    values = np.linalg.solve(np.eye(3) - MDP.gamma * moves, gains)
    return values[data.initial_observations].mean()


def test_model_and_dual_give_the_same_value():
    rng = np.random.default_rng(1)
    for _ in range(5):
        data = MDP.sample(60, 5, rng)
        q = fitted_q(data, MDP.target, **TABULAR)
        value = q.estimate().value
        assert value == pytest.approx(compute_model_based_value(data), abs=1e-10)
        dual = np.mean(q.occupancy_ratios() * data.rewards) / (1 - MDP.gamma)
        assert value == pytest.approx(dual, abs=1e-10)


def drop_finals(data):
    unknown = np.zeros(data.num_episodes, bool)
    return replace(data, observations=data.observations[data.rows], final_observation_known=unknown)


def join(first, second):
    joined = {
        name: np.concatenate([getattr(first, name), getattr(second, name)])
        for name in EvaluationSet.__dataclass_fields__
        if getattr(first, name) is not None
    }
    return EvaluationSet(**joined)


def test_time_limit_corrects_for_unknown_final_observations():
    data, probabilities = MDP.all_trajectories(4)
    mixed = join(data, drop_finals(data))
    weights = np.tile(probabilities, 2)
    biased = fitted_q(mixed, MDP.target, **TABULAR, episode_weights=weights)
    corrected = fitted_q(mixed, MDP.target, **TABULAR, episode_weights=weights, time_limit=4)
    assert corrected.estimate().value == pytest.approx(MDP.value, abs=1e-12)
    # Only terminal last steps remain, so the value is biased.
    assert biased.estimate().value < MDP.value - 0.05
    is_cut = drop_finals(data).is_last & (data.num_transitions == 4)[data.episodes]
    assert corrected.estimate().end_counts.left_out == is_cut.sum()
    all_unknown = fitted_q(
        drop_finals(data), MDP.target, **TABULAR, episode_weights=probabilities, time_limit=4
    )
    assert all_unknown.estimate().value == pytest.approx(MDP.value, abs=1e-12)
    with pytest.raises(ValueError, match="has 4 transitions: more than the time_limit of 3"):
        fitted_q(mixed, MDP.target, **TABULAR, time_limit=3)


def test_refits_equal_fits_to_the_drawn_episodes(monkeypatch):
    rng = np.random.default_rng(2)
    data = MDP.sample(30, 5, rng, share_unknown=0.5)
    options = {**TABULAR, "ridge": 1e-6}
    estimate = fitted_q(data, MDP.target, **options).estimate()
    drawn = [rng.integers(30, size=30) for _ in range(4)]
    counts = np.array([np.bincount(episodes, minlength=30) for episodes in drawn], float)
    refits = estimate.statistic.values(counts)
    fits = [fitted_q(data.select(e), MDP.target, **options).estimate().value for e in drawn]
    # Refits keep the feature scales of all episodes, which the ridge depends on.
    np.testing.assert_allclose(refits, fits, rtol=1e-4)
    monkeypatch.setattr(linear_q, "_BLOCK_VALUES", 100)
    np.testing.assert_allclose(estimate.statistic.values(counts), refits, rtol=1e-12)
    assert fitted_q(data, MDP.target, **options).estimate().value == pytest.approx(estimate.value)
    assert np.isnan(estimate.statistic.values(np.zeros((1, 30)))).all()


def compute_value(starts, gain, deviation):
    gamma = problems.LinearGaussian.gamma
    p = (1 + 0.1 * gain**2) / (1 - gamma * (0.9 + 0.5 * gain) ** 2)
    c = 0.1 * deviation**2 + gamma * p * (0.25 * deviation**2 + 0.09)
    return -(p * np.mean(starts**2) + c / (1 - gamma))


def test_fitted_q_finds_the_value_of_a_linear_gaussian_problem():
    data = problems.LinearGaussian.sample(500, 40, np.random.default_rng(0), share_unknown=0.5)
    policy = problems.LinearGaussian.policy
    for deviation in (0.0, 0.2):
        q = fitted_q(data, policy(-0.6, deviation), features=Quadratic(), gamma=0.95)
        exact = compute_value(data.initial_observations, -0.6, deviation)
        assert q.estimate().value == pytest.approx(exact, abs=0.2)
        assert not q.warnings
    # Samples actions instead of using the normal distribution of the policy.
    drawn = fitted_q(
        data, policy(-0.6, 0.2), features=Sampled(Quadratic(), num_samples=20), gamma=0.95
    )
    assert drawn.estimate().value == pytest.approx(q.estimate().value, abs=0.1)
    assert drawn.estimate().value != q.estimate().value


def test_recorded_discounts_multiply_gamma():
    # Some environments record a discount of 0 at a truncation, which is no terminal end.
    steps = [[2], [False], [True], np.array([0, 1, 0]), np.array([0, 0]), [1.0, 4.0]]
    data = EvaluationSet(*steps, discounts=np.array([0.5, 0.0]))
    policy = CategoricalPolicy.from_table([[1.0], [1.0]])
    q = fitted_q(data, policy, features=OneHot(2, 1), gamma=0.8, ridge=0)
    # q0 = 1 + .8 .5 q1, q1 = 4 + .8 q0
    np.testing.assert_allclose(q.coefficients, [2.6 / 0.68, 4.8 / 0.68])


def test_undetermined_coefficients_are_reported():
    # Action 1 is never taken in state 1, the target always takes it.
    data = EvaluationSet(
        [2, 2],
        [True, True],
        [False, False],
        np.array([0, 1, 0, 1]),
        np.array([0, 0, 1, 0]),
        [1.0] * 4,
    )
    target = CategoricalPolicy.from_table([[0.5, 0.5], [0.0, 1.0]])
    with pytest.raises(ValueError, match=r"not determine.*: state 1 with action 1\. Leave"):
        fitted_q(data, target, features=OneHot(2, 2), gamma=0.5, ridge=0)
    (warning,) = fitted_q(data, target, features=OneHot(2, 2), gamma=0.5).warnings
    assert "and other values under the policy: state 1 with action 1." in warning
    still = CategoricalPolicy.from_table([[0.5, 0.5], [1.0, 0.0]])
    assert not fitted_q(data, still, features=OneHot(2, 2), gamma=0.5).warnings
    # A constant observation makes some features linearly dependent.
    rng = np.random.default_rng(0)
    x = rng.standard_normal((40, 1))
    x = np.concatenate([x, np.full((40, 1), 3.0)], axis=1)
    data = EvaluationSet([40], [True], [False], x, np.zeros((40, 1)), rng.standard_normal(40))
    policy = problems.LinearGaussian.policy(0.0, 0.0)
    target = type(policy)(lambda observations: (observations[:, :1] * 0, -np.inf))
    with pytest.raises(ValueError, match=r"follow from the rest: 1, .*observation\[1\]"):
        fitted_q(data, target, features=Quadratic(), gamma=0.5, ridge=0)
    assert not fitted_q(data, target, features=Quadratic(), gamma=0.5).warnings


def test_impossible_estimates_are_reported():
    # Each state is followed by one with twice the feature, so no positive weight fits.
    observations = np.array([[1.0], [2.0], [0.5], [1.0]])
    data = EvaluationSet([1, 1], [False] * 2, [True] * 2, observations, np.zeros((2, 1)), [1.0] * 2)
    target = problems.LinearGaussian.policy(0.0, 0.0)
    features = Sampled(lambda observations, actions: observations)
    (warning,) = fitted_q(data, target, features=features, gamma=0.9).warnings
    assert "is impossible: the recorded rewards, 0 to 1," in warning


def test_bad_observations_features_and_options_are_rejected():
    data, target = problems.four_episodes()
    options = {"features": OneHot(2, 2), "gamma": 0.5}
    with pytest.raises(ValueError, match="episode 1, step 0, observation: 7, expected an"):
        invalid = replace(data, observations=np.array([0, 1, 7, 0, 0, 1, 0, 0, 1]))
        fitted_q(invalid, target, **options)
    with pytest.raises(ValueError, match="after episode 0, step 0: the features are not finite"):
        features = Sampled(lambda observations, actions: np.log(1 - observations)[:, None])
        with np.errstate(divide="ignore"):
            fitted_q(data, target, **options | {"features": features})
    with pytest.raises(ValueError, match="ridge must be 0 or more, got -1"):
        fitted_q(data, target, **options, ridge=-1)
    with pytest.raises(ValueError, match="gamma must be between 0 and 1"):
        fitted_q(data, target, features=OneHot(2, 2), gamma=1.5)
    single = EvaluationSet([1], [False], [False], np.array([0]), np.array([0]), [1.0])
    with pytest.raises(ValueError, match="no transition can be fitted: the successors of all 1"):
        fitted_q(single, target, **options)
    empty = EvaluationSet([1, 0], [True] * 2, [False] * 2, np.array([0]), np.array([0]), [1.0])
    with pytest.raises(ValueError, match="episode 1 has neither a transition nor an observation"):
        fitted_q(empty, target, **options)
    with pytest.raises(ValueError, match="episode_weights must have shape"):
        fitted_q(data, target, **options, episode_weights=[1.0])
