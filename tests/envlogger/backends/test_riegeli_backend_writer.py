import datetime
import errno
import functools
import gc
import io
import os
import pathlib
import re
import shutil
import signal
import threading
import time
import types

import dm_env
import numpy as np
import pytest
from etils import epath

import envlogger
import riegeli
from envlogger import Data, RiegeliBackendWriter, StepData
from envlogger.backends import riegeli_backend_writer, schedulers
from envlogger.backends.riegeli_files import growing_file, shard_sequence
from envlogger.backends.riegeli_files.disk_reserve import DiskReserve
from envlogger.backends.riegeli_files.shard_reader import load_shards
from envlogger.backends.riegeli_files.shard_writer import ShardWriter
from envlogger.errors import (
    StorageError,
    UnsupportedTypeError,
    UnsupportedValueError,
    UsageError,
)

FILES = [
    *("episode_index.riegeli", "episode_metadata.riegeli"),
    *("step_offsets.riegeli", "steps.riegeli"),
]


def record(writer, *observations, is_new_episode=True):
    for observation in observations:
        writer.record_step(StepData(dm_env.restart(observation), None), is_new_episode)
        is_new_episode = False


def wait_until(condition):
    deadline = time.monotonic() + 30
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.001)


def list_shards(directory):
    return sorted(path for path in directory.iterdir() if path.is_dir())


def read_episodes(directory):
    with envlogger.Reader(directory) as reader:
        observations = [
            [step.timestep.observation for step in episode] for episode in reader.episodes
        ]
        assert len(reader.steps) == sum(map(len, observations))
        return observations


# --- Files on the disk.


