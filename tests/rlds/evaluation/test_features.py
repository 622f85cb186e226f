"""Features of linear Q-functions, and their means under a policy."""

import numpy as np
import pytest

from rlds.evaluation import CategoricalPolicy, GaussianPolicy, OneHot, Quadratic, Sampled

RNG = np.random.default_rng(0)


class Squashed(GaussianPolicy):
    """A policy whose samples do not follow its parameters."""

    def sample(self, observations, rng):
        return np.tanh(super().sample(observations, rng))


def gaussian(kind, log_std):
    return kind(lambda observations: (observations @ [[0.5, 0.0], [-1.0, 2.0]], log_std))


def average_many(features, observations, policy):
    rows = np.tile(observations, (10_000, 1))
    expected = features.expected(rows, policy)
    return expected.reshape(10_000, len(observations), -1).mean(axis=0)


def test_quadratic_means_under_gaussian_policies_are_exact():
    observations = RNG.standard_normal((3, 2))
    log_std = np.array([-0.5, 0.25])
    features = Quadratic()
    policy = gaussian(GaussianPolicy, log_std)
    exact = features.expected(observations, policy)
    assert exact.shape == (3, 15)
    drawn = average_many(Sampled(features), observations, policy)
    np.testing.assert_allclose(exact, drawn, atol=0.2)
    # The mean square of a normal number is the squared mean plus the variance.
    mean, spread = policy.mode(observations), np.exp(log_std)
    names = [features.name(i, observations, mean) for i in range(15)]
    columns = dict(zip(names, exact.T, strict=True))
    np.testing.assert_allclose(columns["action[1] * action[1]"], mean[:, 1] ** 2 + spread[1] ** 2)
    np.testing.assert_allclose(columns["action[0] * action[1]"], mean[:, 0] * mean[:, 1])
    np.testing.assert_allclose(
        columns["observation[1] * action[0]"], observations[:, 1] * mean[:, 0]
    )
    still = gaussian(GaussianPolicy, -np.inf)
    np.testing.assert_array_equal(
        features.expected(observations, still), features(observations, mean)
    )


def test_quadratic_draws_actions_if_the_policy_is_not_gaussian():
    observations = RNG.standard_normal((3, 2))
    policy = gaussian(Squashed, 0.0)
    few, repeat, other = (Quadratic(10, seed).expected(observations, policy) for seed in (0, 0, 1))
    many = average_many(Quadratic(), observations, policy)
    np.testing.assert_array_equal(few, repeat)
    # The result is a mean of the features.
    np.testing.assert_allclose(few, Sampled(Quadratic()).expected(observations, policy))
    assert np.abs(few - other).max() > 0.01
    assert np.abs(few - many).max() < 1.5
    # The squares of tanh are below 1.
    assert many[:, [-3, -1]].max() < 1


def test_means_under_categorical_policies_are_exact():
    policy = CategoricalPolicy.from_table([[0.25, 0.75], [1.0, 0.0]])
    states = np.array([1, 0])
    one_hot = OneHot(2, 2)
    np.testing.assert_allclose(
        one_hot.expected(states, policy), [[0, 0, 1, 0], [0.25, 0.75, 0, 0]], atol=1e-15
    )
    np.testing.assert_allclose(
        Sampled(one_hot).expected(states, policy), one_hot.expected(states, policy)
    )
    np.testing.assert_allclose(
        Quadratic().expected(states, policy), [[1, 1, 0, 1, 0, 0], [1, 0, 0.75, 0, 0, 0.75]]
    )


def test_unsuitable_observations_and_actions_are_refused():
    zeros = np.zeros((2, 1))
    with pytest.raises(ValueError, match=r"needs one integer as observation, got a dict.*=\"obs"):
        OneHot(2, 2)({"x": np.zeros(2, int)}, np.zeros(2, int))
    with pytest.raises(ValueError, match=r"one integer as action, got shape \(2,\)"):
        OneHot(2, 2)(np.zeros(2, int), np.zeros((2, 2)))
    with pytest.raises(ValueError, match="row 1, action: 2, expected an integer from 0 to 1"):
        OneHot(2, 2)(np.zeros(2, int), np.array([0, 2]))
    with pytest.raises(ValueError, match="the policy has 3 actions, OneHot has 2"):
        OneHot(2, 2).expected(np.zeros(1, int), CategoricalPolicy.from_table([[0.5, 0.5, 0]]))
    with pytest.raises(ValueError, match="'observation/text' has <U1, not numbers"):
        Quadratic()({"x": zeros, "text": np.array(["a", "b"])}, zeros)
    with pytest.raises(ValueError, match="features of 301 numbers: there must be between 1 and"):
        Quadratic()(np.zeros((2, 300)), zeros)
    with pytest.raises(ValueError, match=r"of shape \[2, d\]; got shape \(2,\)"):
        Sampled(lambda observations, actions: observations[:, 0])(zeros, zeros)
