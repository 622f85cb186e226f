"""Rounds of contenders that take turns, and the form in which all benchmarks report them.

With `--json`, a benchmark prints one line for each of its jobs instead of tables: the name of the
job, and for each contender the processor time and the elapsed time of each round, in seconds.
`run.py` reads these lines. Peers import this too: it needs nothing but Python.
"""

import json
import statistics
import time
from collections.abc import Callable, Mapping
from typing import Any

# Processor time and elapsed time, in seconds.
Times = tuple[float, float]


def timed(job: Callable[[], Any]) -> Times:
    """Runs a job; returns what it took. The processor time is that of all threads."""
    wall, cpu = time.perf_counter(), time.process_time()
    job()
    return time.process_time() - cpu, time.perf_counter() - wall


def take_turns(
    contenders: Mapping[str, Callable[[], Any]], rounds: int, *, warm_up: bool = True
) -> dict[str, list[Times]]:
    """Runs contenders one after the other, in rounds.

    Args:
      contenders: What to run.
      rounds: How often.
      warm_up: Whether there is a round before that does not count.
    """
    if warm_up:
        for contender in contenders.values():
            contender()
    times: dict[str, list[Times]] = {name: [] for name in contenders}
    for _ in range(rounds):
        for name, contender in contenders.items():
            times[name].append(timed(contender))
    return times


def medians(times: Mapping[str, list[Times]]) -> dict[str, Times]:
    """Returns the median processor time and the median elapsed time of each contender."""
    return {
        name: (statistics.median(cpu for cpu, _ in found), statistics.median(w for _, w in found))
        for name, found in times.items()
    }


def report(job: str, times: Mapping[str, list[Times]]) -> None:
    """Prints the line of a job."""
    print(json.dumps({"job": job, "seconds": times}), flush=True)
