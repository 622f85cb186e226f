"""Intervals: what they are computed from, how often they hold the truth, and why there is none."""

import collections
import functools

import evaluation_problems as problems
import numpy as np
import pytest

from rlds.evaluation import (
    Estimate,
    OneHot,
    TabularQ,
    doubly_robust,
    estimates,
    fitted_q,
    importance_sampling,
)
from rlds.evaluation.estimates import EndCounts, Mean, RatioSum, WeightReport, student_quantile


def estimate_of(statistic, weights_of_episodes=None, **others):
    number = len(statistic.terms if isinstance(statistic, Mean) else statistic.numerators)
    weights = np.ones(number) if weights_of_episodes is None else np.asarray(weights_of_episodes)
    (value,) = statistic.values(weights[None])
    given = {
        "value": float(value),
        "estimator": "per-decision WIS",
        "estimand": "the discounted return of the first 3 steps",
        "gamma": 0.9,
        "horizon": 3,
        "statistic": statistic,
        "end_counts": EndCounts(number, 0, 0),
        "episode_weights": weights_of_episodes,
    }
    return Estimate(**{**given, **others})


def ends_of(interval):
    return interval.lower, interval.upper


def ratios(number, columns=2, seed=0):
    rng = np.random.default_rng(seed)
    return RatioSum(rng.normal(size=(number, columns)), rng.exponential(size=(number, columns)))


def test_quantiles_are_those_of_the_table():
    table = {  # By scipy.stats.t.ppf((1 + level) / 2, degrees of freedom).
        (0.95, 1): 12.706204736174694,
        (0.999, 1): 636.6192487687897,
        (0.999999, 3): 130.15458955229283,
        (0.95, 10): 2.228138851986274,
        (0.95, 10**6): 1.959966356814107,
        (0.99, 10**8): 2.5758293527143774,
    }
    found = {key: student_quantile(*key) for key in table}
    assert found == pytest.approx(table, rel=1e-6)
    assert found[0.95, 10] == pytest.approx(table[0.95, 10], rel=1e-13)


def test_bootstrap_computes_the_whole_estimate_again(monkeypatch):
    statistic = ratios(7)
    rng, values = np.random.default_rng(5), []
    for _ in range(200):
        drawn = rng.integers(7, size=7)
        sums = statistic.numerators[drawn].sum(axis=0) / statistic.denominators[drawn].sum(axis=0)
        values.append(sums.sum())
    expected = np.quantile(values, [0.05, 0.95])
    estimate = estimate_of(statistic)
    found = estimate.interval(0.9, num_samples=200, seed=5)
    assert ends_of(found) == pytest.approx(tuple(expected), rel=1e-12)
    monkeypatch.setattr(estimates, "_MAX_BLOCK_DRAWS", 7 * 30)  # The last block has 20 samples.
    assert estimate.interval(0.9, num_samples=200, seed=5) == found
    assert estimate.interval(0.9, num_samples=200, seed=6) != found


def test_intervals_of_means_follow_their_formulas():
    mean = estimate_of(Mean(np.array([1.0, 2.0, 3.0, 4.0])))
    error = np.sqrt(5 / 3 / 4)  # Of the mean of four numbers with variance 5/3.
    half = student_quantile(0.95, 3) * error
    assert ends_of(mean.interval(method="t")) == pytest.approx((2.5 - half, 2.5 + half))
    found = mean.interval(0.9, method="bernstein", value_range=6.0)
    half = np.sqrt(2) * error * np.sqrt(np.log(40)) + 7 * 6 * np.log(40) / 9
    assert ends_of(found) == pytest.approx((2.5 - half, 2.5 + half))


@pytest.mark.parametrize("method", ["bootstrap", "t"])
def test_intervals_follow_the_weights_of_episodes(method):
    terms = np.random.default_rng(1).normal(size=50)
    halved = np.arange(50) % 2 == 0
    alone = estimate_of(Mean(terms[halved])).interval(method=method)
    weighed = estimate_of(Mean(terms), halved * 3.0).interval(method=method)
    assert ends_of(weighed) == pytest.approx(ends_of(alone))
    copied = estimate_of(Mean(terms), np.where(halved, 1.0, 0.01)).interval(method=method)
    assert copied.warnings[0].startswith("the effective number of episodes is 25.5:")


def test_samples_without_an_estimate_are_left_out_and_counted():
    few = np.zeros((20, 1))
    few[:2] = 1.0
    estimate = estimate_of(RatioSum(few * [[3.0]], few))
    found = estimate.interval()
    assert ends_of(found) == (3.0, 3.0)  # Not 0, which samples without any weight would be.
    number = int(found.warnings[0].split()[0])
    assert number == pytest.approx(1000 * 0.9**20, abs=60)
    assert found.warnings[0].endswith("of 1000 samples have no estimate and were left out")


def test_most_samples_without_an_estimate():
    class OfAll(RatioSum):
        def values(self, counts):
            return np.where((counts > 0).all(axis=1), super().values(counts), np.nan)

    # Drawn with replacement, all four are there in 4! / 4⁴ of the samples.
    with pytest.raises(ValueError, match=r"no interval: 9\d\d of 1000 samples.*; collect more"):
        estimate_of(OfAll(*np.ones((2, 4, 1)))).interval()


