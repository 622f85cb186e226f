"""How fast steps pass through `rlds.transformations`, beside the published library if it is there.

    python benchmarks/bench_transformations.py [--peer DIR] [--only TEXT]

DIR is a folder that holds the original `rlds` package (0.1.8), as the wheel has it
(`pip download --no-deps rlds==0.1.8`, unpacked); it runs on the same TensorFlow, in the same
process. Its import of reverb is stubbed, because nothing measured here uses it. In each round all
contenders of a row run one after the other; the table shows the medians of the rounds, also of the
ratios, by processor time. Steps are read in batches of 256, and by TensorFlow, because calls from
Python or for each step would hide what is measured.
"""

import argparse
import importlib
import operator
import os
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from unittest import mock

from rich.console import Console
from rich.table import Table

# Prepares a job on a dataset of episodes: what is returned does it, as often as it is called.
Task = Callable[[Any, Any], Callable[[], Any]]


def windows(rlds: Any, steps: Any) -> Any:
    """Pairs of consecutive steps."""
    return rlds.transformations.batch(steps, size=2, shift=1, drop_remainder=True)


def long_windows(rlds: Any, steps: Any) -> Any:
    """Windows of 16 steps."""
    return rlds.transformations.batch(steps, size=16, shift=1, drop_remainder=True)


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
    "batch(size=16, shift=1)": stream(long_windows),
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

# Of steps with an image of 64 x 64 x 3 bytes, in fewer and shorter episodes: a tenth of the steps.
IMAGE_TASKS: dict[str, Task] = {
    "images: reading": stream(lambda _, steps: steps),
    "images: batch(size=2, shift=1)": stream(windows),
    "images: batch, then map_steps": stream(transitions),
    "images: map_steps": stream(images_as_floats),
    "images: shift_keys": stream(shifted),
}


def load(directory: Path) -> Any:
    """The `rlds` package of a folder, whichever was imported before."""
    for name in [name for name in sys.modules if name.partition(".")[0] == "rlds"]:
        del sys.modules[name]
    sys.path.insert(0, str(directory.resolve()))
    rlds = importlib.import_module("rlds")
    for module in ("alignment", "batched_helpers", "dataset_concat", "dataset_truncate"):
        importlib.import_module(f"rlds.transformations.{module}")
    del sys.path[0]
    if Path(str(rlds.__file__)).resolve().parent.parent != directory.resolve():
        raise SystemExit(f"There is no rlds package in {directory}: imported {rlds.__file__}.")
    return rlds


# Seconds of each round: here with nested steps, here with batched ones, and by the original.
Seconds = dict[str, list[float]]


def measure(
    peer: Any, tasks: dict[str, Task], observations: Any, rounds: int
) -> Iterator[tuple[str, Seconds]]:
    """Measures each task."""
    import numpy as np
    import tensorflow as tf

    ours = load(Path(__file__).parents[1])
    rng = np.random.default_rng(0)
    num_episodes, num_steps = observations.shape[:2]
    steps = {
        "observation": observations,
        "action": rng.random((num_episodes, num_steps, 6), np.float32),
        ours.IS_TERMINAL: np.tile(np.arange(num_steps) == num_steps - 1, (num_episodes, 1)),
    }
    batched = tf.data.Dataset.from_tensor_slices({ours.STEPS: steps})
    nested = batched.map(
        lambda episode: {ours.STEPS: tf.data.Dataset.from_tensor_slices(episode[ours.STEPS])}
    )
    for name, task in tasks.items():
        jobs = {"nested": task(ours, nested), "batched": task(ours, batched)}
        if peer is not None:
            jobs["original"] = task(peer, nested)
        seconds: Seconds = {contender: [] for contender in jobs}
        for job in jobs.values():
            job()  # warm up
        for _ in range(rounds):
            for contender, job in jobs.items():
                begin = time.process_time()
                job()
                seconds[contender].append(time.process_time() - begin)
        yield name, seconds


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
    arguments = parser.parse_args()
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    import numpy as np

    sys.modules["reverb"] = mock.MagicMock()
    peer = load(arguments.peer) if arguments.peer else None
    table = Table(
        title="Thousand steps per second of processor time",
        caption=f"{arguments.episodes} episodes of {arguments.steps} steps of 17 + 6 floats and a "
        f"flag, median of {arguments.rounds}",
    )
    table.add_column("", no_wrap=True)
    contenders = ["nested", "batched", *(["original"] if peer else [])]
    for column in [*contenders, *(["nested ratio", "batched ratio"] if peer else [])]:
        table.add_column(column, justify="right")

    def add_rows(tasks: dict[str, Task], observations: Any) -> None:
        count = observations.shape[0] * observations.shape[1]
        tasks = {name: task for name, task in tasks.items() if arguments.only in name}
        for name, seconds in measure(peer, tasks, observations, arguments.rounds):
            speeds = [count / statistics.median(seconds[who]) / 1000 for who in contenders]
            row = [name, *(f"{speed:,.0f}" for speed in speeds)]
            for who, digits in [("nested", 2), ("batched", 1)] if peer else []:
                ratios = map(operator.truediv, seconds["original"], seconds[who])
                row.append(f"{statistics.median(ratios):.{digits}f}")
            table.add_row(*row)

    rng = np.random.default_rng(1)
    shape = (arguments.episodes, arguments.steps)
    add_rows(TASKS, rng.random((*shape, 17), np.float32))
    images = (max(1, shape[0] // 2), max(1, shape[1] // 5), 64, 64, 3)
    add_rows(IMAGE_TASKS, rng.integers(0, 256, images, np.uint8))
    Console(width=100).print(table)


if __name__ == "__main__":
    main()
