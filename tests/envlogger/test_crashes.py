"""Crash recovery: the steps that survive any end of the recording process."""

import pathlib
import signal
import subprocess
import sys
import textwrap
import threading
import time

import dm_env
import forked
import killing
import numpy as np
import pytest

import envlogger
from envlogger import RiegeliBackendWriter, StepData
from envlogger.errors import StorageError

ROOT = pathlib.Path(envlogger.__file__).parents[1]

PRELUDE = """
import atexit, gc, os, signal, sys, threading, time
import dm_env
import envlogger
from envlogger.testing.catch_env import Catch

def begin(env=None):
    logger = envlogger.EnvLogger(env or Catch(), data_directory=sys.argv[1])
    play(logger)
    return logger

def play(logger, action=1):
    timestep = logger.reset()
    while not timestep.last():
        timestep = logger.step(action)
"""


def run(directory, code):
    warnings_are_errors = "import warnings; warnings.simplefilter('error')\n"
    return forked.run(warnings_are_errors + PRELUDE + textwrap.dedent(code), directory, cwd=ROOT)


def read_lengths(directory):
    with envlogger.Reader(directory) as reader:
        episode_lengths = [len(list(episode)) for episode in reader.episodes]
        assert len(reader.steps) == sum(episode_lengths)
        return episode_lengths


def record(writer, *observations):
    for i, observation in enumerate(observations):
        step = StepData(dm_env.restart(observation), None)
        writer.record_step(step, is_new_episode=i == 0)


# --- Exits that store all steps.


@pytest.mark.parametrize(
    ("code", "status"),
    [
        ("logger = begin()", 0),
        ("logger = begin(); raise KeyError", 1),
        ("logger = begin(); os.kill(os.getpid(), signal.SIGINT); time.sleep(60)", -signal.SIGINT),
        ("logger = begin(); os.kill(os.getpid(), signal.SIGTERM); time.sleep(60)", 143),
        ("logger = begin(); logger.me = logger; del logger; gc.collect()", 0),
        ("class Holder: pass\nHolder.logger = begin()", 0),
        # Python drops exceptions of callbacks of the garbage collector, such as those of JAX.
        (
            "logger = begin()\n"
            "terminate = lambda phase, about: signal.raise_signal(signal.SIGTERM)\n"
            "gc.callbacks.append(lambda *args: gc.callbacks.clear() or terminate(*args))\n"
            "gc.collect(); time.sleep(60)",
            143,
        ),
        # The signal that replaces the dropped exception arrives before the hook of it returns.
        (
            "import _thread\n"
            "logger, start = begin(), _thread.start_new_thread\n"
            "def slow_start(*args):\n"
            "  _thread.start_new_thread = start\n"
            "  start(*args)\n"
            "  time.sleep(0.2)\n"
            "_thread.start_new_thread = slow_start\n"
            "terminate = lambda phase, about: signal.raise_signal(signal.SIGTERM)\n"
            "gc.callbacks.append(lambda *args: gc.callbacks.clear() or terminate(*args))\n"
            "gc.collect(); time.sleep(60)",
            143,
        ),
    ],
)
def test_an_orderly_end_of_the_process_keeps_all_steps(tmp_path, code, status):
    process = run(tmp_path, code)
    assert process.returncode == status
    assert "Exception ignored" not in process.stderr
    assert read_lengths(tmp_path) == [10]


def test_camera_recordings_that_nobody_closes_keep_all_steps(tmp_path):
    code = """
        from camera_arm import VIDEO, Arm
        logger = envlogger.EnvLogger(Arm(200), data_directory=sys.argv[1], video=VIDEO)
        play(logger, logger.action_spec().generate_value())
    """
    process = run(tmp_path, code)
    assert (process.returncode, process.stderr) == (0, "")
    assert read_lengths(tmp_path) == [200]


def test_a_writer_that_fails_to_close_does_not_prevent_closing_the_next(tmp_path):
    code = """
        from envlogger.backends import lifetime
        class Broken:
            def close(self): raise ValueError("of the broken one")
        logger, broken = begin(), Broken()
        lifetime.close_at_exit(broken)
    """
    assert "of the broken one" in run(tmp_path, code).stderr
    assert read_lengths(tmp_path) == [10]


def test_the_users_own_handler_for_sigterm_stays(tmp_path):
    code = """
        def handler(number, frame):
            print("handled")
            sys.exit(7)
        signal.signal(signal.SIGTERM, handler)
        logger = begin()
        os.kill(os.getpid(), signal.SIGTERM)
        time.sleep(60)
    """
    process = run(tmp_path, code)
    assert (process.returncode, process.stdout, process.stderr) == (7, "handled\n", "")
    assert read_lengths(tmp_path) == [10]


@pytest.mark.slow
def test_sigterm_amid_a_recording_keeps_all_complete_episodes(tmp_path):
    code = """
        logger = begin()
        threading.Timer(0.3, os.kill, (os.getpid(), signal.SIGTERM)).start()
        while True:
            play(logger)
    """
    process = run(tmp_path, code)
    assert (process.returncode, process.stderr) == (143, "")
    *complete, last_length = read_lengths(tmp_path)
    assert set(complete) <= {10}
    assert 1 <= last_length <= 10
    with envlogger.Reader(tmp_path) as reader:
        assert reader.damage() == []


