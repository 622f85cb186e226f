"""Policies equal published numbers and independent formulas."""

import decimal
import math
from decimal import Decimal

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from rlds.evaluation import (
    CategoricalPolicy,
    DeterministicPolicy,
    GaussianPolicy,
    Policy,
    SamplerPolicy,
    TanhGaussianPolicy,
    UniformPolicy,
    mlp_policy,
)
from rlds.evaluation.policies import RowError

ONE = np.zeros((1, 1))


def constant(kind, mean, log_std, **options):
    """Returns a policy that ignores observations."""
    return kind(lambda o: (np.tile(np.atleast_1d(mean), (len(o), 1)), log_std), **options)


def weights(**changes):
    """Returns arrays with the keys of Deep-OPE, small enough for a computation by hand."""
    arrays = {
        "fc0/weight": np.array([[1, 0], [0, -1]], np.float32),
        "fc0/bias": np.array([0, 0.5], np.float32),
        "fc1/weight": np.array([[0.5, 1], [1, 0]], np.float32),
        "fc1/bias": np.zeros(2, np.float32),
        "last_fc/weight": np.array([[0.4, -0.2]]),
        "last_fc/bias": np.array([0.1]),
        "last_fc_log_std/weight": np.array([[0, 0.5]]),
        "last_fc_log_std/bias": np.array([-1.0]),
        "nonlinearity": "relu",
        "output_distribution": "tanh_gaussian",
    }
    return {name: value for name, value in {**arrays, **changes}.items() if value is not None}


# --- Tanh of a Gaussian --------------------------------------------------------------------------


def log_prob_in_decimals(action, mean, log_std):
    """Computes the log-density of the normal number, less log(1 - a²), with 60 digits."""
    with decimal.localcontext(prec=60):
        a, m, s = Decimal(action), Decimal(mean), Decimal(log_std)
        z = ((1 + a) / (1 - a)).ln() / 2
        pi = Decimal("3.14159265358979323846264338327950288419716939937510582097494")
        normal = -(((z - m) / s.exp()) ** 2) / 2 - s - (2 * pi).ln() / 2
        return float(normal - (1 - a * a).ln())


@settings(max_examples=30, deadline=None)
@given(
    st.lists(
        st.tuples(
            st.floats(-1 + 2**-24, 1 - 2**-24, width=32),
            st.floats(-8, 8),
            st.floats(-5, 2),
        ),
        min_size=1,
        max_size=4,
    )
)
@example([(1 - 2**-24, 8.0, -5.0), (-1 + 2**-24, 0.0, 0.0), (2.0**-140, 0.0, 0.0)])
@example([(0.999, 2.0, 0.0)])
def test_log_prob_of_a_tanh_gaussian_equals_decimal_arithmetic(dimensions):
    actions, means, log_stds = map(np.array, zip(*dimensions))
    policy = constant(TanhGaussianPolicy, means, log_stds)
    expected = sum(log_prob_in_decimals(*dimension) for dimension in dimensions)
    actual = policy.log_prob(np.zeros((1, 1)), actions[None])
    assert actual == pytest.approx([expected], rel=1e-9, abs=1e-9)


def test_tanh_gaussian_integrates_to_1():
    policy = constant(TanhGaussianPolicy, 0.7, -0.3)
    edges = np.tanh(np.linspace(-8, 8, 20_001))
    middles = (edges[1:] + edges[:-1]) / 2
    density = np.exp(policy.log_prob(np.zeros((len(middles), 1)), middles[:, None]))
    assert (density * np.diff(edges)).sum() == pytest.approx(1, abs=1e-6)
    assert (density * middles * np.diff(edges)).sum() == pytest.approx(
        policy.mean(ONE)[0, 0], abs=1e-6
    )


