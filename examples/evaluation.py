"""Off-policy evaluation: estimates of the value of a policy, their intervals, and the truth.

    python examples/evaluation.py [--episodes 300] [--output evaluation.svg]

A noisy controller holds a drifting cart near the middle, and is recorded with EnvLogger. From these
episodes alone, two other controllers are evaluated: one that does nearly the same, and one that
does something else. The system is linear and its noise is normal, so there are exact true values.
"""

import argparse
import os
import tempfile
import warnings
from collections.abc import Callable
from pathlib import Path

os.environ.setdefault("MPLBACKEND", "agg")

import dm_env
import numpy as np
from dm_env import specs
from matplotlib import pyplot
from rich.console import Console
from rich.table import Table

import envlogger
import rlds.evaluation
from rlds.evaluation import Estimate, EstimateWarning, EvaluationSet, GaussianPolicy

GAMMA, HORIZON = 0.8, 25
BEHAVIOUR = (-0.3, 0.5)  # The gain, and the standard deviation of the noise.
TARGETS = {
    "close to the behaviour policy": (-0.35, 0.45),
    "far from the behaviour policy": (-0.6, 0.2),
}

console = Console()


def controller(gain: float, deviation: float) -> GaussianPolicy:
    """Pushes in proportion to the distance, with noise."""
    return GaussianPolicy(lambda observations: (gain * observations, np.log(deviation)))


class Cart(dm_env.Environment):
    """s' = 0.9 s + 0.5 a + 0.3 noise; the reward is -(s² + 0.1 a²)."""

    def __init__(self, seed: int) -> None:
        self.rng = np.random.default_rng(seed)

    def observation_spec(self) -> specs.Array:
        """The distance from the middle."""
        return specs.Array((1,), np.float64)

    def action_spec(self) -> specs.Array:
        """The push."""
        return specs.Array((1,), np.float64)

    def reset(self) -> dm_env.TimeStep:
        """Puts the cart somewhere near the middle."""
        self.time, self.state = 0, self.rng.standard_normal(1)
        return dm_env.restart(self.state)

    def step(self, action: np.ndarray) -> dm_env.TimeStep:
        """Pushes the cart."""
        reward = -float(self.state[0] ** 2 + 0.1 * action[0] ** 2)
        self.state = 0.9 * self.state + 0.5 * action + 0.3 * self.rng.standard_normal(1)
        self.time += 1
        make = dm_env.truncation if self.time == HORIZON else dm_env.transition
        return make(reward, self.state)


def record(logs: Path, num_episodes: int, seed: int) -> None:
    """Records the noisy controller."""
    rng, policy = np.random.default_rng(seed), controller(*BEHAVIOUR)
    with envlogger.EnvLogger(Cart(seed), data_directory=logs) as env:
        for _ in range(num_episodes):
            timestep = env.reset()
            while not timestep.last():
                timestep = env.step(policy.sample(timestep.observation[None], rng)[0])


def true_value(gain: float, deviation: float) -> float:
    """The value of a controller: the distances stay normal, and their variance is followed."""
    variance, value = 1.0, 0.0
    for time in range(1000):
        reward = -(variance + 0.1 * (gain**2 * variance + deviation**2))
        value += GAMMA**time * reward
        variance = (0.9 + 0.5 * gain) ** 2 * variance + (0.5 * deviation) ** 2 + 0.3**2
    return value


def estimates(data: EvaluationSet, policy: GaussianPolicy) -> dict[str, Estimate]:
    """All estimates of the value of a policy."""
    options = {"behaviour": controller(*BEHAVIOUR), "gamma": GAMMA}
    sampling: Callable[..., Estimate] = rlds.evaluation.importance_sampling
    q = rlds.evaluation.fitted_q(data, policy, features=rlds.evaluation.Quadratic(), gamma=GAMMA)
    doubly_robust: Callable[..., Estimate] = rlds.evaluation.doubly_robust
    return {
        "IS": sampling(data, policy, weighted=False, per_decision=False, **options),
        "weighted IS": sampling(data, policy, weighted=True, per_decision=False, **options),
        "per-decision IS": sampling(data, policy, weighted=False, per_decision=True, **options),
        "per-decision WIS": sampling(data, policy, weighted=True, per_decision=True, **options),
        "fitted Q": q.estimate(),
        "doubly robust": doubly_robust(data, policy, q, weighted=False, **options),
        "weighted doubly robust": doubly_robust(data, policy, q, weighted=True, **options),
    }


def show(name: str, truth: float, estimates: dict[str, Estimate]) -> None:
    """Prints the estimates and the true values."""
    weights = estimates["IS"].weights
    table = Table(title=f"Target {name}: the true value is {truth:.2f}", title_justify="left")
    for column in ("estimator", "estimate", "95 % interval", "has the true value"):
        table.add_column(column)
    for estimator, estimate in estimates.items():
        interval = estimate.interval()
        has_truth = interval.lower <= truth <= interval.upper
        bounds = f"{interval.lower:.2f} to {interval.upper:.2f}"
        table.add_row(estimator, f"{estimate.value:.2f}", bounds, "yes" if has_truth else "no")
    console.print(table)
    if weights is not None:
        size = weights.effective_sample_size
        console.print(f"The effective sample size is {size:.1f} episodes.\n")


def draw(results: dict[str, tuple[float, dict[str, Estimate]]], path: Path) -> None:
    """Draws the estimates with their intervals, and the truth."""
    pyplot.rcParams |= {"svg.fonttype": "none", "svg.hashsalt": "evaluation"}
    figure, axes = pyplot.subplots(1, len(results), figsize=(11, 3.8), layout="constrained")
    for axis, (name, (truth, estimates)) in zip(axes, results.items(), strict=True):
        axis.axvline(truth, color="black", linestyle=":", label="true value")
        for row, estimate in enumerate(estimates.values()):
            interval = estimate.interval()
            axis.plot([interval.lower, interval.upper], [row, row], color="#34608d", linewidth=2)
            axis.plot(estimate.value, row, "o", color="#34608d")
        axis.set_yticks(range(len(estimates)), list(estimates))
        axis.set(title=f"Target {name}", xlabel="value, with 95 % interval")
        axis.set_ylim(len(estimates) + 0.4, -0.6)
        axis.legend(loc="lower right", frameon=False)
    figure.savefig(path, metadata={"Date": None} if path.suffix == ".svg" else None)
    pyplot.close(figure)


def main() -> None:
    """Records, estimates, prints and draws."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--episodes", type=int, default=300, help="number of episodes to record")
    parser.add_argument("--seed", type=int, default=0, help="seed of the recording")
    parser.add_argument(
        "--output", type=Path, default=Path("evaluation.svg"), help="file of the figure"
    )
    arguments = parser.parse_args()
    if arguments.episodes < 2:
        parser.error(f"--episodes must be at least 2, got {arguments.episodes}")
    with tempfile.TemporaryDirectory() as folder:
        record(Path(folder) / "logs", arguments.episodes, arguments.seed)
        data = rlds.evaluation.collect(Path(folder) / "logs")
    console.print(data)
    # Each estimate that means little warns of itself; here that is in the tables.
    warnings.simplefilter("ignore", EstimateWarning)
    results = {}
    for name, target in TARGETS.items():
        truth, by_estimator = true_value(*target), estimates(data, controller(*target))
        show(name, truth, by_estimator)
        results[name] = (truth, by_estimator)
    draw(results, arguments.output)
    console.print(f"Figure: {arguments.output}")


if __name__ == "__main__":
    main()
