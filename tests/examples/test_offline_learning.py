"""The scripts that learn a pendulum swing-up from recorded episodes."""

import importlib
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import rlds.evaluation
import rlds.feeds

pytest.importorskip("gymnasium")
pytest.importorskip("matplotlib")

EXAMPLES = Path(__file__).parents[2] / "examples"
RUN = """
import runpy, sys
script, *sys.argv[1:] = sys.argv[1:]
try:
    runpy.run_path(script, run_name="__main__")
finally:
    assert "tensorflow" not in sys.modules
"""


@pytest.fixture(scope="module")
def example():
    """A function that imports a script or a shared module."""
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(EXAMPLES)
        yield importlib.import_module


def run(name, *arguments):
    # Scripts import shared modules from their folder.
    command = [sys.executable, "-c", f"import sys; sys.path[0] = {str(EXAMPLES)!r}{RUN}"]
    command += [EXAMPLES / f"{name}.py", *arguments]
    return subprocess.run(list(map(str, command)), capture_output=True, text=True, check=False)


@pytest.mark.parametrize("bounded", [False, True])
def test_slopes_of_a_network_equal_numeric_ones(example, bounded):
    networks = example("networks")
    rng = np.random.default_rng(0)
    network = networks.Network([3, 5, 4, 2], rng, bounded)
    network.parameters[:] += rng.normal(0.0, 0.1, network.parameters.shape)
    inputs, weights = rng.normal(size=(7, 3)), rng.normal(size=(7, 2))
    large = networks.Network([3, 5, 4, 2], rng, bounded)
    large.parameters[:] = 10.0
    assert (np.abs(large(inputs)) <= 1.0).all() == bounded
    gradient, slope = network.backward(network.forward(inputs), weights)
    other_network = networks.Network([3, 5, 4, 2], rng, bounded)

    def loss(parameters, values):
        other_network.parameters[:] = parameters
        return float((weights * other_network(values)).sum())

    def numeric(function, point):
        slopes = np.zeros_like(point, np.float64)
        for index in np.ndindex(point.shape):
            moved = np.array(point, np.float64)
            moved[index] += 0.01
            upper_value = function(moved)
            moved[index] -= 0.02
            slopes[index] = (upper_value - function(moved)) / 0.02
        return slopes

    np.testing.assert_allclose(
        gradient, numeric(lambda p: loss(p, inputs), network.parameters), atol=2e-3
    )
    np.testing.assert_allclose(
        slope, numeric(lambda x: loss(network.parameters, x), inputs), atol=2e-3
    )


def test_imitation_learns_from_few_demonstrations_and_is_reproducible(example, tmp_path):
    pendulum = example("pendulum")
    imitation = example("imitation_from_few_demonstrations")
    env, rng = pendulum.make(), np.random.default_rng(0)
    returns = pendulum.record(env, tmp_path / "logs", [pendulum.unsteady(rng)] * 3, [0, 1, 2])
    table = rlds.feeds.open(tmp_path / "logs", fields=imitation.FIELDS)
    recorded = table.episodes
    assert [recorded.episode(i).total_reward for i in range(3)] == pytest.approx(returns)

    begins = [
        [float(chosen.read(i, 0, 1)["observation"][0, 0]) for i in range(chosen.num_episodes)]
        for chosen in (imitation.choose(table, count, seed=5) for count in (1, 2, 3, 3))
    ]
    assert begins[2] == begins[3]
    assert begins[2][:2] == begins[1]
    assert begins[1][:1] == begins[0]

    clone = imitation.clone(table, updates=300, seed=0)
    observations = table.read(0)["observation"]
    shown = np.array([pendulum.swing_up(observation) for observation in observations])
    copied = np.array([clone(observation) for observation in observations])
    assert np.mean((copied - shown) ** 2) < 0.3 * np.var(shown)

    first, second = (
        imitation.measure(tmp_path / "logs", [1, 3], runs=2, updates=5, episodes=1, seed=0)
        for _ in range(2)
    )
    assert first.keys() == second.keys()
    assert all((first[count] == second[count]).all() for count in first)
    picture = tmp_path / "returns.png"
    imitation.draw(first, returns.mean(), -1300.0, picture)
    assert picture.read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize(("alpha", "sign"), [(0.0, 1.0), (5.0, -1.0)])
