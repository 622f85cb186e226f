"""What batches for training cost: `rlds.feeds` beside what people do today.

    python benchmarks/bench_feeds.py [--quick] [--rounds N] [--only TEXT ...] [--jobs JOB ...]
        [--data DIR] [--json]

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

The data is written to DIR once, or to a folder that is deleted at the end. It takes 2.5 GB.
"""

import argparse
import dataclasses
import json
import os
import resource
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
import feed_peers as peers
import rounds
from feed_data import Data

ROOT = Path(__file__).resolve().parent.parent
LIMIT, OURS = "NumPy take in RAM", "rlds.feeds"
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
    "rlds.tfds.load": Contender(IN_ORDER, peers.load_in_order, least=100, compared=""),
    "TFDS, nested steps": Contender(IN_ORDER, peers.nested_in_order, compared=""),
    "Reader.columns of a log": Contender(("steps",), peers.log_in_order, "log", compared=""),
}
DATA = {"transitions": feed_data.numbers, "steps": feed_data.numbers}
DATA |= {"windows": feed_data.cameras, "frames": feed_data.cameras}


# --- In the process of a contender ---------------------------------------------------------------


def processes() -> list[int]:
    """The numbers of this process and of all that it has started, and they, and so on."""
    parents = {}
    for entry in os.listdir("/proc"):
        if entry.isdigit():
            try:
                status = Path("/proc", entry, "stat").read_text()
            except OSError:  # It has ended.
                continue
            parents[int(entry)] = int(status.rpartition(")")[2].split()[1])
    family = [os.getpid()]
    for member in family:
        family += [child for child, parent in parents.items() if parent == member]
    return family


def cpu_time() -> float:
    """The processor time of this process and of all that it has started, in seconds."""
    ended = resource.getrusage(resource.RUSAGE_CHILDREN)
    result = time.process_time() + ended.ru_utime + ended.ru_stime
    for process in processes()[1:]:
        try:
            result += time.clock_gettime((~process << 3) | 2)  # What clock_getcpuclockid returns.
        except OSError:
            continue
    return result


def memory(kind: str = "Pss") -> float:
    """The megabytes of all these processes; with `Pss_Anon`, only what is in no file."""
    total = 0
    for process in processes():
        for line in Path(f"/proc/{process}/smaps_rollup").read_text().splitlines():
            if line.startswith(f"{kind}:"):
                total += int(line.split()[1]) * 1024
    return total / 1e6


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
            next(batches)
        took = time.perf_counter() - begin
        count *= 2
    samples, cpu, wall = 0, cpu_time(), time.perf_counter()
    for _ in range(max(least, round(count / 2 * seconds / took))):
        samples += num_samples(next(batches))
    return (cpu_time() - cpu) / samples, (time.perf_counter() - wall) / samples


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
    result: dict[str, Any] = {"start": cpu_time()}
    result["times"] = measure(batches, seconds, contender.least)
    result["megabytes"] = memory()
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
    path = os.pathsep.join(filter(None, (str(ROOT), os.environ.get("PYTHONPATH"))))
    environment = {**os.environ, "PYTHONPATH": path, "TF_CPP_MIN_LOG_LEVEL": "3"}
    # Threads of OpenMP that wait for each other burn the processor time of torch's contenders.
    environment |= {"JAX_PLATFORMS": "cpu", "CUDA_VISIBLE_DEVICES": "", "OMP_NUM_THREADS": "1"}
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
                    if isinstance(error, RuntimeError) and title.startswith(OURS):
                        raise
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


def main() -> None:
    """Measures, and prints tables."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true", help="small data, for a look")
    parser.add_argument("--rounds", type=int)
    parser.add_argument("--only", nargs="*", default=[""], help="contenders with such names")
    parser.add_argument("--jobs", nargs="*", choices=list(DATA), default=list(DATA))
    parser.add_argument("--data", type=Path, help="where the data is, or is written to")
    parser.add_argument("--json", action="store_true", help="print lines of JSON")
    for internal in ("--make", "--compare"):
        parser.add_argument(internal, action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--contender", help=argparse.SUPPRESS)
    options = parser.parse_args()
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
    titles = {
        job: [
            title
            for title, contender in CONTENDERS.items()
            if job in contender.jobs and any(text in title for text in options.only)
        ]
        for job in options.jobs
    }
    with tempfile.TemporaryDirectory() as folder:
        directory = (options.data or Path(folder)) / ("quick" if options.quick else "full")
        arguments = ["--data", str(directory.resolve()), *(["--quick"] if options.quick else [])]
        run([*arguments, "--make"])
        num_rounds = options.rounds or (1 if options.quick else 4)
        all_found = measure_all(titles, num_rounds, arguments)
    for job, found in all_found.items():
        if options.json:
            times = {title: one.times for title, one in found.items()}
            rounds.report(f"Feeds: {job}", _per_unit(times))
        else:
            show(job, found)


def _per_unit(times: dict[str, list[rounds.Times]]) -> dict[str, list[rounds.Times]]:
    return {
        title: [(cpu * UNIT, wall * UNIT) for cpu, wall in found] for title, found in times.items()
    }


if __name__ == "__main__":
    main()
