"""Cutting and joining clips, against whole files that PyAV decodes."""

import contextlib
import dataclasses
import hashlib
import io
import pickle

import av
import numpy as np
import pytest
from videos import CODECS, decoded, encoded

from rlds.sources import SourceError
from rlds.video.boxes import PacketTables, read_tables
from rlds.video.container import Clip, VideoFile, cut_clip, join_clips, packets_of
from rlds.video.packets import open_video, read_packets

RANGES = [(0, 7), (7, 21), (21, 40)]


def _demux(data):
    with av.open(io.BytesIO(data)) as container:
        return [bytes(packet) for packet in container.demux(video=0) if packet.size]


@pytest.mark.slow
@pytest.mark.parametrize("name", CODECS)
def test_clips_decode_alone_and_joined(name, tmp_path):
    data = encoded(name)
    frames, packets = decoded(data), _demux(data)
    path = tmp_path / "video.mp4"
    path.write_bytes(data)
    video = VideoFile(path)
    assert (video.info.codec, video.info.num_frames) == (name.split()[0], 40)
    assert (video.info.width, video.info.height, video.info.fps) == (64, 48, 30)
    np.testing.assert_allclose(video.times, np.arange(40) / 30, atol=1e-6)
    clips = [video.clip(*frames) for frames in RANGES]
    for (begin, end), clip in zip(RANGES, clips, strict=True):
        clip_packets = _demux(clip.data)
        offset = next(i for i in range(40) if packets[i : i + len(clip_packets)] == clip_packets)
        assert clip.num_frames == end - begin
        actual = decoded(clip.data)
        # Some decoders skip frames that refer to frames before the keyframe.
        skip = clip.first - (len(clip_packets) - len(actual))
        np.testing.assert_array_equal(actual[skip:][: end - begin], frames[begin:end])
        assert offset + len(clip_packets) <= 40

    output = tmp_path / "again.mp4"
    times = join_clips(clips, output)
    assert _demux(output.read_bytes()) == [p for clip in clips for p in _demux(clip.data)]
    joined = VideoFile(output)
    assert joined.info.num_frames == sum(len(_demux(clip.data)) for clip in clips)
    num_packets = 0
    for clip, time in zip(clips, times, strict=True):
        np.testing.assert_allclose(joined.times[num_packets + clip.first], time, atol=1e-9)
        num_packets += len(_demux(clip.data))


@pytest.mark.parametrize("movflags", [None, "faststart", "frag_keyframe+empty_moov"])
def test_clips_are_cut_from_files_with_sound_and_fragments(movflags, tmp_path):
    video = VideoFile(encoded(audio=True, movflags=movflags))
    assert video.info.has_audio
    clips = [video.clip(0, 12), video.clip(24, 40)]
    assert not VideoFile(clips[0].data).info.has_audio
    for joined in (clips, clips[1:], [clips[0], clips[0]]):
        join_clips(joined, tmp_path / "again.mp4")
        expected = [packet for clip in joined for packet in _demux(clip.data)]
        assert _demux((tmp_path / "again.mp4").read_bytes()) == expected


def test_a_clip_of_all_frames_is_the_file(tmp_path):
    data = encoded(audio=True)
    clip = VideoFile(data).clip(0, 40)
    assert clip == Clip(data, 0, 40)
    assert VideoFile(encoded("h264 long")).clip(30, 40) == Clip(encoded("h264 long"), 30, 10)
    assert join_clips([clip], tmp_path / "again.mp4") == [0.0]
    assert (tmp_path / "again.mp4").read_bytes() == data


def test_clips_that_one_file_cannot_hold_are_refused(tmp_path):
    with pytest.raises(SourceError, match=r"clip 1: VideoInfo.*expected VideoInfo"):
        join_clips([Clip(encoded("h264")), Clip(encoded("av1"))], tmp_path / "both.mp4")
    info = VideoFile(encoded()).info
    assert info.can_follow(VideoFile(encoded(seed=1)).info)
    assert not info.can_follow(VideoFile(encoded("h264 g=2")).info)  # Other parameters.
    with pytest.raises(SourceError, match="clip: needs frames 30 to 50, but the video has 40"):
        join_clips([Clip(encoded(), 30, 20)], tmp_path / "short.mp4")


