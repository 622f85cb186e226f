"""How fast steps pass through `rlds.transformations`, beside the published library if it is there.

    python benchmarks/bench_transformations.py [--peer DIR]

DIR is a folder that holds the original `rlds` package (0.1.8) and nothing else; it runs on the same
TensorFlow. Its import of reverb is stubbed, because nothing measured here uses it. Every round
measures both libraries, each in a process of its own, and takes the best of three runs of a task;
the table shows the medians of the rounds.
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

# Prepares a job on a dataset of episodes: what is returned does it, as often as it is called.
Task = Callable[[Any, Any], Callable[[], Any]]


def windows(rlds: Any, steps: Any) -> Any:
    """Pairs of consecutive steps."""
    return rlds.transformations.batch(steps, size=2, shift=1, drop_remainder=True)


def transitions(rlds: Any, steps: Any) -> Any:
    """The same pairs as transitions: a step and the next observation."""
    return rlds.transformations.map_steps(windows(rlds, steps), to_transition)


def to_transition(pair: dict[str, Any]) -> dict[str, Any]:
    """A transition from a window of two steps."""
    return {
        "observation": pair["observation"][0],
        "action": pair["action"][0],
        "next_observation": pair["observation"][1],
    }


def rescaled(rlds: Any, steps: Any) -> Any:
    """Every step with a scaled observation."""

    def rescale(step: dict[str, Any]) -> dict[str, Any]:
        return {**step, "observation": (step["observation"] - 0.5) * 2.0}

    return rlds.transformations.map_steps(steps, rescale)


def stream(transformation: Callable[[Any, Any], Any]) -> Task:
    """Reads the transformed steps of all episodes in batches of 256."""

    def prepare(rlds: Any, episodes: Any) -> Callable[[], Any]:
        def transformed(episode: Any) -> Any:
            return transformation(rlds, episode[rlds.STEPS])

        if isinstance(episodes.element_spec[rlds.STEPS], dict):
            batches = episodes.map(transformed).rebatch(256)
        else:
            batches = episodes.flat_map(transformed).batch(256)
        return lambda: sum(1 for _ in batches)

    return prepare


def total(rlds: Any, episodes: Any) -> Callable[[], Any]:
    """The sum over all steps, prepared anew in each call, as users do."""
    return lambda: rlds.transformations.sum_nested_steps(episodes, lambda step: step)


def moments(rlds: Any, episodes: Any) -> Callable[[], Any]:
    """Mean and standard deviation over all steps, likewise."""

    def everything(step: dict[str, Any]) -> tuple[dict[str, Any], dict[str, bool]]:
        return step, dict.fromkeys(step, True)

    return lambda: rlds.transformations.mean_and_std(episodes, everything)


TASKS: dict[str, Task] = {
    "batch(size=2, shift=1)": stream(windows),
    "batch, then map_steps": stream(transitions),
    "map_steps": stream(rescaled),
    "sum_nested_steps": total,
    "mean_and_std": moments,
}


def measure(peer: Path | None, num_episodes: int, num_steps: int) -> dict[str, float]:
    """Thousand steps per second of each task, by one library, in this process."""
    if peer is not None:
        sys.modules["reverb"] = mock.MagicMock()
        sys.path.insert(0, str(peer.resolve()))
    import numpy as np
    import tensorflow as tf

    import rlds

    if peer is not None and Path(rlds.__file__).resolve().parent.parent != peer.resolve():
        raise SystemExit(f"There is no rlds package in {peer}: imported {rlds.__file__}.")
    rng = np.random.default_rng(0)
    batched = tf.data.Dataset.from_tensor_slices(
        {
            rlds.STEPS: {
                "observation": rng.random((num_episodes, num_steps, 17), np.float32),
                "action": rng.random((num_episodes, num_steps, 6), np.float32),
            }
        }
    )
    nested = batched.map(
        lambda episode: {rlds.STEPS: tf.data.Dataset.from_tensor_slices(episode[rlds.STEPS])}
    )

    def speed(task: Task, episodes: Any) -> float:
        run = task(rlds, episodes)
        run()  # warm up
        seconds = []
        for _ in range(REPETITIONS):
            start = time.perf_counter()
            run()
            seconds.append(time.perf_counter() - start)
        return num_episodes * num_steps / min(seconds) / 1000

    speeds = {}
    for name, task in TASKS.items():
        speeds[name] = speed(task, nested)
        if peer is None:
            speeds[f"{name}, batched"] = speed(task, batched)
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

    ours, theirs = [], []
    for _ in range(arguments.rounds):
        ours.append(measure_in_subprocess(arguments, None))
        if arguments.peer:
            theirs.append(measure_in_subprocess(arguments, arguments.peer))

    table = Table(
        title="Thousand steps per second",
        caption=f"{arguments.episodes} episodes of {arguments.steps} steps of 17 + 6 floats, "
        f"median of {arguments.rounds}",
    )
    table.add_column("", no_wrap=True)
    columns = ["nested", "batched"]
    if theirs:
        columns += ["original", "nested ratio", "batched ratio"]
    for column in columns:
        table.add_column(column, justify="right")
    for name in TASKS:
        nested = statistics.median(speeds[name] for speeds in ours)
        batched = statistics.median(speeds[f"{name}, batched"] for speeds in ours)
        row = [name, f"{nested:,.0f}", f"{batched:,.0f}"]
        if theirs:
            original = statistics.median(speeds[name] for speeds in theirs)
            row += [f"{original:,.0f}", f"{nested / original:.2f}", f"{batched / original:.1f}"]
        table.add_row(*row)
    Console().print(table)


if __name__ == "__main__":
    main()
