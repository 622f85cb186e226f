"""Images of other formats as LeRobot video."""

import dataclasses
import json
import os
import types

import foreign_readers
import numpy as np
import pytest
import raw_lerobot as raw
from clip_source import TOP, WRIST, ClipSource, pixels
from lerobot_layout import check_layout
from pictured_robot import SHAPES, PicturedRobot, psnr

import rlds.sources
from rlds.editing import Drop, Rename
from rlds.feeds.compat.gr00t import ShardedSingleStepDataset
from rlds.formats.lerobot.export import LeRobotExport
from rlds.sources import Episodes, Field, SourceError, export
from rlds.sources.testing import differences
from rlds.sources.video_frames import with_frames
from rlds.video.container import VideoFile
from rlds_ecosystem.model.nests import leaves_at
from rlds_ecosystem.video_codec import FrameEncoder

CAMERAS = ("camera", "wrist")


@pytest.mark.parametrize(
    ("options", "codec", "quality"),
    [
        ({"codec": "av1", "fps": 12.5}, "av1", 30),
        ({"codec": "h264", "version": "v2.1", "quality": 18, "gop": 4}, "h264", 18),
    ],
)
def test_images_become_video(tmp_path, options, codec, quality):
    source = PicturedRobot((5, 3, 7))
    exported = export(source, "lerobot", tmp_path / "made", **options)
    encoded = {
        placement.field: str(placement)
        for placement in exported.placements
        if placement.how == "encoded"
    }
    assert encoded == {
        f"steps/observation/{name}": f"steps/observation/{name} -> videos/observation.{name} "
        f"(encoded: {codec}, quality {quality})"
        for name in CAMERAS
    }
    # Grey images and depths stay images; no other field changes.
    check_layout(tmp_path / "made")
    info = json.loads((tmp_path / "made/meta/info.json").read_text())
    kinds = {name: feature["dtype"] for name, feature in info["features"].items()}
    assert kinds["observation.depth"] == "image"
    result = rlds.sources.open(exported.path)
    fields = {f"steps/observation/{name}" for name in CAMERAS}
    clips = {f"video/observation/{name}/{key}" for name in CAMERAS for key in ("clip", "first")}
    with_images = with_frames(result)
    for index, (original, copy) in enumerate(zip(Episodes(source), result, strict=True)):
        assert list(differences(original, copy, fields | clips)) == []
        columns = with_images.columns(index)["observation"]
        for name in CAMERAS:  # Including the image of the final observation.
            assert columns[name].shape == (original.num_steps, *SHAPES[name])
            for frame, image in zip(columns[name], source.frames(name, index), strict=True):
                assert psnr(frame, image) > 25
    for name in CAMERAS:
        feature = info["features"][f"observation.{name}"]
        assert (feature["dtype"], feature["shape"]) == ("video", list(SHAPES[name]))
        assert feature["info"]["video.codec"] == codec
        videos = sorted((tmp_path / "made/videos").rglob("*.mp4"))
        files = [file for file in videos if f"observation.{name}" in os.fspath(file)]
        assert len(files) == (3 if options.get("version") else 1)
        # Images of final observations are left out: other readers count the frames.
        counts = [VideoFile(file).info.num_frames for file in files]
        assert sum(counts) == info["total_frames"]
        _, packets = VideoFile(files[0]).index()
        gop = options.get("gop", 2)
        assert packets.is_key[:6:gop].all()


def test_statistics_describe_the_images(tmp_path):
    source = PicturedRobot((9,))
    path = export(source, "lerobot", tmp_path / "made", codec="h264", quality=10).path
    actual = json.loads((tmp_path / "made/meta/stats.json").read_text())
    images = source.frames("camera", 0)[:9] / 255
    stats = actual["observation.camera"]
    assert stats["count"] == [9]
    assert np.allclose(np.squeeze(stats["mean"]), images.mean((0, 1, 2)), atol=0.01)
    assert np.allclose(np.squeeze(stats["q90"]), np.quantile(images, 0.9, (0, 1, 2)), atol=0.02)
    # Fields that are LeRobot video already are copied.
    result = export(path, "lerobot", tmp_path / "again", codec="h264")
    assert {placement.how for placement in result.placements} == {"exact", "sidecar"}


def test_clips_without_frames_of_all_steps_are_encoded_again(tmp_path):
    source = ClipSource(missing=None)
    exported = export(source, "lerobot", tmp_path / "made", codec="h264", fps=30, quality=10)
    placements = {placement.field: placement.how for placement in exported.placements}
    assert (placements[f"steps/{WRIST}"], placements[f"video/{TOP}/clip"]) == ("encoded", "exact")
    with_images = with_frames(rlds.sources.open(exported.path))
    for index in range(3):
        columns = dict(leaves_at(with_images.columns(index), None))
        assert np.array_equal(columns[TOP], pixels(index)[TOP])
        assert psnr(columns[WRIST], pixels(index, None)[WRIST]) > 30
    in_sidecar = LeRobotExport(
        Episodes(source), codec="h264", fps=30, to_sidecar=[f"video/{WRIST}"]
    ).placements()
    assert {placement.how for placement in in_sidecar} == {"exact", "sidecar"}


