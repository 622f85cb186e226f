"""Compares this project with its peers, and writes the tables and figures of docs/benchmarks.md.

    make bench            # or: python benchmarks/run.py [--quick] [--only TEXT ...]
    python benchmarks/run.py --conversions      # Conversions; needs a machine with nothing else.

Peers are what people would use otherwise: EnvLogger 1.2, rlds 0.1.8, TFDS, Minari, ArrayRecord,
and for batches PyTorch's DataLoader, Grain, Hugging Face. The first two conflict with this project:
they are installed in `build/peers`, once. To use other versions, set
ENVLOGGER_PYTHON, a Python that has EnvLogger 1.2, and RLDS_PEER_PYTHON, one that has rlds 0.1.8.
What is not installed is left out, and named: pip install torch grain datasets
LOADERS_PYTHON and ROBOTICS_PYTHON name Pythons that have OpenVLA, Octo and openpi, and LeRobot with
its datasets (`pip install 'lerobot[dataset]==0.6.1'`).

`jobs.py` has the table of jobs. Each contender runs in a process of its own, which first loads and
prepares what it needs and does its work once. Only then rounds begin, in which the contenders of a
job take turns. What is compared is the processor time of a unit of work, such as a step.

A whole run writes `benchmarks/results/<date>.json`, with --conversions the same in `conversions`
there, and makes the page of the newest of these files. With --quick or --only, the tables are only
printed; --update writes the results of --only over older ones of the same jobs.
"""

import argparse
import contextlib
import datetime
import functools
import importlib.metadata
import json
import os
import platform
import re
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import page
import peers
from jobs import CONVERSIONS, FEEDS, JOBS, ON_DEMAND, OURS, Contender, Function, Job

WORKER = Path(__file__).resolve().with_name("worker.py")
# Packages that the results name the versions of, if they are installed.
PACKAGES = ("numpy", "tensorflow", "tensorflow-datasets", "minari", "array-record", "protobuf")
PACKAGES += ("torch", "grain", "datasets", "simplejpeg")


class Failed(Exception):
    """A contender failed; says how."""


class NotInstalled(Failed):
    """It needs what is not installed."""


