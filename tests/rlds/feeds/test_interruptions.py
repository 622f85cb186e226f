"""Feeds that are interrupted, killed, dropped, or run for long: the batches are the same."""

import gc
import json
import os
import random
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import feed_datasets
import pytest

import rlds.feeds
from rlds.feeds import Feed
from rlds.feeds import feed as feed_module


@pytest.fixture(scope="module")
def directory(tmp_path_factory):
    episodes = feed_datasets.random_episodes(30, seed=5, longest=20)
    return feed_datasets.write(tmp_path_factory.mktemp("data"), episodes)


@pytest.fixture(scope="module")
def table(directory):
    return rlds.feeds.open(directory)


@pytest.fixture
def small_blocks(monkeypatch):
    """Each block has one batch, so that the thread has always something to do."""
    monkeypatch.setattr(feed_module, "_MAX_BLOCK_ROWS", 1)


def rows(batch):
    return batch["observation"]["text"].tolist()


def feed_threads():
    return [thread for thread in threading.enumerate() if thread.name.startswith("rlds-feed")]


# Interrupts.


@pytest.mark.slow
@pytest.mark.parametrize("prefetch", [True, False])
def test_an_interrupt_loses_no_batch(table, small_blocks, prefetch):
    """It comes at any place of the consumer; whoever goes on gets the next batch."""
    expected = [rows(batch) for batch in Feed(table.transitions(), 8, seed=2, epochs=6)]

    def slow(batch):
        time.sleep(0.002)
        return batch

    feed = Feed(table.transitions(), 8, seed=2, epochs=6, transform=slow)
    batches = feed.iterate(prefetch=prefetch)
    rng, interrupts = random.Random(1), 0
    while True:
        number = batches.batch
        try:  # From before the alarm is set: on a busy machine it comes at once.
            if rng.random() < 0.5:
                signal.setitimer(signal.ITIMER_REAL, rng.random() * 0.004)
            batch = next(batches, None)
            signal.setitimer(signal.ITIMER_REAL, 0)
        except KeyboardInterrupt:
            interrupts += 1
            assert batches.batch in (number, number + 1)
            if batches.batch > number:  # It came after the batch was given.
                continue
            batch = next(batches, None)
        if batch is None:
            break
        assert rows(batch) == expected[number]
        assert batches.batch == number + 1
    assert batches.batch == len(expected)
    assert interrupts


@pytest.fixture(autouse=True)
def alarms_interrupt():
    """As the keyboard does."""
    before = signal.signal(signal.SIGALRM, signal.default_int_handler)
    yield
    signal.setitimer(signal.ITIMER_REAL, 0)
    signal.signal(signal.SIGALRM, before)


@pytest.mark.parametrize("prefetch", [True, False])
@pytest.mark.parametrize("error", [StopIteration, OSError, KeyboardInterrupt])
def test_an_error_of_a_transform_is_that_of_its_batch(table, error, prefetch):
    """Batches before it are given, and whoever asks again gets it again, or the batch."""
    expected = [rows(batch) for batch in Feed(table.steps(), 4, seed=2, epochs=1)]
    is_broken = True

    def fail(batch):
        if is_broken and rows(batch) == expected[7]:
            raise error("from within")
        return batch

    feed = Feed(table.steps(), 4, seed=2, epochs=1, transform=fail)
    batches = feed.iterate(prefetch=prefetch)
    # What is no error, but a wish to end, need not wait for the batches before it.
    actual = [rows(next(batches)) for _ in range(7 if issubclass(error, Exception) else 0)]
    for _ in range(2):
        with pytest.raises(RuntimeError if error is StopIteration else error):
            next(batches)
        with pytest.raises(RuntimeError if error is StopIteration else error):
            feed[7]
    assert batches.batch == len(actual)
    is_broken = False
    assert actual + [rows(batch) for batch in batches] == expected