def test_images_of_varying_size_cannot_become_video(tmp_path):
    class Growing(PicturedRobot):
        varying = Field(np.uint8, (None, None, 3), encoding="png")
        fields = PicturedRobot.fields.replace(
            steps={**PicturedRobot.fields.steps, "observation": {"wrist": varying}}
        )

        def frames(self, camera, index):
            return super().frames(camera, index)[:, : 20 + 10 * index]

        def read(self, split, index, fields=None, rows=slice(None)):
            episode = super().read(split, index)
            wrist = episode.steps["observation"]["wrist"]
            if index == self.bad:
                wrist[2] = wrist[2][:60]
            return dataclasses.replace(
                episode, steps={**episode.steps, "observation": {"wrist": wrist}}
            )

    source = Growing((5, 4), fps=10)
    source.bad = None
    match = r"robot 1, video/observation/wrist: frames of \[30, 47, 3\], but \[20"
    with pytest.raises(ValueError, match=match):
        export(source, "lerobot", tmp_path / "made", codec="h264")
    to_sidecar = ["video/observation/wrist"]  # As the error advises.
    exported = export(source, "lerobot", tmp_path / "made", codec="h264", to_sidecar=to_sidecar)
    assert "encoded" not in {placement.how for placement in exported.placements}
    source.bad = 0
    with pytest.raises(SourceError, match="robot 0"):
        export(source, "lerobot", tmp_path / "other", codec="h264")
    assert not (tmp_path / "other").exists()
    for options, message in (
        ({"quality": 20}, "quality: pass codec"),
        ({"codec": "h264", "quality": 99}, "quality: got 99"),
    ):
        with pytest.raises(ValueError, match=message):
            LeRobotExport(Episodes(source), **options)


def test_frames_that_the_encoder_shifts_are_an_error(tmp_path, monkeypatch):
    put, frames = FrameEncoder.put, []

    def put_late(self, frame):  # Repeats the preceding frame.
        frames.append(frame)
        return put(self, frames[max(len(frames) - 2, 0)])

    monkeypatch.setattr(FrameEncoder, "put", put_late)
    source = PicturedRobot((4,))
    with pytest.raises(SourceError, match="have the frames of the preceding steps"):
        export(source, "lerobot", tmp_path / "made", codec="h264", to_sidecar=["observation/wrist"])


def test_the_modality_file_of_gr00t_is_written(tmp_path):
    path = tmp_path / "made"
    source = PicturedRobot((4,))
    export(source, "lerobot", path, codec="h264", version="v2.1", modality=True)
    modality = json.loads((path / "meta/modality.json").read_text())
    assert modality["state"]["arm"] == {"start": 0, "end": 2}
    assert modality["state"]["gripper"] == {"start": 2, "end": 3}
    assert modality["action"] == {"action": {"start": 0, "end": 2}}
    assert modality["video"]["camera"] == {"original_key": "observation.camera"}
    groups = {"video": ["camera"], "state": ["arm", "gripper"], "action": ["action"]}
    groups["language"] = ["annotation.human.action.task_description"]
    configs = {
        kind: types.SimpleNamespace(modality_keys=keys, delta_indices=[0])
        for kind, keys in groups.items()
    }
    dataset = ShardedSingleStepDataset(path, "robot", configs)
    dataset.set_processor(lambda messages: messages[0]["content"])
    item = dataset.get_datapoint(0, 1)
    assert item.text == "pick"
    assert item.states["arm"].shape == (1, 2)
    assert psnr(item.images["camera"][0], source.frames("camera", 0)[1]) > 25


def test_the_modality_file_follows_renamed_and_dropped_cameras(tmp_path):
    raw.write_v3(tmp_path / "raw", codecs={raw.TOP: "h264"})
    raw.write_modality(tmp_path / "raw")
    path = raw.TOP.replace(".", "/")
    front = {"top": {"original_key": "observation.images.front"}}
    for name, operation, video in (
        ("renamed", Rename(f"video/{path}", "video/observation/images/front"), front),
        ("dropped", Drop(f"video/{path}"), {}),
    ):
        rlds.edit(tmp_path / "raw", operation, to=tmp_path / name)
        actual = json.loads((tmp_path / name / "meta/modality.json").read_text())
        assert actual == {**raw.MODALITY, "video": video}


_READ = """
import json, sys
import numpy as np
from lerobot.datasets.dataset_tools import delete_episodes
from lerobot.datasets.lerobot_dataset import LeRobotDataset
dataset = LeRobotDataset("a/b", root=sys.argv[1], video_backend="pyav")
frames = {name: [] for name in ("camera", "wrist")}
for row in range(len(dataset)):
    item = dataset[row]
    for name in frames:
        frames[name].append(item["observation." + name].numpy())
np.savez(sys.argv[2], **frames)
deleted = delete_episodes(dataset, [0], output_dir=sys.argv[3], repo_id="a/c")
print()
print(json.dumps([dataset.num_episodes, item["task"], deleted.num_frames]))
"""


@pytest.mark.slow
@pytest.mark.parametrize("codec", ["av1", "h264"])
def test_lerobot_reads_encoded_images(tmp_path, codec):
    source = PicturedRobot((5, 3, 7))
    image_fields = ["observation/grid", "observation/depth"]  # lerobot cannot delete with these.
    export(source, "lerobot", tmp_path / "made", codec=codec, to_sidecar=image_fields)
    paths = tmp_path / "made", tmp_path / "read.npz", tmp_path / "less"
    assert foreign_readers.run("lerobot", _READ, *paths) == [3, "place", 10]
    for name, frames in np.load(tmp_path / "read.npz").items():
        images = [source.frames(name, index)[:n] for index, n in enumerate(source.lengths)]
        expected = np.concatenate(images)
        assert frames.shape == (15, 3, *SHAPES[name][:2])
        for frame, image in zip(frames, expected, strict=True):
            assert psnr(np.moveaxis(frame * 255, 0, -1), image) > 25
