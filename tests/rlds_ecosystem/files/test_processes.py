"""Work in other processes: ordered results, errors with their types, no guard in scripts."""

import functools
import math
import operator
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from rlds_ecosystem.files import processes
from rlds_ecosystem.files.processes import WorkerDied, run_tasks


@pytest.mark.parametrize("jobs", [1, 2])
def test_results_come_in_the_order_of_tasks(jobs):
    tasks = [9, 4, 16, 25, 0]
    assert [*run_tasks(math.sqrt, iter(tasks), jobs)] == [(n, math.sqrt(n)) for n in tasks]


def test_workers_start_only_if_this_process_needs_help():
    pids = [process for _, process in run_tasks(get_pid, [1], 2)]
    assert pids == [os.getpid()]
    own_pid, *worker_pids = [process for _, process in run_tasks(get_pid, [1, 2, 3], 2, delay=0)]
    assert own_pid == os.getpid()
    assert own_pid not in worker_pids


def get_pid(task):
    return os.getpid()


@pytest.mark.parametrize("jobs", [1, 2])
def test_the_error_of_the_first_failed_task_is_raised(jobs):
    results = run_tasks(functools.partial(operator.truediv, 1), [2, 0, "x"], jobs)
    assert next(results) == (2, 0.5)
    with pytest.raises(ZeroDivisionError) as caught:
        next(results)
    if jobs > 1:
        assert "Traceback" in str(caught.value.__cause__)


def test_an_error_of_the_system_keeps_its_number_and_its_file(tmp_path):
    path = tmp_path / "absent"
    with pytest.raises(FileNotFoundError) as caught:
        [*run_tasks(os.stat, [path, path], 2)]
    assert (caught.value.errno, caught.value.filename) == (2, str(path))


def test_a_task_that_kills_twice_is_named():
    with pytest.raises(WorkerDied, match="exit status 3") as caught:
        [*run_tasks(os._exit, [3, 3], 2)]
    assert caught.value.task == 3


def test_workers_report_their_progress():
    counts = []
    [*run_tasks(processes.advance, [1, 2, 3], 2, on_advance=counts.append)]
    assert sorted(counts) == [1, 2, 3]


def test_warnings_of_workers_reach_the_caller():
    warn = functools.partial(exec, "import warnings; warnings.warn('so')")
    with pytest.warns(UserWarning, match="so"):
        [*run_tasks(functools.partial(_call, warn), [{}, {}], 2)]


def _call(function, argument):
    function(argument)


def test_workers_end_with_their_parent():
    script = """
import time, sys
from rlds_ecosystem.files.processes import run_tasks
results = run_tasks(time.sleep, [0, 1000, 1000], 2)
next(results)
print("begun", flush=True)
next(results)
"""
    process = subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True)
    assert process.stdout.readline() == "begun\n"
    workers = list_children(process.pid)
    assert len(workers) == 2
    process.kill()
    process.wait()
    process.stdout.close()
    while any(map(is_running, workers)):
        time.sleep(0.01)


def list_children(pid):
    files = Path(f"/proc/{pid}/task").glob("*/children")
    return [int(child) for file in files for child in file.read_text().split()]


def is_running(pid):
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False