def test_actions_rounded_to_1_have_finite_densities():
    policy = constant(TanhGaussianPolicy, 9.5, 0.0)
    assert np.float32(np.tanh(9.5)) == 1
    at_bound = policy.log_prob(ONE, np.ones((1, 1), np.float32))
    assert at_bound == policy.log_prob(ONE, np.array([[1 - 2**-24]]))
    assert np.isfinite(at_bound).all()
    as_recorded = constant(TanhGaussianPolicy, 9.5, 0.0, clamp=0.999999)
    assert as_recorded.log_prob(ONE, np.ones((1, 1))) == pytest.approx(
        [log_prob_in_decimals(0.999999, 9.5, 0.0)], abs=1e-9
    )


def test_ratios_of_two_tanh_gaussians_use_the_same_clamp():
    target = constant(TanhGaussianPolicy, [1.0, -2.0], [0.1, -0.5])
    behaviour = constant(TanhGaussianPolicy, [0.5, 1.0], [0.0, 0.3], clamp=0.999999)
    inside = np.array([[0.3, -0.8]])
    assert target.log_ratio(behaviour, ONE, inside) == pytest.approx(
        target.log_prob(ONE, inside) - behaviour.log_prob(ONE, inside), abs=1e-12
    )
    corner = np.array([[1.0, -1.0]])
    clamped = corner * 0.999999
    assert target.log_ratio(behaviour, ONE, corner) == pytest.approx(
        target.log_prob(ONE, clamped) - behaviour.log_prob(ONE, clamped), abs=1e-9
    )
    assert behaviour.log_ratio(behaviour, ONE, corner).tolist() == [0]
    uniform = UniformPolicy([-1, -1], [1, 1])
    assert target.log_ratio(uniform, ONE, inside) == pytest.approx(
        target.log_prob(ONE, inside) + 2 * np.log(2)
    )


def test_samples_follow_the_density():
    rng = np.random.default_rng(3)
    many = np.zeros((200_000, 1))
    for policy in (
        constant(TanhGaussianPolicy, [0.4, -1.2], [-0.7, 0.5]),
        constant(GaussianPolicy, [0.4, -1.2], [-0.7, 0.5]),
        UniformPolicy([-1, 0], [3, 1]),
    ):
        drawn = policy.sample(many, rng)
        np.testing.assert_allclose(drawn.mean(0), policy.mean(many[:1])[0], atol=0.01)
        # By importance sampling, the density of another policy integrates to 1.
        center, std = drawn.mean(0), drawn.std(0) / 3
        other = constant(GaussianPolicy, center, np.log(std))
        ratios = np.exp(other.log_prob(many, drawn) - policy.log_prob(many, drawn))
        assert ratios.mean() == pytest.approx(1, abs=0.03)


@pytest.mark.parametrize("log_std", [-np.inf, -0.5, 2.0])
def test_mean_of_a_tanh_gaussian_equals_its_integral(log_std):
    means = np.array([-3.0, 0.0, 0.2, 2.5])
    actual = constant(TanhGaussianPolicy, means, log_std).mean(ONE)[0]
    points = np.linspace(-10, 10, 200_001)
    weights = np.exp(-(points**2) / 2)
    expected = np.tanh(means[:, None] + math.exp(log_std) * points) @ weights / weights.sum()
    np.testing.assert_allclose(actual, expected, atol=1e-11)
    assert actual[1] == 0


# --- Networks ------------------------------------------------------------------------------------


def test_published_weights_give_the_published_actions():
    observations = np.array([[1.0, -2.0]], np.float32)
    squashed = mlp_policy(weights())
    assert squashed.parameters(observations) == (pytest.approx(1.1), pytest.approx(-0.5))
    assert squashed.mode(observations) == pytest.approx(0.80049902)
    action = np.array([[0.3]])
    assert squashed.log_prob(observations, action) == pytest.approx(-1.17389963)
    plain = mlp_policy(weights(output_distribution=b"gaussian"))
    assert plain.mode(observations) == pytest.approx(1.1)
    assert plain.log_prob(observations, action) == pytest.approx(-1.28878872)
    assert not isinstance(plain, TanhGaussianPolicy)
    certain = mlp_policy(weights(), deterministic=True)
    assert certain.sample(observations, np.random.default_rng(0)) == pytest.approx(0.80049902)


