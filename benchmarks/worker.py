"""A contender in a process of its own. `run.py` starts it, in whichever Python the contender needs.

It gets a call as JSON: a module and a function of it, arguments, options. The function loads and
prepares what the contender needs, and returns the work; that is done once, so that nothing is left
to load. From then on each line of the input asks for a round: the work is done again, in an empty
folder, and a line says how many units were done, and what that took.
"""

import importlib
import json
import multiprocessing
import os
import resource
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

# Does the work of a round in an empty folder; returns how many units that were, and may say more:
# numbers by their units, such as the memory of another process that did it.
Work = Callable[[Path], int | tuple[int, dict[str, float]]]


def cpu_time() -> float:
    """Returns the processor time of this process, and of those that it has started."""
    ended = resource.getrusage(resource.RUSAGE_CHILDREN)
    running = sum(map(_cpu_time_of, multiprocessing.active_children()))
    return time.process_time() + ended.ru_utime + ended.ru_stime + running


def _cpu_time_of(child: Any) -> float:
    stat = Path(f"/proc/{child.pid}/stat")
    if not stat.exists():  # The system is not Linux.
        return 0.0
    fields = stat.read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def peak_memory() -> float:
    """Returns the most memory that this process has had, in MB; 0 if the system is not Linux."""
    status = Path("/proc/self/status")  # Elsewhere the memory of the parent would count, too.
    lines = status.read_text().splitlines() if status.exists() else []
    return sum(int(line.split()[1]) * 1024 / 1e6 for line in lines if line.startswith("VmHWM:"))


def measure(work: Work) -> dict[str, float]:
    """Returns the units of a round, its processor time and elapsed time in seconds, and metrics."""
    with tempfile.TemporaryDirectory() as folder:
        wall, cpu = time.perf_counter(), cpu_time()
        done = work(Path(folder))
        cpu, wall = cpu_time() - cpu, time.perf_counter() - wall
    units, metrics = done if isinstance(done, tuple) else (done, {})
    return {"units": units, "cpu": cpu, "wall": wall, "megabytes": peak_memory(), **metrics}


def main() -> None:
    """Prepares, and measures a round for each line of the input."""
    replies = os.fdopen(os.dup(sys.stdout.fileno()), "w")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())  # What libraries print is no reply.

    def reply(message: dict[str, Any]) -> None:
        print(json.dumps(message), file=replies, flush=True)

    call = json.loads(sys.argv[1])
    function = getattr(importlib.import_module(call["module"]), call["function"])
    work = function(Path(call["data"]), call["size"], **call["options"])
    reply({"start": cpu_time()})
    for _ in sys.stdin:
        reply(measure(work))
    replies.flush()
    os._exit(0)  # Threads of a contender may still be at it.


if __name__ == "__main__":
    main()
