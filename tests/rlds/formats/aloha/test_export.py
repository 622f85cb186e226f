"""Exports of ALOHA files, from episodes of ALOHA and of another format."""

import h5py
import numpy as np
import pytest
import raw_aloha
import raw_npz

import rlds.sources
import tfds_builders
from rlds.editing import Delete, Set
from rlds.sources import export
from rlds.sources.testing import differences

AlohaSource = rlds.sources.formats()["aloha"].load()
NpzSource = rlds.sources.formats()["npz"].load()

NAMES = ("episode_0", "episode_2", "episode_10")


def check_same_values(original_path, exported_path):
    """Compares the arrays and attributes of two files; the second may have additional ones."""

    def compare(name, item):
        if name.startswith(("calibration", "notes", "compress_len")):
            return  # Not in the second file.
        actual = exported[name]
        for key, value in item.attrs.items():
            np.testing.assert_array_equal(actual.attrs[key], value)
            assert actual.attrs.get_id(key).dtype == item.attrs.get_id(key).dtype
        if isinstance(item, h5py.Group):
            return
        if "images/" in name and item.ndim < 4:  # Files, which are padded in other ways.
            actual, item = (
                [row.tobytes().rstrip(b"\0") for row in rows] for rows in (actual, item)
            )
            assert actual == item
            return
        assert actual.dtype == item.dtype
        np.testing.assert_array_equal(actual, item)

    with h5py.File(original_path) as raw, h5py.File(exported_path) as exported:
        compare("/", raw)
        raw.visititems(compare)


def write_raw(directory, images):
    raw_aloha.write_folder(directory, images=images, mobile=True, attributes={"by": "ü"})
    for name in NAMES:
        with h5py.File(directory / f"{name}.hdf5", "a") as file:
            file["calibration/cam_high"] = np.eye(3)
            file["notes"] = ["a", "ü"]
            file.attrs["fans"] = np.arange(2, dtype=np.int16)
            file.attrs["words"] = ["a", "ü"]
    with h5py.File(directory / "episode_2.hdf5", "a") as file:
        file["observations/qvel"].attrs["unit"] = np.bytes_("rad/s")
        file.attrs["another"] = 3
    return directory


@pytest.mark.slow
@pytest.mark.parametrize("images", ["plain", "padded", "rows", "matrix"])
def test_exported_files_have_the_values_of_the_originals(tmp_path, images):
    path = write_raw(tmp_path / "raw", images)
    options = {"colour": "bgr", "instruction": "open the lid"}
    export(path, "aloha", tmp_path / "made", source_options=options)
    exported = rlds.sources.open(tmp_path / "made")
    assert exported.metadata["aloha"]["options"] == {**options, "joint_names": None}
    assert [episode.key for episode in exported] == list(NAMES)
    for index, episode in enumerate(exported):
        check_same_values(path / f"{episode.key}.hdf5", tmp_path / f"made/episode_{index}.hdf5")
        np.testing.assert_array_equal(episode.metadata["calibration"]["cam_high"], np.eye(3))
        assert episode.metadata["notes"].tolist() == ["a", "ü"]


@pytest.mark.slow
def test_tfds_dataset_of_aloha_is_exported_with_the_same_values(tmp_path):
    path = write_raw(tmp_path / "raw", "padded")
    built = tfds_builders.convert(AlohaSource(path), name="toy", data_dir=tmp_path / "tfds")
    export(built.data_path, "aloha", tmp_path / "made")
    assert [episode.key for episode in rlds.sources.open(tmp_path / "made")] == list(NAMES)
    for index, episode in enumerate(rlds.sources.open(tmp_path / "made")):
        check_same_values(path / f"{episode.key}.hdf5", tmp_path / f"made/episode_{index}.hdf5")


def test_wrong_attributes_are_refused_and_fixed_length_texts_are_kept(tmp_path):
    path = raw_aloha.write_folder(tmp_path / "raw")
    for file in path.glob("*.hdf5"):
        with h5py.File(file, "a") as opened:
            opened["notes"] = np.array([b"a", "ü".encode()], h5py.string_dtype("utf-8", 4))
    assert rlds.sources.open(path).spec["notes"].dtype == np.dtype(str)
    with pytest.raises(ValueError, match="other_attributes: got 'new', expected JSON"):
        rlds.edit(path, Set("other_attributes", "new"))
    rlds.edit(path, Delete(episodes=[0]))
    for episode in rlds.sources.open(path):
        assert episode.metadata["notes"].tolist() == ["a", "ü"]


def test_episodes_of_other_formats_are_exported_with_named_fields(tmp_path):
    path = raw_npz.write_folder(tmp_path / "raw", raw_npz.sample())
    with pytest.raises(ValueError, match=r"no field for 'observations/qpos'.*observation/joints'"):
        export(path, "aloha", tmp_path / "made")
    fields = {"observations/qpos": "observation/joints"}
    exported = export(path, "aloha", tmp_path / "made", fields=fields, sim=True)
    placements = {each.field: (each.place, each.how) for each in exported.placements}
    assert placements["steps/observation/camera"] == ("observation/images/camera", "exact")
    assert placements["steps/reward"] == ("reward", "exact")
    assert placements["steps/note"] == ("", "sidecar")
    names = [f"episode_{index}.hdf5" for index in range(3)]
    assert sorted(file.name for file in (tmp_path / "made").glob("[!.]*")) == names
    # As the loader of ACT reads it.
    with h5py.File(tmp_path / "made" / names[1]) as file, np.load(path / "episode_2.npz") as raw:
        assert file.attrs["sim"]
        assert file["/action"].shape == raw["action"].shape
        np.testing.assert_array_equal(file["/observations/qpos"][1], raw["observation/joints"][1])
        frame = file["/observations/images/camera"][2]
        np.testing.assert_array_equal(frame, raw["observation/camera"][2])
        assert len(file["/observations/images/camera"]) == len(raw["action"])
    episodes = rlds.sources.open(tmp_path / "made")
    assert episodes.format == "aloha"
    for original, episode in zip(rlds.sources.Episodes(NpzSource(path)), episodes, strict=True):
        assert original.origin == episode.origin
        assert list(differences(original, episode)) == []


def test_encoded_images_are_padded_as_aloha_forks_store_them(tmp_path):
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