def test_networks_may_have_any_number_of_hidden_layers():
    observations = np.random.default_rng(0).normal(size=(40_000, 2))  # Several blocks.
    no_layers = weights(**dict.fromkeys(["fc0/weight", "fc0/bias", "fc1/weight", "fc1/bias"]))
    np.testing.assert_allclose(
        mlp_policy(no_layers).parameters(observations)[0], observations @ [[0.4], [-0.2]] + 0.1
    )
    three_layers = weights(
        **{"fc2/weight": np.eye(2) * 2, "fc2/bias": np.zeros(2)}, nonlinearity=np.bytes_("tanh")
    )
    hidden = np.tanh(observations @ [[1, 0], [0, -1]] + [0, 0.5])
    hidden = np.tanh(2 * np.tanh(hidden @ [[0.5, 1], [1, 0]]))
    actual, _ = mlp_policy(three_layers).parameters(observations)
    np.testing.assert_allclose(actual, hidden @ [[0.4], [-0.2]] + 0.1)


def test_deviations_are_clipped_to_their_bounds():
    far = np.array([[1.0, -10.0]])
    arrays = weights(**{"last_fc_log_std/weight": np.array([[50.0, 0.0]])})
    log_stds = {
        "tanh": mlp_policy(arrays),
        "gaussian": mlp_policy({**arrays, "output_distribution": "gaussian"}),
        "none": mlp_policy(arrays, log_std_bounds=None),
        "policy_eval": mlp_policy(arrays, log_std_bounds=(-5.0, 2.0)),
    }
    actual = {name: policy.parameters(far)[1].item() for name, policy in log_stds.items()}
    assert actual == {"none": 549, "gaussian": 549, "tanh": 2, "policy_eval": 2}
    arrays = weights(**{"last_fc_log_std/bias": np.array([-30.0])})
    low = np.array([[-1.0, 2.0]])
    assert mlp_policy(arrays).parameters(low)[1] == -20
    assert mlp_policy(arrays, log_std_bounds=(-5, 2)).parameters(low)[1] == -5


def test_copied_deviations_need_a_deterministic_policy():
    copied = weights(
        **{
            "last_fc_log_std/weight": weights()["last_fc/weight"],
            "last_fc_log_std/bias": weights()["last_fc/bias"],
        }
    )
    with pytest.raises(ValueError, match="last_fc_log_std is a copy of last_fc"):
        mlp_policy(copied)
    observations = np.array([[1.0, -2.0]])
    assert mlp_policy(copied, deterministic=True).mode(observations) == pytest.approx(0.80049902)


@pytest.mark.parametrize(
    ("changes", "error", "message"),
    [
        (
            {"last_fc/bias": None},
            KeyError,
            "no array 'last_fc/bias'; did you mean 'last_fc_log_std/bias'",
        ),
        ({"last_fc_log_std/weight": None}, KeyError, "no array 'last_fc_log_std/weight'"),
        ({"nonlinearity": "swish"}, ValueError, "nonlinearity is 'swish', expected one of relu"),
        ({"output_distribution": b"\xff"}, ValueError, "expected one of gaussian, tanh_gaussian"),
        ({"fc0/weight": None}, ValueError, "expected fc0, fc1, … without a gap"),
        ({"fc1/weight": np.ones((2, 3))}, ValueError, "fc1 takes 3 numbers, but .* returns 2"),
        ({"last_fc_log_std/weight": np.ones((1, 3))}, ValueError, "differ in shape"),
        ({"fc1/bias": np.ones(3)}, ValueError, "fc1 has 2 rows of weights and 3 biases"),
        ({"fc1/bias": np.array(["a", "b"])}, ValueError, "fc1/bias is <U1"),
        ({"fc1/bias": np.array([0, np.nan])}, ValueError, "fc1/bias has numbers that are not fin"),
    ],
)
def test_inconsistent_networks_are_refused(changes, error, message):
    with pytest.raises(error, match=message):
        mlp_policy(weights(**changes))


