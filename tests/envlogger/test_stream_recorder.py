"""Streams at their own rates: no pushed value is lost, and streams become steps."""

import contextlib
import os
import signal
import subprocess
import sys
import textwrap
import threading
import time

import numpy as np
import pytest
from mcap.exceptions import EndOfFile
from mcap.reader import NonSeekingReader
from mcap_ros2.decoder import DecoderFactory

import envlogger
import rlds.sources
from envlogger.errors import StorageError, UnsupportedTypeError, UnsupportedValueError, UsageError
from rlds.sources.video_frames import with_frames

BEGIN = 1_700_000_000 * 10**9  # In nanoseconds.


def read_messages(path):
    """Returns the topic, the log time and the content of all messages, as ROS reads them."""
    decoded_messages = []
    with path.open("rb") as file, contextlib.suppress(EndOfFile):  # After a kill.
        reader = NonSeekingReader(file, decoder_factories=[DecoderFactory()])
        for _, channel, message, content in reader.iter_decoded_messages(log_time_order=False):
            decoded_messages.append((channel.topic, message.log_time, content))
    return decoded_messages


def test_ros_reads_values_of_all_kinds(tmp_path):
    rng = np.random.default_rng(0)
    values = {
        f"{kind}{shape}": (rng.integers(0, 100, shape) if shape else rng.integers(0, 100)).astype(
            kind
        )
        if shape
        else np.dtype(kind).type(rng.integers(0, 100))
        for kind in ("int8", "uint8", "int16", "uint32", "int64", "float32", "float64")
        for shape in ((), (3,), (2, 3))
    }
    names = {name: f"n{index}" for index, name in enumerate(values)}
    image = rng.integers(0, 256, (5, 4, 3), np.uint8)
    with envlogger.StreamRecorder(tmp_path / "run") as recorder:
        for row in range(3):
            for name, value in values.items():
                recorder.push(names[name], BEGIN + row, value)
            recorder.push("text", BEGIN + row, "grüße 机器人")
            recorder.push("flag", BEGIN + row, np.bool_(row == 1))
            recorder.push("number", BEGIN + row, 1.5)
            recorder.push("image", BEGIN + row, image)
            image = image.copy()
        path = recorder.path
    actual = {}
    for topic, log_time, message in read_messages(path):
        actual.setdefault(topic, []).append((log_time, message))
    for name, value in values.items():
        assert [time for time, _ in actual[f"/{names[name]}"]] == [BEGIN, BEGIN + 1, BEGIN + 2]
        for _, message in actual[f"/{names[name]}"]:
            dims = [dim.size for dim in message.layout.dim] if value.shape else []
            data = list(message.data) if value.shape else [message.data]
            assert dims == list(value.shape)
            np.testing.assert_array_equal(np.array(data, value.dtype), value.reshape(-1))
    assert {message.data for _, message in actual["/text"]} == {"grüße 机器人"}
    assert [message.data for _, message in actual["/flag"]] == [False, True, False]
    assert actual["/number"][0][1].data == 1.5
    _, message = actual["/image"][2]
    assert (message.height, message.width, message.encoding) == (5, 4, "rgb8")
    assert bytes(message.data) == image.tobytes()
    assert message.header.stamp.sec * 10**9 + message.header.stamp.nanosec == BEGIN + 2


