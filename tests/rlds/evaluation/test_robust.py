"""Q-functions that recorded rewards correct, on problems whose answers are known exactly."""

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
    # Resampled: the episodes themselves, more than once.
    counts = np.array([2.0, 0.0, 1.0, 3.0])
    again = data.select(np.repeat(np.arange(4), counts.astype(int)))
    with pytest.warns(EstimateWarning):
        expected = doubly_robust(again, target, q, gamma=0.5).value
    assert weighted.statistic.values(counts[None]) == pytest.approx(expected)


@pytest.mark.filterwarnings("ignore::rlds.evaluation.EstimateWarning")
@pytest.mark.parametrize("horizon", [1, 2, 3, 4])
def test_no_bias_with_the_exact_q_function(horizon):
    data, probabilities = MDP.all_trajectories(horizon)
    q = TabularQ(MDP.q(), MDP.target)
    options = {"gamma": MDP.gamma, "episode_weights": probabilities}
    found = doubly_robust(data, MDP.target, q, **options, weighted=False)
    assert found.value == pytest.approx(MDP.value, abs=1e-11)
    assert doubly_robust(data, MDP.target, q, **options).value == pytest.approx(
        MDP.value, abs=1e-11
    )
    if horizon == 3:
        variance = probabilities @ (found.statistic.terms - MDP.value) ** 2
        assert variance == pytest.approx(2.8972, abs=5e-5)
        # Corrections that stop early have less variance, and no bias either.
        shorter = doubly_robust(data, MDP.target, q, **options, weighted=False, horizon=1)
        assert shorter.value == pytest.approx(MDP.value, abs=1e-11)
        assert probabilities @ (shorter.statistic.terms - MDP.value) ** 2 < 0.8 * variance


def test_no_bias_with_a_wrong_q_function():
    data, probabilities = MDP.all_trajectories(4)
    # With Q = 0 it is importance sampling, whose value ends with the episodes.
    nothing = TabularQ(np.zeros((3, 2)), MDP.target)
    options = {"gamma": MDP.gamma, "episode_weights": probabilities, "weighted": False}
    found = doubly_robust(data, MDP.target, nothing, **options)
    assert found.value == pytest.approx(MDP.values_of_horizons[3], abs=1e-13)
    by_ratios = importance_sampling(data, MDP.target, **options)
    np.testing.assert_allclose(found.statistic.terms, by_ratios.statistic.terms, atol=1e-13)


def test_final_observations_of_half_of_the_episodes_are_unknown():
    data, probabilities = MDP.all_trajectories(3)
    unknown = np.zeros(data.num_episodes, bool)
    without = replace(
        data, observations=data.observations[data.rows], final_observation_known=unknown
    )
    q = TabularQ(MDP.q(), MDP.target)
    options = {"gamma": MDP.gamma, "episode_weights": probabilities, "weighted": False}
    biased = doubly_robust(without, MDP.target, q, **options).value
    right = doubly_robust(without, MDP.target, q, **options, time_limit=3).value
    assert right == pytest.approx(MDP.value, abs=1e-11)
    assert abs(biased - MDP.value) > 0.01


@pytest.mark.parametrize("weighted", [False, True])
def test_a_fitted_q_function_is_fitted_again_to_each_sample(weighted):
    data = MDP.sample(40, 4, np.random.default_rng(0), share_unknown=0.5)
    counts = np.random.default_rng(1).integers(4, size=40)
    again = data.select(np.repeat(np.arange(40), counts))

    def estimates(of, fitted_to):
        q = fitted_q(fitted_to, MDP.target, features=OneHot(3, 2), gamma=MDP.gamma)
        options = {"gamma": MDP.gamma, "weighted": weighted, "time_limit": 4, "horizon": 3}
        corrected = doubly_robust(of, MDP.target, q, **options)
        return direct_method(of, q, gamma=MDP.gamma), corrected

    for found, expected, as_it_is in zip(
        estimates(data, data), estimates(again, again), estimates(again, data), strict=True
    ):
        (value,) = found.statistic.values(counts[None].astype(float))
        assert value == pytest.approx(expected.value, rel=1e-6)
        assert abs(value - as_it_is.value) > 0.01
        assert "ignores the error of the Q-function" not in str(found.interval(num_samples=40))
        assert "ignores the error of the Q-function" in str(as_it_is.interval(num_samples=40))


def test_intervals_that_take_the_q_function_as_it_is():
    data = MDP.sample(40, 30, np.random.default_rng(0))
    data = data.select(data.is_terminal)
    q = TabularQ(MDP.q(), MDP.target)
    of_starts = direct_method(data, q, gamma=MDP.gamma)
    assert "ignores the error of the Q-function" in str(of_starts.interval(num_samples=40))
    corrected = doubly_robust(data, MDP.target, q, gamma=MDP.gamma)
    # No value of it is left without a correction; so a fitted one need not be fitted again.
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
        wrong = replace(data, observations=np.array([0, 1, 0, 0, 0, 1, 0, 4, 1]))
        direct_method(wrong, q, gamma=0.5)
    with pytest.raises(ValueError, match="horizon must be positive"):
        doubly_robust(data, target, q, gamma=0.5, horizon=0)
    with pytest.raises(ValueError, match="must have a finite number for each state and action"):
        TabularQ([[1.0, np.inf]], target)
    # The weight of 800 steps is no float.
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
        found = doubly_robust(
            long, np.zeros(1600), TabularQ(np.zeros((2, 2)), target), gamma=1, weighted=False
        )
    assert "A weight is too large for a float: use weighted=True." in found.warnings