def test_observations_of_another_shape_are_refused():
    policy = mlp_policy(weights())
    with pytest.raises(ValueError, match=r"of shape \(3,\), but .* shape \(2,\)"):
        policy.mode(np.zeros((5, 3)))
    with pytest.raises(TypeError, match="nested, but the policy takes vectors of 2 numbers"):
        policy.mode({"position": np.zeros((5, 2))})
    with pytest.raises(RowError, match="row 1, observation: it has the mean") as caught:
        policy.mode(np.array([[0, 0], [np.nan, 0]]))
    assert caught.value.row == 1


# --- Impossible actions --------------------------------------------------------------------------


def test_impossible_actions_are_refused():
    observations = np.zeros((3, 1))
    squashed = constant(TanhGaussianPolicy, [0.0, 0.0], 0.0)
    plain = constant(GaussianPolicy, [0.0, 0.0], 0.0)
    actions = np.array([[0.5, -1], [0.2, 0.1], [0.3, 0.0]])
    for value in (1.5, -1.0000001, np.nan, np.inf):
        actions[2, 1] = value
        with pytest.raises(RowError, match=r"row 2, action: .* from -1 to 1") as caught:
            squashed.log_prob(observations, actions)
        assert (caught.value.row, caught.value.field) == (2, "action")
        with pytest.raises(RowError, match="row 2"):
            squashed.log_ratio(squashed, observations, actions)
    assert len(plain.log_prob(observations, np.full((3, 2), 7.0))) == 3
    for policy in (plain, UniformPolicy([-1, -1], [1, 1])):
        with pytest.raises(RowError, match=r"row 2, action: .* expected finite numbers"):
            policy.log_prob(observations, actions)
        with pytest.raises(ValueError, match=r"actions of shape \(3, 1\), but .* are \(3, 2\)"):
            policy.log_prob(observations, np.zeros((3, 1)))
    with pytest.raises(ValueError, match=r"actions of shape \(3,\)"):
        squashed.log_prob(observations, np.zeros(3))
    with pytest.raises(ValueError, match=r"means of shape \(1, 2\), expected \[3, length"):
        GaussianPolicy(lambda _: (np.zeros((1, 2)), 0.0)).mode(observations)
    with pytest.raises(ValueError, match="clamp must be between 0 and 1, got 1"):
        constant(TanhGaussianPolicy, 0.0, 0.0, clamp=1)


# --- Other policies ------------------------------------------------------------------------------


def test_categorical_policies_have_exact_probabilities():
    logits = np.array([[1000.0, 1000.0, -np.inf], [-1e4, -1e4 + np.log(3), -2e4]])
    policy = CategoricalPolicy(lambda observations: logits[observations])
    both = np.array([0, 1])
    np.testing.assert_allclose(policy.probs(both), [[0.5, 0.5, 0], [0.25, 0.75, 0]], atol=1e-12)
    assert policy.mode(both).tolist() == [0, 1]
    assert policy.log_prob(np.array([0, 1]), np.array([2, 1])) == pytest.approx(
        [-np.inf, np.log(0.75)]
    )
    drawn = policy.sample(np.ones(20_000, int), np.random.default_rng(0))
    np.testing.assert_allclose(np.bincount(drawn) / 20_000, [0.25, 0.75], atol=0.02)
    # D4RL stores discrete actions as floats.
    assert policy.log_prob(both, np.array([0.0, 1.0], np.float32)) == pytest.approx(
        np.log([0.5, 0.75])
    )


