"""Q-functions corrected by recorded rewards, on problems with exact answers."""

from dataclasses import replace
from fractions import Fraction

import evaluation_problems as problems
import numpy as np
import pytest

from rlds.evaluation import (
    EstimateWarning,
    EvaluationSet,
    OneHot,
    TabularQ,
    direct_method,
    doubly_robust,
    fitted_q,
    importance_sampling,
)

MDP = problems.MdpA


@pytest.fixture
def four():
    data, target = problems.four_episodes()
    return data, target, TabularQ(problems.FOUR_EPISODES_Q, target)


def test_doubly_robust_of_four_episodes_is_exact(four):
    data, target, q = four
    assert direct_method(data, q, gamma=0.5).value == pytest.approx(11 / 4, abs=1e-14)
    with pytest.warns(EstimateWarning):
        plain = doubly_robust(data, target, q, gamma=0.5, weighted=False)
    terms = [Fraction(-5, 8), Fraction(15, 4), Fraction(971, 256), Fraction(15, 4)]
    np.testing.assert_allclose(plain.statistic.terms, [float(term) for term in terms], rtol=1e-14)
    assert plain.value == pytest.approx(float(Fraction(2731, 1024)), rel=1e-14)
    assert (plain.end_counts.left_out, plain.horizon) == (1, None)
    with pytest.warns(EstimateWarning):
        weighted = doubly_robust(data, target, q, gamma=0.5)
    assert weighted.value == pytest.approx(float(Fraction(27761, 9920)), rel=1e-14)
    # Resampling equals a dataset that repeats its episodes.
    counts = np.array([2.0, 0.0, 1.0, 3.0])
    resampled = data.select(np.repeat(np.arange(4), counts.astype(int)))
    with pytest.warns(EstimateWarning):
        expected = doubly_robust(resampled, target, q, gamma=0.5).value
    assert weighted.statistic.values(counts[None]) == pytest.approx(expected)


@pytest.mark.filterwarnings("ignore::rlds.evaluation.EstimateWarning")
@pytest.mark.parametrize("horizon", [1, 2, 3, 4])
def test_exact_q_functions_give_no_bias(horizon):
    data, probabilities = MDP.all_trajectories(horizon)
    q = TabularQ(MDP.q(), MDP.target)
    options = {"gamma": MDP.gamma, "episode_weights": probabilities}
    estimate = doubly_robust(data, MDP.target, q, **options, weighted=False)
    assert estimate.value == pytest.approx(MDP.value, abs=1e-11)
    assert doubly_robust(data, MDP.target, q, **options).value == pytest.approx(
        MDP.value, abs=1e-11
    )
    if horizon == 3:
        variance = probabilities @ (estimate.statistic.terms - MDP.value) ** 2
        assert variance == pytest.approx(2.8972, abs=5e-5)
        # Corrections that stop early have less variance, and no bias.
        shorter = doubly_robust(data, MDP.target, q, **options, weighted=False, horizon=1)
        assert shorter.value == pytest.approx(MDP.value, abs=1e-11)
        assert probabilities @ (shorter.statistic.terms - MDP.value) ** 2 < 0.8 * variance


def test_wrong_q_functions_give_no_bias():
    data, probabilities = MDP.all_trajectories(4)
    # Q = 0 gives importance sampling, whose value ends with the episodes.
    zero_q = TabularQ(np.zeros((3, 2)), MDP.target)
    options = {"gamma": MDP.gamma, "episode_weights": probabilities, "weighted": False}
    estimate = doubly_robust(data, MDP.target, zero_q, **options)
    assert estimate.value == pytest.approx(MDP.values_of_horizons[3], abs=1e-13)
    by_ratios = importance_sampling(data, MDP.target, **options)
    np.testing.assert_allclose(estimate.statistic.terms, by_ratios.statistic.terms, atol=1e-13)


def test_time_limit_corrects_for_unknown_final_observations():
    data, probabilities = MDP.all_trajectories(3)
    unknown = np.zeros(data.num_episodes, bool)
    cut_data = replace(
        data, observations=data.observations[data.rows], final_observation_known=unknown
    )
    q = TabularQ(MDP.q(), MDP.target)
    options = {"gamma": MDP.gamma, "episode_weights": probabilities, "weighted": False}
    biased = doubly_robust(cut_data, MDP.target, q, **options).value
    corrected = doubly_robust(cut_data, MDP.target, q, **options, time_limit=3).value
    assert corrected == pytest.approx(MDP.value, abs=1e-11)
    assert abs(biased - MDP.value) > 0.01


