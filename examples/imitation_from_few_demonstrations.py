"""Behaviour cloning from few demonstrations, as in section 7.1 of the RLDS paper.

    python examples/imitation_from_few_demonstrations.py [--output DIRECTORY]

A controller with an unsteady hand swings up a pendulum 25 times, recorded with EnvLogger. From K of
the episodes, drawn by a seed, a network learns which action belongs to an observation. Then it
plays. That is done for several K, and the picture shows the returns.

It takes a minute. TensorFlow is not loaded.
"""

import os
from collections.abc import Sequence
from pathlib import Path

os.environ.setdefault("MPLBACKEND", "agg")  # No windows to draw in.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # For small networks, threads cost more.

import numpy as np
import pendulum
from command_line import conclude, console, parse
from matplotlib import pyplot
from networks import Adam, Network
from rich.progress import track
from rich.table import Table

import rlds.feeds
from rlds.normalization import normalize

FIELDS = ["observation", "action"]
# By number of demonstrations: the mean return in other runs of this script.
EXPECTED = {1: -640, 2: -360, 5: -200, 10: -165, 25: -160}


def choose(table: rlds.feeds.Table, count: int, seed: int) -> rlds.feeds.Table:
    """Some of the episodes: the same ones for a seed, and more of them for a larger number."""
    order = np.random.default_rng(seed).permutation(table.num_episodes)
    return table.filter_episodes(order[:count])


def clone(demonstrations: rlds.feeds.Table, updates: int, seed: int) -> pendulum.Agent:
    """Learns the action for an observation; returns what plays so."""
    statistics = demonstrations.compute_statistics(FIELDS)
    # The last step of an episode has no action.
    samples = demonstrations.steps(only_real=True).normalize(statistics, fields=["observation"])
    feed = rlds.feeds.Feed(samples, batch_size=64, seed=seed)

    network = Network([3, 64, 64, 1], np.random.default_rng(seed))
    optimizer = Adam(network)
    for _, batch in zip(range(updates), feed, strict=False):
        values = network.forward(batch["observation"])
        error = values[-1] - batch["action"] / pendulum.LIMIT
        gradient, _ = network.backward(values, 2.0 * error / len(error))
        optimizer.step(gradient)

    def act(observation: np.ndarray) -> np.ndarray:
        normalized = normalize(observation, statistics["observation"])
        return np.clip(pendulum.LIMIT * network(normalized), -pendulum.LIMIT, pendulum.LIMIT)

    return act


def measure(
    data: Path, counts: Sequence[int], runs: int, updates: int, episodes: int, seed: int
) -> dict[int, np.ndarray]:
    """The mean return of each clone: `runs` of them for each number of demonstrations."""
    table = rlds.feeds.open(data, fields=FIELDS, progress=False)
    returns = {count: np.zeros(runs) for count in counts}
    cases = [(count, run) for count in counts for run in range(runs)]
    env = pendulum.make()
    for count, run in track(cases, "Cloning", console=console):
        of_run = 1000 * seed + run
        agent = clone(choose(table, count, of_run), updates, of_run)
        returns[count][run] = pendulum.play(env, agent, pendulum.TESTS[:episodes]).mean()
    return returns


def draw(returns: dict[int, np.ndarray], demonstrator: float, random: float, path: Path) -> None:
    """Writes the returns for each number of demonstrations as a PNG file."""
    figure, axis = pyplot.subplots(figsize=(7, 4), layout="constrained")
    for count, of_runs in returns.items():
        axis.plot([count] * len(of_runs), of_runs, "o", color="#34608d", alpha=0.5)
    means = [of_runs.mean() for of_runs in returns.values()]
    axis.plot(list(returns), means, color="#34608d", label="clones, and their mean")
    axis.axhline(demonstrator, color="#2a7f3f", linestyle="--", label="demonstrator")
    axis.axhline(random, color="0.5", linestyle=":", label="random actions")
    axis.set(title="Behaviour cloning of a pendulum's controller", xscale="log")
    axis.set(xlabel="demonstrations", ylabel="return of an episode", xticks=list(returns))
    axis.set(xticklabels=list(returns))
    axis.minorticks_off()
    axis.legend()
    figure.savefig(path, dpi=120)
    pyplot.close(figure)


def main() -> None:
    """Records, clones, plays, and prints what came out."""
    assert __doc__
    arguments = parse(
        __doc__,
        "imitation",
        runs=(12, "clones for each number of demonstrations"),
        updates=(1500, "training batches of each clone"),
    )
    rng = np.random.default_rng(arguments.seed)
    env = pendulum.make()
    agents = [pendulum.unsteady(rng)] * max(EXPECTED)
    seeds = range(1000 * arguments.seed, 1000 * arguments.seed + len(agents))
    logs, data = arguments.output / "logs", arguments.output / "data"
    demonstrator = pendulum.record(env, logs, agents, seeds).mean()
    rlds.feeds.materialise(logs, data, progress=False)
    random = pendulum.play(env, pendulum.at_random(rng), pendulum.TESTS[:20]).mean()

    returns = measure(data, list(EXPECTED), arguments.runs, arguments.updates, 20, arguments.seed)

    picture = arguments.output / "returns.png"
    draw(returns, demonstrator, random, picture)
    grid = Table(title="Return of an episode", title_justify="left")
    for title in ("demonstrations", "mean", "worst clone", "best clone", "expected, about"):
        grid.add_column(title, justify="right")
    for count, of_runs in returns.items():
        shown = [f"{value:.0f}" for value in (of_runs.mean(), of_runs.min(), of_runs.max())]
        grid.add_row(str(count), *shown, str(EXPECTED[count]))
    console.print(grid)
    console.print(f"demonstrator {demonstrator:.0f}, random actions {random:.0f}")
    most, fewest = returns[max(returns)].mean(), returns[min(returns)].mean()
    claims = {
        f"{max(returns)} demonstrations give more than -400": most > -400,
        f"that is 300 more than with {min(returns)}": most > fewest + 300,
    }
    conclude(claims, picture)


if __name__ == "__main__":
    main()
