"""An idle thread compresses chunks better if that saves space; all readers can read them."""

import threading
import time
from io import BytesIO

import dm_env
import numpy as np
import pytest

import riegeli
from envlogger import Reader, RiegeliBackendWriter, StepData
from envlogger.backends.riegeli_files.background import BackgroundWriter, ShardTask
from envlogger.backends.riegeli_files.chunk_compression import FAST, SMALL, ChunkCompression
from envlogger.backends.riegeli_files.shard_sequence import ShardSequence

RNG = np.random.default_rng(0)
NOISE = [RNG.bytes(50_000) for _ in range(4)]


def make_game_frames():
    """A ball and a bat before a wall, the last four frames together."""
    rows, columns = np.mgrid[:84, :84]
    picture = ((rows // 6 * 37 + columns // 8 * 11) % 7 * 30).astype(np.uint8)
    frames = np.repeat(picture[None], 63, axis=0)
    for t, frame in enumerate(frames):
        frame[(y := 20 + 3 * t % 50) : y + 4, (x := 5 * t % 80) : x + 3] = 200
        frame[76:79, (x := int(RNG.integers(70))) : x + 12] = 213
    return [np.ascontiguousarray(np.stack(frames[t : t + 4], axis=-1)) for t in range(60)]


FRAMES = make_game_frames()
GAME = [frame.tobytes() for frame in FRAMES]


def wait_until(condition):
    deadline = time.monotonic() + 30
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.001)


def compressed_size(records, options):
    file = BytesIO()
    with riegeli.RecordWriter(file, owns_dest=False, options=options) as writer:
        writer.write_records(records)
    return len(file.getvalue())


@pytest.mark.parametrize(
    ("records", "is_idle", "options"),
    [(GAME, True, SMALL), (GAME, False, FAST), (NOISE, True, FAST), (GAME[:1], True, FAST)],
)
def test_an_idle_thread_compresses_better_if_that_saves_space(records, is_idle, options):
    compression = ChunkCompression()
    compression.is_idle = lambda: is_idle
    assert [compression(records) for _ in range(40)] == [options] * 40


def test_compression_is_chosen_again_when_the_observations_change():
    compression = ChunkCompression()
    compression.is_idle = lambda: True
    choices = [compression(records) for records in [NOISE] + [GAME] * 40 + [NOISE] * 20]
    assert choices[0] == FAST
    assert choices[39] == SMALL
    assert choices[-1] == FAST


class HeldShards(ShardSequence):
    """Waits in the thread, with the steps, until it may go on."""

    def __init__(self, *args):
        super().__init__(*args)
        self.is_held, self.may_go_on = threading.Event(), threading.Event()

    def add_steps(self, steps):
        self.is_held.set()
        assert self.may_go_on.wait(600)
        super().add_steps(steps)


def test_the_thread_is_idle_until_steps_or_callers_wait(tmp_path):
    shards = HeldShards(tmp_path, 0, FAST)
    background = BackgroundWriter(shards, flush_interval=None, max_pending_bytes=4000)
    step = bytes(500)
    assert not background.is_idle()

    def is_idle_after_rest():
        time.sleep(0.01)
        with background.lock:
            background.finish()
        return background.is_idle()

    shards.may_go_on.set()
    with background.lock:
        background.put(ShardTask(lambda shards: shards.begin_episode(step), len(step), 1))
    wait_until(is_idle_after_rest)
    shards.may_go_on.clear()
    shards.is_held.clear()
    with background.lock:
        background.add_step(step)
        background.add_step(step)
    assert shards.is_held.wait(600)
    with background.lock:
        for pending in (1500, 2000, 2500):
            background.add_step(step)
            assert background.is_idle() == (pending <= 2000)
    time.sleep(0.3)  # The thread works all the time.
    shards.may_go_on.set()
    with background.lock:
        background.finish()
    assert not background.is_idle()

    wait_until(is_idle_after_rest)
    shards.may_go_on.clear()
    with background.lock:
        background.add_step(step)
    closer = threading.Thread(target=background.close)
    closer.start()
    wait_until(lambda: not background.is_idle())
    shards.may_go_on.set()
    closer.join()


@pytest.mark.parametrize("options", [None, "zstd:3,chunk_size:1M"])
def test_explicit_options_are_kept(options, tmp_path):
    """Without options, an idle thread makes chunks as small as possible."""
    with RiegeliBackendWriter(
        tmp_path, writer_options=options, flush_interval=None, max_pending_bytes=1 << 22
    ) as writer:
        background = writer._background
        first, *following_steps = (StepData(dm_env.restart(frame), None) for frame in FRAMES)
        writer.record_step(first, is_new_episode=True)
        with background.lock:  # So that the thread takes all steps at once.
            background._backpressure._idle_budget_s = 1.0  # As if it had rested.
            for step in following_steps:
                writer.record_step(step, is_new_episode=False)
        wait_until(lambda: not background._queued.jobs and not background._current.jobs)
    [steps] = tmp_path.glob("*/steps.riegeli")
    with riegeli.RecordReader(steps) as reader:
        records = list(reader.read_records())
    size = {option: compressed_size(records, option) for option in (FAST, SMALL)}
    assert size[SMALL] < 0.9 * size[FAST]
    assert (steps.stat().st_size < 0.95 * size[FAST]) == (options is None)
    with Reader(tmp_path) as reader:
        frames = [step.timestep.observation for step in reader.episodes[0]]
    np.testing.assert_array_equal(frames, FRAMES)
