"""What batches for training cost: `rlds.feeds` beside what people do today.

    python benchmarks/bench_feeds.py [--quick] [--rounds N] [--only TEXT ...] [--jobs JOB ...]
        [--data DIR] [--json | --render]

transitions: 256 transitions of 17 + 6 floats in a batch, in random order.
windows: 64 windows in a batch, in random order: two frames of two cameras (JPEG files of 128 x 128
pixels), 16 actions, masks.
steps, frames: whole episodes in their order, of floats and of these images.

The unit is the processor time of a sample, of all processes that a contender starts. It changes
little with what else the machine does. The time to the first batch has the start of Python and all
imports in it, and the memory is that of all processes at the end, in which what they share counts
once (PSS); pages of mapped files are in it. Each contender runs in a process of its own, in each
round once. In the first round its batches are compared with arrays in memory, sample by sample.

Contenders whose packages are not installed are left out, and named:

    pip install torch grain datasets simplejpeg av

A run of all jobs and contenders writes its results to `benchmarks/results/feeds/<date>.json`, and
the tables and the figure of `docs/benchmarks.md`. With `--render` nothing is measured.

The data is written to DIR once, or to a folder that is deleted at the end. It takes 2.5 GB.
"""

import argparse
import dataclasses
import datetime
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import feed_data
import feed_goals
import feed_ours as ours
import feed_page
import feed_peers as peers
import processes
import rounds
from feed_data import Data
from feed_goals import Line

ROOT = Path(__file__).resolve().parent.parent
LIMIT, OURS = "NumPy take in RAM", "rlds.feeds"
GOALS = "goals"
UNIT = 10_000  # Samples, for the report.


@dataclasses.dataclass(frozen=True)
class Contender:
    """What makes batches.

    Attributes:
      jobs: For what it is measured.
      batches: Makes batches of the data, without end.
      form: The form of the data that it reads.
      least: How many batches are measured at least, because some are made in advance.
      compared: How its batches are compared with those of arrays in memory: all fields ("all"), all
        but the pixels of images ("numbers"), or not at all ("").
    """

    jobs: tuple[str, ...]
    batches: Callable[[Data], Iterator[Any]]
    form: str = "tfrecord"
    least: int = 1
    compared: str = "all"


def _loaders(
    title: str,
    batches: Callable[..., Iterator[Any]],
    jobs: tuple[str, ...],
    form: str,
    counts: Sequence[int] = (0, 2),
) -> dict[str, Contender]:
    """A contender with several numbers of workers, each of which makes two batches in advance."""
    return {
        f"{title}, {count} workers": Contender(
            jobs, partial(batches, workers=count), form, least=20 if count else 1
        )
        for count in counts
    }


BOTH = ("transitions", "windows")
NUMBERS, IMAGES = BOTH[:1], BOTH[1:]
IN_ORDER = ("steps", "frames")

