"""Ranking of policies by recorded data."""

import numpy as np
import pytest
from evaluation_problems import LinearGaussian, MdpA

from rlds.evaluation import (
    CategoricalPolicy,
    DeterministicPolicy,
    EvaluationSet,
    GaussianPolicy,
    OneHot,
    Quadratic,
    SamplerPolicy,
    rank,
)
from rlds.evaluation.ranking import WEIGHTS

ERRORS = [name for name in WEIGHTS if name.endswith("_error")]


def demonstrations(lengths=(40, 20), noise=0.1, seed=0):
    """Returns noisy actions 2 x and -x of observations x; the third action is constant."""
    rng, num_rows = np.random.default_rng(seed), sum(lengths)
    observations = rng.normal(size=(num_rows, 1))
    actions = observations * [2.0, -1.0, 0.0] + noise * rng.normal(size=(num_rows, 3)) * [1, 1, 0]
    unknown = np.zeros(len(lengths), bool)
    return EvaluationSet(lengths, unknown, unknown, observations, actions, np.zeros(num_rows))


def gaussian(scale, std=0.1, shift=0.0):
    return GaussianPolicy(lambda seen: (scale * seen * [2.0, -1.0, 0.0] + shift, np.log(std)))


def to_dict(ranking):
    return {policy.name: policy for policy in ranking.policies}


def test_policies_are_ordered_by_their_errors():
    policies = {"half": gaussian(0.5), "right": gaussian(1.0), "none": gaussian(0.0)}
    ranking = rank(demonstrations(), policies, weights={"action_error": 1.0})
    assert [policy.name for policy in ranking.policies] == ["right", "half", "none"]
    assert [policy.value for policy in ranking.policies] == [1.0, 0.5, 0.0]


def test_the_mean_action_has_the_error_1():
    data = demonstrations()
    mean = data.actions.mean(axis=0)
    always = DeterministicPolicy(lambda seen: np.tile(mean, (len(seen), 1)))
    scores = rank(data, {"mean": always}).policies[0].scores
    assert scores["action_error"] == pytest.approx(1)
    assert scores["sampled_error"] == pytest.approx(1)


