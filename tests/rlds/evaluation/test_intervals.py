"""Intervals: their computation, their coverage of the truth, and estimates without one."""

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


def make_estimate(statistic, weights_of_episodes=None, **changes):
    size = len(statistic.terms if isinstance(statistic, Mean) else statistic.numerators)
    weights = np.ones(size) if weights_of_episodes is None else np.asarray(weights_of_episodes)
    (value,) = statistic.values(weights[None])
    defaults = {
        "value": float(value),
        "estimator": "per-decision WIS",
        "estimand": "the discounted return of the first 3 steps",
        "gamma": 0.9,
        "horizon": 3,
        "statistic": statistic,
        "end_counts": EndCounts(size, 0, 0),
        "episode_weights": weights_of_episodes,
    }
    return Estimate(**{**defaults, **changes})


def get_bounds(interval):
    return interval.lower, interval.upper


def ratios(size, columns=2, seed=0):
    rng = np.random.default_rng(seed)
    return RatioSum(rng.normal(size=(size, columns)), rng.exponential(size=(size, columns)))


def test_quantiles_equal_those_of_scipy():
    table = {  # By scipy.stats.t.ppf((1 + level) / 2, degrees of freedom).
        (0.95, 1): 12.706204736174694,
        (0.999, 1): 636.6192487687897,
        (0.999999, 3): 130.15458955229283,
        (0.95, 10): 2.228138851986274,
        (0.95, 10**6): 1.959966356814107,
        (0.99, 10**8): 2.5758293527143774,
    }
    quantiles = {key: student_quantile(*key) for key in table}
    assert quantiles == pytest.approx(table, rel=1e-6)
    assert quantiles[0.95, 10] == pytest.approx(table[0.95, 10], rel=1e-13)


def test_bootstrap_recomputes_the_complete_estimate(monkeypatch):
    statistic = ratios(7)
    rng, values = np.random.default_rng(5), []
    for _ in range(200):
        drawn = rng.integers(7, size=7)
        sums = statistic.numerators[drawn].sum(axis=0) / statistic.denominators[drawn].sum(axis=0)
        values.append(sums.sum())
    expected = np.quantile(values, [0.05, 0.95])
    estimate = make_estimate(statistic)
    interval = estimate.interval(0.9, num_samples=200, seed=5)
    assert get_bounds(interval) == pytest.approx(tuple(expected), rel=1e-12)
    monkeypatch.setattr(estimates, "_MAX_BLOCK_DRAWS", 7 * 30)  # The last block has 20 samples.
    assert estimate.interval(0.9, num_samples=200, seed=5) == interval
    assert estimate.interval(0.9, num_samples=200, seed=6) != interval


def test_intervals_of_means_follow_their_formulas():
    mean = make_estimate(Mean(np.array([1.0, 2.0, 3.0, 4.0])))
    error = np.sqrt(5 / 3 / 4)  # The numbers have the variance 5/3.
    half = student_quantile(0.95, 3) * error
    assert get_bounds(mean.interval(method="t")) == pytest.approx((2.5 - half, 2.5 + half))
    interval = mean.interval(0.9, method="bernstein", value_range=6.0)
    half = np.sqrt(2) * error * np.sqrt(np.log(40)) + 7 * 6 * np.log(40) / 9
    assert get_bounds(interval) == pytest.approx((2.5 - half, 2.5 + half))


@pytest.mark.parametrize("method", ["bootstrap", "t"])
def test_intervals_follow_the_weights_of_episodes(method):
    terms = np.random.default_rng(1).normal(size=50)
    halved = np.arange(50) % 2 == 0
    expected = make_estimate(Mean(terms[halved])).interval(method=method)
    weighted = make_estimate(Mean(terms), halved * 3.0).interval(method=method)
    assert get_bounds(weighted) == pytest.approx(get_bounds(expected))
    uneven = make_estimate(Mean(terms), np.where(halved, 1.0, 0.01)).interval(method=method)
    assert uneven.warnings[0].startswith("the effective number of episodes is 25.5:")