CONTENDERS: dict[str, Contender] = {
    LIMIT: Contender(BOTH, peers.in_ram, "npy"),
    f"{LIMIT}, 4096": Contender(NUMBERS, partial(peers.in_ram, size=4096), "npy"),
    OURS: Contender(BOTH, partial(ours.in_process, shuffle="global"), least=50),
    f"{OURS}, 4096": Contender(NUMBERS, partial(ours.in_process, size=4096, shuffle="global")),
    **_loaders(f"{OURS}, DataLoader", ours.in_loader, BOTH, "tfrecord", (0, 1, 2)),
    f"{OURS}, Grain": Contender(BOTH, ours.in_grain),
    f"{OURS}, segments": Contender(BOTH, partial(ours.in_process, shuffle="segments"), least=50),
    f"{OURS}, a log": Contender(NUMBERS, partial(ours.in_process, form="log"), "log", least=2000),
    f"{OURS}, a log, materialised": Contender(
        NUMBERS, partial(ours.in_process, form="materialised"), "materialised", least=50
    ),
    **_loaders("memmap, DataLoader", peers.memmap, BOTH, "npy"),
    "memmap, DataLoader, batches at once": Contender(
        BOTH, partial(peers.memmap, at_once=True), "npy"
    ),
    "Grain, sample by sample in RAM": Contender(NUMBERS, peers.grain_samples, "npy"),
    "Grain, batches in RAM": Contender(NUMBERS, peers.grain_batches, "npy"),
    **_loaders("Hugging Face rows", peers.rows, BOTH, "arrow"),
    "OpenVLA's pipeline, DataLoader": Contender(BOTH, peers.openvla),
    "OpenVLA's pipeline, batched": Contender(BOTH, peers.openvla_batched),
    **_loaders("tfds.as_data_source", peers.as_data_source, BOTH, "array_record", (0,)),
    **_loaders("tfds.as_data_source", peers.as_data_source, NUMBERS, "array_record", (2,)),
    "films of H.264, PyAV": Contender(IMAGES, peers.films, "video", compared="numbers"),
    "rlds.tfds.load, shuffle_steps": Contender(BOTH, peers.by_tf_data, least=20),
    f"{OURS}, in order": Contender(IN_ORDER, ours.in_order, least=20, compared=""),
    "rlds.tfds.load": Contender(IN_ORDER, peers.load_in_order, least=100, compared=""),
    "TFDS, nested steps": Contender(IN_ORDER, peers.nested_in_order, compared=""),
    "Reader.columns of a log": Contender(("steps",), peers.log_in_order, "log", compared=""),
}


@dataclasses.dataclass(frozen=True)
class Ratio:
    """What is promised of a contender beside another one.

    Attributes:
      goal: The number of the goal, and what it is about.
      job: For which job.
      ours: The contender that is this project.
      theirs: The other one.
      least: How many times as fast it has to be.
    """

    goal: str
    job: str
    ours: str
    theirs: str
    least: float


RATIOS = [
    Ratio("1: NumPy in RAM", "transitions", OURS, LIMIT, 0.45),
    Ratio("1: NumPy in RAM, 4096", "transitions", f"{OURS}, 4096", f"{LIMIT}, 4096", 0.8),
    Ratio(
        *("1: NumPy in RAM, through a DataLoader", "transitions"),
        *(f"{OURS}, DataLoader, 0 workers", LIMIT, 0.2),
    ),
    Ratio("1: OpenVLA", "transitions", OURS, "OpenVLA's pipeline, DataLoader", 300),
    Ratio("1: Hugging Face", "transitions", OURS, "Hugging Face rows, 0 workers", 300),
    Ratio("1: memmap", "transitions", OURS, "memmap, DataLoader, 0 workers", 30),
    Ratio("1: this project on tf.data", "transitions", OURS, "rlds.tfds.load, shuffle_steps", 5),
    Ratio("2: OpenVLA, windows", "windows", OURS, "OpenVLA's pipeline, DataLoader", 2),
    Ratio("2: Hugging Face, windows", "windows", OURS, "Hugging Face rows, 0 workers", 4),
    Ratio("2: tfds.as_data_source, windows", "windows", OURS, "tfds.as_data_source, 0 workers", 20),
    Ratio("2: films, windows", "windows", OURS, "films of H.264, PyAV", 6),
    Ratio("8: rlds.tfds.load, in order", "steps", f"{OURS}, in order", "rlds.tfds.load", 10),
    Ratio(
        "8: rlds.tfds.load, images in order", "frames", f"{OURS}, in order", "rlds.tfds.load", 1.6
    ),
    Ratio("8: nested steps of TFDS", "steps", f"{OURS}, in order", "TFDS, nested steps", 1000),
    Ratio(
        "9: NumPy in RAM, a log materialised",
        "transitions",
        f"{OURS}, a log, materialised",
        LIMIT,
        0.45,
    ),
]
DATA = {"transitions": feed_data.numbers, "steps": feed_data.numbers}
DATA |= {"windows": feed_data.cameras, "frames": feed_data.cameras}


