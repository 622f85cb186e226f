"""Cameras recorded as video: frames are read back, also after delays and errors."""

import contextlib
import os
import pickle
import threading

import dm_env
import numpy as np
import pytest
from camera_arm import SHAPE, VIDEO, Arm, record

import envlogger
from envlogger import StepData, Video
from envlogger.backends.in_memory_backend import InMemoryBackendWriter
from envlogger.backends.video_backend_writer import VideoBackendWriter
from envlogger.errors import StorageError, UnsupportedTypeError, UnsupportedValueError
from rlds_ecosystem.video_codec import FrameDecoder, FrameEncoder

pytest.importorskip("av")

SPEC = dm_env.specs.Array(SHAPE, np.uint8)


def test_frames_are_read_back_by_all_readers(tmp_path):
    record(tmp_path / "log")
    with envlogger.Reader(tmp_path / "log") as log:
        columns = log.columns(1)["observation"]
        assert columns["top"].shape == (40, *SHAPE)
        assert columns["robot"]["joints"].shape == (40, 7)
        for row in (0, 9, 10, 27, 39):
            top, wrist = Arm().frames(row)
            observation = log.steps[40 + row].timestep.observation
            np.testing.assert_array_equal(observation["top"], top)
            assert np.abs(observation["robot"]["wrist"].astype(int) - wrist).mean() < 12
            np.testing.assert_array_equal(columns["top"][row], top)
            np.testing.assert_array_equal(
                columns["robot"]["wrist"][row], observation["robot"]["wrist"]
            )
        steps = log.episodes[1][13:17]
        for row, step in enumerate(steps, 13):
            np.testing.assert_array_equal(step.timestep.observation["top"], Arm().frames(row)[0])
        rlds = log.columns(0, rlds=True)["observation"]
        np.testing.assert_array_equal(rlds["top"], columns["top"])
        joined = log.recorded_columns(0, 2)["observation"]
        np.testing.assert_array_equal(joined["top"][40:], columns["top"])
        observation = pickle.loads(pickle.dumps(log.backend)).steps[5].timestep.observation
        np.testing.assert_array_equal(observation["top"], columns["top"][5])
        assert log.observation_spec()["top"].shape == SHAPE
        video = log.metadata()["video"]["observation/top"]
        assert (video["codec"], video["lossless"], video["fps"]) == ("h264", True, 30)
    with envlogger.Reader(tmp_path / "log", video="packets") as log:
        packets = log.columns(0)["observation"]["top"]
        assert packets["since_key"].tolist() == [*range(10)] * 4
        frames = list(FrameDecoder("h264").decode(packets["packet"][20:]))
        np.testing.assert_array_equal(frames, columns["top"][20:])


def test_invalid_frames_are_refused_and_leave_no_trace(tmp_path):
    for name in ("nothing", "robot/joints"):
        with pytest.raises(ValueError, match=f"no camera '{name}'"):
            record(tmp_path / "none", video={name: Video()})
    with pytest.raises(ValueError, match="lossless"):
        Video(codec="av1", lossless=True)
    with pytest.raises(ValueError, match="codec"):
        Video(codec="h266")
    backends = []

    def make(metadata):
        backends.append(InMemoryBackendWriter(metadata=metadata))
        return backends[0]

    with VideoBackendWriter(make, {"observation": Video()}, SPEC) as writer:
        frame = np.zeros(SHAPE, np.uint8)

        def step(observation, action=None):
            return StepData(dm_env.restart(observation), action)

        writer.record_step(step(frame), True)
        for invalid_frame in (frame[:10], frame.astype(np.float32), None):
            with pytest.raises(UnsupportedValueError, match=r"expected a frame of uint8"):
                writer.record_step(step(invalid_frame), False)
        with pytest.raises(UnsupportedTypeError):
            writer.record_step(step(frame, action=object()), False)
        writer.record_step(step(frame), False)
        frame[...] = 9  # The writer has a copy.
        writer.record_step(step(frame), True)
        writer.discard_episode()
        writer.record_step(step(frame), True)
        writer.set_episode_metadata({"a": 1})
        writer.flush()
        observations = [each.timestep.observation for each in backends[0].steps]
    assert [each["since_key"] for each in observations] == [0, 1, 0]
    frames = list(FrameDecoder("h264").decode(each["packet"] for each in observations[:2]))
    assert not np.any(frames)


