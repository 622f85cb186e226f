"""The writing thread does its jobs in order; no caller waits for a failed thread."""

import gc
import threading
import time

import pytest

from envlogger.backends.riegeli_files.background import BackgroundWriter, ShardTask, WritingError
from envlogger.errors import UsageError

TIMEOUT_S = 30
DISK_ERROR = OSError("no disk")


class Shards:
    """Notes its calls; fails or waits as it is told."""

    def __init__(self, fails_at=None, error=DISK_ERROR, salvage_error=None):
        self.calls = []
        self.pending_error = None
        self.fails_at, self.error, self.salvage_error = fails_at, error, salvage_error
        self.is_held, self.may_go_on = threading.Event(), threading.Event()
        self.may_go_on.set()

    @property
    def is_over(self):
        return self.pending_error is not None

    def _do(self, name, contents):
        self.is_held.set()
        assert self.may_go_on.wait(TIMEOUT_S)
        if name == self.fails_at:
            raise self.error
        self.calls += [(name, content) for content in contents]

    def begin_episode(self, step):
        self._do("begin", [step])

    def add_steps(self, steps):
        self._do("step", steps)

    def set_episode_metadata(self, metadata):
        self._do("metadata", [metadata])

    def discard_episode(self):
        self._do("discard", [None])

    def flush(self):
        self._do("flush", [None])

    def push(self):
        self._do("push", [None])

    def close(self):
        self._do("close", [None])

    def salvage(self):
        if self.salvage_error is not None:
            raise self.salvage_error
        return 100


def make_writer(shards, flush_interval=None, max_pending_bytes=1 << 20):
    return BackgroundWriter(shards, flush_interval, max_pending_bytes)


def wait_until(condition):
    deadline = time.monotonic() + TIMEOUT_S
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.001)


def start(function):
    """Calls a function in a thread; returns a function that waits for its error."""
    errors = []

    def run():
        try:
            function()
        except BaseException as error:
            errors.append(error)

    thread = threading.Thread(target=run)
    thread.start()

    def wait():
        thread.join(TIMEOUT_S)
        assert not thread.is_alive()
        return errors[0] if errors else None

    return wait


def call_locked(background, function, *args, **kwargs):
    with background.lock:
        return function(*args, **kwargs)


FLUSH = ShardTask(lambda shards: shards.flush())
JOBS = {
    "begin": ShardTask(lambda shards: shards.begin_episode(b"first"), 5, num_steps=1),
    "step": b"next",
    "metadata": ShardTask(lambda shards: shards.set_episode_metadata(b"who"), 3),
    "discard": ShardTask(lambda shards: shards.discard_episode()),
    "flush": FLUSH,
    "push": ShardTask(lambda shards: shards.push()),
}


def hand_over(background, *names):
    with background.lock:
        for name in names:
            job = JOBS[name]
            background.add_step(job) if isinstance(job, bytes) else background.put(job)


def test_jobs_are_done_in_their_order():
    shards = Shards()
    background = make_writer(shards)
    names = ["begin", *["step"] * 5, "metadata", "push", "step", "begin", "begin", "discard"]
    for count in range(1, len(names) + 1):  # In one batch, or in several.
        hand_over(background, *names[:count])
        call_locked(background, background.finish, *[FLUSH] * (count % 2 == 0))
    background.close()
    expected = []
    for count in range(1, len(names) + 1):
        expected += names[:count] + ["flush"] * (count % 2 == 0)
    assert [name for name, _ in shards.calls] == [*expected, "close"]
    contents = {"begin": b"first", "step": b"next", "metadata": b"who"}
    assert all(content == contents.get(name) for name, content in shards.calls)


def test_jobs_of_all_threads_are_done_in_their_order():
    shards = Shards()
    background = make_writer(shards, flush_interval=0.01, max_pending_bytes=100)

    def add(worker):
        for i in range(300):
            call_locked(background, background.add_step, b"%d %d" % (worker, i))
            if i % 50 == 0:
                call_locked(background, background.finish, FLUSH)

    results = [start(lambda worker=worker: add(worker)) for worker in range(4)]
    assert [result() for result in results] == [None] * 4
    background.close()
    steps = [content for name, content in shards.calls if name == "step"]
    for worker in range(4):
        steps_of_worker = [step for step in steps if step.startswith(b"%d " % worker)]
        assert steps_of_worker == [b"%d %d" % (worker, i) for i in range(300)]
    assert len(steps) == 1200


def test_steps_wait_while_too_much_is_pending():
    shards = Shards()
    background = make_writer(shards, max_pending_bytes=100)
    shards.may_go_on.clear()
    call_locked(background, background.add_step, bytes(60))
    assert shards.is_held.wait(TIMEOUT_S)
    call_locked(background, background.add_step, bytes(40))
    is_added = threading.Event()

    def add():
        call_locked(background, background.add_step, b"1")
        is_added.set()

    result = start(add)
    assert not is_added.wait(0.2)
    shards.may_go_on.set()
    assert result() is None
    background.close()
    assert [len(content) for name, content in shards.calls if name == "step"] == [60, 40, 1]


def test_steps_are_flushed_in_time_and_only_once():
    shards = Shards()
    background = make_writer(shards, flush_interval=0.05)
    for count in (1, 2):
        hand_over(background, "begin")
        wait_until(lambda count=count: shards.calls.count(("flush", None)) == count)
        time.sleep(0.2)
    background.close()
    assert [name for name, _ in shards.calls] == ["begin", "flush", "begin", "flush", "close"]


