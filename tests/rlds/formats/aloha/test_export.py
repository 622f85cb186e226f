"""Files of ALOHA that are made again, and episodes of others in them."""

import h5py
import numpy as np
import pytest
import raw_aloha
import raw_npz
from hdf5_dump import dump

import rlds.sources
import tfds_builders
from rlds.formats.aloha.source import AlohaSource
from rlds.formats.npz.source import NpzSource
from rlds.sources.exporting import differences, export
from rlds.sources.source import SourceError


def check_same_files(one, other):
    names = sorted(file.name for file in one.glob("*.hdf5"))
    assert names == sorted(file.name for file in other.iterdir())
    for name in names:
        assert dump(one / name) == dump(other / name)


def write_raw(directory, images):
    raw_aloha.write_folder(directory, images=images, mobile=True, attributes={"by": "ü"})
    with h5py.File(directory / "episode_2.hdf5", "a") as file:
        qvel = file["observations/qvel"][:]
        del file["observations/qvel"]
        file["observations"].create_dataset("qvel", data=qvel, compression="gzip", chunks=(1, 14))
        file["observations/qvel"].attrs["unit"] = np.bytes_("rad/s")
        file.attrs["another"] = 3
    for name in ("episode_0", "episode_2", "episode_10"):
        with h5py.File(directory / f"{name}.hdf5", "a") as file:
            file["calibration/cam_high"] = np.eye(3)
            file["notes"] = ["a", "ü"]
            file.create_group("nothing")
    return directory


@pytest.mark.parametrize("images", ["plain", "padded", "rows", "matrix"])
def test_files_are_made_again(tmp_path, images):
    path = write_raw(tmp_path / "raw", images)
    options = {"colour": "bgr", "instruction": "open the lid"}
    made = export(path, "aloha", tmp_path / "made", source_options=options)
    assert {place.how for place in made.placements} == {"exact"}
    check_same_files(path, tmp_path / "made")


@pytest.mark.slow
@pytest.mark.parametrize("images", ["plain", "padded", "rows"])
def test_files_are_made_again_of_a_dataset(tmp_path, images):
    path = write_raw(tmp_path / "raw", images)
    built = tfds_builders.convert(AlohaSource(path), name="toy", data_dir=tmp_path / "tfds")
    export(built.data_path, "aloha", tmp_path / "made")
    check_same_files(path, tmp_path / "made")


def test_a_key_leads_nowhere_else(tmp_path, monkeypatch):
    path = raw_aloha.write_folder(tmp_path / "raw", {0: 2})
    monkeypatch.setattr(AlohaSource, "key", lambda self, split, index: "../../secret")
    with pytest.raises(ValueError, match=r"secret': no name of a file of ALOHA"):
        export(path, "aloha", tmp_path / "made")


def test_episodes_of_others(tmp_path):
    path = raw_npz.write_folder(tmp_path / "raw", raw_npz.sample())
    with pytest.raises(ValueError, match=r"no field for 'observations/qpos'.*observation/joints'"):
        export(path, "aloha", tmp_path / "made")
    fields = {"observations/qpos": "observation/joints"}
    made = export(path, "aloha", tmp_path / "made", fields=fields, sim=True)
    how = {place.field: (place.place, place.how) for place in made.placements}
    assert how["steps/observation/camera"] == ("observation/images/camera", "exact")
    assert how["steps/reward"] == ("", "sidecar")
    names = [f"episode_{number}.hdf5" for number in range(3)]
    assert sorted(file.name for file in (tmp_path / "made").iterdir()) == [*names, "rlds"]
    # As the loader of ACT reads it.
    with h5py.File(tmp_path / "made" / names[1]) as file, np.load(path / "episode_2.npz") as raw:
        assert file.attrs["sim"]
        assert file["/action"].shape == raw["action"].shape
        np.testing.assert_array_equal(file["/observations/qpos"][1], raw["observation/joints"][1])
        frame = file["/observations/images/camera"][2]
        np.testing.assert_array_equal(frame, raw["observation/camera"][2])
        assert len(file["/observations/images/camera"]) == len(raw["action"])
    found = rlds.sources.open(tmp_path / "made")
    assert found.format == "aloha"
    for one, two in zip(rlds.sources.Episodes(NpzSource(path)), found, strict=True):
        assert one.origin == two.origin
        assert list(differences(one, two)) == []


def test_images_that_are_files(tmp_path):
    """Of another format: they are padded, as forks of ALOHA store them."""
    path = raw_aloha.write_folder(tmp_path / "raw", {0: 3, 1: 2}, images="rows")
    fields = {"observations/qpos": "observation/qvel", "observations/qvel": "observation/qpos"}
    export(path, "aloha", tmp_path / "made", fields=fields)
    with (
        h5py.File(path / "episode_0.hdf5") as raw,
        h5py.File(tmp_path / "made" / "episode_0.hdf5") as file,
    ):
        assert file.attrs["compress"]
        rows = file["observations/images/cam_high"][:]
        assert rows.dtype == np.uint8
        for row, data in zip(rows, raw["observations/images/cam_high"]):
            assert row[: len(data)].tobytes() == data.tobytes()
        assert file["compress_len"].shape == (3, 3)
        np.testing.assert_array_equal(file["observations/qpos"], raw["observations/qvel"])


def test_damaged_files_are_left_out(tmp_path):
    path = raw_aloha.write_folder(tmp_path / "raw")
    damaged = path / "episode_2.hdf5"
    damaged.write_bytes(damaged.read_bytes()[:-2000])
    with pytest.raises(SourceError, match=r"episode_2\.hdf5"):
        export(path, "aloha", tmp_path / "made")
    with pytest.warns(UserWarning, match="1 episode is damaged and left out"):
        made = export(path, "aloha", tmp_path / "made", skip_damaged=True)
    assert (made.num_episodes, len(made.left_out)) == (2, 1)
    damaged.unlink()
    check_same_files(path, tmp_path / "made")
