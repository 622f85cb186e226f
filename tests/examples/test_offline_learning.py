"""The scripts that learn to swing up a pendulum from recorded episodes."""

import importlib
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

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
    """Imports a script, or what scripts share."""
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(EXAMPLES)
        yield importlib.import_module


def run(name, *arguments):
    # They find what they share in their own folder.
    command = [sys.executable, "-c", f"import sys; sys.path[0] = {str(EXAMPLES)!r}{RUN}"]
    command += [EXAMPLES / f"{name}.py", *arguments]
    return subprocess.run(list(map(str, command)), capture_output=True, text=True, check=False)


@pytest.mark.parametrize("bounded", [False, True])
def test_slopes_of_a_network(example, bounded):
    networks = example("networks")
    rng = np.random.default_rng(0)
    network = networks.Network([3, 5, 4, 2], rng, bounded)
    network.parameters[:] += rng.normal(0.0, 0.1, network.parameters.shape)
    inputs, weights = rng.normal(size=(7, 3)), rng.normal(size=(7, 2))
    large = networks.Network([3, 5, 4, 2], rng, bounded)
    large.parameters[:] = 10.0
    assert (np.abs(large(inputs)) <= 1.0).all() == bounded
    gradient, slope = network.backward(network.forward(inputs), weights)
    first = networks.Network([3, 5, 4, 2], rng, bounded)

    def loss(parameters, at):
        first.parameters[:] = parameters
        return float((weights * first(at)).sum())

    def numeric(function, point):
        found = np.zeros_like(point, np.float64)
        for place in np.ndindex(point.shape):
            moved = np.array(point, np.float64)
            moved[place] += 0.01
            up = function(moved)
            moved[place] -= 0.02
            found[place] = (up - function(moved)) / 0.02
        return found

    np.testing.assert_allclose(
        gradient, numeric(lambda p: loss(p, inputs), network.parameters), atol=2e-3
    )
    np.testing.assert_allclose(
        slope, numeric(lambda x: loss(network.parameters, x), inputs), atol=2e-3
    )


def test_a_network_learns(example):
    networks = example("networks")
    rng = np.random.default_rng(0)
    inputs = rng.uniform(-2, 2, (200, 1))
    network = networks.Network([1, 20, 1], rng)
    optimizer = networks.Adam(network, learning_rate=0.01)
    losses = []
    for _ in range(300):
        values = network.forward(inputs)
        error = values[-1] - np.sin(2 * inputs)
        losses.append(np.mean(error**2))
        optimizer.step(network.backward(values, 2 * error / len(error))[0])
    assert losses[-1] < losses[0] / 20


def test_imitation_in_small(example, tmp_path):
    pendulum = example("pendulum")
    imitation = example("imitation_from_few_demonstrations")
    env, rng = pendulum.make(), np.random.default_rng(0)
    returns = pendulum.record(env, tmp_path / "logs", [pendulum.unsteady(rng)] * 3, seed=0)
    table = rlds.feeds.open(tmp_path / "logs", fields=imitation.FIELDS)
    recorded = table.episodes
    assert [recorded.episode(i).total_reward for i in range(3)] == pytest.approx(returns)

    chosen = [
        [float(part.read(i, 0, 1)["observation"][0, 0]) for i in range(part.num_episodes)]
        for part in (imitation.choose(table, number, seed=5) for number in (1, 2, 3, 3))
    ]
    assert chosen[2] == chosen[3]
    assert chosen[2][:2] == chosen[1]
    assert chosen[1][:1] == chosen[0]

    clone = imitation.clone(table, updates=300, seed=0)
    observations = table.read(0)["observation"]
    shown = np.array([pendulum.swing_up(observation) for observation in observations])
    copied = np.array([clone(observation) for observation in observations])
    assert np.mean((copied - shown) ** 2) < 0.3 * np.var(shown)

    measured = imitation.measure(tmp_path / "logs", [1, 3], runs=2, updates=5, episodes=1, seed=0)
    again = imitation.measure(tmp_path / "logs", [1, 3], runs=2, updates=5, episodes=1, seed=0)
    assert {number: of_runs.tolist() for number, of_runs in measured.items()} == {
        number: of_runs.tolist() for number, of_runs in again.items()
    }
    picture = tmp_path / "returns.png"
    imitation.draw(measured, returns.mean(), -1300.0, picture)
    assert picture.read_bytes().startswith(b"\x89PNG")


@pytest.mark.slow
@pytest.mark.parametrize("name", ["imitation_from_few_demonstrations"])
def test_what_is_expected(name, tmp_path):
    ended = run(name, "--output", tmp_path / "output")
    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert ended.stderr == ""
    assert ended.stdout.count(": yes\n") == 2
    assert len(list((tmp_path / "output").glob("*.png"))) == 1
    again = run(name, "--output", tmp_path / "output")
    assert again.returncode == 2
    assert "exists already; name a new directory" in again.stderr