# --- In the process of a contender ---------------------------------------------------------------


def num_samples(batch: Any) -> int:
    """How many samples a batch has."""
    return len(batch["reward"])


def measure(batches: Iterator[Any], seconds: float, least: int) -> rounds.Times:
    """Measures what a sample takes: processor time and elapsed time, in seconds.

    Args:
      batches: Where they come from.
      seconds: How long to measure, about.
      least: How many batches to measure at least: many more than are made in advance.
    """
    count, took = 1, 0.0
    while took < seconds / 4:  # Warms up, too.
        begin = time.perf_counter()
        for _ in range(count):
            batch = next(batches)
        took = time.perf_counter() - begin
        count *= 2
    samples, cpu, wall = 0, processes.cpu_time(), time.perf_counter()
    for _ in range(max(least, round(count / 2 * seconds / took))):
        batch = next(batches)  # The one before is still there, as in any loop.
        samples += num_samples(batch)
    return (processes.cpu_time() - cpu) / samples, (time.perf_counter() - wall) / samples


def check_batches(contender: Contender, data: Data, batches: Iterator[Any]) -> int:
    """Compares some batches with arrays in memory; returns by how much pixels differ at most."""
    columns = peers.discounted(data.columns("r"))
    names = feed_data.IMAGES if contender.compared == "numbers" else ()
    return max(feed_data.check(data, columns, next(batches), without=names) for _ in range(3))


def run_here(title: str, data: Data, seconds: float, *, compare: bool) -> dict[str, Any]:
    """Measures a contender."""
    contender = CONTENDERS[title]
    batches = contender.batches(data)
    next(batches)
    result: dict[str, Any] = {"start": processes.cpu_time()}
    result["times"] = measure(batches, seconds, contender.least)
    result["megabytes"] = processes.memory()
    if compare and contender.compared:
        result["pixels"] = check_batches(contender, data, batches)
    return result


# --- Rounds --------------------------------------------------------------------------------------


@dataclasses.dataclass
class Found:
    """What was measured of a contender for a job.

    Attributes:
      times: Processor time and elapsed time of a sample, in seconds.
      starts: The processor time to the first batch, in seconds, of each round.
      megabytes: The memory of each round.
      pixels: By how much pixels differ at most from those that most decoders give.
    """

    times: list[rounds.Times] = dataclasses.field(default_factory=list)
    starts: list[float] = dataclasses.field(default_factory=list)
    megabytes: list[float] = dataclasses.field(default_factory=list)
    pixels: int = 0

    @property
    def cpu(self) -> float:
        """The least processor time of a sample: what other work on the machine adds is left out."""
        return min(cpu for cpu, _ in self.times)

    def as_json(self) -> dict[str, Any]:
        """Returns what a file of results has of it."""
        cpu, wall = zip(*self.times)
        columns = {"cpu": cpu, "wall": wall, "starts": self.starts, "megabytes": self.megabytes}
        return {name: [float(f"{x:.4g}") for x in column] for name, column in columns.items()}

    @property
    def median(self) -> float:
        """The median of these times."""
        return statistics.median(cpu for cpu, _ in self.times)


class LeftOut(Exception):
    """A contender cannot run here."""


