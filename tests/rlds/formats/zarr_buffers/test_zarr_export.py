"""Exports to Zarr, from Zarr buffers and from other formats."""

import json
import zipfile

import foreign_readers
import numpy as np
import pytest
import raw_npz
import raw_zarr
import zarr

import rlds.sources
import tfds_builders
from rlds.sources import export, reading
from rlds.sources.testing import differences

NpzSource = rlds.sources.formats()["npz"].load()


def read_files(path):
    """Returns all files of a hierarchy."""
    if path.is_dir():
        paths = [file for file in path.rglob("*") if file.is_file()]
        return {file.relative_to(path).as_posix(): file.read_bytes() for file in paths}
    with zipfile.ZipFile(path) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def check_same(original, copy):
    """Compares arrays, their attributes, and the bytes of image chunks."""
    old_files, new_files = read_files(original), read_files(copy)
    for name, data in old_files.items():
        if name.endswith(".zattrs"):
            assert json.loads(data) in ({}, json.loads(new_files.get(name, "{}")))
        elif "camera0_rgb" in name:
            assert new_files[name] == data or json.loads(new_files[name]) == json.loads(data)
    arrays, expected = raw_zarr.read_all(original), raw_zarr.read_all(copy)
    for name, array in arrays.items():
        assert expected[name].dtype == array.dtype
        np.testing.assert_array_equal(expected[name], array, err_msg=name)


@pytest.mark.parametrize(
    ("write", "suffix", "target_suffix"),
    [
        (raw_zarr.write_pusht, ".zarr", ".zarr.zip"),
        (raw_zarr.write_umi, ".zarr.zip", ".zarr"),
    ],
)
def test_zarr_buffers_survive_an_export(tmp_path, write, suffix, target_suffix):
    path = write(tmp_path / f"raw{suffix}")
    exported = export(path, "zarr", tmp_path / f"made{target_suffix}")
    check_same(path, tmp_path / f"made{target_suffix}")
    assert {
        placement.how for placement in exported.placements if placement.field != "steps/discount"
    } == {"exact"}
    decoded = export(path, "zarr", tmp_path / "decoded", source_options={"images": "frames"})
    arrays = raw_zarr.read_all(tmp_path / "decoded")
    for name, array in raw_zarr.read_all(path).items():
        np.testing.assert_array_equal(arrays[name], array)
    assert decoded.num_steps == 12


@pytest.mark.slow
def test_an_aborted_episode_is_exported_as_incomplete(tmp_path):
    path = raw_zarr.write_pusht(tmp_path / "raw.zarr", aborted=3)
    export(path, "zarr", tmp_path / "made.zarr")
    arrays = raw_zarr.read_all(tmp_path / "made.zarr")
    assert arrays["meta/episode_ends"].tolist() == [4, 6, 12, 15]  # As readers require.
    episodes = rlds.sources.open(tmp_path / "made.zarr")
    assert [episode.complete for episode in episodes] == [True] * 3 + [False]
    subset = export(path, "zarr", tmp_path / "part.zarr", split="train[1:3]")
    assert [episode.key for episode in rlds.sources.open(subset.path)] == ["episode_1", "episode_2"]


@pytest.mark.slow
def test_fields_that_zarr_buffers_cannot_hold_are_kept_in_the_sidecar(tmp_path):
    """Final observations, flags, text and arrays of other lengths are in the sidecar."""
    path = raw_npz.write_folder(tmp_path / "raw", raw_npz.sample())
    actual = export(path, "zarr", tmp_path / "made.zarr.zip")
    placements = {
        placement.field: (placement.place, placement.how) for placement in actual.placements
    }
    assert placements["steps/observation/camera"] == ("data/camera", "exact")
    assert placements["steps/info/qpos"] == ("data/info_qpos", "exact")
    assert placements["steps/note"] == ("", "sidecar")
    episodes = rlds.sources.open(tmp_path / "made.zarr.zip")
    for old, new in zip(reading.episodes(NpzSource(path), "train", "0-3"), episodes, strict=True):
        assert list(differences(old, new)) == []
    arrays = raw_zarr.read_all(tmp_path / "made.zarr.zip")
    assert arrays["meta/episode_ends"].tolist() == [3, 8, 12]
    assert arrays["data/action"].shape == (12, 2)
    columns = episodes.columns(1, ["observation/joints", "note"], 4, 6)
    assert len(columns["note"]) == 2
    reexport = export(episodes, "zarr", tmp_path / "again.zarr", compressor="default")
    assert (reexport.num_episodes, reexport.num_steps) == (3, 15)