def test_sigterm_has_its_default_action_in_a_forked_process(tmp_path):
    code = """
        logger = begin()
        pid = os.fork()
        if pid == 0:
            os._exit(signal.getsignal(signal.SIGTERM) is not signal.SIG_DFL)
        assert os.waitpid(pid, 0)[1] == 0
        play(logger)
        os.kill(os.getpid(), signal.SIGTERM)
        time.sleep(60)
    """
    process = run(tmp_path, code)
    assert (process.returncode, process.stderr) == (143, "")
    assert read_lengths(tmp_path) == [10, 10]


def test_sigterm_ends_a_process_while_it_is_forked(tmp_path):
    """An exception of a handler would be lost while forking, and the process would go on."""
    code = """
        logger = begin()
        terminate = lambda: os.kill(os.getpid(), signal.SIGTERM)
        os.register_at_fork(after_in_child=terminate)
        pid = os.fork()
        if pid == 0:
            os._exit(0)
        assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == -signal.SIGTERM
        play(logger)
        terminate()
        time.sleep(60)
    """
    process = run(tmp_path, code)
    assert (process.returncode, process.stderr) == (143, "")
    assert read_lengths(tmp_path) == [10, 10]


@pytest.mark.slow
def test_a_daemon_thread_goes_on_recording_to_the_end(tmp_path):
    code = """
        def go_on():
            logger = begin()
            done.set()
            while True:
                play(logger)
        done = threading.Event()
        threading.Thread(target=go_on, daemon=True).start()
        done.wait()
        time.sleep(0.2)
    """
    process = run(tmp_path, code)
    assert process.returncode == 0
    assert set(read_lengths(tmp_path)[:-1]) <= {10}


@pytest.mark.parametrize(
    "end", ["sys.exit()", "os._exit(0)", "os.kill(os.getpid(), signal.SIGKILL)"]
)
def test_a_recording_goes_on_after_a_forked_process_ends(tmp_path, end):
    code = f"""
        logger = begin()
        pid = os.fork()
        if pid == 0:
            {end}
        os.waitpid(pid, 0)
        play(logger)
        logger.close()
    """
    process = run(tmp_path, code)
    assert (process.returncode, process.stderr) == (0, "")
    assert read_lengths(tmp_path) == [10, 10]


# --- Kills, which lose only steps within the flush interval.


@pytest.mark.parametrize("end", ["os._exit(0)", "os.kill(os.getpid(), signal.SIGKILL)"])
def test_recovery_adds_the_steps_after_the_last_flush(tmp_path, end):
    code = f"""
        logger = begin()
        play(logger)
        logger.flush()
        play(logger)
        {end}
    """
    run(tmp_path, code)
    assert read_lengths(tmp_path) == [10]
    report = envlogger.recover(tmp_path, in_place=True)
    assert read_lengths(tmp_path) == [10, 10]
    assert (report.num_episodes_before, report.num_episodes) == (1, 2)


@pytest.mark.parametrize("seed", [1, pytest.param(3, marks=pytest.mark.slow)])
def test_steps_older_than_the_flush_interval_survive_a_kill(seed):
    check_kill(seed, seconds=0.6, flush_interval=0.4)


@pytest.mark.slow
@pytest.mark.parametrize("begin", range(1000, 1200, 25))  # In chunks, which workers share.
def test_kills_at_random_moments_lose_no_flushed_step(begin):
    for seed in range(begin, begin + 25):
        check_kill(seed)


def check_kill(seed, **times):
    for slower in (1, 4, 16):  # A busy machine may be late once or twice.
        print(f"seed {seed}")
        outcome, plans = killing.run(seed, **{name: slower * times[name] for name in times})
        assert outcome.wrong == [], plans
        if not outcome.late:
            return
    pytest.fail(f"{outcome.late[:5]}, {plans}")


# --- Files and disks.


def test_steps_are_kept_if_no_file_can_be_opened_for_a_new_shard(tmp_path):
    code = """
        import resource
        from envlogger import RiegeliBackendWriter, StepData
        writer = RiegeliBackendWriter(sys.argv[1], max_episodes_per_file=2)
        accepted = 0
        try:
            for episode in range(100):
                for i in range(3):
                    step = StepData(dm_env.restart(accepted), None)
                    writer.record_step(step, is_new_episode=i == 0)
                    accepted += 1
                writer.flush()
                if episode == 4:
                    num_open = len(os.listdir("/proc/self/fd")) + 1
                    resource.setrlimit(resource.RLIMIT_NOFILE, (num_open, num_open))
        except envlogger.errors.StorageError as e:
            print(accepted, e)
        writer.close()
    """
    process = run(tmp_path, f"import envlogger.errors\n{textwrap.dedent(code)}")
    assert "Too many open files" in process.stdout
    assert "all steps that were recorded are readable" in process.stdout
    accepted = int(process.stdout.split()[0])
    assert sum(read_lengths(tmp_path)) == accepted
    assert set(read_lengths(tmp_path)) == {3}


