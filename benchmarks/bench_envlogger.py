"""What recording costs an environment, and how fast recordings are read, beside EnvLogger 1.2.

    python benchmarks/bench_envlogger.py [--envlogger-python PATH]
    python benchmarks/bench_envlogger.py --shards [--envlogger-python PATH]

PATH is a Python in which the published `envlogger` (1.2) is installed. Both record the same steps
of the same environment with their default options, and read what they recorded; each runs in a
process of its own, one after the other, round by round; the tables show the medians of the rounds.

The overhead of a step is the time that `step` of the recorded environment takes, less the median of
what it takes bare. "paced" is at 30 steps a second, as a robot would be; "throughput" counts the
time until everything is on the disk. Observations do not repeat within a chunk.

With `--shards` it is measured how long a recording of many shards takes to open.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import dm_env
import numpy as np

# How many steps are recorded of each kind of observation.
KINDS = {
    "float32(17)": 60_000,
    "float32(1000)": 8_000,
    "uint8 84x84x4": 6_000,
    "dict of 20": 20_000,
    "uint8 224x224x3": 400,
}
EPISODE_LENGTH = 1000
NUM_SHARDS = 1000
SHARDS = f"{NUM_SHARDS} shards"
PACED_STEPS = 240
PACED_SECONDS = 1 / 30

# Microseconds, bytes, or steps per second.
Measured = dict[str, float]


def make_observations(kind: str, count: int) -> list[Any]:
    """Observations such as the environments of such observations have."""
    rng = np.random.default_rng(0)
    walk = np.sin(np.cumsum(rng.standard_normal((count, 64)) * 0.05, axis=0))
    match kind:
        case "float32(17)":
            return list(walk[:, :17].astype(np.float32))
        case "float32(1000)":
            steps = rng.standard_normal((count, 1000), np.float32) * np.float32(0.05)
            return list(np.sin(np.cumsum(steps, axis=0)))
        case "uint8 84x84x4":
            return list(make_game(rng, min(count, 2000)))
        case "dict of 20":
            return [make_dict(t, row) for t, row in enumerate(walk)]
    return list(make_camera(rng, min(count, 200)))


def make_game(rng: np.random.Generator, count: int) -> Iterator[np.ndarray]:
    """The last four frames of a ball and a bat."""
    frames = np.full((count + 3, 84, 84), 87, np.uint8)
    frames[:, :10] = 142
    y, x, dy, dx, bat = 40.0, 40.0, 1.7, 1.1, 40
    for frame in frames:
        dy = dy if 12 < y + dy < 80 else -dy
        dx = dx if 2 < x + dx < 80 else -dx
        y, x, bat = y + dy, x + dx, int(np.clip(bat + rng.integers(-3, 4), 8, 72))
        frame[int(y) : int(y) + 2, int(x) : int(x) + 2] = 200
        frame[76:79, bat - 6 : bat + 6] = 213
    return (np.stack(frames[t : t + 4], axis=-1) for t in range(count))


def make_dict(t: int, row: np.ndarray) -> dict[str, Any]:
    """What a robot arm knows of itself."""
    return {
        **{f"joint_{i}": row[3 * i : 3 * i + 3].astype(np.float32) for i in range(6)},
        **{f"pose_{i}": row[20 + 3 * i : 23 + 3 * i].copy() for i in range(4)},
        **{f"flag_{i}": bool(row[i] > 0) for i in range(4)},
        **{f"count_{i}": np.int64(t // (i + 1)) for i in range(3)},
        **{f"tactile_{i}": (row[40:48] * 100).astype(np.int8) for i in range(2)},
        "gripper": np.float32(row[50]),
    }


def make_camera(rng: np.random.Generator, count: int) -> Iterator[np.ndarray]:
    """A moving scene with the noise of a sensor."""
    rows, columns = np.mgrid[:224, :224]
    for t in range(count):
        scene = [np.sin((columns + 3 * t) / 40), np.cos((rows - 2 * t) / 30), np.sin(rows / 50)]
        noise = rng.normal(0, 6, (224, 224, 3))
        yield np.clip(128 + 80 * np.stack(scene, axis=-1) + noise, 0, 255).astype(np.uint8)


class Environment(dm_env.Environment):
    """Gives one observation after the other."""

    def __init__(self, observations: list[Any]) -> None:
        self._observations = observations
        self._t = 0

    def reset(self) -> dm_env.TimeStep:
        """Begins an episode."""
        return dm_env.restart(self._observations[self._t % len(self._observations)])

    def step(self, action: Any) -> dm_env.TimeStep:
        """Goes on to the next observation."""
        self._t += 1
        observation = self._observations[self._t % len(self._observations)]
        if self._t % EPISODE_LENGTH == 0:
            return dm_env.termination(1.0, observation)
        return dm_env.transition(0.5, observation)

    def observation_spec(self) -> Any:
        """Not what the observations are, but nobody looks."""
        return dm_env.specs.Array((), np.float32)

    def action_spec(self) -> Any:
        """Six joints."""
        return dm_env.specs.Array((6,), np.float32)


def take_steps(env: dm_env.Environment, count: int, seconds: float = 0.0) -> list[float]:
    """Microseconds of each step, of `count` that are `seconds` apart."""
    actions = list(np.random.default_rng(1).random((1024, 6), np.float32))
    times = []
    is_last = True
    due = time.perf_counter()
    for t in range(count):
        if seconds:
            due += seconds
            time.sleep(max(0.0, due - time.perf_counter()))
        begin = time.perf_counter_ns()
        timestep = env.reset() if is_last else env.step(actions[t % 1024])
        times.append((time.perf_counter_ns() - begin) / 1e3)
        is_last = timestep.last()
    return times


def measure_recording(kind: str, directory: Path) -> Measured:
    """Records with whichever `envlogger` this Python has."""
    import envlogger

    count = KINDS[kind]
    observations = make_observations(kind, count)
    bare = statistics.median(take_steps(Environment(observations), min(count, 10_000)))

    def record(name: str, count: int, seconds: float) -> list[float]:
        (directory / name).mkdir()
        env = envlogger.EnvLogger(Environment(observations), data_directory=str(directory / name))
        times = take_steps(env, count, seconds)
        env.close()
        return [time - bare for time in times]

    begin = time.perf_counter()
    fast = record("fast", count, 0.0)
    elapsed = time.perf_counter() - begin
    measured = {
        "overhead p50": float(np.percentile(fast, 50)),
        "overhead p99": float(np.percentile(fast, 99)),
        "overhead mean": float(np.mean(fast)),
        "throughput": count / elapsed,
        "bytes": sum(f.stat().st_size for f in (directory / "fast").rglob("*")) / count,
    }
    if kind == "uint8 224x224x3":
        paced = record("paced", PACED_STEPS, PACED_SECONDS)
        measured["overhead p50, paced"] = float(np.percentile(paced, 50))
        measured["overhead p99, paced"] = float(np.percentile(paced, 99))
    return measured


def steps_per_second(job: Callable[[], int]) -> float:
    """Runs a job that returns how many steps it read."""
    begin = time.perf_counter()
    count = job()
    return count / (time.perf_counter() - begin)


def measure_reading(directory: Path) -> Measured:
    """Reads what was recorded."""
    import envlogger

    reader = envlogger.Reader(str(directory / "fast"))

    def in_a_loop() -> int:
        count = 0
        for episode in reader.episodes:
            for _ in episode:
                count += 1
        return count

    measured = {"steps/s in a loop": steps_per_second(in_a_loop)}
    picks = np.random.default_rng(2).integers(0, len(reader.steps), 200)
    begin = time.perf_counter()
    for i in picks:
        reader.steps[int(i)]
    measured["random step"] = (time.perf_counter() - begin) / len(picks) * 1e6
    if hasattr(reader, "columns"):

        def as_columns() -> int:
            count = 0
            for i in range(len(reader.episodes)):
                count += len(reader.columns(i)["reward"])
            return count

        measured["steps/s as columns"] = steps_per_second(as_columns)
    reader.close()
    return measured


def measure_opening(directory: Path) -> Measured:
    """Records an episode of two steps for each of many shards, and opens the recording."""
    import envlogger

    env = envlogger.EnvLogger(
        Environment(make_observations("float32(17)", 2)),
        data_directory=str(directory),
        max_episodes_per_file=1,
    )
    for _ in range(NUM_SHARDS):
        env.reset()
        env.step(np.zeros(6, np.float32))
    env.close()
    seconds = []
    for _ in range(5):
        begin = time.perf_counter()
        reader = envlogger.Reader(str(directory))
        seconds.append(time.perf_counter() - begin)
        assert len(reader.episodes) == NUM_SHARDS
        reader.close()
    return {"ms to open": statistics.median(seconds) * 1e3}


def measure(python: str, kind: str) -> Measured:
    """One round of one contender, in a process of its own."""
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    with tempfile.TemporaryDirectory() as directory:
        command = [python, __file__, "--measure", kind, directory]
        done = subprocess.run(
            command, stdout=subprocess.PIPE, text=True, check=True, env=environment
        )
    measured: Measured = json.loads(done.stdout.splitlines()[-1])
    return measured


def print_table(kinds: list[str], rounds: list[dict[tuple[str, str], Measured]]) -> None:
    """Prints the medians, and how many times ours is the other."""
    from rich.console import Console
    from rich.table import Table

    table = Table(title="Recording and reading", caption="times in microseconds, sizes per step")
    for column in ("observation", "what"):
        table.add_column(column, no_wrap=True)
    for column in ("here", "EnvLogger 1.2", "here / 1.2"):
        table.add_column(column, justify="right")
    for kind in kinds:
        names = [
            name for (k, who), m in rounds[0].items() if (k, who) == (kind, "ours") for name in m
        ]
        for name in names:
            ours = statistics.median(r[kind, "ours"][name] for r in rounds)
            row = [kind, name, f"{ours:,.1f}"]
            if name in rounds[0].get((kind, "theirs"), {}):
                theirs = statistics.median(r[kind, "theirs"][name] for r in rounds)
                row += [f"{theirs:,.1f}", f"{ours / theirs:.3f}"]
            table.add_row(*row, end_section=name == names[-1])
    Console(width=max(90, Console().width)).print(table)


def main() -> None:
    """Measures, and prints the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--envlogger-python", metavar="PATH", help="a Python with envlogger 1.2")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--kinds", nargs="*", choices=list(KINDS), default=list(KINDS))
    parser.add_argument("--shards", action="store_true", help="measure opening many shards")
    parser.add_argument("--measure", nargs=2, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.measure:
        kind, directory = arguments.measure
        if kind == SHARDS:
            print(json.dumps(measure_opening(Path(directory))))
            return
        measured = measure_recording(kind, Path(directory))
        print(json.dumps({**measured, **measure_reading(Path(directory))}))
        return

    kinds = [SHARDS] if arguments.shards else arguments.kinds
    rounds: list[dict[tuple[str, str], Measured]] = []
    for _ in range(arguments.rounds):
        rounds.append({})
        for kind in kinds:
            rounds[-1][kind, "ours"] = measure(sys.executable, kind)
            if arguments.envlogger_python:
                rounds[-1][kind, "theirs"] = measure(arguments.envlogger_python, kind)
    print_table(kinds, rounds)


if __name__ == "__main__":
    main()