def run(arguments: Sequence[str]) -> dict[str, Any]:
    """Runs a part of this in a process of its own; returns what it prints.

    Raises:
      LeftOut: It needs what is not installed.
      RuntimeError: It failed.
    """
    command = [sys.executable, str(Path(__file__).resolve()), *arguments]
    path = os.pathsep.join(filter(None, (os.environ.get("PYTHONPATH"), str(ROOT))))
    environment = {**os.environ, "PYTHONPATH": path, "TF_CPP_MIN_LOG_LEVEL": "3"}
    # Threads of OpenMP that wait for each other burn the processor time of torch's contenders.
    environment |= {"JAX_PLATFORMS": "cpu", "CUDA_VISIBLE_DEVICES": "", "OMP_NUM_THREADS": "1"}
    environment.pop("PYTHONDONTWRITEBYTECODE", None)  # What is installed has been compiled.
    done = subprocess.run(command, capture_output=True, text=True, env=environment)
    if done.returncode:
        last = done.stderr.strip().splitlines()[-1] if done.stderr.strip() else ""
        if last.startswith(("ImportError", "ModuleNotFoundError")):
            raise LeftOut(last)
        raise RuntimeError(f"{' '.join(arguments)} failed:\n{done.stderr[-3000:]}")
    result: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return result


def measure_all(
    titles: dict[str, list[str]], num_rounds: int, arguments: list[str]
) -> dict[str, dict[str, Found]]:
    """Measures contenders in rounds; returns what was found by job and contender."""
    found = {job: {title: Found() for title in of_job} for job, of_job in titles.items()}
    for number in range(num_rounds):
        for job, of_job in found.items():
            for title, so_far in list(of_job.items()):
                command = [*arguments, "--contender", title, "--jobs", job]
                try:
                    result = run([*command, *(["--compare"] if number == 0 else [])])
                except (LeftOut, RuntimeError) as error:
                    print(f"left out: {job}, {title}: {error}", file=sys.stderr)
                    del of_job[title]
                    continue
                so_far.times.append(tuple(result["times"]))
                so_far.starts.append(result["start"])
                so_far.megabytes.append(result["megabytes"])
                so_far.pixels = max(so_far.pixels, result.get("pixels", 0))
                us = result["times"][0] * 1e6
                print(f"{number} {job}, {title}: {us:.2f} us", file=sys.stderr, flush=True)
    return found


def show(job: str, found: dict[str, Found]) -> None:
    """Prints the table of a job."""
    from rich.console import Console
    from rich.table import Table

    heads = ("CPU us", "median", "to the limit", "to ours", "first batch, CPU s", "MB")
    table = Table("", title=f"{job}: a sample")
    for head in heads:
        table.add_column(head, justify="right")
    ours = found.get(OURS) or found.get(f"{OURS}, in order")
    limit = found.get(LIMIT)
    for title, one in found.items():
        ratios = [f"{one.cpu / other.cpu:.2f}" if other else "" for other in (limit, ours)]
        cells = [f"{one.cpu * 1e6:.2f}", f"{one.median * 1e6:.2f}", *ratios]
        cells += [f"{min(one.starts):.2f}", f"{statistics.median(one.megabytes):,.0f}"]
        table.add_row(title, *cells)
    Console(width=120).print(table)


def goals(found: dict[str, dict[str, Found]], arguments: list[str]) -> list[Line]:
    """What is promised, and what was found."""
    lines = []
    for ratio in RATIOS:
        of_job = found.get(ratio.job, {})
        if ratio.ours in of_job and ratio.theirs in of_job:
            times = of_job[ratio.theirs].cpu / of_job[ratio.ours].cpu
            lines.append(Line(ratio.goal, times, ratio.least, unit="times as fast"))
    log = found.get("transitions", {}).get(f"{OURS}, a log")
    if log:
        lines.append(Line("9: a transition of a log", log.cpu * 1e6, None, 1.1, "us"))
    for goal in feed_goals.GOALS:
        try:
            result = run([*arguments, "--goal", goal.__name__])
        except (LeftOut, RuntimeError) as error:
            print(f"left out: {goal.__name__}: {error}", file=sys.stderr)
            continue
        lines += [Line(*line) for line in result["lines"]]
        print(*lines[-len(result["lines"]) :], sep="\n", file=sys.stderr, flush=True)
    return sorted(lines, key=lambda line: int(line.goal.partition(":")[0]))


