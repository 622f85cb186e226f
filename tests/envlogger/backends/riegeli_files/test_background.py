"""The writing thread does its jobs in order; nobody waits for a thread that failed."""

import gc
import threading
import time

import pytest

from envlogger.backends.riegeli_files.background import BackgroundWriter, ShardTask, WritingError
from envlogger.errors import UsageError

PATIENCE = 30
DISK_ERROR = OSError("no disk")


class Shards:
    """Notes what is done with it; fails, or waits, where it should."""

    def __init__(self, fails_at=None, error=DISK_ERROR, salvage_error=None):
        self.done = []
        self.pending_error = None
        self.fails_at, self.error, self.salvage_error = fails_at, error, salvage_error
        self.is_held, self.may_go_on = threading.Event(), threading.Event()
        self.may_go_on.set()

    @property
    def is_over(self):
        return self.pending_error is not None

    def _do(self, name, contents):
        self.is_held.set()
        assert self.may_go_on.wait(PATIENCE)
        if name == self.fails_at:
            raise self.error
        self.done += [(name, content) for content in contents]

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


def make(shards, flush_interval=None, max_pending_bytes=1 << 20):
    return BackgroundWriter(shards, flush_interval, max_pending_bytes)


def wait_until(condition):
    deadline = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.001)


def in_thread(function):
    """Calls a function in a thread; returns one that waits for it and says what it raised."""
    raised = []

    def run():
        try:
            function()
        except BaseException as error:
            raised.append(error)

    thread = threading.Thread(target=run)
    thread.start()

    def result():
        thread.join(PATIENCE)
        assert not thread.is_alive()
        return raised[0] if raised else None

    return result


def locked(background, function, *args, **kwargs):
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
    background = make(shards)
    names = ["begin", *["step"] * 5, "metadata", "push", "step", "begin", "begin", "discard"]
    for count in range(1, len(names) + 1):  # Some in one batch, others in several.
        hand_over(background, *names[:count])
        locked(background, background.finish, *[FLUSH] * (count % 2 == 0))
    background.close()
    expected = []
    for count in range(1, len(names) + 1):
        expected += names[:count] + ["flush"] * (count % 2 == 0)
    assert [name for name, _ in shards.done] == [*expected, "close"]
    contents = {"begin": b"first", "step": b"next", "metadata": b"who"}
    assert all(content == contents.get(name) for name, content in shards.done)


def test_threads_do_not_lose_the_jobs_of_one_another():
    shards = Shards()
    background = make(shards, flush_interval=0.01, max_pending_bytes=100)

    def add(number):
        for i in range(300):
            locked(background, background.add_step, b"%d %d" % (number, i))
            if i % 50 == 0:
                locked(background, background.finish, FLUSH)

    results = [in_thread(lambda number=number: add(number)) for number in range(4)]
    assert [result() for result in results] == [None] * 4
    background.close()
    steps = [content for name, content in shards.done if name == "step"]
    for number in range(4):
        of_one = [step for step in steps if step.startswith(b"%d " % number)]
        assert of_one == [b"%d %d" % (number, i) for i in range(300)]
    assert len(steps) == 1200


def test_steps_wait_while_too_much_is_pending():
    shards = Shards()
    background = make(shards, max_pending_bytes=100)
    shards.may_go_on.clear()
    locked(background, background.add_step, bytes(60))
    assert shards.is_held.wait(PATIENCE)
    locked(background, background.add_step, bytes(40))
    is_added = threading.Event()

    def add():
        locked(background, background.add_step, b"1")
        is_added.set()

    result = in_thread(add)
    assert not is_added.wait(0.2)
    shards.may_go_on.set()
    assert result() is None
    background.close()
    assert [len(content) for name, content in shards.done if name == "step"] == [60, 40, 1]


def test_steps_are_flushed_in_time_and_only_once():
    shards = Shards()
    background = make(shards, flush_interval=0.05)
    for count in (1, 2):
        hand_over(background, "begin")
        wait_until(lambda count=count: shards.done.count(("flush", None)) == count)
        time.sleep(0.2)
    background.close()
    assert [name for name, _ in shards.done] == ["begin", "flush", "begin", "flush", "close"]


