"""Clips of other formats in datasets of LeRobot."""

import json

import foreign_readers
import numpy as np
import pytest
from filmed_robot import FilmedSource
from lerobot_layout import check_layout

import rlds.sources
from rlds.sources import Episodes, export
from rlds.sources.testing import differences
from rlds.video.container import Clip, VideoFile, packets_of
from rlds.video.decoding import ClipReader

CAMERA = "video/observation/front"


def _clip_of(episode):
    clip = episode.metadata["video"]["observation"]["front"]
    return Clip(clip["clip"], int(clip["first"]))


@pytest.mark.parametrize(
    ("version", "codec", "counts"),
    [("v3.0", "unaligned", [6, 11, 17]), ("v2.1", "h264", [6, 4, 6]), ("v3.0", "av1", [15])],
)
def test_clips_are_exported_with_the_same_packets(tmp_path, version, codec, counts):
    source = FilmedSource(tmp_path, codec)
    exported = export(source, "lerobot", tmp_path / "made", version=version)
    placements = {placement.field: placement for placement in exported.placements}
    assert placements[f"{CAMERA}/clip"].place == "videos/observation.front/clip"
    assert {placement.how for placement in exported.placements} == {"exact", "sidecar"}
    result = rlds.sources.open(exported.path)
    ignored = {f"{CAMERA}/{name}" for name in ("clip", "first")}
    for original, copy in zip(Episodes(source), result, strict=True):
        assert list(differences(original, copy, ignored)) == []
        packets = [packets_of(_clip_of(episode)) for episode in (original, copy)]
        assert packets[0] == packets[1]
    # The videos have the frames of the rows, and the frames that these depend on.
    videos = (tmp_path / "made/videos").rglob("*.mp4")
    assert [VideoFile(file).info.num_frames for file in sorted(videos)] == counts
    check_layout(tmp_path / "made")
    info = json.loads((tmp_path / "made/meta/info.json").read_text())
    feature = info["features"]["observation.front"]
    codec = "av1" if codec == "av1" else "h264"
    assert (feature["dtype"], feature["shape"], feature["info"]["video.codec"]) == (
        "video",
        [32, 48, 3],
        codec,
    )


def test_clips_that_lerobot_cannot_read_are_refused_or_kept_in_the_sidecar(tmp_path):
    source = FilmedSource(tmp_path)
    with pytest.raises(
        ValueError, match=r"robot 0, video/observation/front: frame 1 is shown after"
    ):
        export(source, "lerobot", tmp_path / "made", fps=12.0)
    with pytest.raises(ValueError, match=r"after the last keyframe. Only version 3\.0"):
        export(source, "lerobot", tmp_path / "made", version="v2.1")
    exported = export(source, "lerobot", tmp_path / "kept", fps=12.0, to_sidecar=[CAMERA])
    assert {
        placement.how for placement in exported.placements if placement.field[:5] == "video"
    } == {"sidecar"}


_READ = """
import json, sys
import numpy as np
from lerobot.datasets.lerobot_dataset import LeRobotDataset
dataset = LeRobotDataset("a/b", root=sys.argv[1], video_backend="pyav")
frames = [dataset[row]["observation.front"].numpy() for row in range(len(dataset))]
np.save(sys.argv[2], frames)
print()
print(json.dumps(np.shape(dataset.meta.stats["observation.front"]["mean"])))
"""


@pytest.mark.slow
def test_lerobot_reads_the_frames_of_exported_clips(tmp_path):
    source = FilmedSource(tmp_path)
    export(source, "lerobot", tmp_path / "made")
    shape = foreign_readers.run("lerobot", _READ, tmp_path / "made", tmp_path / "read.npy")
    assert shape == [3, 1, 1]
    actual = np.load(tmp_path / "read.npy")
    with ClipReader(str(source.film)) as reader:
        frames = reader.frames(0, 17)
    rows = [*range(5), *range(6, 10), *range(10, 16)]
    assert np.array_equal(np.round(actual * 255), frames[rows].transpose(0, 3, 1, 2))
