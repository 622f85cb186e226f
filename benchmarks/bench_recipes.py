"""How fast whole recipes are, beside the pipelines that the published library documents.

    python benchmarks/bench_recipes.py [--peer DIR] [--only WORD] [--images]
    python benchmarks/bench_recipes.py --memory

DIR is a folder that holds the original `rlds` package (0.1.8) and nothing else; it runs on the same
TensorFlow. Its import of reverb is stubbed, because nothing measured here uses it. Every round
measures both libraries, each in a process of its own, and takes the best of three runs;
the table shows the medians of the rounds, and for each layout the ratio to the original.

Steps reach their consumer in batches of 256. The last column is NumPy indexing arrays in memory:
the limit of what could be had. "The consumer alone" reads as many batches of transitions that need
no work, because they are all the same.

With `--images` the observations are images, 64 x 64 x 3 of uint8, in a twentieth of the episodes.
With `--memory` it prints how much memory windows and statistics take at most, beyond that of a
process that has imported TensorFlow; each in a process of its own.
"""

import argparse
import json
import os
import resource
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
    import tensorflow as tf

    from rlds.transformations.pattern import pattern_map_from_transform
    from rlds.transformations.sampling import shuffle_steps
    from rlds.transformations.statistics import compute_statistics
    from rlds.transformations.transition_ops import transitions
    from rlds.transformations.window_ops import windows

    def batches(episodes: Any) -> Any:
        if isinstance(episodes.element_spec[rlds.STEPS], dict):
            return episodes.map(lambda episode: episode[rlds.STEPS]).rebatch(BATCH_SIZE)
        return episodes.flat_map(lambda episode: episode[rlds.STEPS]).batch(BATCH_SIZE)

    def in_batches(episodes: Any) -> Callable[[], Any]:
        return drained(batches(episodes))

    def consumed(episodes: Any) -> Callable[[], Any]:
        of_transitions = batches(transitions(episodes))
        one = of_transitions.take(1).get_single_element()
        return drained(tf.data.Dataset.from_tensors(one).repeat(sum(1 for _ in of_transitions)))

    def pairs(episodes: Any) -> Callable[[], Any]:
        def sars(step: Any) -> dict[str, Any]:
            now = {name: step[name][-2] for name in ("observation", "action", "reward")}
            return {**now, "next_observation": step["observation"][-1]}

        return drained(pattern_map_from_transform(episodes, sars, batch_size=BATCH_SIZE))

    def shuffled(episodes: Any) -> Callable[[], Any]:
        return drained(shuffle_steps(transitions(episodes), batch_size=BATCH_SIZE, seed=0))

    def described(quantiles: tuple[float, ...]) -> Recipe:
        fields = ["observation", "action"]
        return lambda data: lambda: compute_statistics(data, fields, quantiles=quantiles)

    return {
        "the consumer alone": consumed,
        "transitions": lambda data: in_batches(transitions(data)),
        "transitions by a pattern": pairs,
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


def measure(arguments: argparse.Namespace) -> dict[str, float]:
    """Thousand steps per second of each recipe, by one library, in this process."""
    peer, num_episodes, num_steps = arguments.peer, arguments.episodes, arguments.steps
    if peer is not None:
        sys.modules["reverb"] = mock.MagicMock()
        sys.path.insert(0, str(peer.resolve()))
    import numpy as np
    import tensorflow as tf

    import rlds

    if peer is not None and Path(rlds.__file__).resolve().parent.parent != peer.resolve():
        raise SystemExit(f"There is no rlds package in {peer}: imported {rlds.__file__}.")
    rng = np.random.default_rng(0)
    if arguments.images:
        num_episodes = max(1, num_episodes // 20)
        observation = rng.integers(256, size=(num_episodes, num_steps, 64, 64, 3), dtype=np.uint8)
    else:
        observation = rng.random((num_episodes, num_steps, 17), np.float32)
    place = np.broadcast_to(np.arange(num_steps), (num_episodes, num_steps))
    is_last = place == num_steps - 1
    columns = {
        "observation": observation,
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

    def chosen(recipes: dict[str, Any]) -> list[tuple[str, Any]]:
        # Of images nothing but transitions is measured: the other recipes copy them many times.
        is_left_out = {"statistics", "statistics without quantiles", "windows of 4 and 8"}
        names = [name for name in recipes if arguments.only in name]
        return [(n, recipes[n]) for n in names if not arguments.images or n not in is_left_out]

    if peer is not None:
        return {name: speed(make(nested)) for name, make in chosen(original_recipes(rlds))}
    speeds = {}
    for name, make in chosen(our_recipes(rlds)):
        speeds[name] = speed(make(nested))
        speeds[f"{name}, batched"] = speed(make(batched))
    for name, run in chosen(numpy_recipes(columns)):
        speeds[f"{name}, NumPy"] = speed(run)
    return speeds


def peak_memory() -> int:
    """How many bytes of memory this process has had at most."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def measure_memory(job: str, num_episodes: int, num_steps: int) -> dict[str, float]:
    """How many megabytes a job takes in this process, which then is not good for another."""
    import tensorflow as tf

    import rlds
    from rlds.transformations.statistics import compute_statistics
    from rlds.transformations.window_ops import windows

    def step(place: Any) -> dict[str, Any]:
        numbers = tf.cast(place[..., tf.newaxis], tf.float32) * tf.range(1.0, 24.0)
        return {
            "observation": tf.sin(numbers[..., :17]),
            "action": tf.cos(numbers[..., 17:]),
            "reward": tf.sin(tf.cast(place, tf.float32)),
            "is_first": tf.equal(place, 0),
            "is_last": tf.equal(place, num_steps - 1),
            "is_terminal": tf.equal(place, num_steps - 1),
        }

    def episode(number: Any) -> dict[str, Any]:
        if job.endswith("batched"):
            return {rlds.STEPS: step(tf.range(num_steps, dtype=tf.int64))}
        chunks = tf.data.Dataset.range(num_steps).batch(1024)
        return {rlds.STEPS: chunks.map(step).unbatch()}

    episodes = tf.data.Dataset.range(num_episodes).map(episode)
    before = peak_memory()
    if job.startswith("windows"):
        result = windows(episodes, history=4, horizon=8)
        if job.endswith("batched"):
            batches = result.map(lambda episode: episode[rlds.STEPS]).rebatch(BATCH_SIZE)
        else:
            batches = result.flat_map(lambda episode: episode[rlds.STEPS]).batch(BATCH_SIZE)
        drained(batches)()
    else:
        compute_statistics(episodes, ["observation", "action"])
    return {job: (peak_memory() - before) / 1e6}


# What takes memory, and of how many episodes of how many steps.
MEMORY_JOBS = [
    ("windows, nested", 1, 1_000_000),
    ("windows, batched", 1000, 1000),
    ("statistics, nested", 1, 100_000),
    ("statistics, nested", 1, 1_000_000),
    ("statistics, batched", 100, 1000),
    ("statistics, batched", 1000, 1000),
]


def print_memory() -> None:
    """Measures the memory of each job, and prints a table."""
    table = Table(title="Megabytes at most")
    table.add_column("", no_wrap=True)
    for column in ("episodes", "steps each", "MB"):
        table.add_column(column, justify="right")
    for job, num_episodes, num_steps in MEMORY_JOBS:
        options = ["--memory-of", job, "--episodes", str(num_episodes), "--steps", str(num_steps)]
        taken = in_subprocess(options)[job]
        table.add_row(job, f"{num_episodes:,}", f"{num_steps:,}", f"{taken:,.0f}")
    Console().print(table)


def measure_in_subprocess(arguments: argparse.Namespace, peer: Path | None) -> dict[str, float]:
    """Runs `measure` in a fresh process."""
    options = ["--measure", "--only", arguments.only]
    options += ["--episodes", str(arguments.episodes), "--steps", str(arguments.steps)]
    options += ["--images"] if arguments.images else []
    return in_subprocess(options + (["--peer", str(peer)] if peer is not None else []))


def in_subprocess(options: list[str]) -> dict[str, float]:
    """Runs this script, and returns the numbers that it prints."""
    command = [sys.executable, __file__, *options]
    environment = {**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3"}
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True, env=environment)
    numbers: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return numbers


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
    parser.add_argument(
        "--only", default="", metavar="WORD", help="rows that have it in their name"
    )
    parser.add_argument("--images", action="store_true", help="observations are images")
    parser.add_argument("--memory", action="store_true", help="measure memory instead of speed")
    parser.add_argument("--measure", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--memory-of", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.memory:
        print_memory()
        return
    if arguments.memory_of:
        taken = measure_memory(arguments.memory_of, arguments.episodes, arguments.steps)
        print(json.dumps(taken))
        return
    if arguments.measure:
        print(json.dumps(measure(arguments)))
        return

    rounds_of_ours, rounds_of_theirs = [], []
    for _ in range(arguments.rounds):
        rounds_of_ours.append(measure_in_subprocess(arguments, None))
        if arguments.peer:
            rounds_of_theirs.append(measure_in_subprocess(arguments, arguments.peer))
    ours, theirs = medians(rounds_of_ours), medians(rounds_of_theirs)

    num_episodes, kind = arguments.episodes, "17 + 6 floats"
    if arguments.images:
        num_episodes, kind = max(1, num_episodes // 20), "an image"
    caption = f"{num_episodes} episodes of {arguments.steps} steps of {kind}"
    caption += f", median of {arguments.rounds}"
    table = Table(
        title="Thousand steps per second",
        caption=caption,
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
