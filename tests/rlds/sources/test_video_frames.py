"""Pixels of steps equal files that are decoded completely."""

import pickle

import numpy as np
import pytest
from clip_source import EPISODES, TOP, WRIST, ClipSource, pixels
from videos import encoded

import rlds.feeds
import rlds.sources
from rlds.feeds import materialise
from rlds.sources import Episodes, SourceError, export
from rlds.sources.video_frames import with_frames
from rlds.video.container import Clip
from rlds.video.fields import cameras_of
from rlds_ecosystem.model.nests import lookup


def _check(episodes, cameras=(TOP, WRIST)):
    rng = np.random.default_rng(0)
    for index, (begin, end) in enumerate(EPISODES):
        expected, length = pixels(index), end - begin
        episode = episodes[index]
        for camera in cameras:
            np.testing.assert_array_equal(lookup(episode.steps, camera), expected[camera])
        for _ in range(8):
            start = int(rng.integers(length))
            stop = int(rng.integers(start, length + 4))
            marks = [f"{WRIST}_known"] if WRIST in cameras else []
            actual = episodes.columns(index, [*cameras, *marks, "action"], start, stop)
            for mark in marks:
                assert lookup(actual, mark).tolist() == [k != 3 for k in range(length)][start:stop]
            for camera in cameras:
                np.testing.assert_array_equal(lookup(actual, camera), expected[camera][start:stop])
            assert actual["action"].tolist() == episode.steps["action"][start:stop].tolist()
        actual = episodes.columns(index, ["observation"], 2, 4)["observation"]
        assert actual.keys() >= {"joints"}


def test_steps_contain_the_pixels():
    packets = Episodes(ClipSource())
    assert cameras_of(packets.source.fields.episode) == [TOP, WRIST]
    episodes = with_frames(packets)
    _check(episodes)
    _check(pickle.loads(pickle.dumps(episodes)))
    assert lookup(episodes.spec["steps"], TOP).shape == (48, 64, 3)
    assert episodes[0].metadata == episodes.peek(0).metadata == {"seed": 0}
    top_only = with_frames(packets, [TOP])
    _check(top_only, [TOP])
    assert WRIST in top_only[0].metadata["video"]
    with pytest.raises(KeyError, match=r"no video of 'front', only of \['observation/images/top"):
        with_frames(packets, ["front"])
    with pytest.raises(ValueError, match="the steps have a field"):
        with_frames(Episodes(_WithField()))


class _WithField(ClipSource):
    fields = ClipSource.fields.replace(steps={**ClipSource.fields.steps, WRIST: np.int64})


def test_tfds_dataset_keeps_the_clips(tmp_path):
    materialise(Episodes(ClipSource()), tmp_path / "dataset")
    episodes = rlds.sources.open(tmp_path / "dataset")
    stored, raw = (
        lookup(data[1].metadata, f"video/{TOP}/clip") for data in (episodes, Episodes(ClipSource()))
    )
    assert stored == raw
    _check(with_frames(episodes))
    _check(rlds.sources.open(tmp_path / "dataset", video="frames"))


def test_steps_without_a_frame_are_marked_and_their_pixels_are_refused(tmp_path):
    """Their pixels are readable only with a mark, and cannot be exported as video."""
    episodes = with_frames(Episodes(ClipSource()))
    assert episodes[1].steps[f"{WRIST}_known"].tolist() == [step != 3 for step in range(14)]
    assert episodes.columns(1, [WRIST], 4, 14)[WRIST].shape == (10, 48, 64, 3)
    with pytest.raises(
        SourceError, match=r"episode_1, row 3: the video has no frame for this step"
    ):
        episodes.columns(1, [WRIST])
    table = rlds.feeds.open(episodes)
    batch = table.steps().batch(np.arange(3, 5))
    assert batch[f"{WRIST}_known"].tolist() == [False, True]
    assert batch[WRIST].any(axis=(1, 2, 3)).tolist() == [False, True]
    samples = rlds.feeds.open(episodes, fields=[WRIST]).steps()
    assert samples.batch(np.arange(3))[WRIST].any()
    with pytest.raises(SourceError, match=f"read '{WRIST}_known', too"):
        samples.batch(np.arange(4))
    short = ClipSource(missing=None, clips={0: Clip(encoded("h264", 4))})
    for source, row in ((ClipSource(), 3), (short, 4)):
        with pytest.raises(SourceError, match=rf"row {row}: the video has no frame"):
            export(source, "mcap", tmp_path / "made", codec="h264")


def test_undecodable_clips_raise_errors_for_requested_frames_only():
    clips = {
        0: Clip(b"no video"),
        1: Clip(encoded("h264", 10)),  # Fewer frames than steps.
        2: Clip(encoded("h264"), 21),
    }
    episodes = with_frames(Episodes(ClipSource(clips=clips)))
    where = f"video/{TOP}, episode episode_"
    with pytest.raises(SourceError, match=f"{where}0: "):
        episodes.columns(0, [TOP])
    assert len(episodes.columns(1, [TOP], 0, 10)["observation"]["images"]["top"]) == 10
    with pytest.raises(SourceError, match=f"{where}1, row 13: the video has no frame 13, only 10"):
        episodes.columns(1, [TOP])
    with pytest.raises(SourceError, match=f"{where}1"):
        _ = episodes[1]
    actual = episodes.columns(2, [TOP])["observation"]["images"]["top"]
    np.testing.assert_array_equal(actual, pixels(2)[TOP])
    with pytest.raises(SourceError, match=r"no video|cannot be read"):
        with_frames(Episodes(ClipSource(clips=clips, num_episodes=1)))
