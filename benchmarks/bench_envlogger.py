"""What recording costs an environment, and how fast recordings are read, beside EnvLogger 1.2.

    python benchmarks/bench_envlogger.py [--envlogger-python PATH] [--json]
    python benchmarks/bench_envlogger.py --shards [--envlogger-python PATH]

PATH is a Python in which the published `envlogger` (1.2) is installed. Both record the same steps
of the same environment with their default options, and read what they recorded; each runs in a
process of its own, one after the other, round by round; the tables show the medians of the rounds,
and the median of their ratios.

The overhead of a step is the time that `step` of the recorded environment takes, less the median of
what it takes bare; "throughput" counts the time until everything is on the disk. Both are at full
speed; rows "at n/s" are of a recording with n steps a second, such as a robot's 30. Observations do
not repeat within a chunk. Frames of the games are real ones, if ale-py is installed in the Python
that runs this: of random play, gray, 84x84, the last four together.

Reading is of what was recorded at full speed, and measured by processor time. "decompression" is
the part of the time of reading columns that it takes to decompress the same chunks, alone.

With `--shards` it is measured how long a recording of many shards takes to open. With `--json`
there is no recording at a pace.
"""

import argparse
import importlib.util
import json
import operator
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
import rounds

# How many steps are recorded of each kind of observation.
GAMES = ["Pong", "Breakout", "Seaquest"]
KINDS = {
    "float32(17)": 60_000,
    "float32(1000)": 8_000,
    "uint8 84x84x4": 6_000,
    "dict of 20": 20_000,
    "uint8 224x224x3": 400,
    **dict.fromkeys(GAMES, 6_000),
}
EPISODE_LENGTH = 1000
PEER = "EnvLogger 1.2"
NUM_SHARDS = 1000
SHARDS = f"{NUM_SHARDS} shards"
# How many steps a second, and how many steps, each kind is recorded at that pace.
PACES = dict.fromkeys(KINDS, (3_000, 15_000)) | {"uint8 224x224x3": (30, 240)}

# Microseconds, bytes, or steps per second.
Measured = dict[str, float]
# What was recorded and read in a round, and what it took.
Jobs = dict[str, rounds.Times]


def make_observations(kind: str, count: int, frames: Path) -> list[Any]:
    """Observations such as the environments of such observations have; those of games are there."""
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
        case "uint8 224x224x3":
            return list(make_camera(rng, min(count, 200)))
    return list(np.load(frames / f"{kind}.npy"))


def save_frames(game: str, directory: Path) -> None:
    """Plays a game at random, and saves what an agent sees of it."""
    import ale_py.roms

    ale_py.ALEInterface.setLoggerMode(ale_py.LoggerMode.Error)
    ale = ale_py.ALEInterface()
    ale.setInt("random_seed", 0)
    ale.loadROM(ale_py.roms.get_rom_path(game.lower()))
    rng = np.random.default_rng(0)
    actions = ale.getMinimalActionSet()
    height, width = ale.getScreenDims()
    rows, columns = area_weights(height), area_weights(width)
    frames = []
    while len(frames) < 2003:
        if ale.game_over():
            ale.reset_game()
        action = rng.choice(actions)
        for _ in range(4):
            ale.act(action)
        frames.append(np.rint(rows @ ale.getScreenGrayscale() @ columns.T).astype(np.uint8))
    stacks = np.lib.stride_tricks.sliding_window_view(np.array(frames), 4, axis=0)
    np.save(directory / game, np.ascontiguousarray(stacks))


def area_weights(size: int) -> np.ndarray:
    """The part that each of so many pixels has in each of 84."""
    edges = np.arange(85) * size / 84
    pixels = np.arange(size)
    lower, upper = np.maximum(edges[:-1, None], pixels), np.minimum(edges[1:, None], pixels + 1)
    return np.maximum(upper - lower, 0) * 84 / size


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


