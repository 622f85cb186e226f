"""Whole recipes for `bench_transformations`: the pipelines that the published library documents.

Steps reach their consumer in batches of 256. "The consumer alone" reads as many batches of
transitions that need no work, because they are all the same. Beside the recipes there is what
indexing arrays in memory takes with NumPy: the limit of what could be had.
"""

import json
import os
import resource
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

BATCH_SIZE = 256

# Prepares a job on a dataset of episodes: what is returned does it, as often as it is called.
Recipe = Callable[[Any], Callable[[], Any]]


def drained(dataset: Any) -> Callable[[], Any]:
    """Reads a dataset to its end."""
    return lambda: sum(1 for _ in dataset)


def make_columns(num_episodes: int, num_steps: int, *, images: bool) -> dict[str, Any]:
    """All fields of steps: floats, or images of 64 x 64 x 3 bytes."""
    import numpy as np

    rng = np.random.default_rng(0)
    shape = (num_episodes, num_steps)
    if images:
        observation: Any = rng.integers(256, size=(*shape, 64, 64, 3), dtype=np.uint8)
    else:
        observation = rng.random((*shape, 17), np.float32)
    place = np.broadcast_to(np.arange(num_steps), shape)
    return {
        "observation": observation,
        "action": rng.random((*shape, 6), np.float32),
        "reward": rng.random(shape, np.float32),
        "discount": np.ones(shape, np.float32),
        "is_first": place == 0,
        "is_last": place == num_steps - 1,
        "is_terminal": place == num_steps - 1,
    }


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


def peak_memory() -> int:
    """How many bytes of memory this process has had at most."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def measure_memory(job: str, num_episodes: int, num_steps: int) -> float:
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
    return (peak_memory() - before) / 1e6


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
        command = [sys.executable, str(Path(__file__).with_name("bench_transformations.py"))]
        environment = {**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3"}
        done = subprocess.run(
            [*command, *options], stdout=subprocess.PIPE, text=True, check=True, env=environment
        )
        taken = json.loads(done.stdout.splitlines()[-1])
        table.add_row(job, f"{num_episodes:,}", f"{num_steps:,}", f"{taken:,.0f}")
    Console().print(table)