class Process:
    """A call of a function in a process of its own: it prepares a contender, or writes data.

    Attributes:
      start: The processor time of all that comes before the work, in seconds.
    """

    def __init__(self, function: Function, peer: str, data: Path, size: int, scratch: Path) -> None:
        python, paths = peers.surroundings(peer)
        partial = functools.partial(function)  # One of no options, if it is none yet.
        call = {"module": partial.func.__module__, "function": partial.func.__name__}
        call |= {"data": str(data), "size": size, "options": partial.keywords}
        # Threads of OpenMP that wait for each other would burn processor time.
        environment = {**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3", "OMP_NUM_THREADS": "1"}
        environment |= {"CUDA_VISIBLE_DEVICES": "", "JAX_PLATFORMS": "cpu", "TMPDIR": str(scratch)}
        environment["PYTHONPATH"] = os.pathsep.join(map(str, paths))
        environment.pop("PYTHONDONTWRITEBYTECODE", None)  # What is installed has been compiled.
        self._errors = tempfile.TemporaryFile("w+", dir=scratch)  # noqa: SIM115
        self._process = subprocess.Popen(
            [python, str(WORKER), json.dumps(call)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            env=environment,
            cwd=scratch,
            text=True,
        )
        try:
            self.start: float = self._reply()["start"]
        except BaseException:
            self.end()
            raise

    def _reply(self) -> dict[str, Any]:
        assert self._process.stdout
        line = self._process.stdout.readline()
        if not line:
            self._errors.seek(0)
            lines = self._errors.read().strip().splitlines() or ["it ended"]
            if lines[-1].startswith(("ImportError", "ModuleNotFoundError")):
                raise NotInstalled(lines[-1])
            raise Failed("\n".join(lines[-20:]))
        reply: dict[str, Any] = json.loads(line)
        return reply

    def round(self) -> dict[str, Any]:
        """Has the work done once more; returns what `worker.measure` does.

        Raises:
          Failed: The process has ended.
        """
        assert self._process.stdin
        with contextlib.suppress(BrokenPipeError):  # Then the reply says how it has ended.
            self._process.stdin.write("\n")
            self._process.stdin.flush()
        return self._reply()

    def end(self) -> None:
        """Ends the process."""
        self._process.kill()
        self._process.communicate()
        self._errors.close()


class Measurement:
    """A run of jobs, in a folder for what it needs.

    Args:
      folder: The folder.
      num_rounds: How many rounds each job has.
      quick: Whether jobs are small.
    """

    def __init__(self, folder: Path, num_rounds: int, *, quick: bool) -> None:
        self._folder, self._num_rounds, self._quick = folder, num_rounds, quick
        self._data: dict[str, Path] = {}

    def measure(self, job: Job) -> dict[str, Any]:
        """Measures the contenders of a job, and names those that are left out.

        Raises:
          Failed: This project failed.
        """
        processes: dict[str, Process] = {}
        try:
            self._prepare(job, processes)
            rounds = [
                {name: process.round() for name, process in processes.items()}
                for _ in range(1 if job.once else self._num_rounds)
            ]
        finally:
            for process in processes.values():
                process.end()
        contenders = {
            name: {
                **_per_unit([of_all[name] for of_all in rounds]),
                "start": _shortened(process.start),
                **_median_metrics([of_all[name] for of_all in rounds]),
            }
            for name, process in processes.items()
        }
        return {"job": job.title, "unit": job.unit, "contenders": contenders}

    def _prepare(self, job: Job, processes: dict[str, Process]) -> None:
        """Starts the contenders of a job, and has each do its work once: then all is loaded."""
        size = job.quick if self._quick else job.size
        expected = None
        for name, contender in job.contenders.items():
            try:
                data = self._data_of(contender, size) if contender.data else self._folder
                processes[name] = Process(contender.prepare, name, data, size, self._folder)
                units = processes[name].round()["units"]
                expected = units if name == OURS else expected
                if job.unit != "sample" and units != expected:
                    raise Failed(f"did {units} instead of {expected} {job.unit}s")
            except (Failed, OSError, RuntimeError, subprocess.CalledProcessError) as error:
                if name == OURS:
                    raise
                print(f"left out: {job.title}, {name}: {error}", file=sys.stderr)
                if name in processes:
                    processes.pop(name).end()

    def _data_of(self, contender: Contender, size: int) -> Path:
        """Returns the folder with the data of a contender, which is written once."""
        function = functools.partial(contender.data)
        key = f"{function.func.__module__}.{function.func.__name__} {function.keywords} {size}"
        if key not in self._data:
            folder = self._folder / f"data-{len(self._data)}"
            folder.mkdir()
            Process(function, OURS, folder, size, self._folder).end()
            self._data[key] = folder
        return self._data[key]


def _per_unit(rounds: Sequence[dict[str, float]]) -> dict[str, list[float]]:
    return {
        kind: [_shortened(measured[kind] / measured["units"]) for measured in rounds]
        for kind in ("cpu", "wall")
    }


def _median_metrics(rounds: Sequence[dict[str, float]]) -> dict[str, float]:
    names = [name for name in rounds[0] if name not in ("units", "cpu", "wall")]
    return {name: _shortened(statistics.median(one[name] for one in rounds)) for name in names}


def _shortened(value: float) -> float:
    return float(f"{value:.4g}")  # The digits that count.


def describe_machine() -> dict[str, Any]:
    """Returns what runs this, and the versions of what is compared."""
    model = platform.processor() or platform.machine()
    cpuinfo = Path("/proc/cpuinfo")
    if cpuinfo.exists():
        named = re.search(r"^model name\s*: (.*)$", cpuinfo.read_text(), re.MULTILINE)
        model = named[1] if named else model
    # The last commit that changed what is measured: a later one may be of the results themselves.
    packages = [str(path.parent) for path in peers.ROOT.glob("*/__init__.py")]
    log = ["git", "log", "-1", "--format=%h", "--", *packages]
    commit = subprocess.run(log, cwd=peers.ROOT, capture_output=True, text=True)
    versions = {}
    for name in PACKAGES:
        with contextlib.suppress(importlib.metadata.PackageNotFoundError):
            versions[name] = importlib.metadata.version(name)
    return {
        "commit": commit.stdout.strip(),
        "cpu": model,
        "cores": os.cpu_count(),
        "system": platform.system(),
        "versions": {"python": platform.python_version(), **versions},
    }


def run(jobs: Sequence[Job], num_rounds: int, *, quick: bool) -> tuple[dict[str, Any], int]:
    """Measures jobs; returns the results, and how many jobs failed."""
    load, job_results, num_failed = [os.getloadavg()[0]], [], 0
    with tempfile.TemporaryDirectory() as folder:
        measurement = Measurement(Path(folder), num_rounds, quick=quick)
        for index, job in enumerate(jobs, 1):
            print(f"{index} of {len(jobs)}: {job.title}", file=sys.stderr, flush=True)
            try:
                job_results.append(measurement.measure(job))
            except NotInstalled as error:
                print(f"left out: {job.title}: {error}", file=sys.stderr)
            except Failed as error:
                print(f"failed: {job.title}: {error}", file=sys.stderr)
                num_failed += 1
            load.append(os.getloadavg()[0])
    machine = describe_machine()
    date = datetime.date.today().isoformat()
    load = [round(min(load), 1), round(max(load), 1)]
    return {"date": date, **machine, "load": load, "jobs": job_results}, num_failed


def main() -> None:
    """Measures, and writes."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true", help="some jobs, small, in one round")
    parser.add_argument(
        "--only", nargs="+", metavar="TEXT", default=[""], help="jobs whose titles have one of them"
    )
    parser.add_argument("--conversions", action="store_true", help="conversions by all cores only")
    parser.add_argument("--rounds", type=int, help="how many rounds a job has (default: 5)")
    parser.add_argument(
        "--update", action="store_true", help="with --only: write the results over older ones"
    )
    parser.add_argument("--list", action="store_true", help="print the jobs and their contenders")
    parser.add_argument("--render", action="store_true", help="only write the page anew")
    options = parser.parse_args()
    if options.render:
        page.render()
        return
    usual = (*JOBS, *FEEDS, *(() if options.only == [""] else ON_DEMAND))
    jobs = [
        job
        for job in (CONVERSIONS if options.conversions else usual)
        if any(text in job.title for text in options.only) and (job.quick or not options.quick)
    ]
    if options.list:
        for job in jobs:
            print(f"{job.title}: {'; '.join(job.contenders)}")
        return
    num_rounds = options.rounds or (1 if options.quick else 5)
    results, num_failed = run(jobs, num_rounds, quick=options.quick)
    if not any(measured["contenders"] for measured in results["jobs"]):
        sys.exit("Nothing was measured.")
    tables = page.tables_of_conversions if options.conversions else page.tables
    print(tables(results))
    for measured in results["jobs"] if options.only != [""] else ():
        ours, *peer_times = (min(one["wall"]) for one in measured["contenders"].values())
        ratios = ", ".join(f"{other / ours:.1f}" for other in peer_times)
        print(f"{measured['job']}: elapsed times are {ratios} times ours")
        for name, one in measured["contenders"].items():
            metrics = [f"{x:g} {metric}" for metric, x in one.items() if isinstance(x, float)]
            print(f"  {name}: {', '.join(metrics)}")
    folder = page.CONVERSIONS if options.conversions else page.RESULTS
    if not options.quick and (options.update or options.only == [""]):
        (page.update if options.update else page.save)(results, folder)
        page.render()
    if num_failed:
        sys.exit(f"{num_failed} jobs failed.")


if __name__ == "__main__":
    main()
