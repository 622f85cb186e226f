"""Work in other processes: results in order, errors as they were, no guard in scripts."""

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
from rlds_ecosystem.files.processes import WorkerDied, in_processes


@pytest.mark.parametrize("jobs", [1, 2])
def test_results_come_in_the_order_of_tasks(jobs):
    tasks = [9, 4, 16, 25, 0]
    assert [*in_processes(math.sqrt, iter(tasks), jobs)] == [(n, math.sqrt(n)) for n in tasks]


def test_others_help_where_there_is_more_than_this_process_soon_does():
    done = [process for _, process in in_processes(process_of, [1], 2)]
    assert done == [os.getpid()]
    first, *others = [process for _, process in in_processes(process_of, [1, 2, 3], 2, after=0)]
    assert first == os.getpid()
    assert first not in others


def process_of(task):
    return os.getpid()


@pytest.mark.parametrize("jobs", [1, 2])
def test_the_error_of_the_first_task_comes_out(jobs):
    done = in_processes(functools.partial(operator.truediv, 1), [2, 0, "x"], jobs)
    assert next(done) == (2, 0.5)
    with pytest.raises(ZeroDivisionError) as caught:
        next(done)
    if jobs > 1:
        assert "Traceback" in str(caught.value.__cause__)


def test_an_error_of_the_system_keeps_its_number_and_its_file(tmp_path):
    path = tmp_path / "absent"
    with pytest.raises(FileNotFoundError) as caught:
        [*in_processes(os.stat, [path, path], 2)]
    assert (caught.value.errno, caught.value.filename) == (2, str(path))


def test_a_task_that_kills_twice_is_named():
    with pytest.raises(WorkerDied, match="exit status 3") as caught:
        [*in_processes(os._exit, [3, 3], 2)]
    assert caught.value.task == 3


def test_workers_tell_how_far_they_are():
    told = []
    [*in_processes(processes.advance, [1, 2, 3], 2, on_advance=told.append)]
    assert sorted(told) == [1, 2, 3]


def test_what_a_worker_warns_of_is_warned_of():
    warn = functools.partial(exec, "import warnings; warnings.warn('so')")
    with pytest.warns(UserWarning, match="so"):
        [*in_processes(functools.partial(_called, warn), [{}, {}], 2)]


def _called(function, given):
    function(given)


def test_workers_end_with_who_started_them():
    script = """
import time, sys
from rlds_ecosystem.files.processes import in_processes
done = in_processes(time.sleep, [0, 1000, 1000], 2)
next(done)
print("begun", flush=True)
next(done)
"""
    process = subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True)
    assert process.stdout.readline() == "begun\n"
    workers = children_of(process.pid)
    assert len(workers) == 2
    process.kill()
    process.wait()
    process.stdout.close()
    while any(map(is_running, workers)):
        time.sleep(0.01)


def children_of(pid):
    files = Path(f"/proc/{pid}/task").glob("*/children")
    return [int(child) for file in files for child in file.read_text().split()]


def is_running(pid):
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False