@pytest.mark.parametrize("when_behind", ["disk", "quality"])
def test_no_step_is_lost_where_the_encoder_is_slow(tmp_path, when_behind, monkeypatch):
    gate = threading.Event()
    encode = FrameEncoder.encode

    def encode_slowly(self, frame):
        gate.wait(0.02)
        return encode(self, frame)

    monkeypatch.setattr(FrameEncoder, "encode", encode_slowly)
    video = {"top": Video(quality=5, gop=5)}
    arguments = {"when_behind": when_behind, "max_pending_bytes": 3 * int(np.prod(SHAPE))}
    record(tmp_path / "log", 1, video=video, **arguments)
    with envlogger.Reader(tmp_path / "log") as log:
        [episode] = log.episodes
        errors = [
            np.abs(step.timestep.observation["top"].astype(int) - Arm().frames(row)[0]).mean()
            for row, step in enumerate(episode)
        ]
    assert len(errors) == 40
    assert max(errors) < 15
    if when_behind == "quality":
        assert errors[-1] > errors[0]


def test_a_failure_is_reported_by_the_next_call(tmp_path):
    class FailingWriter(InMemoryBackendWriter):
        def _record_step(self, data, is_new_episode):
            if len(self.steps) == num_written:
                raise StorageError("the disk is broken")
            super()._record_step(data, is_new_episode)

    frame = np.zeros(SHAPE, np.uint8)
    for num_written in (0, 1):
        writer = VideoBackendWriter(FailingWriter, {"observation": Video()}, SPEC)
        for index in range(num_written + 1):
            # The first call waits until its step is written.
            with (
                contextlib.nullcontext()
                if num_written
                else pytest.raises(StorageError, match="the disk is broken")
            ):
                writer.record_step(StepData(dm_env.restart(frame), None), index == 0)
        for _ in range(2):
            text = "is broken; the last 1 steps, .* are lost, too" if num_written else "is broken$"
            with pytest.raises(StorageError, match=text):
                writer.flush()
            with pytest.raises(StorageError, match=text):
                writer.record_step(StepData(dm_env.restart(frame), None), True)
        writer.close()


def test_a_log_keeps_its_kind_of_video(tmp_path):
    record(tmp_path / "log", 1)
    for video in (None, {"top": Video(codec="av1")}):
        with pytest.raises(StorageError, match="record to another directory"):
            record(tmp_path / "log", 1, video=video)
    with pytest.warns(UserWarning, match="keeps its metadata"):  # The quality may change.
        record(tmp_path / "log", 1, video={**VIDEO, "robot/wrist": Video(quality=30)})
    with envlogger.Reader(tmp_path / "log") as log:
        assert len(log.episodes) == 2
        assert log.columns(1)["observation"]["robot"]["wrist"].shape == (40, *SHAPE)


def test_av1_and_odd_frame_sizes_are_encoded():
    frames = [np.full((33, 47, 3), 5 * value, np.uint8) for value in range(7)]
    for video, size in ((Video(gop=3), (33, 47)), (Video(codec="av1", gop=3), (32, 46))):
        images = [np.ascontiguousarray(frame[: size[0], : size[1]]) for frame in frames]
        if video.codec == "av1":  # AV1 takes no smaller frames.
            images = [np.tile(frame, (4, 4, 1)) for frame in images]
        encoder = FrameEncoder(video, images[0].shape)
        packets = [encoder.encode(frame) for frame in images]
        encoder.close()
        assert [is_key for _, is_key in packets] == [True, False, False] * 2 + [True]
        decoded = list(FrameDecoder(video.codec).decode(packet for packet, _ in packets[3:]))
        for frame, expected in zip(decoded, images[3:]):
            assert frame.shape == expected.shape
            assert np.abs(frame.astype(int) - expected).max() < 12


def test_av1_keeps_sudden_changes():
    """Faster presets gave blocks of 16 pixels with wrong colors."""
    for video in (Video(codec="av1", gop=2), Video(codec="av1", gop=2).with_lower_quality()):
        frames = [np.full((48, 96, 3), 90, np.uint8) for _ in range(24)]
        for index, frame in enumerate(frames):
            for bit in range(12):
                y, x = divmod(bit, 6)
                square = frame[16 * y : 16 * (y + 1), 16 * x : 16 * (x + 1)]
                square[:] = 230 if (289 + 2 * index) >> bit & 1 else 20
        encoder = FrameEncoder(video, frames[0].shape)
        packets = [encoder.encode(frame)[0] for frame in frames]
        if os.path.isdir(tasks := "/proc/self/task"):  # SVT-AV1 would start real-time threads.
            policies = {os.sched_getscheduler(int(thread)) for thread in os.listdir(tasks)}
            assert policies == {os.SCHED_OTHER}
        encoder.close()
        for frame, actual in zip(frames, FrameDecoder("av1").decode(packets), strict=True):
            assert np.abs(actual.astype(int) - frame).max() < 12