def test_threads_and_late_values_become_steps(tmp_path):
    pytest.importorskip("av")
    frames = [np.full((32, 48, 3), 3 * value, np.uint8) for value in range(60)]
    video = {"top": envlogger.Video(quality=5, gop=10)}
    with envlogger.StreamRecorder(tmp_path / "run", video=video) as recorder:

        def push(name, rate, make, num_rows, order=1):
            for row in range(num_rows)[::order]:
                recorder.push(name, BEGIN + round(row * 1e9 / rate), make(row))

        streams = (
            ("top", 30, frames.__getitem__, 60),
            ("joints", 500, lambda row: np.full(7, row / 500, np.float32), 1000),
            ("force", 1000, lambda row: float(row), 2000, -1),  # The last value comes first.
            ("action/target", 50, lambda row: np.full(2, row, np.float32), 100),
        )
        threads = [threading.Thread(target=push, args=stream) for stream in streams]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    path = tmp_path / "run"
    episodes = rlds.sources.open(path, rate=20, policy="linear")
    assert len(episodes) == 1
    steps = episodes[0].steps
    seconds = (steps["timestamp"] - BEGIN) / 1e9
    np.testing.assert_allclose(np.diff(seconds), 0.05)
    assert len(seconds) == 40
    np.testing.assert_allclose(steps["observation"]["joints"][:, 0], seconds, atol=1e-5)
    np.testing.assert_allclose(steps["observation"]["force"], 1000 * seconds, atol=1e-6)
    np.testing.assert_array_equal(steps["action"][:, 0], np.ceil(seconds * 50 - 1e-6))
    pixels = rlds.sources.open(path, rate=30)

    images = with_frames(pixels).columns(0, ["observation/images/top"])["observation"]["images"][
        "top"
    ]
    for row, frame in enumerate(images[:59]):
        assert np.abs(frame.astype(int) - frames[row]).max() < 8
    sparse = rlds.sources.open(path, rate=1000, policy="nearest", max_age=1e-5)[0]
    assert 0 < sparse.num_steps < 100  # Only rows at which all streams have a value.
    assert int(sparse.metadata["recording"]["dropped_steps"]) > 1000
    for options in ({"rate": -1}, {"policy": "best"}, {"max_age": 0}):
        with pytest.raises(ValueError, match=next(iter(options))):
            rlds.sources.open(path, **options)


def test_marked_episodes_are_read_back(tmp_path):
    with envlogger.StreamRecorder(tmp_path / "run") as recorder:
        for episode in range(3):
            recorder.begin_episode(BEGIN + 100 * episode)
            for row in range(5 + episode):
                recorder.push("joints", BEGIN + 100 * episode + row, np.full(2, row, np.float32))
            recorder.end_episode(BEGIN + 100 * episode + 50)
            recorder.push("joints", BEGIN + 100 * episode + 60, np.full(2, 99, np.float32))
        with pytest.raises(UsageError, match="no episode to end"):
            recorder.end_episode()
    episodes = rlds.sources.open(tmp_path / "run")
    assert [episode.num_steps for episode in episodes] == [5, 6, 7]
    assert episodes[2].steps["observation"]["joints"][:, 0].tolist() == [*range(7)]


def test_an_episode_that_raises_is_incomplete(tmp_path):
    with envlogger.StreamRecorder(tmp_path / "run") as recorder:
        for episode in range(3):
            with contextlib.suppress(KeyError), recorder.episode():
                for row in range(5):
                    recorder.push("joints", None, np.full(2, row, np.float32))
                    if (episode, row) == (1, 3):
                        raise KeyError
    episodes = rlds.sources.open(tmp_path / "run")
    assert [episode.complete for episode in episodes] == [True, False, True]
    assert [episode.num_steps for episode in episodes] == [5, 4, 5]


def test_a_file_that_was_deleted_is_an_error(tmp_path):
    recorder = envlogger.StreamRecorder(tmp_path / "run")
    recorder.push("number", None, 1)
    recorder.flush()
    recorder.path.unlink()
    recorder.push("number", None, 2)
    deleted = "was deleted while it was recorded; the last 2 values are lost"
    with pytest.raises(StorageError, match=deleted):
        recorder.flush()
    with pytest.raises(StorageError, match=deleted):
        recorder.push("number", None, 3)
    with pytest.raises(StorageError, match=deleted):
        recorder.close()


