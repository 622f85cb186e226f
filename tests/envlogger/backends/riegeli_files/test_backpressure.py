"""Backpressure: accepted steps are flushed in time, and idle time of a thread is measured."""

import math
import threading

import pytest
from hypothesis import given
from hypothesis import strategies as st

from envlogger.backends.riegeli_files.backpressure import Backpressure


class Clock:
    def __init__(self):
        self.now = 1000.0

    def __call__(self):
        return self.now


def make(flush_interval, max_bytes=1 << 24):
    clock = Clock()
    return clock, Backpressure(flush_interval, max_bytes, clock)


def do_round(clock, backpressure, *, num_jobs=1, seconds=0.0, flush=0.0):
    """Works for `seconds`, and flushes if a flush is due; returns whether it was."""
    backpressure.begin_batch()
    clock.now += seconds
    is_due = backpressure.is_flush_due()
    clock.now += flush if is_due else 0.0
    backpressure.end_batch(num_jobs)
    return is_due


@pytest.mark.slow
@given(
    seconds_per_job=st.floats(1e-4, 0.1),
    flush=st.floats(0, 0.25),
    rounds=st.lists(
        st.tuples(st.sampled_from(["all", "one", "none"]), st.booleans()), min_size=60, max_size=120
    ),
)
def test_accepted_steps_are_flushed_within_the_interval(seconds_per_job, flush, rounds):
    """The queue may be full or almost empty, before and during a round."""
    clock, backpressure = make(flush_interval=1.0)
    waiting, unflushed = [], []  # Times of acceptance.

    def fill(batch_size):
        waiting.extend([clock.now] * (int(backpressure.max_jobs) - batch_size - len(waiting)))

    for round_index, (backlog, is_filled) in enumerate(rounds):
        if backlog == "all":
            fill(0)
        elif backlog == "one" and len(waiting) < backpressure.max_jobs:
            waiting.append(clock.now)
        if len(waiting) <= backpressure.wake_jobs:
            clock.now += max(0.0, backpressure.seconds_to_flush())
        batch, waiting = waiting, []
        if is_filled:
            fill(len(batch))
        unflushed += batch
        num_seconds = len(batch) * seconds_per_job
        if do_round(
            clock,
            backpressure,
            num_jobs=len(batch),
            seconds=num_seconds,
            flush=flush * bool(unflushed),
        ):
            if unflushed and round_index > 20:  # Earlier, jobs are not timed yet.
                assert clock.now - unflushed[0] <= 1.0 + 1e-6
            unflushed = []


def test_max_jobs_fall_at_once_and_grow_gradually():
    clock, backpressure = make(flush_interval=4.0)
    initial = backpressure.max_jobs
    max_jobs = []
    for _ in range(5):
        do_round(clock, backpressure, seconds=1e-6)
        max_jobs.append(backpressure.max_jobs)
    assert max_jobs == [initial * 2**n for n in range(1, 6)]
    do_round(clock, backpressure, num_jobs=5, seconds=0.995)
    assert backpressure.max_jobs == pytest.approx(10, rel=0.01)  # A quarter of the interval.
    do_round(clock, backpressure, seconds=1000)
    assert backpressure.max_jobs == 1
    for _ in range(30):  # Jobs before a flush count for one more interval.
        clock.now += 1
        do_round(clock, backpressure, num_jobs=1000, seconds=1e-3)
    assert backpressure.max_jobs > 1000
    assert backpressure.wake_jobs == backpressure.max_jobs / 2


def test_a_flush_that_takes_long_begins_earlier():
    clock, backpressure = make(flush_interval=4.0)
    assert backpressure.seconds_to_flush() == 2
    assert not do_round(clock, backpressure, seconds=1.5)
    clock.now += backpressure.seconds_to_flush()
    assert do_round(clock, backpressure, flush=0.75)
    assert backpressure.seconds_to_flush() == 2 - 0.75 - 0.75
    assert not do_round(clock, backpressure, seconds=0.4)
    assert do_round(clock, backpressure, seconds=0.6)


def test_without_an_interval_nothing_is_due_and_any_number_of_jobs_may_wait():
    clock, backpressure = make(flush_interval=None)
    for _ in range(3):
        assert not do_round(clock, backpressure, seconds=1e9)
        assert backpressure.max_jobs == backpressure.wake_jobs == math.inf
        # The longest time that a thread can wait for.
        assert backpressure.seconds_to_flush() == threading.TIMEOUT_MAX


def test_a_thread_that_waits_a_third_of_the_time_is_idle():
    clock, backpressure = make(flush_interval=None)
    is_idle = []
    for pause in (0.0055, 0.0045, 0.0055):
        for _ in range(500):
            clock.now += pause
            do_round(clock, backpressure, seconds=0.01)
        is_idle.append(backpressure.is_idle(0, 0))
    assert is_idle == [True, False, True]
    do_round(clock, backpressure, seconds=0.2)  # A caller may soon wait for the thread.
    assert not backpressure.is_idle(0, 0)


def test_a_thread_with_a_half_full_queue_is_not_idle():
    clock, backpressure = make(flush_interval=1.0)
    clock.now += 0.2
    backpressure.begin_batch()
    assert backpressure.is_idle(backpressure.wake_jobs / 2, backpressure.max_bytes / 2)
    assert not backpressure.is_idle(backpressure.wake_jobs / 2 + 1, 0)
    assert not backpressure.is_idle(0, backpressure.max_bytes / 2 + 1)