def test_a_shard_is_named_by_its_time_and_has_all_files(tmp_path):
    writer = RiegeliBackendWriter(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["metadata.riegeli"]
    record(writer, 1, 2)
    writer.close()
    [shard] = list_shards(tmp_path)
    assert re.fullmatch(r"\d{8}T\d{12}", shard.name)
    begin = datetime.datetime.strptime(shard.name + "+0000", "%Y%m%dT%H%M%S%f%z")
    assert abs(begin - datetime.datetime.now(datetime.UTC)) < datetime.timedelta(hours=1)
    assert sorted(path.name for path in shard.iterdir()) == FILES
    assert sorted(path.name for path in tmp_path.iterdir()) == [shard.name, "metadata.riegeli"]


@pytest.mark.parametrize(
    ("max_episodes_per_file", "expected"), [(1, 5), (2, 3), (5, 1), (100, 1), (0, 1), (-1, 1)]
)
def test_a_shard_has_at_most_max_episodes_per_file(max_episodes_per_file, expected, tmp_path):
    with RiegeliBackendWriter(tmp_path, max_episodes_per_file=max_episodes_per_file) as writer:
        for i in range(5):
            record(writer, i, 10 * i)
    assert len(list_shards(tmp_path)) == expected
    assert read_episodes(tmp_path) == [[i, 10 * i] for i in range(5)]


@pytest.fixture
def clock(monkeypatch):
    """A clock that stands still until it is set."""

    class Clock(datetime.datetime):
        time = datetime.datetime(2026, 1, 31, 23, 59, 59, 999999, tzinfo=datetime.UTC)

        @classmethod
        def now(cls, tz=None):
            return cls.time

    module = types.SimpleNamespace(datetime=Clock, timedelta=datetime.timedelta, UTC=datetime.UTC)
    monkeypatch.setattr(shard_sequence, "datetime", module)
    return Clock


def test_writers_that_begin_in_the_same_microsecond_get_different_shards(tmp_path, clock):
    with RiegeliBackendWriter(tmp_path) as first, RiegeliBackendWriter(tmp_path) as second:
        record(first, 1)
        record(second, 2)
    assert [path.name for path in list_shards(tmp_path)] == [
        *("20260131T235959999999", "20260201T000000000000")
    ]
    assert read_episodes(tmp_path) == [[1], [2]]


def test_shards_stay_in_order_when_the_clock_is_set_back(tmp_path, clock):
    with RiegeliBackendWriter(tmp_path, max_episodes_per_file=1) as writer:
        for i in range(3):
            record(writer, i)
            clock.time -= datetime.timedelta(hours=1)
    assert read_episodes(tmp_path) == [[0], [1], [2]]


def test_threads_may_share_a_writer(tmp_path):
    with RiegeliBackendWriter(tmp_path, writer_options="zstd:1,chunk_size:200") as writer:
        record(writer, -1)

        def extend(begin):
            record(writer, *range(begin, begin + 200), is_new_episode=False)

        threads = [threading.Thread(target=extend, args=(begin,)) for begin in range(0, 800, 200)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    [episode] = read_episodes(tmp_path)
    assert sorted(episode) == list(range(-1, 800))


# --- Metadata of the dataset.


def test_metadata_of_the_first_recording_is_kept(tmp_path):
    RiegeliBackendWriter(tmp_path, metadata={"robot": "a", "nan": np.nan}).close()
    RiegeliBackendWriter(tmp_path, metadata={"nan": np.nan, "robot": "a"}).close()
    RiegeliBackendWriter(tmp_path).close()
    with pytest.warns(UserWarning, match=r"metadata\.riegeli keeps its metadata"):
        RiegeliBackendWriter(tmp_path, metadata={"robot": "b"}).close()
    with envlogger.Reader(tmp_path) as reader:
        assert reader.metadata()["robot"] == "a"


def test_metadata_that_cannot_be_stored_is_named(tmp_path):
    with pytest.raises(UnsupportedTypeError, match=r"cannot store metadata\['a'\]\[0\]: .*set"):
        RiegeliBackendWriter(tmp_path, metadata={"a": [{1}]})
    assert list(tmp_path.iterdir()) == []


def test_metadata_appears_completely_or_not_at_all(tmp_path, monkeypatch):
    def fail(descriptor):
        raise OSError("no space left")

    monkeypatch.setattr(os, "fsync", fail)
    with pytest.raises(StorageError, match=r"metadata\.riegeli' cannot be written \(no space left"):
        RiegeliBackendWriter(tmp_path)
    assert list(tmp_path.iterdir()) == []
    monkeypatch.undo()
    with RiegeliBackendWriter(tmp_path) as writer:
        record(writer, 1)
    assert read_episodes(tmp_path) == [[1]]


# --- Flushing.


def test_readers_never_see_episodes_run_together(tmp_path):
    always = schedulers.NStepScheduler(1)
    expected = [[0, 1, 2], [10], [20, 21], [30, 31, 32]]
    with RiegeliBackendWriter(tmp_path, flush_scheduler=always, max_episodes_per_file=3) as writer:
        for num_complete, episode in enumerate(expected):
            for i, observation in enumerate(episode):
                record(writer, observation, is_new_episode=i == 0)
                assert read_episodes(tmp_path) == expected[:num_complete]
    assert read_episodes(tmp_path) == expected


def test_the_flush_scheduler_is_asked_once_for_each_recorded_step(tmp_path):
    scheduled_steps = []
    with RiegeliBackendWriter(
        tmp_path, flush_scheduler=scheduled_steps.append, scheduler=schedulers.NStepScheduler(2)
    ) as writer:
        record(writer, 0, 1, 2, 3, 4)
    assert [data.timestep.observation for data in scheduled_steps] == [0, 2, 4]


@pytest.fixture
def flushes(monkeypatch):
    """The flushes of shards."""
    flushed_shards = []
    flush = ShardWriter.flush

    def count_flushes(self, **kwargs):
        flushed_shards.append(self)
        flush(self, **kwargs)

    monkeypatch.setattr(ShardWriter, "flush", count_flushes)
    return flushed_shards


def test_an_episode_scheduler_flushes_once_for_each_chosen_episode(tmp_path, flushes):
    with RiegeliBackendWriter(tmp_path, flush_scheduler=schedulers.NEpisodeScheduler(2)) as writer:
        for index in range(4):
            writer.record_step(StepData(dm_env.restart(index), None), is_new_episode=True)
            for _ in range(5):
                step = StepData(dm_env.transition(0.0, index), 1)
                writer.record_step(step, is_new_episode=False)
            assert len(flushes) == 1 + index // 2
            assert len(read_episodes(tmp_path)) == 2 * (index // 2)


def test_the_thread_flushes_in_intervals_without_further_steps(tmp_path):
    with RiegeliBackendWriter(tmp_path, flush_interval=0.02) as writer:
        record(writer, 0, 1)
        record(writer, 10)
        wait_until(lambda: read_episodes(tmp_path) == [[0, 1]])
        record(writer, 20)
        wait_until(lambda: read_episodes(tmp_path) == [[0, 1], [10]])


def test_pushed_steps_survive_a_kill_without_fsync(tmp_path, monkeypatch):
    descriptors = []
    with RiegeliBackendWriter(tmp_path / "data", flush_interval=None) as writer:
        for i in range(3):
            record(writer, i, is_new_episode=i == 0)
            if i == 0:
                writer.set_episode_metadata("first")
            with monkeypatch.context() as patch:
                patch.setattr(os, "fsync", descriptors.append)
                writer.push()
            # The files after a kill at this moment.
            copy = shutil.copytree(tmp_path / "data", tmp_path / f"killed {i}")
            assert read_episodes(copy) == []
            envlogger.recover(copy, in_place=True)
            assert read_episodes(copy) == [list(range(i + 1))]
            with envlogger.Reader(copy) as reader:
                assert list(reader.episode_metadata()) == ["first"]
        assert descriptors == []
    assert read_episodes(tmp_path / "data") == [[0, 1, 2]]
    with pytest.raises(UsageError, match="is closed"):
        writer.push()


@pytest.mark.parametrize("sync", [False, True])
def test_flushing_syncs_to_the_disk_if_asked(tmp_path, monkeypatch, sync):
    descriptors = []
    fsync = os.fsync

    def count_fsyncs(descriptor):
        descriptors.append(descriptor)
        fsync(descriptor)

    with RiegeliBackendWriter(tmp_path, sync=sync) as writer:
        monkeypatch.setattr(os, "fsync", count_fsyncs)
        record(writer, 0, 1)
        record(writer, 10)
        writer.flush()
        assert len(descriptors) == (4 if sync else 0)


def test_a_kill_during_a_slow_flush_leaves_a_consistent_index(tmp_path, monkeypatch):
    log, copies = tmp_path / "log", []
    fsync = os.fsync

    def copy_log(descriptor):
        copies.append((os.path.basename(os.readlink(f"/proc/self/fd/{descriptor}")), len(copies)))
        shutil.copytree(log, tmp_path / str(copies[-1][1]))
        fsync(descriptor)

    with RiegeliBackendWriter(log, sync=True) as writer:
        record(writer, 0, 1)
        record(writer, 10)
        writer.flush()
        record(writer, 20)
        monkeypatch.setattr(os, "fsync", copy_log)
        writer.flush()
        monkeypatch.undo()
    actual = {}
    for name, index in copies:
        [shard] = load_shards(epath.Path(tmp_path / str(index)))
        actual[name] = [len(shard.step_offsets), len(shard.all_rows), len(shard.episode_starts)]
        assert not shard.damage
    # No other file is synced between the index and the offsets.
    assert actual == {
        "steps.riegeli": [2, 1, 1],
        "episode_metadata.riegeli": [2, 1, 1],
        "episode_index.riegeli": [2, 2, 1],
        "step_offsets.riegeli": [3, 2, 2],
    }


@pytest.mark.parametrize(
    "arguments", [{"flush_interval": 0}, {"flush_interval": -1.0}, {"max_pending_bytes": 0}]
)
def test_intervals_and_limits_that_are_not_positive_are_refused(tmp_path, arguments):
    [name] = arguments
    with pytest.raises(ValueError, match=f"{name} must be positive"):
        RiegeliBackendWriter(tmp_path, **arguments)


# --- Discarding.


@pytest.mark.parametrize("is_flushed", [False, True])
def test_a_discarded_episode_is_never_seen(tmp_path, is_flushed):
    with RiegeliBackendWriter(tmp_path) as writer:
        record(writer, 0, 1)
        record(writer, 10, 11)
        writer.set_episode_metadata("gone")
        if is_flushed:
            writer.flush()
        writer.discard_episode()
        with pytest.raises(UsageError, match="there is no episode to discard"):
            writer.discard_episode()
        with pytest.raises(UsageError, match="must be recorded with is_new_episode=True"):
            record(writer, 12, is_new_episode=False)
        record(writer, 20, 21)
        writer.set_episode_metadata("kept")
        writer.flush()
        assert read_episodes(tmp_path) == [[0, 1]]
        record(writer, 30)
        writer.discard_episode()
    assert read_episodes(tmp_path) == [[0, 1], [20, 21]]
    with envlogger.Reader(tmp_path) as reader:
        assert list(reader.episode_metadata()) == [None, "kept"]


# --- The end of a process.


def test_a_garbage_collected_writer_completes_its_recording(tmp_path):
    record(RiegeliBackendWriter(tmp_path), 1, 2)
    gc.collect()
    assert read_episodes(tmp_path) == [[1, 2]]


# --- Invalid input.


def test_a_directory_that_cannot_be_written_to_is_refused(tmp_path):
    tmp_path.chmod(0o500)
    directory = tmp_path
    if os.access(tmp_path, os.W_OK):  # Root may write almost everywhere.
        directory = pathlib.Path("/proc/self")
    if not directory.exists():
        pytest.skip("needs a directory that cannot be written to")
    with pytest.raises(StorageError, match=rf"cannot write to data_directory {directory}: .*check"):
        RiegeliBackendWriter(directory)


@pytest.mark.parametrize("options", ["zstd:99", "bogus", "chunk_size:-1"])
def test_invalid_writer_options_are_refused(options, tmp_path):
    with pytest.raises(
        UnsupportedValueError, match=f"cannot write with writer_options '{options}': .*the default"
    ) as caught:
        RiegeliBackendWriter(tmp_path, writer_options=options)
    assert isinstance(caught.value.__cause__, riegeli.RiegeliError)
    assert list(tmp_path.iterdir()) == []


def test_a_refused_step_leaves_no_trace(tmp_path):
    with RiegeliBackendWriter(tmp_path, max_episodes_per_file=1) as writer:
        with pytest.raises(
            UnsupportedTypeError,
            match=r"cannot store step\.timestep\.observation\['camera'\]\[2\]: builtins\.set",
        ):
            record(writer, {"camera": (1, 2, {3})})
        assert list_shards(tmp_path) == []
        record(writer, 1)
        with pytest.raises(UnsupportedTypeError):
            record(writer, object(), is_new_episode=False)
        record(writer, 2, is_new_episode=False)
        with pytest.raises(UnsupportedTypeError, match=r"cannot store episode_metadata\['a'\]: "):
            writer.set_episode_metadata({"a": {1}})
        with pytest.raises(UnsupportedTypeError):
            record(writer, object())
        record(writer, 3, is_new_episode=False)
    assert read_episodes(tmp_path) == [[1, 2], [3]]


# --- Failures while recording.


class Disk:
    """A small disk for the files of a shard and the reserve."""

    def __init__(self, size):
        self.size = size
        self.used = 0
        self.reserve = 1_000_000

    def use(self, size):
        num_bytes = min(size, self.size - self.used)
        if num_bytes == 0:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        self.used += num_bytes
        return num_bytes


@pytest.fixture
def disk(monkeypatch):
    small_disk = Disk(0)

    class File(io.FileIO):
        def write(self, data):
            return super().write(data[: small_disk.use(len(data))])

        def truncate(self, size):
            small_disk.used -= self.seek(0, io.SEEK_END) - size
            return super().truncate(size)

    class Reserve(DiskReserve):
        def __init__(self, directory, num_bytes):
            super().__init__(directory, num_bytes)
            small_disk.size = small_disk.used + 600_000

        def release_after(self, error):
            is_released = super().release_after(error)
            small_disk.size += small_disk.reserve if is_released else 0
            return is_released

    monkeypatch.setattr(growing_file, "open", lambda path, *_, **__: File(path, "x"), raising=False)
    monkeypatch.setattr(riegeli_backend_writer, "DiskReserve", Reserve)
    return small_disk


@pytest.mark.parametrize("has_reserve", [True, False])
@pytest.mark.parametrize(
    ("options", "is_pushed"),
    [
        ("uncompressed,chunk_size:10k", False),
        ("zstd:1,chunk_size:300k", False),
        ("zstd:1,chunk_size:300k", True),
        ("transpose,chunk_size:1k,parallelism:3", False),
    ],
)
def test_steps_survive_a_full_disk_or_are_counted_lost(
    tmp_path, disk, options, is_pushed, has_reserve
):
    if not has_reserve:
        disk.reserve = 0
    rng = np.random.default_rng(0)
    frames = rng.integers(0, 256, (100, 1000), np.uint8)
    writer = RiegeliBackendWriter(tmp_path, writer_options=options, max_pending_bytes=50_000)
    num_accepted = 0
    with pytest.raises(
        StorageError,
        match=rf"cannot write to {tmp_path}, recording stops here: .*No space left on device; ",
    ) as caught:
        for i in range(100_000):
            record(writer, frames[i % 100], is_new_episode=i % 10 == 0)
            num_accepted += 1
            if is_pushed:
                writer.push()
    assert isinstance(caught.value.__cause__, OSError)
    with pytest.raises(StorageError, match="has stopped after an earlier failure"):
        record(writer, 0)
    writer.close()
    actual = [observation for episode in read_episodes(tmp_path) for observation in episode]
    for i, observation in enumerate(actual):
        np.testing.assert_array_equal(observation, frames[i % 100])
    if has_reserve:
        assert "all steps that were recorded are readable" in str(caught.value)
        assert len(actual) == num_accepted
    else:
        [num_lost] = re.findall(r"the last (\d+) steps are lost", str(caught.value))
        assert len(actual) == num_accepted - int(num_lost)
    assert all(len(episode) == 10 for episode in read_episodes(tmp_path)[:-1])


def test_a_disk_without_room_for_the_recording_is_refused_and_nothing_is_written(
    tmp_path, monkeypatch
):
    def fail(*_):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "posix_fallocate", fail)
    with pytest.raises(StorageError, match=r"cannot write to data_directory .* 24 MB are left"):
        RiegeliBackendWriter(tmp_path)
    assert list(tmp_path.iterdir()) == []


def fail_writing(monkeypatch, method, file_name, error):
    """Makes a method of the writers of files of this name raise."""
    original = getattr(riegeli.RecordWriter, method)

    def fail(self, *args):
        if str(self.dest.name).endswith(file_name):
            raise error
        return original(self, *args)

    monkeypatch.setattr(riegeli.RecordWriter, method, fail)


@pytest.mark.parametrize("file_name", FILES)
def test_steps_flushed_before_a_failure_are_readable(tmp_path, monkeypatch, file_name):
    flush = False
    writer = RiegeliBackendWriter(tmp_path, flush_scheduler=lambda data: flush)
    record(writer, 0, 1)
    flush = True
    record(writer, 10, 11)
    fail_writing(monkeypatch, "flush", file_name, OSError("the disk is gone"))
    with pytest.raises(StorageError, match=r"recording stops here: the disk is gone"):
        record(writer, 20)
    monkeypatch.undo()
    with pytest.raises(StorageError, match="has stopped after an earlier failure"):
        record(writer, 30)
    writer.close()
    assert read_episodes(tmp_path)[:1] == [[0, 1]]
    assert set(map(tuple, read_episodes(tmp_path))) <= {(0, 1), (10, 11), (20,)}


def test_a_failure_to_close_raises_a_storage_error(tmp_path, monkeypatch):
    writer = RiegeliBackendWriter(tmp_path)
    record(writer, 0, 1)
    fail_writing(monkeypatch, "flush", "steps.riegeli", OSError("the disk is gone"))
    with pytest.raises(StorageError, match="the disk is gone"):
        writer.close()
    writer.close()


@pytest.mark.parametrize("failing", ["write", "flush", "close", "write, flush and close"])
def test_callers_never_wait_after_an_error(tmp_path, monkeypatch, failing):
    class BrokenFileError(Exception):
        """No OSError, like those of TensorFlow's files."""

    class File(io.FileIO):
        num_calls = 0

        def call(self, name, *args):
            File.num_calls += 1
            if name in failing and File.num_calls > 200 and not self.closed:
                if name == "close":  # The garbage collector would call it again.
                    super().close()
                raise BrokenFileError(f"{name} failed")
            return getattr(super(), name)(*args)

        write = functools.partialmethod(call, "write")
        flush = functools.partialmethod(call, "flush")
        close = functools.partialmethod(call, "close")

    monkeypatch.setattr(growing_file, "open", lambda path, *_, **__: File(path, "x"), raising=False)
    writer = RiegeliBackendWriter(tmp_path, 2, "zstd:3,chunk_size:1k,parallelism:2")
    messages = []

    def record_to_the_end():
        for i in range(100):
            try:
                record(writer, *np.zeros((10, 100)))
                (writer.flush, writer.push)[i % 2]()
            except StorageError as e:
                messages.append(str(e))
        writer.close()
        messages.append("closed")

    # A daemon thread, in case it hangs.
    thread = threading.Thread(target=record_to_the_end, daemon=True)
    thread.start()
    thread.join(600)
    assert messages[-1:] == ["closed"]
    assert re.search(r"recording stops here: \w+ failed; .*readable", messages[0])
    assert all("has stopped after an earlier failure" in message for message in messages[1:-1])
    for episode in read_episodes(tmp_path)[:-1]:
        assert len(episode) == 10


def test_steps_go_to_the_last_shard_if_no_new_one_can_be_created(tmp_path):
    directory = tmp_path / "data"
    directory.mkdir()
    writer = RiegeliBackendWriter(directory, max_episodes_per_file=1)
    record(writer, 0, 1)
    directory.rename(tmp_path / "moved")
    record(writer, 10, 11)
    record(writer, 20)
    with pytest.raises(
        StorageError, match=r"cannot write to .*data, recording stops here: .*No such"
    ) as caught:
        writer.flush()
    assert "all steps that were recorded are readable" in str(caught.value)
    with pytest.raises(StorageError, match="has stopped after an earlier failure"):
        record(writer, 30)
    writer.close()
    [data] = tmp_path.iterdir()
    assert read_episodes(data) == [[0, 1], [10, 11], [20]]
    assert len(list_shards(data)) == 1


def test_the_next_flush_reports_a_deleted_shard(tmp_path):
    writer = RiegeliBackendWriter(tmp_path)
    record(writer, 0, 1)
    shutil.rmtree(list_shards(tmp_path)[0])
    with pytest.raises(StorageError, match=r"steps\.riegeli was deleted while it was being writ"):
        writer.flush()
    writer.close()


def test_an_interrupted_flush_loses_no_step(tmp_path, monkeypatch):
    flush = ShardWriter.flush
    is_interrupted = threading.Event()

    def flush_slowly(self, **kwargs):
        if not is_interrupted.is_set():
            time.sleep(0.1)  # Python does not notice a signal just before it begins to wait.
            signal.pthread_kill(threading.main_thread().ident, signal.SIGINT)
            is_interrupted.wait(10)
        flush(self, **kwargs)

    monkeypatch.setattr(ShardWriter, "flush", flush_slowly)
    writer = RiegeliBackendWriter(tmp_path)
    record(writer, 0, 1)
    with pytest.raises(KeyboardInterrupt):
        writer.flush()
    is_interrupted.set()
    record(writer, 10)
    writer.close()
    assert read_episodes(tmp_path) == [[0, 1], [10]]


# --- Marks for recovery.


def test_marks_tell_the_episodes_where_step_types_do_not(tmp_path):
    types = dm_env.StepType
    steps = [
        (types.FIRST, True, Data.NONE),
        (types.MID, False, Data.NONE),
        (types.LAST, False, Data.NONE),
        (types.MID, True, Data.NONE),
        (types.MID, True, Data.BEGINS),
        (types.FIRST, False, Data.CONTINUES),
        (types.LAST, False, Data.NONE),
        (types.MID, False, Data.CONTINUES),
    ]
    with RiegeliBackendWriter(tmp_path) as writer:
        for step_type, is_new_episode, _ in steps:
            timestep = dm_env.TimeStep(step_type, 0.0, 1.0, 0)
            writer.record_step(StepData(timestep, 0), is_new_episode)
        writer.discard_episode()
    [shard] = list_shards(tmp_path)
    with riegeli.RecordReader(shard / "steps.riegeli") as reader:
        marks = [Data.FromString(record).episode_mark for record in reader.read_records()]
    assert marks == [mark for _, _, mark in steps] + [Data.DISCARDED]
