"""Images with the channels blue, green, red equal plain reversals of their last axis."""

import dataclasses

import h5py
import numpy as np
import pytest
import raw_aloha
from pictured_robot import PicturedRobot, psnr
from robot_source import with_fields

import rlds.sources
from rlds.sources import Episodes, export
from rlds.sources.testing import differences
from rlds.sources.video_frames import with_frames
from rlds_ecosystem.model.fields import BGR
from rlds_ecosystem.model.nests import lookup

CAMERA = "observation/images/cam_low"
NOTE = "its channels are blue, green, red"


def why(exported, path):
    (placement,) = (
        placement for placement in exported.placements if placement.field == f"steps/{path}"
    )
    return placement.why


@pytest.mark.parametrize("images", ["rows", "plain"])
def test_images_are_exported_red_first(images, tmp_path):
    """Images of LeRobot, and copies of pixels, are RGB; other formats declare BGR."""
    raw_aloha.write_folder(tmp_path / "raw", images=images)
    episodes = rlds.sources.open(tmp_path / "raw", colour="bgr")
    assert lookup(episodes.spec["steps"], CAMERA).names == BGR
    stored = lookup(episodes.columns(0), CAMERA)
    exports = {"lerobot": export(episodes, "lerobot", tmp_path / "lerobot", fps=50)}
    exports["webdataset"] = export(episodes, "webdataset", tmp_path / "webdataset")
    exports["robomimic"] = export(episodes, "robomimic", tmp_path / "made.hdf5")
    exports["zarr"] = export(episodes, "zarr", tmp_path / "made.zarr")
    assert why(exports["lerobot"], CAMERA) == "red first, which was last"
    pictures = rlds.sources.open(exports["lerobot"].path)
    np.testing.assert_array_equal(lookup(pictures.columns(0), CAMERA), stored[..., ::-1])
    assert lookup(pictures.spec["steps"], CAMERA).names is None
    for name in ("webdataset", "robomimic", "zarr"):
        reopened = rlds.sources.open(exports[name].path)
        assert list(differences(episodes[0], reopened[0])) == []
        assert lookup(reopened.spec["steps"], CAMERA).names == BGR
        assert "red first" in why(exports[name], CAMERA) or NOTE in why(exports[name], CAMERA)
    with h5py.File(tmp_path / "made.hdf5") as file:
        copy = file["data/demo_0/obs/images.cam_low"][()]
    np.testing.assert_array_equal(copy, stored[..., ::-1] if images == "rows" else stored)


def test_encoded_video_has_the_channel_order_of_its_field(tmp_path):
    class Robot(PicturedRobot):
        images = PicturedRobot.fields.steps["observation"]
        fields = with_fields(
            PicturedRobot.fields,
            {
                "observation/camera": dataclasses.replace(images["camera"], names=BGR),
                "observation/wrist": dataclasses.replace(images["wrist"], names=BGR),
            },
        )

    episodes = Episodes(Robot((5,)))
    for format in ("lerobot", "mcap"):
        exported = export(episodes, format, tmp_path / format, codec="h264")
        images = with_frames(rlds.sources.open(exported.path)).columns(0)["observation"]
        for name in ("camera", "wrist"):
            expected = PicturedRobot((5,)).frames(name, 0)[..., ::-1]
            assert psnr(images[name], expected[: len(images[name])]) > 30
            assert "red first, which was last" in why(exported, f"observation/{name}")
    in_sidecar = export(episodes, "lerobot", tmp_path / "kept", to_sidecar=["observation/wrist"])
    (reopened,) = rlds.sources.open(in_sidecar.path)
    files, stored = (it.steps["observation"]["wrist"].tolist() for it in (reopened, episodes[0]))
    assert files == stored
