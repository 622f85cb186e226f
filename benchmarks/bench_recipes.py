"""How fast whole recipes are, beside the pipelines that the published library documents.

    python benchmarks/bench_recipes.py [--peer DIR]

DIR is a folder that holds the original `rlds` package (0.1.8) and nothing else; it runs on the same
TensorFlow. Its import of reverb is stubbed, because nothing measured here uses it. Every round
measures both libraries, each in a process of its own, and takes the best of three runs;
the table shows the medians of the rounds, and for each layout the ratio to the original.

Steps reach their consumer in batches of 256. The last column is NumPy indexing arrays in memory:
the limit of what could be had.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest import mock

from rich.console import Console
from rich.table import Table

REPETITIONS = 3
BATCH_SIZE = 256

# Prepares a job on a dataset of episodes: what is returned does it, as often as it is called.
Recipe = Callable[[Any], Callable[[], Any]]


def drained(dataset: Any) -> Callable[[], Any]:
    """Reads a dataset to its end."""
    return lambda: sum(1 for _ in dataset)


def original_recipes(rlds: Any) -> dict[str, Recipe]:
    """As the documentation of the original does it."""

    def to_transition(pair: dict[str, Any]) -> dict[str, Any]:
        return {
            "observation": pair["observation"][0],
            "action": pair["action"][0],
            "reward": pair["reward"][0],
            "discount": pair["discount"][0],
            "is_first": pair["is_first"][0],
            "next_observation": pair["observation"][1],
            "next_is_terminal": pair["is_terminal"][1],
            "next_is_last": pair["is_last"][1],
        }

    def to_transitions(episode: Any) -> Any:
        pairs = rlds.transformations.batch(
            episode[rlds.STEPS], size=2, shift=1, drop_remainder=True
        )
        return rlds.transformations.map_steps(pairs, to_transition)

    def fields(step: dict[str, Any]) -> Any:
        data = {"observation": step["observation"], "action": step["action"]}
        return data, {"observation": True, "action": ~step["is_last"]}

    def transitions(episodes: Any) -> Callable[[], Any]:
        return drained(episodes.flat_map(to_transitions).batch(BATCH_SIZE))

    def shuffled(episodes: Any) -> Callable[[], Any]:
        steps = episodes.shuffle(1000).interleave(to_transitions, cycle_length=100)
        return drained(steps.shuffle(50_000).batch(BATCH_SIZE))

    def moments(episodes: Any) -> Callable[[], Any]:
        return lambda: rlds.transformations.mean_and_std(episodes, fields)

    return {
        "transitions": transitions,
        "shuffled transitions": shuffled,
        "statistics without quantiles": moments,
    }


def our_recipes(rlds: Any) -> dict[str, Recipe]:
    """The same, and what the original has nothing for."""
    from rlds.transformations.sampling import shuffle_steps
    from rlds.transformations.statistics import compute_statistics
    from rlds.transformations.transition_ops import transitions
    from rlds.transformations.window_ops import windows

    def in_batches(episodes: Any) -> Callable[[], Any]:
        if isinstance(episodes.element_spec[rlds.STEPS], dict):
            steps = episodes.map(lambda episode: episode[rlds.STEPS])
            return drained(steps.rebatch(BATCH_SIZE))
        return drained(episodes.flat_map(lambda episode: episode[rlds.STEPS]).batch(BATCH_SIZE))

    def shuffled(episodes: Any) -> Callable[[], Any]:
        return drained(shuffle_steps(transitions(episodes), batch_size=BATCH_SIZE, seed=0))

    def described(quantiles: tuple[float, ...]) -> Recipe:
        fields = ["observation", "action"]
        return lambda data: lambda: compute_statistics(data, fields, quantiles=quantiles)

    return {
        "transitions": lambda data: in_batches(transitions(data)),
        "shuffled transitions": shuffled,
        "statistics without quantiles": described(()),
        "statistics": described((0.01, 0.99)),
        "5-step transitions": lambda data: in_batches(transitions(data, n=5, gamma=0.99)),
        "windows of 4 and 8": lambda data: in_batches(windows(data, history=4, horizon=8)),
    }


def numpy_recipes(columns: dict[str, Any]) -> dict[str, Callable[[], Any]]:
    """Transitions by indexing arrays that hold all episodes."""
    import numpy as np

    flat = {name: column.reshape(-1, *column.shape[2:]) for name, column in columns.items()}
    (starts,) = np.nonzero(~flat["is_last"])
    now = ("observation", "action", "reward", "discount", "is_first")
    following = ("observation", "is_terminal", "is_last")

    def gather(places: Any) -> None:
        for i in range(0, len(places), BATCH_SIZE):
            at = places[i : i + BATCH_SIZE]
            _ = [flat[name][at] for name in now], [flat[name][at + 1] for name in following]

    return {
        "transitions": lambda: gather(starts),
        "shuffled transitions": lambda: gather(np.random.default_rng(0).permutation(starts)),
    }


def measure(peer: Path | None, num_episodes: int, num_steps: int) -> dict[str, float]:
    """Thousand steps per second of each recipe, by one library, in this process."""
    if peer is not None:
        sys.modules["reverb"] = mock.MagicMock()
        sys.path.insert(0, str(peer.resolve()))
    import numpy as np
    import tensorflow as tf

    import rlds

    if peer is not None and Path(rlds.__file__).resolve().parent.parent != peer.resolve():
        raise SystemExit(f"There is no rlds package in {peer}: imported {rlds.__file__}.")
    rng = np.random.default_rng(0)
    place = np.broadcast_to(np.arange(num_steps), (num_episodes, num_steps))
    is_last = place == num_steps - 1
    columns = {
        "observation": rng.random((num_episodes, num_steps, 17), np.float32),
        "action": rng.random((num_episodes, num_steps, 6), np.float32),
        "reward": rng.random((num_episodes, num_steps), np.float32),
        "discount": np.ones((num_episodes, num_steps), np.float32),
        "is_first": place == 0,
        "is_last": is_last,
        "is_terminal": is_last,
    }
    batched = tf.data.Dataset.from_tensor_slices({rlds.STEPS: columns})
    nested = batched.map(
        lambda episode: {rlds.STEPS: tf.data.Dataset.from_tensor_slices(episode[rlds.STEPS])}
    )

    def speed(run: Callable[[], Any]) -> float:
        run()  # warm up
        seconds = []
        for _ in range(REPETITIONS):
            start = time.perf_counter()
            run()
            seconds.append(time.perf_counter() - start)
        return num_episodes * num_steps / min(seconds) / 1000

    if peer is not None:
        return {name: speed(make(nested)) for name, make in original_recipes(rlds).items()}
    speeds = {}
    for name, make in our_recipes(rlds).items():
        speeds[name] = speed(make(nested))
        speeds[f"{name}, batched"] = speed(make(batched))
    for name, run in numpy_recipes(columns).items():
        speeds[f"{name}, NumPy"] = speed(run)
    return speeds


def measure_in_subprocess(arguments: argparse.Namespace, peer: Path | None) -> dict[str, float]:
    """Runs `measure` in a fresh process."""
    command = [sys.executable, __file__, "--measure"]
    command += ["--episodes", str(arguments.episodes), "--steps", str(arguments.steps)]
    if peer is not None:
        command += ["--peer", str(peer)]
    environment = {**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3"}
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True, env=environment)
    speeds: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return speeds


def medians(rounds: list[dict[str, float]]) -> dict[str, float]:
    """The median of each recipe over the rounds."""
    if not rounds:
        return {}
    return {name: statistics.median(speeds[name] for speeds in rounds) for name in rounds[0]}


def main() -> None:
    """Measures, and prints the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--peer", type=Path, metavar="DIR", help="folder of the original package")
    parser.add_argument("--episodes", type=int, default=200)
    parser.add_argument("--steps", type=int, default=1000, help="steps per episode")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--measure", action="store_true", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.measure:
        print(json.dumps(measure(arguments.peer, arguments.episodes, arguments.steps)))
        return

    rounds_of_ours, rounds_of_theirs = [], []
    for _ in range(arguments.rounds):
        rounds_of_ours.append(measure_in_subprocess(arguments, None))
        if arguments.peer:
            rounds_of_theirs.append(measure_in_subprocess(arguments, arguments.peer))
    ours, theirs = medians(rounds_of_ours), medians(rounds_of_theirs)

    table = Table(
        title="Thousand steps per second",
        caption=f"{arguments.episodes} episodes of {arguments.steps} steps of 17 + 6 floats, "
        f"median of {arguments.rounds}",
    )
    table.add_column("", no_wrap=True)
    for column in ("original", "nested", "ratio", "batched", "ratio", "NumPy"):
        table.add_column(column, justify="right")
    for name in [name for name in ours if f"{name}, batched" in ours]:
        original, limit = theirs.get(name), ours.get(f"{name}, NumPy")
        row = [name, f"{original:,.0f}" if original else ""]
        for speed in (ours[name], ours[f"{name}, batched"]):
            row += [f"{speed:,.0f}", f"{speed / original:.1f}" if original else ""]
        table.add_row(*row, f"{limit:,.0f}" if limit else "")
    Console().print(table)


if __name__ == "__main__":
    main()
