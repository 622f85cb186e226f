"""Logs with video as episodes: edits and exports copy the packets."""

import numpy as np
import pytest
from camera_arm import SHAPE, Arm, record

import envlogger
import rlds
import rlds.sources
from rlds.editing import Delete, Set, Trim
from rlds.video.container import Clip
from rlds.video.encoding import stream_packets
from rlds_ecosystem.model.nests import lookup

pytest.importorskip("av")

CAMERAS = ("observation/top", "observation/robot/wrist")


def demux(path, index, camera, **options):
    """Returns the packets of an episode, as an encoder yields them."""
    video = lookup(rlds.sources.open(path, **options)[index].metadata, f"video/{camera}")
    return stream_packets(Clip(bytes(video["clip"]), int(video["first"])))[0]


@pytest.fixture(scope="module")
def log(tmp_path_factory):
    path = tmp_path_factory.mktemp("logs") / "log"
    record(path, 4, episode_fn=lambda timestep, action, env: {"instruction": "go"})
    return path


def test_clips_have_the_packets_of_the_steps(log):
    stored = envlogger.Reader(log, video="packets").columns(1)
    for camera in CAMERAS:
        assert demux(log, 1, camera) == lookup(stored, camera)["packet"].tolist()
    episodes = rlds.sources.open(log, video="frames")
    frames = episodes.columns(1, ["observation"], start=7, stop=23)["observation"]
    for row, frame in enumerate(frames["top"], 7):
        np.testing.assert_array_equal(frame, Arm().frames(row)[0])
    recorded = envlogger.Reader(log).columns(1)["observation"]
    np.testing.assert_array_equal(frames["robot"]["wrist"], recorded["robot"]["wrist"][7:23])
    flags = episodes.source.read("train", 0, ["steps/is_last"])
    assert "video" not in flags.metadata


def test_edits_copy_packets(log, tmp_path):
    target = tmp_path / "made"
    rlds.edit(
        log,
        Delete(episodes=[0]),
        Set("instruction", "stop", where="index = 1"),
        Trim(10, 30, where="index = 2"),
        Trim(5, 30, where="index = 3"),
        to=target,
    )
    for camera in CAMERAS:
        before = demux(log, 1, camera)
        assert demux(target, 0, camera) == before
        assert demux(target, 1, camera) == before[10:30]  # Row 10 is a keyframe.
    reader = envlogger.Reader(target)
    assert [episode["instruction"] for episode in reader.episode_metadata()] == ["stop", "go", "go"]
    for row, frame in enumerate(reader.columns(2)["observation"]["top"], 5):
        np.testing.assert_array_equal(frame, Arm().frames(row)[0])  # Encoded again, without loss.


@pytest.mark.parametrize("format", ["lerobot", "tfds"])
def test_exports_copy_packets(log, tmp_path, format):
    rlds.sources.export(log, format, tmp_path / "made")
    for index in (0, 3):
        for camera in CAMERAS:
            assert demux(tmp_path / "made", index, camera) == demux(log, index, camera)
    episodes = rlds.sources.open(tmp_path / "made", video="frames")
    assert episodes.columns(2, ["observation/top"])["observation"]["top"].shape == (40, *SHAPE)
    np.testing.assert_array_equal(
        episodes.columns(2, ["observation/top"], 11, 12)["observation"]["top"][0],
        Arm().frames(11)[0],
    )