@pytest.mark.parametrize(
    ("statistic", "weights", "others", "message"),
    [
        (Mean(np.ones(1)), None, {}, "no interval: there is only one episode"),
        (ratios(3), [0, 2, 0], {}, "no interval: only one episode has a weight"),
        (ratios(3), [0, 0, 0], {"value": 0.0}, "no interval: the weights of all episodes are 0"),
        (ratios(3), None, {"value": np.nan}, "no interval: the estimate is nan"),
        (
            Mean(np.zeros(3)),
            None,
            {"weights": WeightReport(0.0, 0.0)},
            "no interval: the policy never takes the recorded actions",
        ),
    ],
)
def test_estimates_without_an_interval_are_rejected(statistic, weights, others, message):
    with pytest.raises(ValueError, match=message):
        estimate_of(statistic, weights, **others).interval()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"level": 95}, "level must be between 0 and 1"),
        ({"method": "normal"}, "must be 'bootstrap', 't' or 'bernstein', got 'normal'"),
        ({"method": "t"}, "per-decision WIS is computed from all episodes together"),
        ({"method": "bernstein"}, "value_range and method 'bernstein' need each other"),
        ({"value_range": 2.0}, "value_range and method 'bernstein' need each other"),
        ({"num_samples": 39}, "num_samples must be at least 40 for level 0.95"),
    ],
)
def test_wrong_interval_options_are_rejected(options, message):
    with pytest.raises(ValueError, match=message):
        estimate_of(ratios(5)).interval(**options)


def test_ranges_and_weights_that_bernstein_cannot_have():
    terms = np.array([0.0, 1.0, 4.0])
    with pytest.raises(ValueError, match=r"value_range is 3.0, but episodes differ by 4"):
        estimate_of(Mean(terms)).interval(method="bernstein", value_range=3.0)
    with pytest.raises(ValueError, match="episodes of equal weight"):
        estimate_of(Mean(terms), [1, 2, 1]).interval(method="bernstein", value_range=9.0)


def test_few_episodes_are_warned_of():
    assert estimate_of(ratios(30)).interval(num_samples=40).warnings == ()
    (warning,) = estimate_of(ratios(29)).interval(num_samples=40).warnings
    assert warning.startswith("there are only 29 episodes")
    worth_little = estimate_of(ratios(50), weights=WeightReport(2.04, 0.7))
    assert "warning: the effective number of episodes is 2.0" in str(
        worth_little.interval(num_samples=40)
    )


def test_an_estimate_shows_itself():
    estimate = estimate_of(
        ratios(4),
        value=15681 / 5704,
        end_counts=EndCounts(2, 1, 1, censored=1, left_out=1),
        weights=WeightReport(2.995624, 0.486486, 0.125),
        warnings=("It means little.",),
    )
    shown = " ".join(str(estimate).split())
    for part in (
        "2.7491, by per-decision WIS what: the discounted return of the first 3 steps (gamma 0.9)",
        "from: 4 episodes (2 terminal, 1 truncated, 1 cut without a final observation), 1 of them",
        "weights: worth 3.0 episodes",
        "12.5% of the ratios were clipped warning: It means little.",
    ):
        assert part in shown
    assert repr(estimate) == (
        "Estimate(2.7491, per-decision WIS, 4 episodes, effective sample size 3.0, 1 warning)"
    )


@pytest.mark.slow
def test_intervals_hold_the_truth():
    rng = np.random.default_rng(0)
    held = {"t": 0, "bootstrap": 0, "ratio": 0}
    for _ in range(200):
        above, below = rng.normal(1.0, 1.0, size=(2, 60, 1))
        below = below**2
        mean = estimate_of(Mean(above[:, 0]))
        for name, truth, found in [
            ("t", 1.0, mean.interval(method="t")),
            ("bootstrap", 1.0, mean.interval(num_samples=200)),
            ("ratio", 0.5, estimate_of(RatioSum(above, below)).interval(num_samples=200)),
        ]:
            held[name] += found.lower < truth < found.upper
    assert all(0.89 * 200 <= number <= 0.99 * 200 for number in held.values()), held


@pytest.mark.slow
def test_intervals_of_estimators_hold_the_truth():
    mdp, number = problems.MdpA, 300
    exact = TabularQ(mdp.q(), mdp.target)
    held = collections.Counter()
    for seed in range(number):
        data = mdp.sample(1000, 3, np.random.default_rng(seed))
        sampling = functools.partial(importance_sampling, data, mdp.target, gamma=0.9, horizon=3)
        robust = functools.partial(doubly_robust, data, mdp.target, gamma=0.9)
        fitted = fitted_q(data, mdp.target, features=OneHot(3, 2), gamma=0.9)
        pdis = sampling(weighted=False)
        of_three_steps = {
            "PDIS, t": pdis.interval(method="t"),
            "PDIS": pdis.interval(num_samples=400),
            "WIS": sampling(per_decision=False).interval(num_samples=400),
            "PDWIS": sampling().interval(num_samples=400),
        }
        of_all_steps = {
            "FQE": fitted.estimate().interval(num_samples=400),
            "DR": robust(q=fitted, weighted=False).interval(num_samples=400),
            "WDR": robust(q=fitted).interval(num_samples=400),
            "DR with the true Q, t": robust(q=exact, weighted=False).interval(method="t"),
            "WDR with the true Q": robust(q=exact).interval(num_samples=400),
        }
        truth = mdp.values_of_horizons[2]
        for value, found in [(truth, of_three_steps), (mdp.value, of_all_steps)]:
            held.update(name for name, at in found.items() if at.lower < value < at.upper)
        # It holds for any number of episodes, and is wider. No ratio is above 2.5, no return 5.
        widest = pdis.interval(method="bernstein", value_range=2.5**3 * 5)
        assert widest.lower < truth < widest.upper
    shares = {name: count / number for name, count in held.items()}
    assert len(shares) == 9
    assert shares == pytest.approx(dict.fromkeys(shares, 0.95), abs=0.035)