@pytest.mark.slow
def test_an_iterator_that_is_dropped_leaves_nothing(table, small_blocks):
    for _ in range(3):
        batches = iter(Feed(table.steps(), 8))
        next(batches)
        assert feed_threads()
        del batches
    gc.collect()
    deadline = time.monotonic() + 30
    while feed_threads() and time.monotonic() < deadline:
        time.sleep(0.01)
    assert not feed_threads()


# Kills.

TRAIN = """
import hashlib, json, sys
import rlds.feeds
from rlds_ecosystem.model.nests import named_leaves
directory, state_path, rank, world, threads, wait = sys.argv[1:]
table = rlds.feeds.open(directory, threads=int(threads))
feed = rlds.feeds.Feed(
    table.transitions(2, 0.9).with_goals(seed=1, fields=["observation/state"]), 12, seed=3,
    rank=int(rank), world=int(world),
)
try:
    state = json.load(open(state_path))
except FileNotFoundError:
    state = 0
batches = feed.iterate(state, prefetch=int(threads) != 1)
for number in range(batches.batch, 60):
    batch = next(batches)
    hashes = [
        hashlib.sha256(repr([leaf[i].tolist() if hasattr(leaf[i], "tolist") else leaf[i]
        for _, leaf in named_leaves(batch)]).encode()).hexdigest()[:16]
        for i in range(12 // int(world))
    ]
    print(number, *hashes, flush=True)
    if number == int(wait):
        sys.stdin.read()
    if not int(rank):
        with open(state_path + ".new", "w") as file:
            json.dump(batches.state_dict(), file)
        __import__("os").replace(state_path + ".new", state_path)
"""


@pytest.mark.slow  # test_many_shapes.py resumes with other ranks in one process.
def test_a_killed_run_goes_on_with_other_ranks_and_threads(directory, tmp_path):
    """The stream is that of a run that was not killed."""

    def start(state, rank, world, threads, wait):
        arguments = [directory, state, *map(str, (rank, world, threads, wait))]
        return subprocess.Popen(
            [sys.executable, "-c", TRAIN, *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "PYTHONPATH": str(Path(rlds.feeds.__file__).parents[2])},
        )

    def lines_of(process):
        return {int(line.split()[0]): line.split()[1:] for line in process.stdout}

    with start(str(tmp_path / "unbroken"), 0, 1, 0, -1) as unbroken:
        unbroken.stdin.close()
        expected = lines_of(unbroken)
    assert list(expected) == list(range(60))
    stop, actual = random.Random(os.urandom(8)).randrange(5, 50), {}
    state = str(tmp_path / "state")
    with start(state, 0, 1, 0, stop) as killed:
        for line in killed.stdout:
            index, *hashes = line.split()
            actual[int(index)] = hashes
            if int(index) == stop:
                killed.kill()
    assert json.loads(Path(state).read_text())["batch"] == stop
    text = Path(state).read_text()
    ranks = []
    for rank in range(2):
        (tmp_path / f"state{rank}").write_text(text)
        with start(str(tmp_path / f"state{rank}"), rank, 2, 1 + rank, -1) as resumed:
            resumed.stdin.close()
            ranks.append(lines_of(resumed))
    for index in range(stop, 60):
        actual[index] = [row for dealt in zip(*(rank[index] for rank in ranks)) for row in dealt]
    assert actual == expected


# Long runs.


FLAT = """
import gc, resource, sys
import rlds.feeds
table = rlds.feeds.open(sys.argv[1], cache_bytes=1 << 20)
feed = rlds.feeds.Feed(table.transitions(3).with_goals(seed=1), 64, epochs=400)
number, peaks = 0, []
for batch in feed:
    number += 1
    if number in (len(feed) // 4, len(feed) - 1):
        gc.collect()
        peaks.append(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)
print(*peaks)
"""


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="memory is counted in other units")
def test_memory_does_not_grow(directory):
    run = subprocess.run(
        [sys.executable, "-c", FLAT, directory],
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, "PYTHONPATH": str(Path(rlds.feeds.__file__).parents[2])},
    )
    early, late = map(int, run.stdout.split())
    assert late - early < 4096  # KiB