@pytest.mark.parametrize("error", [DISK_ERROR, ValueError("a bug"), SystemExit(3)])
@pytest.mark.parametrize("fails_at", ["begin", "step", "metadata", "discard", "flush", "close"])
def test_no_failure_leaves_anybody_waiting_for_the_thread(fails_at, error):
    shards = Shards(fails_at, error)
    background = make(shards, max_pending_bytes=100)
    names = ["begin", "step", "step", "metadata", "discard", "begin", "step", "flush", "step"]
    shards.may_go_on.clear()
    hand_over(background, *names)
    waiting = [
        in_thread(lambda: locked(background, background.push)),
        in_thread(lambda: locked(background, background.finish)),
        in_thread(lambda: locked(background, background.finish, FLUSH)),
    ]
    shards.may_go_on.set()
    if fails_at == "close":
        assert [result() for result in waiting] == [None] * 3
    else:
        failures = [result() for result in waiting]
        assert [type(failure) for failure in failures] == [WritingError] * 3
        assert failures[0].cause is error
        num_not_done = sum(name in ("begin", "step") for name in names[names.index(fails_at) :])
        assert failures[0].num_lost_steps == 100 + num_not_done
    with pytest.raises(WritingError) as first_failure:
        background.close()
    for call in (
        lambda: locked(background, background.add_step, b"more"),
        lambda: locked(background, background.put, FLUSH),
        lambda: locked(background, background.finish, FLUSH),
        lambda: locked(background, background.push),
        background.close,
    ):
        with pytest.raises(WritingError) as failure:
            call()
        assert failure.value is first_failure.value
        assert failure.value.cause is error
    assert not background._thread.is_alive()


def resting(shards, **arguments):
    """A writer whose thread rests."""
    background = make(shards, **arguments)
    wait_until(lambda: locked(background, lambda: background._is_waiting))
    return background


def test_while_the_thread_rests_a_push_is_done_here():
    shards = Shards()
    background = resting(shards, flush_interval=0.05)
    threads = []
    shards.push = lambda: threads.append(threading.current_thread())
    for _ in range(3):
        hand_over(background, "begin")
        locked(background, background.push)
    assert threading.current_thread() in threads
    wait_until(lambda: ("flush", None) in shards.done)  # By the thread, which had no jobs.
    background.close()
    assert [name for name, _ in shards.done if name == "begin"] == ["begin"] * 3


@pytest.mark.parametrize("error", [DISK_ERROR, ValueError("a bug"), KeyboardInterrupt()])
@pytest.mark.parametrize("fails_at", ["step", "push"])
def test_a_push_that_fails_here_ends_the_thread(fails_at, error):
    background = resting(Shards(fails_at, error))
    hand_over(background, "begin", "step", "step")
    for call in (lambda: locked(background, background.push), background.close):
        with pytest.raises(WritingError) as failure:
            call()
        assert failure.value.cause is error
        assert failure.value.num_lost_steps == 100 + 2 * (fails_at == "step")
    assert not background._thread.is_alive()


@pytest.mark.parametrize("salvage_error", [None, RuntimeError("worse"), SystemExit(3)])
def test_a_step_that_waits_for_room_does_not_wait_for_a_dead_thread(salvage_error):
    shards = Shards("step", salvage_error=salvage_error)
    background = make(shards, max_pending_bytes=100)
    shards.may_go_on.clear()
    locked(background, background.add_step, bytes(60))
    assert shards.is_held.wait(PATIENCE)
    results = [
        in_thread(lambda: locked(background, background.add_step, bytes(90))) for _ in range(3)
    ]
    wait_until(lambda: len(background._queued.jobs) == 3)
    shards.may_go_on.set()
    assert [result() for result in results] == [None] * 3  # They were accepted before.
    with pytest.raises(WritingError) as failure:
        background.close()
    assert failure.value.num_lost_steps == (104 if salvage_error is None else None)


@pytest.mark.parametrize("is_pushed", [False, True])
def test_trouble_ends_the_recording_when_all_is_written(is_pushed):
    shards = Shards()
    background = resting(shards)
    shards.pending_error = OSError("the disk is almost full")
    hand_over(background, "begin", "step")
    with pytest.raises(WritingError) as failure:
        locked(background, background.push) if is_pushed else hand_over(background, "flush")
        locked(background, background.finish)
    assert failure.value.cause is shards.pending_error
    assert failure.value.num_lost_steps == 0
    last = "push" if is_pushed else "flush"
    assert [name for name, _ in shards.done] == ["begin", "step", last, "close"]


def test_a_closed_one_says_so():
    background = make(Shards())
    background.close()
    background.close()
    for call in (lambda: hand_over(background, "step"), lambda: hand_over(background, "begin")):
        with pytest.raises(UsageError, match="is closed"):
            call()
    with pytest.raises(UsageError, match="is closed"):
        locked(background, background.finish)


def test_the_thread_may_close_what_it_writes_for():
    """As the garbage collector may have it do, when the thread is the one to allocate something."""

    class Recorder:
        def __init__(self, background):
            self.background, self.cycle = background, self

        def __del__(self):
            self.background.close()

    shards = Shards()
    background = make(shards)
    shards.set_episode_metadata = lambda metadata: gc.collect()
    gc.disable()  # In this thread.
    try:
        recorder = Recorder(background)
        del recorder
        hand_over(background, "begin", "metadata", "step")
        background.close()
    finally:
        gc.enable()
    assert [name for name, _ in shards.done] == ["begin", "step", "close"]
    with pytest.raises(UsageError, match="is closed"):
        hand_over(background, "step")
