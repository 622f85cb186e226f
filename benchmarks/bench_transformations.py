"""How fast steps pass through `rlds.transformations`, beside the published library if it is there.

    python benchmarks/bench_transformations.py [--peer DIR] [--only TEXT]

DIR is a folder that holds the original `rlds` package (0.1.8) and nothing else; it runs on the same
TensorFlow. Its import of reverb is stubbed, because nothing measured here uses it. Every round
measures both libraries, each in a process of its own, and takes the best of three runs of a task;
the table shows the medians of the rounds. Steps are read in batches of 256, and by TensorFlow,
because calls from Python or for each step would hide what is measured.
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
    return rlds.transformations.map_steps(steps, rescale)


def rescale(step: dict[str, Any]) -> dict[str, Any]:
    """Scales the observation to [-1, 1]."""
    return {**step, "observation": (step["observation"] - 0.5) * 2.0}


def images_as_floats(rlds: Any, steps: Any) -> Any:
    """Every step with its image in [0, 1]."""
    import tensorflow as tf

    def convert(step: dict[str, Any]) -> dict[str, Any]:
        return {**step, "observation": tf.cast(step["observation"], tf.float32) / 255.0}

    return rlds.transformations.map_steps(steps, convert)


def shifted(rlds: Any, steps: Any) -> Any:
    """Every step with the action before it."""
    return rlds.transformations.alignment.shift_keys(steps, ["action"], -1)


def truncated(rlds: Any, steps: Any) -> Any:
    """All steps, looked at one by one for one that never comes."""
    return rlds.transformations.dataset_truncate.truncate_after_condition(
        steps, lambda step: step["action"][0] > 2.0
    )


def concatenated(rlds: Any, steps: Any) -> Any:
    """All steps with one more, which has a field of its own."""
    return rlds.transformations.dataset_concat.concatenate(steps, extra_step(steps))


def with_absorbing(rlds: Any, steps: Any) -> Any:
    """The same if the last step is terminal, and it is."""
    return rlds.transformations.dataset_concat.concat_if_terminal(
        steps, lambda last: like(steps, {name: [value] for name, value in last.items()})
    )


def extra_step(steps: Any) -> Any:
    """One step in the layout of the steps."""
    import numpy as np

    return like(steps, {"action": np.zeros([1, 6], np.float32), "is_extra": [True]})


def like(steps: Any, columns: dict[str, Any]) -> Any:
    """Columns in the layout of the steps."""
    import tensorflow as tf

    return columns if isinstance(steps, dict) else tf.data.Dataset.from_tensor_slices(columns)


def reversed_in_windows(rlds: Any, steps: Any) -> Any:
    """Windows of 100 steps, each backwards."""
    return rlds.transformations.batched_helpers.batched_map(
        steps, lambda window: {name: field[::-1] for name, field in window.items()}, size=100
    )


def drain(batches: Any) -> Any:
    """Reads all batches, in TensorFlow: Python would take longer for each than it takes to make."""
    import tensorflow as tf

    return batches.reduce(0, lambda count, batch: count + tf.shape(tf.nest.flatten(batch)[0])[0])


def stream(transformation: Callable[[Any, Any], Any]) -> Task:
    """Reads the transformed steps of all episodes in batches of 256."""

    def prepare(rlds: Any, episodes: Any) -> Callable[[], Any]:
        def transformed(episode: Any) -> Any:
            return transformation(rlds, episode[rlds.STEPS])

        if isinstance(episodes.element_spec[rlds.STEPS], dict):
            batches = episodes.map(transformed).rebatch(256)
        else:
            batches = episodes.flat_map(transformed).batch(256)
        return lambda: drain(batches)

    return prepare


def through_nested(rlds: Any, episodes: Any) -> Callable[[], Any]:
    """The scaled steps by way of `map_nested_steps`."""
    mapped = rlds.transformations.map_nested_steps(episodes, rescale)
    return stream(lambda _, steps: steps)(rlds, mapped)


def per_episode(function: str) -> Task:
    """One result for each episode."""

    def prepare(rlds: Any, episodes: Any) -> Callable[[], Any]:
        call = getattr(rlds.transformations, function)
        results = episodes.map(lambda episode: call(episode[rlds.STEPS])).batch(256)
        return lambda: drain(results)

    return prepare


def numbers(step: dict[str, Any]) -> dict[str, Any]:
    """What can be added."""
    return {"observation": step["observation"], "action": step["action"]}


def sum_dataset(rlds: Any, episodes: Any) -> Callable[[], Any]:
    """The sums over the steps of each episode."""
    sums = episodes.map(
        lambda episode: rlds.transformations.sum_dataset(episode[rlds.STEPS], numbers)
    )
    sums = sums.batch(256)
    return lambda: drain(sums)


def total(rlds: Any, episodes: Any) -> Callable[[], Any]:
    """The sum over all steps, prepared anew in each call, as users do."""
    return lambda: rlds.transformations.sum_nested_steps(episodes, numbers)


def moments(rlds: Any, episodes: Any) -> Callable[[], Any]:
    """Mean and standard deviation over all steps, likewise."""

    def everything(step: dict[str, Any]) -> tuple[dict[str, Any], dict[str, bool]]:
        data = {"observation": step["observation"], "action": step["action"]}
        return data, dict.fromkeys(data, True)

    return lambda: rlds.transformations.mean_and_std(episodes, everything)


TASKS: dict[str, Task] = {
    "reading, no transformation": stream(lambda _, steps: steps),
    "batch(size=2, shift=1)": stream(windows),
    "batch, then map_steps": stream(transitions),
    "map_steps": stream(rescaled),
    "map_nested_steps": through_nested,
    "batched_map": stream(reversed_in_windows),
    "shift_keys": stream(shifted),
    "truncate_after_condition": stream(truncated),
    "concatenate": stream(concatenated),
    "concat_if_terminal": stream(with_absorbing),
    "sum_dataset": sum_dataset,
    "sum_nested_steps": total,
    "mean_and_std": moments,
    "final_step": per_episode("final_step"),
    "episode_length": per_episode("episode_length"),
}

# Of steps with an image of 64 x 64 x 3 bytes, in fewer and shorter episodes.
IMAGE_TASKS: dict[str, Task] = {
    "images: reading": stream(lambda _, steps: steps),
    "images: batch(size=2, shift=1)": stream(windows),
    "images: map_steps": stream(images_as_floats),
    "images: shift_keys": stream(shifted),
}


def measure(peer: Path | None, num_episodes: int, num_steps: int, only: str) -> dict[str, float]:
    """Thousand steps per second of each task, by one library, in this process."""
    if peer is not None:
        sys.modules["reverb"] = mock.MagicMock()
        sys.path.insert(0, str(peer.resolve()))
    import numpy as np
    import tensorflow as tf

    import rlds
    from rlds.transformations import alignment, batched_helpers, dataset_concat, dataset_truncate  # noqa: F401

    if peer is not None and Path(rlds.__file__).resolve().parent.parent != peer.resolve():
        raise SystemExit(f"There is no rlds package in {peer}: imported {rlds.__file__}.")
    rng = np.random.default_rng(0)
    speeds = {}

    def measure_all(tasks: dict[str, Task], observations: Any) -> None:
        num_episodes, num_steps = observations.shape[:2]
        steps = {
            "observation": observations,
            "action": rng.random((num_episodes, num_steps, 6), np.float32),
            rlds.IS_TERMINAL: np.tile(np.arange(num_steps) == num_steps - 1, (num_episodes, 1)),
        }
        batched = tf.data.Dataset.from_tensor_slices({rlds.STEPS: steps})
        nested = batched.map(
            lambda episode: {rlds.STEPS: tf.data.Dataset.from_tensor_slices(episode[rlds.STEPS])}
        )
        for name, task in tasks.items():
            if only not in name:
                continue
            speeds[name] = num_episodes * num_steps / seconds(task, nested) / 1000
            if peer is None:
                fast = seconds(task, batched)
                speeds[f"{name}, batched"] = num_episodes * num_steps / fast / 1000

    def seconds(task: Task, episodes: Any) -> float:
        run = task(rlds, episodes)
        run()  # warm up
        durations = []
        for _ in range(REPETITIONS):
            start = time.perf_counter()
            run()
            durations.append(time.perf_counter() - start)
        return min(durations)

    measure_all(TASKS, rng.random((num_episodes, num_steps, 17), np.float32))
    images = (max(1, num_episodes // 10), max(1, num_steps // 5), 64, 64, 3)
    measure_all(IMAGE_TASKS, rng.integers(0, 256, images, np.uint8))
    return speeds


def measure_in_subprocess(arguments: argparse.Namespace, peer: Path | None) -> dict[str, float]:
    """Runs `measure` in a fresh process."""
    command = [sys.executable, __file__, "--measure"]
    command += ["--episodes", str(arguments.episodes), "--steps", str(arguments.steps)]
    command += ["--only", arguments.only]
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
    parser.add_argument("--only", default="", metavar="TEXT", help="rows whose names contain this")
    parser.add_argument("--measure", action="store_true", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.measure:
        speeds = measure(arguments.peer, arguments.episodes, arguments.steps, arguments.only)
        print(json.dumps(speeds))
        return

    ours, theirs = [], []
    for _ in range(arguments.rounds):
        ours.append(measure_in_subprocess(arguments, None))
        if arguments.peer:
            theirs.append(measure_in_subprocess(arguments, arguments.peer))

    table = Table(
        title="Thousand steps per second",
        caption=f"{arguments.episodes} episodes of {arguments.steps} steps of 17 + 6 floats and a "
        f"flag, median of {arguments.rounds}",
    )
    table.add_column("", no_wrap=True)
    columns = ["nested", "batched"]
    if theirs:
        columns += ["original", "nested ratio", "batched ratio"]
    for column in columns:
        table.add_column(column, justify="right")
    for name in [*TASKS, *IMAGE_TASKS]:
        if arguments.only not in name:
            continue
        nested = statistics.median(speeds[name] for speeds in ours)
        batched = statistics.median(speeds[f"{name}, batched"] for speeds in ours)
        row = [name, f"{nested:,.0f}", f"{batched:,.0f}"]
        if theirs:
            original = statistics.median(speeds[name] for speeds in theirs)
            row += [f"{original:,.0f}", f"{nested / original:.2f}", f"{batched / original:.1f}"]
        table.add_row(*row)
    Console(width=100).print(table)


if __name__ == "__main__":
    main()