def measure_recording(
    kind: str, directory: Path, frames: Path, count: int, *, paced: bool
) -> tuple[Measured, Jobs]:
    """Records with whichever `envlogger` this Python has."""
    import envlogger

    observations = make_observations(kind, count, frames)
    bare = statistics.median(take_steps(Environment(observations), min(count, 10_000)))

    def record(name: str, count: int, seconds: float) -> list[float]:
        (directory / name).mkdir()
        env = envlogger.EnvLogger(Environment(observations), data_directory=str(directory / name))
        times = take_steps(env, count, seconds)
        env.close()
        return [time - bare for time in times]

    # What is loaded, and made, when it is needed first is not part of the time.
    record("first", 100, 0.0)
    fast: list[float] = []
    times = rounds.timed(lambda: fast.extend(record("fast", count, 0.0)))
    measured = {
        "overhead p50": float(np.percentile(fast, 50)),
        "overhead p99": float(np.percentile(fast, 99)),
        "overhead mean": float(np.mean(fast)),
        "throughput": count / times[1],
        "bytes": bytes_of(directory / "fast") / count,
    }
    if paced:
        pace, count = PACES[kind]
        slow = record("paced", count, 1 / pace)
        measured[f"overhead p50 at {pace:,}/s"] = float(np.percentile(slow, 50))
        measured[f"overhead p99 at {pace:,}/s"] = float(np.percentile(slow, 99))
        measured[f"bytes at {pace:,}/s"] = bytes_of(directory / "paced") / count
    return measured, {"record": times}


def bytes_of(directory: Path) -> int:
    """The bytes of all files."""
    return sum(file.stat().st_size for file in directory.rglob("*"))


def measure_reading(directory: Path) -> tuple[Measured, Jobs]:
    """Reads what was recorded; speeds are by processor time."""
    import envlogger

    with envlogger.Reader(str(directory / "first")) as reader:
        _ = list(reader.episodes[0]), reader.steps[0]
        if hasattr(reader, "columns"):
            reader.columns(0)
    reader = envlogger.Reader(str(directory / "fast"))

    def in_a_loop() -> None:
        for episode in reader.episodes:
            for _ in episode:
                pass

    def as_columns() -> None:
        for i in range(len(reader.episodes)):
            reader.columns(i)

    count = len(reader.steps)
    picks = np.random.default_rng(2).integers(0, count, 200)
    jobs = {
        "read in a loop": rounds.timed(in_a_loop),
        "read 200 random steps": rounds.timed(lambda: [reader.steps[int(i)] for i in picks]),
    }
    measured = {
        "steps/s in a loop": count / jobs["read in a loop"][0],
        "random step": jobs["read 200 random steps"][0] / len(picks) * 1e6,
    }
    if hasattr(reader, "columns"):
        times = rounds.take_turns({"columns": as_columns}, 5, warm_up=False)
        jobs["read as columns"] = rounds.medians(times)["columns"]
        measured["steps/s as columns"] = count / jobs["read as columns"][0]
        measured["decompression of columns"] = part_of_decompression(as_columns)
    reader.close()
    return measured, jobs


def part_of_decompression(job: Callable[[], None]) -> float:
    """How much of the processor time of a job is that of decompressing what it reads, alone."""
    from riegeli._format import simple_chunk

    decompress = simple_chunk.decompress
    calls: list[Any] = []

    def noting(compression_type: int, buffer: Any, max_size: int, into: Any = None) -> Any:
        calls.append((compression_type, bytes(buffer), max_size))
        return decompress(*calls[-1], into)

    simple_chunk.decompress = noting
    try:
        job()
    finally:
        simple_chunk.decompress = decompress
    parts = []
    for _ in range(5):
        begin = time.process_time()
        for call in calls:
            decompress(*call)
        middle = time.process_time()
        job()
        parts.append((middle - begin) / (time.process_time() - middle))
    return statistics.median(parts)


def measure_opening(directory: Path) -> tuple[Measured, Jobs]:
    """Records an episode of two steps for each of many shards, and opens the recording."""
    import envlogger

    env = envlogger.EnvLogger(
        Environment(make_observations("float32(17)", 2, directory)),
        data_directory=str(directory),
        max_episodes_per_file=1,
    )
    for _ in range(NUM_SHARDS):
        env.reset()
        env.step(np.zeros(6, np.float32))
    env.close()

    def open_and_close() -> None:
        with envlogger.Reader(str(directory)) as reader:
            assert len(reader.episodes) == NUM_SHARDS

    times = rounds.take_turns({"open": open_and_close}, 5, warm_up=False)
    median = rounds.medians(times)["open"]
    return {"ms to open": median[1] * 1e3}, {"open": median}


