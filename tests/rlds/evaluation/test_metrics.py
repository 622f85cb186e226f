"""Comparisons of estimates with true values: exact numbers, ties, names, and undefined scores."""

import numpy as np
import pytest

from rlds.evaluation import Estimate, compare
from rlds.evaluation.estimates import EndCounts, Mean

TRUTH, ESTIMATES = [10, 40, 30, 90, 60], [20, 35, 80, 70, 65]


def values_of(scores):
    return {k: score.value for k, score in scores.items()}


def test_scores_are_exact():
    result = compare(TRUTH, ESTIMATES, k=[1, 2, 3, 9])
    assert result.num_policies == 5
    assert result.mean_absolute_error.value == 18
    assert result.normalized_mean_absolute_error.value == pytest.approx(0.225, rel=1e-15)
    assert result.rank_correlation.value == pytest.approx(0.4, rel=1e-15)
    assert values_of(result.regret) == {1: 60, 2: 0, 3: 0}  # There are fewer than 9 policies.
    assert values_of(result.normalized_regret) == {1: 0.75, 2: 0, 3: 0}
    assert values_of(result.precision) == {1: 0, 2: 1 / 2, 3: 2 / 3}


def test_ties_share_ranks_and_leave_correlations_undefined():
    result = compare([1, 1, 2, 2], [5, 7, 7, 7], k=[1, 2])
    # Ranks 1½ 1½ 3½ 3½ and 1 3 3 3: covariance 2, variances 4 and 3.
    assert result.rank_correlation.value == pytest.approx(2 / np.sqrt(4 * 3))
    # The second policy comes first of those with the same estimate, the third of the best ones.
    assert values_of(result.regret) == {1: 1, 2: 0}
    assert values_of(result.precision) == {1: 0, 2: 0.5}
    constant = compare([1, 2, 3], [4, 4, 4])
    assert np.isnan(constant.rank_correlation.value)
    assert np.isnan(constant.rank_correlation.error)
    flat = compare([2, 2], [1, 4])
    assert np.isnan(flat.normalized_regret[1].value)
    assert flat.regret[1].value == 0


def test_standard_errors_equal_the_deviation_of_repeated_comparisons():
    rng = np.random.default_rng(0)
    truth, noise = rng.normal(size=(2, 60, 50))
    repeated = [
        compare(v, v + e, num_samples=100, k=[1]) for v, e in zip(truth, noise, strict=True)
    ]
    for name in ("mean_absolute_error", "rank_correlation"):
        scores = [getattr(result, name) for result in repeated]
        deviation = np.std([score.value for score in scores])
        assert np.mean([score.error for score in scores]) == pytest.approx(deviation, rel=0.25)
    # Two of four samples of two policies repeat a policy, and have no correlation.
    assert compare([1, 2], [3, 4]).rank_correlation.error == 0


def test_policies_are_matched_by_name():
    estimates = dict(zip("abcde", ESTIMATES, strict=True))
    mean = Mean(np.array([79.0, 81.0]))
    estimates["c"] = Estimate(80.0, "IS", "the return", 1.0, None, mean, EndCounts(2, 0, 0))
    reordered = dict(reversed(estimates.items()))
    assert compare(dict(zip("abcde", TRUTH, strict=True)), reordered) == compare(TRUTH, ESTIMATES)


def test_outlying_estimates_are_capped_on_request():
    estimates = [20, 35, 1e9, 70, 65]
    assert compare(TRUTH, estimates).mean_absolute_error.value > 1e8
    result = compare(TRUTH, estimates, cap=2.0)
    assert result == compare(TRUTH, [20, 35, 10 + 2 * 80, 70, 65])


@pytest.mark.parametrize(
    ("truth", "estimates", "options", "message"),
    [
        ({"a": 1, "b": 2}, {"a": 1}, {}, "there is no estimate of 'b'"),
        ([1, 2], [1], {}, "2 true values, but 1 estimates"),
        ({"a": 1, "b": 2}, {"b": np.nan, "a": 2}, {}, "the estimate of policy 'b' is nan"),
        ([1, np.inf], [1, 2], {}, "the true value of policy 1 is inf"),
        ([1, 2], [1, 2], {"k": [0]}, "k must hold positive numbers of policies"),
    ],
)
def test_compare_refuses_unmatched_or_undefined_values(truth, estimates, options, message):
    with pytest.raises(ValueError, match=message):
        compare(truth, estimates, **options)