def test_samples_without_an_estimate_are_left_out_and_counted():
    few = np.zeros((20, 1))
    few[:2] = 1.0
    estimate = make_estimate(RatioSum(few * [[3.0]], few))
    interval = estimate.interval()
    assert get_bounds(interval) == (3.0, 3.0)  # Not 0, the value of samples without weights.
    num_left_out = int(interval.warnings[0].split()[0])
    assert num_left_out == pytest.approx(1000 * 0.9**20, abs=60)
    assert interval.warnings[0].endswith("of 1000 samples have no estimate and were left out")


def test_too_many_samples_without_an_estimate_are_an_error():
    class NeedsAll(RatioSum):
        def values(self, counts):
            return np.where((counts > 0).all(axis=1), super().values(counts), np.nan)

    # With replacement, 4! / 4⁴ of the samples contain all four episodes.
    with pytest.raises(ValueError, match=r"no interval: 9\d\d of 1000 samples.*; collect more"):
        make_estimate(NeedsAll(*np.ones((2, 4, 1)))).interval()


@pytest.mark.parametrize(
    ("statistic", "weights", "changes", "message"),
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
def test_estimates_without_an_interval_are_rejected(statistic, weights, changes, message):
    with pytest.raises(ValueError, match=message):
        make_estimate(statistic, weights, **changes).interval()


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
        make_estimate(ratios(5)).interval(**options)


def test_bernstein_refuses_small_ranges_and_unequal_weights():
    terms = np.array([0.0, 1.0, 4.0])
    with pytest.raises(ValueError, match=r"value_range is 3.0, but episodes differ by 4"):
        make_estimate(Mean(terms)).interval(method="bernstein", value_range=3.0)
    with pytest.raises(ValueError, match="episodes of equal weight"):
        make_estimate(Mean(terms), [1, 2, 1]).interval(method="bernstein", value_range=9.0)


def test_few_episodes_cause_a_warning():
    assert make_estimate(ratios(30)).interval(num_samples=40).warnings == ()
    (warning,) = make_estimate(ratios(29)).interval(num_samples=40).warnings
    assert warning.startswith("there are only 29 episodes")
    uncertain = make_estimate(ratios(50), weights=WeightReport(2.04, 0.7))
    assert "warning: the effective number of episodes is 2.0" in str(
        uncertain.interval(num_samples=40)
    )


def test_text_of_an_estimate_lists_its_ends_and_weights():
    estimate = make_estimate(
        ratios(4),
        value=15681 / 5704,
        end_counts=EndCounts(2, 1, 1, censored=1, left_out=1),
        weights=WeightReport(2.995624, 0.486486, 0.125),
        warnings=("It means little.",),
    )
    text = " ".join(str(estimate).split())
    for phrase in (
        "2.7491, by per-decision WIS what: the discounted return of the first 3 steps (gamma 0.9)",
        "from: 4 episodes (2 terminal, 1 truncated, 1 cut without a final observation), 1 of them",
        "weights: worth 3.0 episodes",
        "12.5% of the ratios were clipped warning: It means little.",
    ):
        assert phrase in text
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
        mean = make_estimate(Mean(above[:, 0]))
        for name, truth, interval in [
            ("t", 1.0, mean.interval(method="t")),
            ("bootstrap", 1.0, mean.interval(num_samples=200)),
            ("ratio", 0.5, make_estimate(RatioSum(above, below)).interval(num_samples=200)),
        ]:
            held[name] += interval.lower < truth < interval.upper
    assert all(0.89 * 200 <= count <= 0.99 * 200 for count in held.values()), held


@pytest.mark.slow
def test_intervals_of_estimators_hold_the_truth():
    mdp, num_runs = problems.MdpA, 300
    exact = TabularQ(mdp.q(), mdp.target)
    held = collections.Counter()
    for seed in range(num_runs):
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
        for value, intervals in [(truth, of_three_steps), (mdp.value, of_all_steps)]:
            held.update(name for name, i in intervals.items() if i.lower < value < i.upper)
        # Bernstein intervals are wider and always valid. No ratio is above 2.5, no return above 5.
        widest = pdis.interval(method="bernstein", value_range=2.5**3 * 5)
        assert widest.lower < truth < widest.upper
    shares = {name: count / num_runs for name, count in held.items()}
    assert len(shares) == 9
    assert shares == pytest.approx(dict.fromkeys(shares, 0.95), abs=0.035)
