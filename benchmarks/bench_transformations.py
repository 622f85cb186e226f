"""How fast steps pass through `rlds.transformations`, beside the published library if it is there.

    python benchmarks/bench_transformations.py [--peer DIR] [--what GROUP ...] [--json]
    python benchmarks/bench_transformations.py --memory

DIR is a folder that holds the original `rlds` package (0.1.8) and nothing else, as the wheel has it
(`pip download --no-deps rlds==0.1.8`, unpacked); it runs on the same TensorFlow, in the same
process. Its import of reverb is stubbed, because nothing measured here uses it. In each round all
contenders of a row run one after the other; the table shows the medians of the rounds, also of the
ratios, by processor time. Steps are read in batches of 256, and by TensorFlow, because calls from
Python or for each step would hide what is measured. Groups are single transformations, the same
of images, and whole recipes, of floats and of images.

With `--memory` it prints how much memory windows and statistics take at most, beyond that of a
process that has imported TensorFlow; each in a process of its own.
"""

import argparse
import importlib
import operator
import os
import statistics
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from unittest import mock

import recipes
import rounds
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


@dataclass(frozen=True)
class Group:
    """Rows of the table, and the fields of the steps that they are given."""

    columns: dict[str, Any]
    ours: Mapping[str, Task]
    original: Mapping[str, Task]
    numpy: Mapping[str, Callable[[], Any]] = field(default_factory=dict)

    @property
    def num_steps(self) -> int:
        """The steps of all episodes."""
        return int(self.columns["action"][..., 0].size)


def make_group(what: str, num_episodes: int, num_steps: int, ours: Any, peer: Any) -> Group:
    """Makes the rows of a group."""
    import numpy as np

    rng = np.random.default_rng(1)
    if what.startswith("recipes"):
        images = what.endswith("images")
        num_episodes = max(1, num_episodes // 20) if images else num_episodes
        columns = recipes.make_columns(num_episodes, num_steps, images=images)
        # Of images nothing but transitions is measured: the other recipes copy them many times.
        left_out = {"statistics", "statistics without quantiles", "windows of 4 and 8"}

        def named(found: Mapping[str, Any]) -> dict[str, Any]:
            return {
                f"{what}: {name}": recipe
                for name, recipe in found.items()
                if not images or name not in left_out
            }

        def tasks(found: Mapping[str, recipes.Recipe]) -> dict[str, Task]:
            return {name: lambda _, data, make=make: make(data) for name, make in found.items()}

        return Group(
            columns,
            tasks(named(recipes.our_recipes(ours))),
            tasks(named(recipes.original_recipes(peer))),
            named(recipes.numpy_recipes(columns)),
        )
    shape = (num_episodes, num_steps)
    if what == "images":
        shape = (max(1, num_episodes // 2), max(1, num_steps // 5))
        observation: Any = rng.integers(0, 256, (*shape, 64, 64, 3), np.uint8)
    else:
        observation = rng.random((*shape, 17), np.float32)
    columns = {
        "observation": observation,
        "action": rng.random((*shape, 6), np.float32),
        ours.IS_TERMINAL: np.tile(np.arange(shape[1]) == shape[1] - 1, (shape[0], 1)),
    }
    of_group = IMAGE_TASKS if what == "images" else TASKS
    return Group(columns, of_group, of_group)


def measure(
    group: Group, only: list[str], num_rounds: int, ours: Any, peer: Any
) -> Iterator[tuple[str, dict[str, list[rounds.Times]]]]:
    """Measures each row: here with nested and with batched steps, by the original, by NumPy."""
    import tensorflow as tf

    batched = tf.data.Dataset.from_tensor_slices({ours.STEPS: group.columns})
    nested = batched.map(
        lambda episode: {ours.STEPS: tf.data.Dataset.from_tensor_slices(episode[ours.STEPS])}
    )
    for name, task in group.ours.items():
        if not any(text in name for text in only):
            continue
        jobs = {"nested": task(ours, nested), "batched": task(ours, batched)}
        if peer is not None and name in group.original:
            jobs["original"] = group.original[name](peer, nested)
        if name in group.numpy:
            jobs["NumPy"] = group.numpy[name]
        yield name, rounds.take_turns(jobs, num_rounds)


def row_of(name: str, times: Mapping[str, list[rounds.Times]], num_steps: int) -> list[str]:
    """The cells of a row of the table: thousand steps per second, and ratios."""
    medians = rounds.medians(times)

    def speed(who: str) -> str:
        return f"{num_steps / medians[who][0] / 1000:,.0f}" if who in medians else ""

    def ratio(who: str, digits: int) -> str:
        if "original" not in times:
            return ""
        cpu = {which: [cpu for cpu, _ in times[which]] for which in ("original", who)}
        ratios = map(operator.truediv, cpu["original"], cpu[who])
        return f"{statistics.median(ratios):.{digits}f}"

    speeds = [speed(who) for who in ("nested", "batched", "original")]
    return [name, *speeds, ratio("nested", 2), ratio("batched", 1), speed("NumPy")]


def main() -> None:
    """Measures, and prints the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--peer", type=Path, metavar="DIR", help="folder of the original package")
    parser.add_argument("--episodes", type=int, default=200)
    parser.add_argument("--steps", type=int, default=1000, help="steps per episode")
    parser.add_argument("--rounds", type=int, default=5)
    groups = ["transformations", "images", "recipes", "recipes of images"]
    parser.add_argument("--what", nargs="+", metavar="GROUP", choices=groups, default=groups[:2])
    parser.add_argument(
        "--only", nargs="+", default=[""], metavar="TEXT", help="rows whose names contain one"
    )
    parser.add_argument("--memory", action="store_true", help="measure memory instead of speed")
    parser.add_argument("--memory-of", help=argparse.SUPPRESS)
    parser.add_argument("--json", action="store_true", help="print lines of JSON")
    arguments = parser.parse_args()
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    if arguments.memory:
        recipes.print_memory()
        return
    if arguments.memory_of:
        print(recipes.measure_memory(arguments.memory_of, arguments.episodes, arguments.steps))
        return

    sys.modules["reverb"] = mock.MagicMock()
    peer = load(arguments.peer) if arguments.peer else None
    ours = load(Path(__file__).parents[1])
    table = Table(
        title="Thousand steps per second of processor time",
        caption=f"{arguments.episodes} episodes of {arguments.steps} steps of 17 + 6 floats and "
        f"flags, median of {arguments.rounds}",
    )
    table.add_column("", no_wrap=True)
    for column in ("nested", "batched", "original", "nested ratio", "batched ratio", "NumPy"):
        table.add_column(column, justify="right")
    for what in arguments.what:
        group = make_group(what, arguments.episodes, arguments.steps, ours, peer)
        for name, times in measure(group, arguments.only, arguments.rounds, ours, peer):
            if arguments.json:
                rounds.report(name, times)
            else:
                table.add_row(*row_of(name, times, group.num_steps))
    if not arguments.json:
        Console(width=110).print(table)


if __name__ == "__main__":
    main()
