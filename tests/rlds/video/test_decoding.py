"""Ranges of frames, against whole files that PyAV decodes."""

import io

import av
import numpy as np
import pytest
from videos import CODECS, decoded, encoded

from rlds.sources import SourceError
from rlds.video.container import VideoFile
from rlds.video.decoding import ClipReader


@pytest.mark.parametrize("name", CODECS)
def test_any_frames_can_be_read_in_any_order(name):
    frames, clip = decoded(encoded(name)), VideoFile(encoded(name)).clip(7, 31)
    rng = np.random.default_rng(0)
    with ClipReader(clip.data) as reader:
        assert reader.info.shape == frames.shape[1:]
        assert reader.info.dtype == frames.dtype
        begins = [*range(0, 24, 3), *rng.integers(0, 24, 30), 5, 8, 11, 9, 23, 0]
        for begin in begins:
            end = min(begin + int(rng.integers(1, 9)), 24)
            np.testing.assert_array_equal(
                reader.frames(clip.first + begin, clip.first + end), frames[7 + begin : 7 + end]
            )
        assert reader.frames(4, 4).shape == (0, 48, 64, 3)
        for begin, end in ((-1, 3), (5, 3), (0, len(reader) + 1)):
            with pytest.raises(IndexError):
                reader.frames(begin, end)


def test_depth_keeps_its_bits():
    rng = np.random.default_rng(0)
    depth = rng.integers(0, 4096, (5, 48, 64), np.uint16)
    file = io.BytesIO()
    with av.open(file, "w", format="mp4") as container:
        options = {"x265-params": "lossless=1:log-level=none"}
        stream = container.add_stream("libx265", rate=30, options=options)
        stream.width, stream.height, stream.pix_fmt = 64, 48, "gray12le"
        for image in depth:
            frame = av.VideoFrame(64, 48, "gray12le")
            rows = np.zeros((48, frame.planes[0].line_size // 2), "<u2")
            rows[:, :64] = image
            frame.planes[0].update(rows)
            container.mux(stream.encode(frame))
        container.mux(stream.encode())
    with ClipReader(file.getvalue()) as reader:
        frames = reader.frames(1, 4)
    assert frames.dtype == np.uint16
    np.testing.assert_array_equal(frames[..., 0], depth[1:4])


def test_intact_frames_around_damaged_ones_are_readable():
    data = bytearray(encoded("h264 g=2"))
    with av.open(io.BytesIO(bytes(data))) as container:
        packets = [(packet.pos, packet.size) for packet in container.demux(video=0) if packet.size]
    pos, size = packets[20]
    data[pos + 4 : pos + size] = bytes(size - 4)
    expected = decoded(encoded("h264 g=2"))
    with ClipReader(bytes(data), "robot.mp4") as reader:
        for _ in range(2):  # Intact frames stay readable after an error.
            np.testing.assert_array_equal(reader.frames(0, 20), expected[:20])
            np.testing.assert_array_equal(reader.frames(22, 40), expected[22:])
            with pytest.raises(SourceError, match=r"robot\.mp4"):
                reader.frames(15, 25)
    with pytest.raises(SourceError, match=r"robot\.mp4"):
        ClipReader(bytes(data[:3000]), "robot.mp4")