@pytest.mark.parametrize("error", [DISK_ERROR, ValueError("a bug"), SystemExit(3)])
@pytest.mark.parametrize("fails_at", ["begin", "step", "metadata", "discard", "flush", "close"])
def test_callers_never_wait_for_a_failed_thread(fails_at, error):
    shards = Shards(fails_at, error)
    background = make_writer(shards, max_pending_bytes=100)
    names = ["begin", "step", "step", "metadata", "discard", "begin", "step", "flush", "step"]
    shards.may_go_on.clear()
    hand_over(background, *names)
    waits = [
        start(lambda: call_locked(background, background.push)),
        start(lambda: call_locked(background, background.finish)),
        start(lambda: call_locked(background, background.finish, FLUSH)),
    ]
    shards.may_go_on.set()
    if fails_at == "close":
        assert [result() for result in waits] == [None] * 3
    else:
        failures = [result() for result in waits]
        assert [type(failure) for failure in failures] == [WritingError] * 3
        assert failures[0].cause is error
        num_skipped = sum(name in ("begin", "step") for name in names[names.index(fails_at) :])
        assert failures[0].num_lost_steps == 100 + num_skipped
    with pytest.raises(WritingError) as first_failure:
        background.close()
    for call in (
        lambda: call_locked(background, background.add_step, b"more"),
        lambda: call_locked(background, background.put, FLUSH),
        lambda: call_locked(background, background.finish, FLUSH),
        lambda: call_locked(background, background.push),
        background.close,
    ):
        with pytest.raises(WritingError) as failure:
            call()
        assert failure.value is first_failure.value
        assert failure.value.cause is error
    assert not background._thread.is_alive()


def make_idle_writer(shards, **arguments):
    """Returns a writer whose thread waits for jobs."""
    background = make_writer(shards, **arguments)
    wait_until(lambda: call_locked(background, lambda: background._is_waiting))
    return background


def test_the_caller_pushes_while_the_thread_waits():
    shards = Shards()
    background = make_idle_writer(shards, flush_interval=0.05)
    threads = []
    shards.push = lambda: threads.append(threading.current_thread())
    for _ in range(3):
        hand_over(background, "begin")
        call_locked(background, background.push)
    assert threading.current_thread() in threads
    wait_until(lambda: ("flush", None) in shards.calls)  # By the thread, which had no jobs.
    background.close()
    assert [name for name, _ in shards.calls if name == "begin"] == ["begin"] * 3


@pytest.mark.parametrize("error", [DISK_ERROR, ValueError("a bug"), KeyboardInterrupt()])
@pytest.mark.parametrize("fails_at", ["step", "push"])
def test_a_failed_push_of_the_caller_ends_the_thread(fails_at, error):
    background = make_idle_writer(Shards(fails_at, error))
    hand_over(background, "begin", "step", "step")
    for call in (lambda: call_locked(background, background.push), background.close):
        with pytest.raises(WritingError) as failure:
            call()
        assert failure.value.cause is error
        assert failure.value.num_lost_steps == 100 + 2 * (fails_at == "step")
    assert not background._thread.is_alive()


@pytest.mark.parametrize("salvage_error", [None, RuntimeError("worse"), SystemExit(3)])
def test_a_step_that_waits_for_room_does_not_wait_for_a_dead_thread(salvage_error):
    shards = Shards("step", salvage_error=salvage_error)
    background = make_writer(shards, max_pending_bytes=100)
    shards.may_go_on.clear()
    call_locked(background, background.add_step, bytes(60))
    assert shards.is_held.wait(TIMEOUT_S)
    results = [
        start(lambda: call_locked(background, background.add_step, bytes(90))) for _ in range(3)
    ]
    wait_until(lambda: len(background._queued.jobs) == 3)
    shards.may_go_on.set()
    assert [result() for result in results] == [None] * 3  # Accepted before the failure.
    with pytest.raises(WritingError) as failure:
        background.close()
    assert failure.value.num_lost_steps == (104 if salvage_error is None else None)


@pytest.mark.parametrize("is_pushed", [False, True])
def test_a_pending_error_ends_the_recording_after_all_writes(is_pushed):
    shards = Shards()
    background = make_idle_writer(shards)
    shards.pending_error = OSError("the disk is almost full")
    hand_over(background, "begin", "step")
    with pytest.raises(WritingError) as failure:
        call_locked(background, background.push) if is_pushed else hand_over(background, "flush")
        call_locked(background, background.finish)
    assert failure.value.cause is shards.pending_error
    assert failure.value.num_lost_steps == 0
    last_job = "push" if is_pushed else "flush"
    assert [name for name, _ in shards.calls] == ["begin", "step", last_job, "close"]


def test_calls_after_close_raise_a_usage_error():
    background = make_writer(Shards())
    background.close()
    background.close()
    for call in (lambda: hand_over(background, "step"), lambda: hand_over(background, "begin")):
        with pytest.raises(UsageError, match="is closed"):
            call()
    with pytest.raises(UsageError, match="is closed"):
        call_locked(background, background.finish)


def test_the_thread_may_close_its_own_recorder():
    """The garbage collector closes a recorder in the thread that happens to allocate memory."""

    class Recorder:
        def __init__(self, background):
            self.background, self.cycle = background, self

        def __del__(self):
            self.background.close()

    shards = Shards()
    background = make_writer(shards)
    shards.set_episode_metadata = lambda metadata: gc.collect()
    gc.disable()  # In this thread.
    try:
        recorder = Recorder(background)
        del recorder
        hand_over(background, "begin", "metadata", "step")
        background.close()
    finally:
        gc.enable()
    assert [name for name, _ in shards.calls] == ["begin", "step", "close"]
    with pytest.raises(UsageError, match="is closed"):
        hand_over(background, "step")