def show_goals(lines: Sequence[Line]) -> None:
    """Prints the table of goals."""
    from rich.console import Console
    from rich.table import Table

    table = Table("goal", "", title="Goals")
    for head in ("found", "at least", "at most", "met"):
        table.add_column(head, justify="right")
    for line in lines:
        bounds = ["" if bound is None else f"{bound:g}" for bound in (line.least, line.most)]
        number, _, what = line.goal.partition(": ")
        found = f"{line.found:.3g} {line.unit}"
        table.add_row(number, what, found, *bounds, "yes" if line.is_met else "no")
    Console(width=120).print(table)


def main() -> None:
    """Measures, and prints tables."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true", help="small data, for a look")
    parser.add_argument("--rounds", type=int)
    parser.add_argument("--only", nargs="*", default=[""], help="contenders with such names")
    parser.add_argument("--jobs", nargs="*", choices=[*DATA, GOALS], default=[*DATA, GOALS])
    parser.add_argument("--data", type=Path, help="where the data is, or is written to")
    parser.add_argument("--json", action="store_true", help="print lines of JSON")
    parser.add_argument("--render", action="store_true", help="only write the tables")
    for internal in ("--make", "--compare"):
        parser.add_argument(internal, action="store_true", help=argparse.SUPPRESS)
    for internal in ("--contender", "--goal"):
        parser.add_argument(internal, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.render:
        feed_page.render()
        return
    if options.make:
        for make in (feed_data.numbers, feed_data.cameras):
            feed_data.make(make(options.data, quick=options.quick))
        print("{}")
        return
    if options.contender:
        data = DATA[options.jobs[0]](options.data, quick=options.quick)
        seconds = 0.2 if options.quick else 1.0
        found = run_here(options.contender, data, seconds, compare=options.compare)
        print(json.dumps(found), flush=True)
        os._exit(0)  # Workers and threads may still be at it.
    if options.goal:
        numbers, cameras = (
            make(options.data, quick=options.quick)
            for make in (feed_data.numbers, feed_data.cameras)
        )
        measured = feed_goals.Measured(numbers, cameras, options.data)
        print(json.dumps({"lines": list(getattr(feed_goals, options.goal)(measured))}), flush=True)
        os._exit(0)
    titles = {
        job: [
            title
            for title, contender in CONTENDERS.items()
            if job in contender.jobs and any(text in title for text in options.only)
        ]
        for job in options.jobs
        if job != GOALS
    }
    with tempfile.TemporaryDirectory() as folder:
        directory = (options.data or Path(folder)) / ("quick" if options.quick else "full")
        arguments = ["--data", str(directory.resolve()), *(["--quick"] if options.quick else [])]
        run([*arguments, "--make"])
        num_rounds = options.rounds or (1 if options.quick else 4)
        load = [os.getloadavg()[0]]
        all_found = measure_all(titles, num_rounds, arguments)
        lines = goals(all_found, arguments) if GOALS in options.jobs else []
    for job, found in all_found.items():
        if options.json:
            times = {title: one.times for title, one in found.items()}
            rounds.report(f"Feeds: {job}", _per_unit(times))
        else:
            show(job, found)
    if lines and not options.json:
        show_goals(lines)
    load.append(os.getloadavg()[0])
    is_whole = options.only == [""] and set(options.jobs) == {*DATA, GOALS}
    if is_whole and not options.quick:
        feed_page.save(
            {
                "date": datetime.date.today().isoformat(),
                **feed_page.describe_machine(),
                "load": [round(min(load), 1), round(max(load), 1)],
                "found": {
                    job: {title: one.as_json() for title, one in found.items()}
                    for job, found in all_found.items()
                },
                "goals": [{**line._asdict(), "met": line.is_met} for line in lines],
            }
        )
        feed_page.render()


def _per_unit(times: dict[str, list[rounds.Times]]) -> dict[str, list[rounds.Times]]:
    return {
        title: [(cpu * UNIT, wall * UNIT) for cpu, wall in found] for title, found in times.items()
    }


if __name__ == "__main__":
    main()
