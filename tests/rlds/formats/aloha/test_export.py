"""Files of ALOHA that are written, of episodes of ALOHA and of others."""

import h5py
import numpy as np
import pytest
import raw_aloha
import raw_npz

import rlds.sources
import tfds_builders
from rlds.formats.aloha.source import AlohaSource
from rlds.formats.npz.source import NpzSource
from rlds.sources.exporting import differences, export
from rlds.sources.source import SourceError

NAMES = ("episode_0", "episode_2", "episode_10")


def check_same_values(one, other):
    """Compares the arrays and attributes of two files; the second may have more."""

    def compare(name, item):
        found = made[name]
        for key, value in item.attrs.items():
            assert found.attrs[key] == value
            assert found.attrs.get_id(key).dtype == item.attrs.get_id(key).dtype
        if not isinstance(item, h5py.Dataset) or name == "compress_len":
            return
        if "images/" in name and item.ndim < 4:  # Files, which are padded in other ways.
            files, expected = (
                [row.tobytes().rstrip(b"\0") for row in rows] for rows in (found, item)
            )
            assert files == expected
            return
        assert found.dtype == item.dtype
        np.testing.assert_array_equal(found, item)

    with h5py.File(one) as raw, h5py.File(other) as made:
        compare("/", raw)
        raw.visititems(compare)


def write_raw(directory, images):
    raw_aloha.write_folder(directory, images=images, mobile=True, attributes={"by": "ü"})
    with h5py.File(directory / "episode_2.hdf5", "a") as file:
        file["observations/qvel"].attrs["unit"] = np.bytes_("rad/s")
        file.attrs["another"] = 3
    return directory


@pytest.mark.parametrize("images", ["plain", "padded", "rows", "matrix"])
def test_files_hold_what_they_held(tmp_path, images):
    path = write_raw(tmp_path / "raw", images)
    options = {"colour": "bgr", "instruction": "open the lid"}
    export(path, "aloha", tmp_path / "made", source_options=options)
    for number, name in enumerate(NAMES):
        check_same_values(path / f"{name}.hdf5", tmp_path / "made" / f"episode_{number}.hdf5")
    made = rlds.sources.open(tmp_path / "made")
    assert [episode.key for episode in made] == list(NAMES)
    assert made.metadata["aloha"]["options"] == {**options, "joint_names": None}


def test_other_arrays_come_back(tmp_path):
    path = raw_aloha.write_folder(tmp_path / "raw")
    for name in NAMES:
        with h5py.File(path / f"{name}.hdf5", "a") as file:
            file["calibration/cam_high"] = np.eye(3)
            file["notes"] = ["a", "ü"]
            file.attrs["fans"] = np.arange(2, dtype=np.int16)
            file.attrs["words"] = ["a", "ü"]
    export(path, "aloha", tmp_path / "made")
    for episode in rlds.sources.open(tmp_path / "made"):
        np.testing.assert_array_equal(episode.metadata["calibration"]["cam_high"], np.eye(3))
        assert episode.metadata["notes"].tolist() == ["a", "ü"]
    with h5py.File(tmp_path / "made" / "episode_1.hdf5") as file:
        assert file.attrs["fans"].dtype == np.int16
        assert file.attrs["words"].tolist() == ["a", "ü"]


@pytest.mark.slow
@pytest.mark.parametrize("images", ["plain", "padded"])
def test_files_of_a_dataset(tmp_path, images):
    path = write_raw(tmp_path / "raw", images)
    built = tfds_builders.convert(AlohaSource(path), name="toy", data_dir=tmp_path / "tfds")
    export(built.data_path, "aloha", tmp_path / "made")
    keys = [episode.key for episode in rlds.sources.open(tmp_path / "made")]
    for number, name in enumerate(keys):
        check_same_values(path / f"{name}.hdf5", tmp_path / "made" / f"episode_{number}.hdf5")


def test_episodes_of_others(tmp_path):
    path = raw_npz.write_folder(tmp_path / "raw", raw_npz.sample())
    with pytest.raises(ValueError, match=r"no field for 'observations/qpos'.*observation/joints'"):
        export(path, "aloha", tmp_path / "made")
    fields = {"observations/qpos": "observation/joints"}
    made = export(path, "aloha", tmp_path / "made", fields=fields, sim=True)
    how = {place.field: (place.place, place.how) for place in made.placements}
    assert how["steps/observation/camera"] == ("observation/images/camera", "exact")
    assert how["steps/reward"] == ("reward", "exact")
    assert how["steps/note"] == ("", "sidecar")
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
    keys = [episode.key for episode in rlds.sources.open(tmp_path / "made")]
    assert keys == ["episode_0", "episode_10"]