@pytest.fixture
def small_disk(tmp_path):
    directory = tmp_path / "disk"
    directory.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=40m", "tmpfs", str(directory)]
    try:
        subprocess.run(mount, check=True, capture_output=True)
    except (OSError, subprocess.CalledProcessError) as e:
        pytest.skip(f"cannot mount a small disk: {e}")
    yield directory
    subprocess.run(["umount", str(directory)], check=True)


@pytest.mark.slow
@pytest.mark.parametrize(
    "options", ["uncompressed", "zstd:1,chunk_size:300k", "transpose,brotli:1"]
)
def test_a_full_disk_loses_no_accepted_step(small_disk, options):
    rng = np.random.default_rng(0)
    frames = [rng.integers(0, 256, 5000, np.uint8) for _ in range(100)]
    writer = RiegeliBackendWriter(small_disk, writer_options=options, flush_interval=0.3)
    num_accepted = 0
    with pytest.raises(StorageError, match=r"No space left on device; all steps .* are readable"):
        for i in range(100_000):
            timestep = dm_env.restart(frames[i % 100])
            writer.record_step(StepData(timestep, None), is_new_episode=i % 10 == 0)
            num_accepted += 1
    with pytest.raises(StorageError, match="has stopped after an earlier failure"):
        record(writer, 0)
    writer.close()
    assert num_accepted > 1000
    with envlogger.Reader(small_disk) as reader:
        assert reader.damage() == []
        assert len(reader.steps) == num_accepted
        for i, step in enumerate(reader.steps):
            np.testing.assert_array_equal(step.timestep.observation, frames[i % 100])


@pytest.mark.slow
def test_a_full_disk_is_refused_before_recording(small_disk):
    (small_disk / "other").write_bytes(bytes(30 << 20))
    with pytest.raises(StorageError, match="24 MB are left"):
        RiegeliBackendWriter(small_disk)
    assert [path.name for path in small_disk.iterdir()] == ["other"]
    with RiegeliBackendWriter(small_disk, max_pending_bytes=1 << 10) as writer:
        record(writer, 0)
    assert read_lengths(small_disk) == [1]


# --- Several processes and threads.


def test_two_processes_can_record_to_one_directory(tmp_path):
    code = """
        from envlogger import RiegeliBackendWriter, StepData
        first = int(sys.argv[2])
        options = {"max_episodes_per_file": 7, "flush_interval": 0.05}
        with RiegeliBackendWriter(sys.argv[1], **options) as writer:
            for episode in range(100):
                for i in range(5):
                    step = StepData(dm_env.restart(first + 5 * episode + i), None)
                    writer.record_step(step, is_new_episode=i == 0)
    """
    script = PRELUDE + textwrap.dedent(code)
    processes = [
        subprocess.Popen([sys.executable, "-c", script, str(tmp_path), str(first)], cwd=ROOT)
        for first in (0, 1000)
    ]
    assert [process.wait() for process in processes] == [0, 0]
    with envlogger.Reader(tmp_path) as reader:
        actual = [[step.timestep.observation for step in episode] for episode in reader.episodes]
    assert sorted(actual) == [
        list(range(first + begin, first + begin + 5))
        for first in (0, 1000)
        for begin in range(0, 500, 5)
    ]


def read_while_recording(tmp_path, num_readers):
    stop, turns = threading.Event(), threading.Semaphore(100)

    def record_episodes():
        with RiegeliBackendWriter(
            tmp_path, max_episodes_per_file=20, flush_interval=0.01
        ) as writer:
            for episode in range(10**9):
                turns.acquire()  # Far ahead, its recording would take long to open.
                record(writer, *[10 * episode + i for i in range(2 + episode % 5)])
                if episode % 7 == 3:
                    writer.discard_episode()
                if stop.is_set():
                    return
                time.sleep(0.0005)

    thread = threading.Thread(target=record_episodes)
    with RiegeliBackendWriter(tmp_path):
        thread.start()
    num_seen = num_read = 0
    deadline = time.monotonic() + 60  # For the first flush.
    try:
        while num_read < num_readers or (not num_seen and time.monotonic() < deadline):
            num_read += 1
            turns.release(10)
            with envlogger.Reader(tmp_path) as reader:
                assert len(reader.episodes) >= num_seen
                for index in {0, num_seen // 2, num_seen, len(reader.episodes) - 1}:
                    if 0 <= index < len(reader.episodes):
                        actual = [step.timestep.observation for step in reader.episodes[index]]
                        episode = actual[0] // 10
                        assert episode % 7 != 3
                        assert actual == [10 * episode + i for i in range(2 + episode % 5)]
                num_seen = len(reader.episodes)
                assert all(str(damage) for damage in reader.damage())
    finally:
        stop.set()
        turns.release()
        thread.join()
    assert num_seen > 0


@pytest.mark.slow
def test_a_recording_can_be_read_while_it_is_written(tmp_path):
    read_while_recording(tmp_path, 50)


@pytest.mark.slow
def test_a_long_recording_can_be_read_while_it_is_written(tmp_path):
    read_while_recording(tmp_path, 500)