def test_td3_bc_prefers_the_good_actions_of_the_data(example, alpha, sign):
    rng = np.random.default_rng(0)
    action = rng.uniform(-1, 1, (2000, 1))
    data = {
        "observation": rng.normal(size=(2000, 2)),
        "action": action,
        "reward": sign * action[:, 0],
        "discount": np.zeros(2000),
        "next_observation": rng.normal(size=(2000, 2)),
    }
    learner = example("offline_rl_td3_bc").Learner(2, 1, alpha, seed=0)
    for _ in range(200):
        rows = rng.integers(2000, size=16)  # Small enough for one thread of BLAS.
        learner.update({name: column[rows] for name, column in data.items()})
    mean_action = learner.actor(data["observation"]).mean()
    assert (abs(mean_action) < 0.2) if alpha == 0 else (sign * mean_action > 0.8)
    pairs = np.concatenate([data["observation"], action], axis=1)
    for critic in learner.critics:  # The observation after a terminal state does not count.
        np.testing.assert_allclose(critic(pairs)[:, 0], data["reward"], atol=0.3)


def test_offline_rl_learns_and_evaluates_on_few_episodes(example, tmp_path):
    pendulum, offline = example("pendulum"), example("offline_rl_td3_bc")
    env, rng = pendulum.make(), np.random.default_rng(0)
    agents = [pendulum.unsteady(rng), pendulum.at_random(rng)] * 2
    seeds = range(4)
    returns = pendulum.record(env, tmp_path / "logs", agents, seeds)
    assert returns[::2].min() > returns[1::2].max()
    table = rlds.feeds.open(tmp_path / "logs")
    for index, seed in enumerate(seeds):  # Episodes begin in the state of their seed.
        assert (table.read(index, 0, 1)["observation"][0] == env.reset(seed=seed)[0]).all()

    batch = offline.transitions(table, seed=0)[0]
    assert (batch["discount"] == offline.GAMMA).all()  # Truncated ends, too.
    assert (np.abs(batch["action"]) <= 1.0).all()
    steps = []
    agent = offline.learn(table, 10, seed=0, look=lambda index, agent: steps.append(index))
    assert steps == list(range(1, 11))
    observations = table.read(0)["observation"]
    assert agent(observations).shape == (201, 1)
    assert agent(observations[0]) == pytest.approx(agent(observations)[0], abs=1e-5)

    policies = {
        "controller": rlds.evaluation.DeterministicPolicy(pendulum.swing_up),
        "random": rlds.evaluation.UniformPolicy([-2.0], [2.0]),
    }
    estimates = offline.evaluate(table, policies)
    assert estimates["controller"].value > estimates["random"].value + 50
    picture = tmp_path / "policies.png"
    offline.draw({1: -5.0}, {"controller": -1.0}, estimates, dict.fromkeys(policies, 0.0), picture)
    assert picture.read_bytes().startswith(b"\x89PNG")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "claims"), [("imitation_from_few_demonstrations", 2), ("offline_rl_td3_bc", 3)]
)
def test_examples_confirm_their_claims_and_reject_invalid_arguments(name, claims, tmp_path):
    process = run(name, "--output", tmp_path / "output")
    assert process.returncode == 0, process.stdout + process.stderr
    assert process.stderr == ""
    assert process.stdout.count(": yes\n") == claims
    assert len(list((tmp_path / "output").glob("*.png"))) == 1
    second_call = run(name, "--output", tmp_path / "output")
    assert second_call.returncode == 2
    assert "exists. Give a new directory." in second_call.stderr
    invalid_call = run(name, "--updates", 0)
    assert invalid_call.returncode == 2
    assert "argument --updates: must be at least 1, got 0" in invalid_call.stderr