def test_truncated_file_has_its_complete_frames(tmp_path):
    data = encoded(movflags="faststart")  # Its tables come first.
    video = VideoFile(data[: len(data) * 2 // 3], name="cut.mp4")
    num_frames = video.info.num_frames
    assert 12 < num_frames < 40
    assert "was cut" in video.fault
    clip = video.clip(0, num_frames)
    np.testing.assert_array_equal(decoded(clip.data)[:num_frames], decoded(data)[:num_frames])
    with pytest.raises(SourceError, match=f"cut.mp4: needs frames 0 to 40.* {num_frames} .*cut"):
        video.clip(0, 40)
    with pytest.raises(SourceError, match=r"no\.mp4: cannot be read"):
        _ = VideoFile(encoded()[:-300], name="no.mp4").info  # Its tables would come last.
    with pytest.raises(SourceError, match="clip: the video was cut"):
        join_clips([Clip(data[: len(data) * 2 // 3])], tmp_path / "again.mp4")


def test_files_with_false_tables_are_refused():
    data = bytearray(encoded())
    for table, message in {
        b"stsz": "'stsz' is of 4,294,967,295 samples",
        b"stts": "'stts' is of ",
    }.items():
        offset = data.index(table)
        hostile = data.copy()
        hostile[offset + 12 : offset + 16] = b"\xff" * 4
        with pytest.raises(SourceError, match=message):
            _ = VideoFile(bytes(hostile)).info
    playlist = b"#EXTM3U\n#EXTINF:1,\nfile:///etc/hostname\n"
    for junk in (b"", b"x", playlist, encoded()[4:], bytes(data[:200])):
        with pytest.raises(SourceError):
            _ = VideoFile(junk).info
    sound = io.BytesIO()
    with av.open(sound, "w", format="mp4") as container:
        stream = container.add_stream("aac", rate=8000, layout="mono")
        frame = av.AudioFrame.from_ndarray(np.zeros((1, 1024), np.float32), "fltp", "mono")
        frame.sample_rate = 8000
        container.mux(stream.encode(frame))
        container.mux(stream.encode())
    with pytest.raises(SourceError, match="the file has no video"):
        _ = VideoFile(sound.getvalue()).info


def test_random_damage_raises_a_source_error():
    rng = np.random.default_rng(0)
    intact = encoded()
    for _ in range(60):
        data = bytearray(intact)
        begin = int(rng.integers(len(data)))
        if rng.random() < 0.7:  # Tables are where damage hurts.
            begin = data.index(b"moov") + int(rng.integers(len(data) - data.index(b"moov") - 8))
        data[begin : begin + 4] = rng.bytes(4)
        video = VideoFile(bytes(data))
        with contextlib.suppress(SourceError):
            video.clip(0, min(12, video.info.num_frames))


def test_several_sample_descriptions_are_detected():
    """PyAV before 16 does not show where packets of another kind begin."""
    data = bytearray(encoded())
    count = data.index(b"stsd") + 8
    assert not read_tables(io.BytesIO(data), len(data), "video").have_several_descriptions
    data[count : count + 4] = (2).to_bytes(4, "big")
    actual = read_tables(io.BytesIO(data), len(data), "video")
    assert actual == PacketTables(are_in_order=False, have_several_descriptions=True)
    if not hasattr(av.Packet, "has_sidedata"):
        with pytest.raises(SourceError, match="needs PyAV 16"):
            _ = VideoFile(bytes(data)).info


def test_frames_hidden_by_an_edit_list_are_left_out():
    data = bytearray(encoded())
    offset = data.index(b"elst") + 16  # Version, number, duration; then the begin in the stream.
    start = int.from_bytes(data[offset : offset + 4], "big")
    data[offset : offset + 4] = (start + 5 * 512).to_bytes(4, "big")
    video = VideoFile(bytes(data))
    assert video.info.num_frames == len(decoded(bytes(data))) == 35
    clip = video.clip(2, 7)
    assert clip.first == 7
    np.testing.assert_array_equal(decoded(clip.data)[7:12], decoded(encoded())[7:12])


def test_a_pickled_video_file_cuts_the_same_clips(tmp_path):
    path = tmp_path / "video.mp4"
    path.write_bytes(encoded())
    video = VideoFile(path)
    copy = pickle.loads(pickle.dumps(video))
    assert copy.clip(12, 20) == video.clip(12, 20)
    digest = hashlib.sha256(copy.clip(12, 20).data).digest()
    assert digest == hashlib.sha256(VideoFile(encoded()).clip(12, 20).data).digest()


@pytest.mark.slow
def test_system_errors_of_ffmpeg_count_as_damage():
    """FFmpeg refuses to seek in some files, with an error that usually means missing rights."""
    data = encoded("h264", 10)
    for offset in range(data.index(b"moov"), len(data), 3):
        damaged = bytearray(data)
        damaged[offset] ^= 0x55
        with contextlib.suppress(SourceError):
            VideoFile(bytes(damaged)).clip(0, 5)


@pytest.mark.parametrize("movflags", [None, "faststart", "frag_keyframe+empty_moov"])
@pytest.mark.parametrize("name", ["h264", "h264 g=2", "av1"])
def test_packet_tables_agree_with_the_packets_read(name, movflags):
    intact = encoded(name, audio=True, movflags=movflags)
    for data in (intact, intact[: len(intact) * 3 // 4])[: 1 + (movflags == "faststart")]:
        actual = []
        for by_tables in (True, False):
            with open_video(data, "video") as (container, stream, size, tables):
                is_in_order = name != "h264" and movflags != "frag_keyframe+empty_moov"
                assert tables.are_in_order == is_in_order
                assumed = tables._replace(are_in_order=is_in_order and by_tables)
                packets = read_packets(container, stream, size, assumed)
                actual.append(dataclasses.asdict(packets))
        assert actual[0]["fault"] == actual[1]["fault"]
        assert bool(actual[0].pop("fault")) == (data is not intact)
        for column, values in actual[0].items():
            np.testing.assert_array_equal(values, actual[1][column], err_msg=column)


@pytest.mark.parametrize("name", ["h264", "h264 g=2", "h264 long"])
def test_steps_of_an_episode_are_cut_out_of_its_clip(name):
    """Frames and packets equal those that `VideoFile` cuts out of the video."""
    data = encoded(name)
    episode = VideoFile(data).clip(5, 35)
    for begin, end in [(0, 30), (3, 11), (29, 30)]:
        actual = cut_clip(episode, begin, end)
        assert actual.num_frames == end - begin
        frames = decoded(actual.data)[actual.first :][: end - begin]
        np.testing.assert_array_equal(frames, decoded(data)[5 + begin : 5 + end])
        assert packets_of(actual) == VideoFile(data).packets(5 + begin, 5 + end)
    with pytest.raises(ValueError, match="got 3, 31, expected a range of 30 frames"):
        cut_clip(episode, 3, 31)
