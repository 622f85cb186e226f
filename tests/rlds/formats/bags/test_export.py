"""MCAP files of episodes of any format, read with the mcap package."""

import numpy as np
import pytest
import raw_bags
import raw_npz
from clip_source import TOP, WRIST, ClipSource, pixels
from mcap.reader import make_reader
from mcap_ros2.decoder import DecoderFactory
from pictured_robot import PicturedRobot, psnr
from robot_source import RobotSource, with_fields

import rlds.sources
from rlds.sources import Episodes, Field, export
from rlds.sources.testing import differences
from rlds.sources.video_frames import with_frames
from rlds.video.encoding import encoded
from rlds.video.fields import clip_values
from rlds_ecosystem.model.fields import BGR
from rlds_ecosystem.model.nests import leaves_at
from rlds_ecosystem.video_codec import FrameDecoder, Video


def read_topics(file):
    """Returns the log times and messages of each topic."""
    messages = {}
    with file.open("rb") as opened:
        reader = make_reader(opened, decoder_factories=[DecoderFactory()])
        for _, channel, message, content in reader.iter_decoded_messages():
            messages.setdefault(channel.topic, []).append((message.log_time, content))
    return messages


def test_numbers_text_and_pixels_become_messages(tmp_path):
    sample = raw_npz.sample()
    path = raw_npz.write_folder(tmp_path / "raw", sample)
    exported = export(path, "mcap", tmp_path / "made", rate=4.0)
    sidecar = {placement.field for placement in exported.placements if placement.how == "sidecar"}
    assert sidecar == {"seed", "task", "goal"}
    assert rlds.sources.open(exported.path).format == "mcap"
    for index, raw in enumerate(sample.values()):
        topics = read_topics(tmp_path / "made" / f"episode_{index:06}.mcap")
        arm = np.array([it.data for _, it in topics["/action"]])
        assert arm.tobytes() == raw["action"].tobytes()
        times = [time for time, _ in topics["/reward"]]
        assert times == [row * raw_bags.SECOND // 4 for row in range(len(raw["reward"]))]
        assert [it.data for _, it in topics["/note"]] == raw["note"].tolist()
        for (_, it), image in zip(topics["/observation/camera"], raw["observation/camera"]):
            assert (it.width, it.height, it.encoding) == (5, 4, "rgb8")
            assert bytes(it.data) == image.tobytes()
    with pytest.raises(ValueError, match="rate: got 0"):
        export(path, "mcap", tmp_path / "more", rate=0)


def test_image_arrays_have_the_encodings_of_ros(tmp_path):
    class Robot(RobotSource):
        fields = with_fields(
            RobotSource.fields,
            {
                "observation/camera": Field(np.uint8, (6, 8, 3), names=BGR),
                "gray": Field(np.uint16, (6, 8, 1)),
            },
        )

        def read(self, *args):
            episode = super().read(*args)
            episode.steps["gray"] = episode.steps["observation"]["depth"] + 1
            return episode

    exported = export(Robot((3,)), "mcap", tmp_path / "made")
    (expected,), (copy,) = Episodes(Robot((3,))), rlds.sources.open(exported.path)
    assert list(differences(expected, copy)) == []
    topics = read_topics(tmp_path / "made" / "episode_000000.mcap")
    for path, name in {
        "observation/depth": "16UC1",
        "gray": "mono16",
        "observation/camera": "bgr8",
    }.items():
        (_, message), *_ = topics[f"/{path}"]
        assert (message.encoding, message.step) == (name, 8 * (3 if name == "bgr8" else 2))
        assert bytes(message.data) == dict(leaves_at(expected.steps, None))[path][0].tobytes()


def test_encoded_images_keep_their_bytes(tmp_path):
    rows = raw_bags.sample()
    episodes = rlds.sources.open(
        raw_bags.write_mcap(tmp_path / "a.mcap", rows), bag_config=raw_bags.CONFIG
    )
    exported = export(episodes, "mcap", tmp_path / "made")
    (copy,) = rlds.sources.open(exported.path)
    assert list(differences(episodes[0], copy)) == []
    actual = read_topics(tmp_path / "made" / "episode_000000.mcap")["/observation/image"]
    assert [time for time, _ in actual] == copy.steps["timestamp"].tolist()
    for (_, it), image in zip(actual, copy.steps["observation"]["image"]):
        assert (it.format, bytes(it.data)) == ("png", image)


def test_images_and_clips_become_video(tmp_path):
    exported = export(PicturedRobot((5,)), "mcap", tmp_path / "made", codec="h264")
    encoded = {placement.field for placement in exported.placements if placement.how == "encoded"}
    assert encoded == {"steps/observation/camera", "steps/observation/wrist"}
    actual = read_topics(tmp_path / "made" / "episode_000000.mcap")["/observation/camera"]
    assert [time for time, _ in actual] == [row * raw_bags.SECOND // 10 for row in range(6)]
    decode = FrameDecoder("h264").decode(bytes(it.data) for _, it in actual)
    for image, expected in zip(decode, PicturedRobot((5,)).frames("camera", 0), strict=True):
        assert psnr(image, expected) > 30
    assert {(it.format, it.frame_id) for _, it in actual} == {("h264", "observation/camera")}
    # The source decodes the video of MCAP files as well.
    copy = with_frames(rlds.sources.open(exported.path)).columns(0)["observation"]
    assert psnr(copy["wrist"], PicturedRobot((5,)).frames("wrist", 0)) > 30


def test_packets_of_clips_are_kept_unless_frames_are_reordered(tmp_path):
    class Streamed(ClipSource):
        """Clips of a stream, whose frames are in the order of their packets."""

        def read(self, split, index, fields=None, rows=slice(None)):
            episode = super().read(split, index)
            images = pixels(index)[TOP]
            clip = encoded(images, Video(gop=4), images.shape[1:])
            episode.metadata["video"]["observation"]["images"]["top"] = clip_values(clip)
            return episode

    for source in (Streamed(missing=None), ClipSource(missing=None)):  # The latter reorders frames.
        exported = export(source, "mcap", tmp_path / type(source).__name__, rate=30, codec="h264")
        episodes = with_frames(rlds.sources.open(exported.path))
        for index in range(3):
            columns = dict(leaves_at(episodes.columns(index), None))
            assert psnr(columns[WRIST], pixels(index, None)[WRIST]) > 30
            if isinstance(source, Streamed):
                expected = with_frames(Episodes(source)).columns(index, [TOP])
                assert np.array_equal(columns[TOP], dict(leaves_at(expected, None))[TOP])
            else:
                assert psnr(columns[TOP], pixels(index)[TOP]) > 30