def test_values_that_do_not_fit_their_stream_are_refused(tmp_path):
    recorder = envlogger.StreamRecorder(tmp_path / "run")
    recorder.push("joints", None, np.zeros(3))
    for value in (np.zeros(4), np.zeros(3, np.float32), 1.0, None, "text"):
        with pytest.raises(UnsupportedValueError, match="as in the first value"):
            recorder.push("joints", None, value)
    for value in (None, np.zeros(3, complex), np.zeros(3, bool), object()):
        with pytest.raises(UnsupportedTypeError, match="stream 'new'"):
            recorder.push("new", None, value)
    for log_time in (-1, 1.5, 1 << 63):
        with pytest.raises(UnsupportedValueError, match="expected nanoseconds"):
            recorder.push("joints", log_time, np.zeros(3))
    with pytest.raises(ValueError, match="flush_interval"):
        envlogger.StreamRecorder(tmp_path / "run", flush_interval=0)
    with pytest.raises(ValueError, match="expected h264"):
        envlogger.StreamRecorder(tmp_path / "run", video={"top": envlogger.Video(codec="av1")})
    recorder.close()
    recorder.close()
    with pytest.raises(UsageError, match="closed"):
        recorder.push("joints", None, np.zeros(3))
    (tmp_path / "file").write_text("")
    with pytest.raises(StorageError, match="cannot record to"):
        envlogger.StreamRecorder(tmp_path / "file")
    assert len(read_messages(recorder.path)) == 1


@pytest.mark.slow
def test_pushed_messages_survive_a_full_disk(tmp_path):
    disk = tmp_path / "disk"
    disk.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=20m", "tmpfs", os.fspath(disk)]
    try:
        subprocess.run(mount, check=True, capture_output=True)
    except (OSError, subprocess.CalledProcessError) as error:
        pytest.skip(f"cannot mount a small disk: {error}")
    try:
        with pytest.raises(StorageError, match="72 MB are left"):
            envlogger.StreamRecorder(disk)
        rng, indices = np.random.default_rng(0), []
        recorder = envlogger.StreamRecorder(disk, max_pending_bytes=2 << 20)
        with pytest.raises(StorageError, match="recording stops here"):
            for index in range(10_000):
                recorder.push("noise", BEGIN + index, rng.integers(0, 256, 9000, np.uint8))
                indices.append(index)
        with pytest.raises(StorageError):
            recorder.close()
        actual = [log_time - BEGIN for _, log_time, _ in read_messages(recorder.path)]
        assert actual == indices[: len(actual)]
        assert len(actual) >= len(indices)  # Accepted values fit into the reserve.
    finally:
        subprocess.run(["umount", os.fspath(disk)], check=True)


SCRIPT = """
    import sys, time
    import numpy as np
    import envlogger
    recorder = envlogger.StreamRecorder(sys.argv[1])
    count = 0
    while True:
        recorder.push(sys.argv[2], time.time_ns(), np.full(3, count, np.int64))
        count += 1
        if count % 50 == 0:
            print(count, time.time(), flush=True)
        time.sleep(0.001)
"""


@pytest.mark.slow
@pytest.mark.parametrize("num_lines", [3, 8])
def test_a_killed_process_does_not_disturb_the_recording_of_another(tmp_path, num_lines):
    folder = os.fspath(tmp_path / "run")
    command = [sys.executable, "-c", textwrap.dedent(SCRIPT), folder]
    with (
        subprocess.Popen([*command, "left"], stdout=subprocess.PIPE, text=True) as left,
        subprocess.Popen([*command, "right"], stdout=subprocess.PIPE, text=True) as right,
    ):
        for _ in range(num_lines):
            right.stdout.readline()
            num_pushed, seconds = left.stdout.readline().split()
        time.sleep(max(float(seconds) + 0.5 - time.time(), 0))
        os.kill(left.pid, signal.SIGKILL)
        right.terminate()
    actual = {}
    for path in (tmp_path / "run").glob("*.mcap"):
        for topic, _, message in read_messages(path):
            actual.setdefault(topic, []).append(message.data[0])
    assert len(actual["/left"]) >= int(num_pushed)
    for values in actual.values():
        assert values == [*range(len(values))]
    [episode] = rlds.sources.open(folder, rate=100)
    assert set(episode.steps["observation"]) == {"left", "right"}