def test_errors_equal_those_of_plain_loops():
    data = demonstrations(lengths=(37, 5, 1, 20))
    policy = gaussian(0.8, shift=0.3)
    scale = data.actions[:, :2].std(axis=0)
    rows = (policy.mode(data.observations) - data.actions)[:, :2] / scale
    early, late, windows = [], [], []
    for first, end in zip(data.splits, data.splits[1:], strict=False):
        episode = rows[first:end]
        half = -(-len(episode) // 2)
        early += [*episode[:half]]
        late += [*episode[half:]]
        for begin in range(0, len(episode), 16):
            window = episode[begin : begin + 16]
            windows += [window.mean(axis=0)] * len(window)
    scores = rank(data, {"policy": policy}).policies[0].scores
    expected = {"action_error": rows, "early_error": early, "late_error": late}
    for name, values in (expected | {"window_error": windows}).items():
        assert scores[name] == pytest.approx(np.mean(np.square(values))), name


def test_novel_rows_are_far_from_training_observations():
    data = demonstrations(noise=1e-3)
    is_far = data.observations[:, 0] > np.quantile(data.observations, 0.75)
    wrong_far_away = DeterministicPolicy(
        lambda seen: np.where(seen > np.quantile(data.observations, 0.75), 0, seen) * [2, -1, 0]
    )
    training = data.observations[~is_far] - 1e-3
    scores = rank(data, {"policy": wrong_far_away}, training=training).policies[0].scores
    assert scores["novel_error"] == pytest.approx(scores["action_error"] / is_far.mean(), rel=1e-3)


def test_noise_counts_only_in_the_error_of_samples():
    ranking = to_dict(rank(demonstrations(), {"a": gaussian(1), "b": gaussian(1, std=2.0)}))
    a, b = ranking["a"].scores, ranking["b"].scores
    assert a["action_error"] == b["action_error"]
    assert a["sampled_error"] < b["sampled_error"]
    assert a["log_likelihood"] > b["log_likelihood"]


def test_scores_do_not_depend_on_units():
    data, policies = demonstrations(), {"a": gaussian(0.9), "b": gaussian(1.1, shift=0.2)}
    units = np.array([100.0, 0.01, 3.0])
    scaled = EvaluationSet(
        data.num_transitions,
        data.is_terminal,
        data.final_observation_known,
        data.observations,
        data.actions * units,
        data.rewards,
    )
    scaled_policies = {
        name: GaussianPolicy(
            lambda seen, policy=policy: (
                policy.mode(seen) * units,
                policy.parameters(seen)[1] + np.log(units),
            )
        )
        for name, policy in policies.items()
    }
    ours, theirs = rank(data, policies), rank(scaled, scaled_policies)
    for policy, scaled_policy in zip(ours.policies, theirs.policies, strict=True):
        assert (policy.name, policy.value) == (scaled_policy.name, scaled_policy.value)
        for name in policy.scores.keys() - {"log_likelihood", "novel_error"}:
            assert policy.scores[name] == pytest.approx(scaled_policy.scores[name]), name


def test_values_and_likelihoods_equal_those_of_the_estimators():
    from rlds.evaluation import doubly_robust, fitted_q

    data = MdpA.sample(300, 10, np.random.default_rng(0))
    features = OneHot(3, 2)
    q = fitted_q(data, MdpA.target, features=features, gamma=0.9, ridge=0)
    ranking = rank(
        data,
        {"target": MdpA.target},
        features=features,
        gamma=0.9,
        behaviour=MdpA.behaviour,
        ridge=0,
    )
    scores = ranking.policies[0].scores
    assert scores["fitted_q"] == q.estimate().value
    robust = doubly_robust(data, MdpA.target, q, behaviour=MdpA.behaviour, gamma=0.9)
    assert scores["doubly_robust"] == robust.value
    rows = data.observations[data.rows], data.actions
    assert scores["log_likelihood"] == MdpA.target.log_prob(*rows).mean()
    actions = MdpA.target.mode(rows[0])
    assert scores["action_error"] == pytest.approx((actions != rows[1]).mean())
    behaviour_q = fitted_q(data, MdpA.behaviour, features=features, gamma=0.9, ridge=0)
    table = behaviour_q.coefficients.reshape(3, 2)
    assert scores["one_step_q"] == pytest.approx(
        (MdpA.target_probs * table).sum(axis=1)[rows[0]].mean()
    )


def test_the_better_policy_is_first_by_its_values():
    """The behaviour policy of the logs is not the best policy, so errors alone mislead."""
    logs = LinearGaussian.sample(200, 20, np.random.default_rng(1))
    policies = {
        name: LinearGaussian.policy(gain, 0.1) for name, gain in [("as logged", -0.3), ("b", -0.6)]
    }
    options = {"features": Quadratic(), "gamma": LinearGaussian.gamma, "ridge": 1e-9}
    for weights, first in [({"action_error": 1.0}, "as logged"), ({"fitted_q": 1.0}, "b")]:
        ranking = rank(logs, policies, weights=weights, **options)
        assert ranking.policies[0].name == first


def test_missing_scores_have_a_reason():
    policies = {
        "deterministic": DeterministicPolicy(lambda seen: seen * [2.0, -1.0, 0.0]),
        "sampler": SamplerPolicy(lambda seen, rng: rng.normal(size=(len(seen), 3))),
        "gaussian": gaussian(0.5),
    }
    ranking = rank(demonstrations(), policies)
    results = to_dict(ranking)
    for policy in results.values():
        assert policy.scores.keys() | policy.missing.keys() == WEIGHTS.keys()
        assert not policy.scores.keys() & policy.missing.keys()
        assert "features" in policy.missing["fitted_q"]
        assert "training" in policy.missing["novel_error"]
    assert "no probabilities" in results["deterministic"].missing["log_likelihood"]
    assert "mode is unknown" in results["sampler"].missing["action_error"]
    assert results["sampler"].scores.keys() == {"sampled_error"}
    text = str(ranking)
    assert "no log_likelihood: DeterministicPolicy has no probabilities" in text
    assert "(deterministic" in text


def test_a_broken_policy_is_last_and_has_no_value():
    broken = DeterministicPolicy(lambda seen: np.where(seen > 0, np.nan, seen) * [2.0, -1.0, 0.0])
    raising = {"raising": DeterministicPolicy(lambda seen: seen)}
    ranking = rank(demonstrations(), {"broken": broken, **raising, "bad": gaussian(-1)})
    assert [policy.name for policy in ranking.policies] == ["bad", "broken", "raising"]
    last = to_dict(ranking)["broken"]
    assert last.value is None
    assert not last.scores
    assert last.missing["action_error"].startswith("episode 0, step ")
    assert "shape (60, 1)" in to_dict(ranking)["raising"].missing["action_error"]


def test_actions_that_a_policy_never_takes_are_worst():
    data = EvaluationSet([4], [True], [False], np.zeros(4, int), np.array([0, 1, 1, 1]), np.ones(4))
    policies = {
        "never 0": CategoricalPolicy.from_table([[0.0, 1.0]]),
        "uniform": CategoricalPolicy.from_table([[0.5, 0.5]]),
    }
    ranking = rank(data, policies, weights={"log_likelihood": 1.0})
    assert [policy.name for policy in ranking.policies] == ["uniform", "never 0"]
    assert ranking.policies[1].scores["log_likelihood"] == -np.inf


def test_impossible_values_are_no_scores():
    logs = LinearGaussian.sample(5, 10, np.random.default_rng(2))  # No reward is above 0.
    ranking = rank(
        logs,
        {"far away": LinearGaussian.policy(2.0, 0.1), "near": LinearGaussian.policy(-0.3, 0.5)},
        features=Quadratic(),
        gamma=LinearGaussian.gamma,
        ridge=1e-9,
    )
    assert "impossible" in to_dict(ranking)["far away"].missing["fitted_q"]
    assert ranking.policies[0].name == "near"


def test_impossible_values_of_actions_in_the_logs_are_no_scores():
    logs = LinearGaussian.sample(5, 10, np.random.default_rng(2))
    behaviour = LinearGaussian.policy(-0.3, 0.5)
    policies = {"far away": LinearGaussian.policy(1e3, 0.1), "as logged": behaviour}
    options = {"features": Quadratic(), "gamma": LinearGaussian.gamma, "behaviour": behaviour}
    results = to_dict(rank(logs, policies, **options))
    assert "impossible" in results["far away"].missing["one_step_q"]
    assert "one_step_q" in results["as logged"].scores


def test_logs_without_rewards_give_no_values():
    ranking = rank(demonstrations(), {"a": gaussian(1)}, features=Quadratic(), gamma=0.9)
    assert "rewards are 0" in ranking.policies[0].missing["fitted_q"]


def test_observations_of_the_training_are_not_novel():
    data = demonstrations()
    ranking = rank(data, {"a": gaussian(1)}, training=data.observations)
    assert "all are training observations" in ranking.policies[0].missing["novel_error"]


def test_equal_policies_keep_their_order():
    ranking = rank(demonstrations(), {name: gaussian(1) for name in "bca"})
    assert [policy.name for policy in ranking.policies] == [*"bca"]
    assert {policy.value for policy in ranking.policies} == {0.5}


def test_warnings_of_estimates_are_in_the_result():
    data = MdpA.sample(12, 10, np.random.default_rng(0))
    ranking = rank(
        data, {"a": MdpA.target}, features=OneHot(3, 2), gamma=0.9, behaviour=MdpA.behaviour
    )
    assert any("effective" in warning for warning in ranking.policies[0].warnings)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"policies": {}}, "there are no policies"),
        ({"data": demonstrations(lengths=(0,))}, "the data has no transitions"),
        ({"weights": {"novelty": 1.0}}, "weight 'novelty' is 1.0, expected 0 or more, for action_"),
        ({"weights": {"action_error": -1.0}}, "weight 'action_error' is -1.0"),
        ({"weights": {"fitted_q": 1.0}}, "no policy has a weighted score: .*fitted_q"),
    ],
)
def test_wrong_ranking_arguments_are_rejected(options, message):
    with pytest.raises(ValueError, match=message):
        rank(**({"data": demonstrations(), "policies": {"a": gaussian(1)}} | options))