def test_invalid_probabilities_are_refused():
    for table in ([[0.5, 0.5], [0.9, 0.2]], [[1, 0], [1.5, -0.5]], [[1, 0], [np.nan, 1]]):
        with pytest.raises(ValueError, match="the probabilities for observation 1 are"):
            CategoricalPolicy.from_table(table)
    with pytest.raises(ValueError, match=r"a table of shape \(2,\)"):
        CategoricalPolicy.from_table([0.5, 0.5])
    policy = CategoricalPolicy.from_table(np.array([[1 / 3] * 3, [0, 0, 1]], np.float32))
    assert policy.probs(np.array([0, 1]))[1].tolist() == [0, 0, 1]
    for observations in (np.array([0, 2]), np.array([0, -1]), np.array([0.0, 0.5])):
        with pytest.raises(RowError, match=r"row 1, observation: .* an integer from 0 to 1"):
            policy.probs(observations)
    for actions in (np.array([0, 3]), np.array([0, -1]), np.array([0, np.nan])):
        with pytest.raises(RowError, match=r"row 1, action: .* an integer from 0 to 2"):
            policy.log_prob(np.zeros(2, int), actions)
    with pytest.raises(ValueError, match="actions are <U1, expected integers"):
        policy.log_prob(np.zeros(1, int), np.array(["a"]))
    with pytest.raises(ValueError, match=r"actions of shape \(2, 1\)"):
        policy.log_prob(np.zeros(2, int), np.zeros((2, 1), int))
    for logits in ([0.0, np.nan], [0.0, np.inf], [-np.inf, -np.inf]):
        invalid = CategoricalPolicy(lambda observations, logits=logits: np.array([[0, 0], logits]))
        with pytest.raises(RowError, match="row 1, observation: log-probabilities"):
            invalid.probs(np.zeros(2, int))
    with pytest.raises(ValueError, match=r"of shape \(2, 3\), expected \[1, number of actions\]"):
        CategoricalPolicy(lambda _: np.zeros((2, 3))).probs(np.zeros(1, int))


def test_actions_that_the_behaviour_never_takes_are_refused():
    behaviour = CategoricalPolicy.from_table([[1.0, 0.0]])
    target = CategoricalPolicy.from_table([[0.5, 0.5]])
    zeros = np.zeros(3, int)
    with pytest.raises(RowError, match="row 1, action: the behaviour policy never takes 1"):
        target.log_ratio(behaviour, zeros, np.array([0, 1, 0]))
    assert behaviour.log_ratio(target, zeros, np.array([0, 1, 0])).tolist() == pytest.approx(
        [np.log(2), -np.inf, np.log(2)]
    )


def test_policies_without_probabilities_refuse_log_prob():
    certain = DeterministicPolicy(lambda observations: observations * 2)
    sampler = SamplerPolicy(lambda observations, rng: rng.normal(size=(len(observations), 3)))
    rng = np.random.default_rng(0)
    assert certain.sample(ONE + 1, rng).tolist() == certain.mean(ONE + 1).tolist() == [[2]]
    assert sampler.sample(ONE, rng).shape == (1, 3)
    for policy in (certain, sampler):
        assert isinstance(policy, Policy)
        with pytest.raises(TypeError, match="has no probabilities of actions: evaluate it"):
            policy.log_prob(ONE, ONE)
        with pytest.raises(TypeError, match="has no probabilities"):
            policy.log_ratio(UniformPolicy([-1], [1]), ONE, ONE)
    with pytest.raises(TypeError, match="so its mode is unknown"):
        sampler.mode(ONE)
    with pytest.raises(TypeError, match="no expected action"):
        CategoricalPolicy.from_table([[1.0]]).mean(np.zeros(1, int))


def test_uniform_policies_have_the_density_of_their_bounds():
    policy = UniformPolicy([-1, 0], [1, 4])
    nested = {"position": np.zeros((2, 7)), "image": np.zeros((2, 3, 3))}
    assert policy.mode(nested).tolist() == [[0, 2], [0, 2]]
    actual = policy.log_prob(nested, np.array([[0.5, 4.0], [0.5, 4.1]]))
    assert actual == pytest.approx([-np.log(8), -np.inf])
    for low, high in (([0], [0]), ([0, 0], [1]), (0, 1), ([0], [np.inf])):
        with pytest.raises(ValueError, match="bounds"):
            UniformPolicy(low, high)