def measure(
    python: str, kind: str, frames: str, arguments: argparse.Namespace
) -> tuple[Measured, Jobs]:
    """One round of one contender, in a process of its own."""
    environment = dict(os.environ)
    if python != sys.executable:  # It must not find the envlogger that is measured here.
        environment.pop("PYTHONPATH", None)
    with tempfile.TemporaryDirectory() as directory:
        command = [python, __file__, "--measure", kind, directory, frames]
        command += ["--part", str(arguments.part), *(["--json"] if arguments.json else [])]
        done = subprocess.run(
            command, stdout=subprocess.PIPE, text=True, check=True, env=environment
        )
    measured, jobs = json.loads(done.stdout.splitlines()[-1])
    return measured, jobs


def report(kinds: list[str], found: list[dict[tuple[str, str], Jobs]]) -> None:
    """Prints lines of JSON."""
    for kind in kinds:
        for job in found[0][kind, "here"]:
            times = {
                who: [one[k, who][job] for one in found]
                for k, who in found[0]
                if k == kind and job in found[0][k, who]
            }
            rounds.report(f"{kind}: {job}", times)


def print_table(kinds: list[str], found: list[dict[tuple[str, str], Measured]]) -> None:
    """Prints the medians, also that of how many times ours is the other in a round."""
    from rich.console import Console
    from rich.table import Table

    table = Table(title="Recording and reading", caption="times in microseconds, sizes per step")
    for column in ("observation", "what"):
        table.add_column(column, no_wrap=True)
    for column in ("here", PEER, "here / 1.2"):
        table.add_column(column, justify="right")
    for kind in kinds:
        names = [
            name for (k, who), m in found[0].items() if (k, who) == (kind, "here") for name in m
        ]
        for name in names:
            ours = [one[kind, "here"][name] for one in found]
            digits = 2 if name == "decompression of columns" else 1
            row = [kind, name, f"{statistics.median(ours):,.{digits}f}"]
            if name in found[0].get((kind, PEER), {}):
                theirs = [one[kind, PEER][name] for one in found]
                ratio = statistics.median(map(operator.truediv, ours, theirs))
                row += [f"{statistics.median(theirs):,.1f}", f"{ratio:.3f}"]
            table.add_row(*row, end_section=name == names[-1])
    Console(width=max(90, Console().width)).print(table)


def main() -> None:
    """Measures, and prints the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--envlogger-python", metavar="PATH", help="a Python with envlogger 1.2")
    parser.add_argument("--rounds", type=int, default=5)
    has_games = importlib.util.find_spec("ale_py") is not None
    kinds = [kind for kind in KINDS if has_games or kind not in GAMES]
    parser.add_argument("--kinds", nargs="*", choices=kinds, default=kinds)
    parser.add_argument("--shards", action="store_true", help="measure opening many shards")
    parser.add_argument("--part", type=float, default=1.0, help="of the steps, such as 0.1")
    parser.add_argument("--json", action="store_true", help="print lines of JSON")
    parser.add_argument("--measure", nargs=3, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.measure:
        kind, directory, frames = arguments.measure
        if kind == SHARDS:
            print(json.dumps(measure_opening(Path(directory))))
            return
        count = int(KINDS[kind] * arguments.part)
        recording = measure_recording(
            kind, Path(directory), Path(frames), count, paced=not arguments.json
        )
        reading = measure_reading(Path(directory))
        print(json.dumps([{**one, **two} for one, two in zip(recording, reading)]))
        return

    kinds = [SHARDS] if arguments.shards else arguments.kinds
    pythons = {"here": sys.executable}
    if arguments.envlogger_python:
        pythons[PEER] = arguments.envlogger_python
    found = []
    with tempfile.TemporaryDirectory() as frames:
        for kind in set(kinds) & set(GAMES):
            save_frames(kind, Path(frames))
        for _ in range(arguments.rounds):
            found.append(
                {
                    (kind, who): measure(python, kind, frames, arguments)
                    for kind in kinds
                    for who, python in pythons.items()
                }
            )
    measured, jobs = (
        [{key: both[i] for key, both in one.items()} for one in found] for i in range(2)
    )
    if arguments.json:
        report(kinds, jobs)
    else:
        print_table(kinds, measured)


if __name__ == "__main__":
    main()