@pytest.mark.parametrize("weighted", [False, True])
def test_fitted_q_functions_are_refitted_to_each_sample(weighted):
    data = MDP.sample(40, 4, np.random.default_rng(0), share_unknown=0.5)
    counts = np.random.default_rng(1).integers(4, size=40)
    drawn = data.select(np.repeat(np.arange(40), counts))

    def estimates(evaluated, fitted_to):
        q = fitted_q(fitted_to, MDP.target, features=OneHot(3, 2), gamma=MDP.gamma)
        options = {"gamma": MDP.gamma, "weighted": weighted, "time_limit": 4, "horizon": 3}
        corrected = doubly_robust(evaluated, MDP.target, q, **options)
        return direct_method(evaluated, q, gamma=MDP.gamma), corrected

    for refitted, expected, unchanged in zip(
        estimates(data, data), estimates(drawn, drawn), estimates(drawn, data), strict=True
    ):
        (value,) = refitted.statistic.values(counts[None].astype(float))
        assert value == pytest.approx(expected.value, rel=1e-6)
        assert abs(value - unchanged.value) > 0.01
        assert "ignores the error of the Q-function" not in str(refitted.interval(num_samples=40))
        assert "ignores the error of the Q-function" in str(unchanged.interval(num_samples=40))


def test_intervals_warn_if_the_q_function_is_not_refitted():
    data = MDP.sample(40, 30, np.random.default_rng(0))
    data = data.select(data.is_terminal)
    q = TabularQ(MDP.q(), MDP.target)
    of_starts = direct_method(data, q, gamma=MDP.gamma)
    assert "ignores the error of the Q-function" in str(of_starts.interval(num_samples=40))
    corrected = doubly_robust(data, MDP.target, q, gamma=MDP.gamma)
    # Rewards correct all values, so a fitted Q-function needs no refit.
    fitted = fitted_q(data, MDP.target, features=OneHot(3, 2), gamma=MDP.gamma)
    plain = doubly_robust(data, MDP.target, fitted, gamma=MDP.gamma, weighted=False)
    assert plain.interval(method="t").lower < plain.value
    assert "ignores the error of the Q-function" not in str(corrected.interval(num_samples=40))
    shorter = doubly_robust(data, MDP.target, q, gamma=MDP.gamma, horizon=2)
    assert "ignores the error of the Q-function" in str(shorter.interval(num_samples=40))


def test_bad_q_functions_and_observations_are_rejected(four):
    data, target, q = four

    class Bad:
        def __init__(self, v, q):
            self.v, self.q = v, q

    with pytest.raises(ValueError, match="episode 1, step 0: q of the Q-function is nan"):
        bad = Bad(q.v, lambda o, a: np.where(np.arange(len(a)) == 2, np.nan, 0))
        doubly_robust(data, target, bad, gamma=0.5)
    with pytest.raises(ValueError, match=r"v of the Q-function must have one .* got \(4, 1\)"):
        direct_method(data, Bad(lambda o: np.zeros((len(o), 1)), q.q), gamma=0.5)
    with pytest.raises(ValueError, match="at the start of episode 3, observation: 4, expected an"):
        invalid = replace(data, observations=np.array([0, 1, 0, 0, 0, 1, 0, 4, 1]))
        direct_method(invalid, q, gamma=0.5)
    with pytest.raises(ValueError, match="horizon must be positive"):
        doubly_robust(data, target, q, gamma=0.5, horizon=0)
    with pytest.raises(ValueError, match="must have a finite number for each state and action"):
        TabularQ([[1.0, np.inf]], target)
    # The weight of 800 steps is too large for a float.
    long = EvaluationSet(
        [800] * 2,
        [True] * 2,
        [False] * 2,
        np.zeros(1600, int),
        np.zeros(1600, int),
        np.ones(1600),
        np.full(1600, np.log(0.25)),
    )
    with pytest.warns(EstimateWarning):
        estimate = doubly_robust(
            long, np.zeros(1600), TabularQ(np.zeros((2, 2)), target), gamma=1, weighted=False
        )
    assert "A weight is too large for a float: use weighted=True." in estimate.warnings
