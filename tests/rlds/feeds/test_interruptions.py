"""Batches of feeds that are interrupted, killed, dropped, or run for long."""

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
    """Blocks of one batch, which keep the thread busy."""
    monkeypatch.setattr(feed_module, "_MAX_BLOCK_ROWS", 1)


def rows(batch):
    return batch["observation"]["text"].tolist()


def feed_threads():
    return [thread for thread in threading.enumerate() if thread.name.startswith("rlds-feed")]


# Interrupts.


@pytest.mark.slow
@pytest.mark.parametrize("prefetch", [True, False])
def test_an_interrupt_loses_no_batch(table, small_blocks, prefetch):
    """It may hit any line of the consumer; the next call returns the next batch."""
    expected = [rows(batch) for batch in Feed(table.transitions(), 8, seed=2, epochs=6)]

    def slow(batch):
        time.sleep(0.002)
        return batch

    feed = Feed(table.transitions(), 8, seed=2, epochs=6, transform=slow)
    batches = feed.iterate(prefetch=prefetch)
    rng, interrupts = random.Random(1), 0
    while True:
        index = batches.batch
        try:  # On a busy machine, the alarm comes at once.
            if rng.random() < 0.5:
                signal.setitimer(signal.ITIMER_REAL, rng.random() * 0.004)
            batch = next(batches, None)
            signal.setitimer(signal.ITIMER_REAL, 0)
        except KeyboardInterrupt:
            interrupts += 1
            assert batches.batch in (index, index + 1)
            if batches.batch > index:  # The batch had been returned.
                continue
            batch = next(batches, None)
        if batch is None:
            break
        assert rows(batch) == expected[index]
        assert batches.batch == index + 1
    assert batches.batch == len(expected)
    assert interrupts


@pytest.fixture(autouse=True)
def alarms_interrupt():
    """Alarms raise KeyboardInterrupt."""
    handler = signal.signal(signal.SIGALRM, signal.default_int_handler)
    yield
    signal.setitimer(signal.ITIMER_REAL, 0)
    signal.signal(signal.SIGALRM, handler)


@pytest.mark.parametrize("prefetch", [True, False])
@pytest.mark.parametrize("error", [StopIteration, OSError, KeyboardInterrupt])
def test_error_of_transform_belongs_to_its_batch(table, error, prefetch):
    """Earlier batches are returned; a repeated call fails again, or returns the batch."""
    expected = [rows(batch) for batch in Feed(table.steps(), 4, seed=2, epochs=1)]
    is_broken = True

    def fail(batch):
        if is_broken and rows(batch) == expected[7]:
            raise error("from within")
        return batch

    feed = Feed(table.steps(), 4, seed=2, epochs=1, transform=fail)
    batches = feed.iterate(prefetch=prefetch)
    # An interrupt need not wait for the batches before it.
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
def test_dropped_iterator_leaves_no_threads(table, small_blocks):
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

TRAIN_SCRIPT = """
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
for index in range(batches.batch, 60):
    batch = next(batches)
    hashes = [
        hashlib.sha256(repr([leaf[i].tolist() if hasattr(leaf[i], "tolist") else leaf[i]
        for _, leaf in named_leaves(batch)]).encode()).hexdigest()[:16]
        for i in range(12 // int(world))
    ]
    print(index, *hashes, flush=True)
    if index == int(wait):
        sys.stdin.read()
    if not int(rank):
        with open(state_path + ".new", "w") as file:
            json.dump(batches.state_dict(), file)
        __import__("os").replace(state_path + ".new", state_path)
"""


@pytest.mark.slow  # test_many_shapes.py resumes with other ranks in one process.
def test_killed_run_resumes_with_other_ranks_and_threads(directory, tmp_path):
    """The stream equals that of an unbroken run."""

    def start(state, rank, world, threads, wait):
        arguments = [directory, state, *map(str, (rank, world, threads, wait))]
        return subprocess.Popen(
            [sys.executable, "-c", TRAIN_SCRIPT, *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "PYTHONPATH": str(Path(rlds.feeds.__file__).parents[2])},
        )

    def parse_lines(process):
        return {int(line.split()[0]): line.split()[1:] for line in process.stdout}

    with start(str(tmp_path / "unbroken"), 0, 1, 0, -1) as unbroken:
        unbroken.stdin.close()
        expected = parse_lines(unbroken)
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
            ranks.append(parse_lines(resumed))
    for index in range(stop, 60):
        actual[index] = [row for dealt in zip(*(rank[index] for rank in ranks)) for row in dealt]
    assert actual == expected


# Long runs.


MEMORY_SCRIPT = """
import gc, resource, sys
import rlds.feeds
table = rlds.feeds.open(sys.argv[1], cache_bytes=1 << 20)
feed = rlds.feeds.Feed(table.transitions(3).with_goals(seed=1), 64, epochs=400)
count, peaks = 0, []
for batch in feed:
    count += 1
    if count in (len(feed) // 4, len(feed) - 1):
        gc.collect()
        peaks.append(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)
print(*peaks)
"""


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="memory is counted in other units")
def test_memory_does_not_grow(directory):
    run = subprocess.run(
        [sys.executable, "-c", MEMORY_SCRIPT, directory],
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, "PYTHONPATH": str(Path(rlds.feeds.__file__).parents[2])},
    )
    early, late = map(int, run.stdout.split())
    assert late - early < 4096  # KiB