def test_episodes_of_one_step_and_reserved_names_are_exported(tmp_path):
    """An episode without a transition has no row; names of UMI arrays are reserved."""
    arrays = {"observation/a_demo_start_pose": np.arange(3.0), "action": np.arange(2)}
    files = {"0.npz": arrays, "1.npz": {name: array[:1] for name, array in arrays.items()}}
    files["1.npz"]["action"] = arrays["action"][:0]
    path = raw_npz.write_folder(tmp_path / "raw", files)
    exported = export(path, "zarr", tmp_path / "made.zarr")
    assert (exported.num_episodes, exported.num_steps) == (2, 4)
    assert raw_zarr.read_all(tmp_path / "made.zarr").keys() > {"data/a_demo_start_pose_rows"}


@pytest.mark.slow
def test_zarr_buffers_survive_a_conversion_to_tfds(tmp_path):
    """Images become PNG files there, and text becomes bytes."""
    for write in (raw_zarr.write_pusht, raw_zarr.write_umi):
        path = write(tmp_path / f"{write.__name__}.zarr")
        builder = tfds_builders.convert(
            rlds.sources.open(path).source, name=write.__name__, data_dir=tmp_path / "data"
        )
        target = tmp_path / f"{write.__name__}_again.zarr"
        export(builder.data_path, "zarr", target)
        check_same(path, target)
    npz = raw_npz.write_folder(tmp_path / "raw", raw_npz.sample())
    builder = tfds_builders.convert(NpzSource(npz), name="npz", data_dir=tmp_path / "data")
    export(builder.data_path, "zarr", tmp_path / "npz.zarr")
    arrays = raw_zarr.read_all(tmp_path / "npz.zarr")
    keys = [episode.key for episode in rlds.sources.open(tmp_path / "npz.zarr")]
    assert {*keys} == raw_npz.sample().keys()  # A dataset has them in another order.
    camera = np.concatenate([raw_npz.sample()[key]["observation/camera"][:-1] for key in keys])
    np.testing.assert_array_equal(arrays["data/camera"], camera)


def test_bytes_that_are_not_utf_8_are_kept(tmp_path):
    path = raw_zarr.write_pusht(tmp_path / "a.zarr")
    names = np.array([b"x", b"\xff", b"yy", b""])
    array = zarr.open_group(path)["meta"].create_array("names", shape=(4,), dtype=names.dtype)
    array[:] = names
    export(path, "zarr", tmp_path / "b.zarr")
    values = rlds.sources.open(tmp_path / "b.zarr").metadata["zarr"]["values"]
    assert values["meta/names"] == {"dtype": "|S2", "values": ["x", "\\xff", "yy", ""]}


READ = """
import json, sys
import numpy as np
import zarr

sums = []
for path in sys.argv[1:]:
    root = zarr.open(path, "r")
    ends = root["meta"]["episode_ends"][:]
    for name, array in root["data"].items():
        assert array.shape[0] == ends[-1], name
    copy = zarr.group(zarr.MemoryStore())
    zarr.copy_store(source=root.store, dest=copy.store, source_path="/meta", dest_path="/meta")
    copy.create_group("data", overwrite=True)
    for name in root["data"].keys():
        key = "/data/" + name
        if getattr(root["data"][name].compressor, "codec_id", "")[:11] != "imagecodecs":
            sums.append([path, name, float(root["data"][name][:].astype("f8").sum())])
        zarr.copy_store(source=root.store, dest=copy.store, source_path=key, dest_path=key)
    assert (copy["meta"]["episode_ends"][:] == ends).all()
print(json.dumps(sums))
"""


@pytest.mark.slow
def test_zarr_2_reads_exports_as_diffusion_policy_does(tmp_path):
    path = raw_npz.write_folder(tmp_path / "raw", raw_npz.sample())
    export(path, "zarr", tmp_path / "other.zarr.zip")
    export(raw_zarr.write_pusht(tmp_path / "raw.zarr"), "zarr", tmp_path / "again.zarr")
    paths = [tmp_path / "other.zarr.zip", tmp_path / "again.zarr"]
    sums = foreign_readers.run("zarr", READ, *paths)
    assert len(sums) >= 14
    for file, name, total in sums:
        array = raw_zarr.read_all(next(p for p in paths if str(p) == file))[f"data/{name}"]
        assert total == pytest.approx(array.astype("f8").sum())
