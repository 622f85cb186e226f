"""Formats that share HDF5 and its suffixes recognize only their own files."""

from pathlib import Path

import h5py
import numpy as np
import pytest
import raw_aloha
import raw_d4rl
import raw_maniskill
import raw_robomimic
import raw_robomind

import rlds.sources
from rlds.sources import SourceError, format_of, formats


def write_all(root):
    """Yields paths, and the format of each."""
    aloha = raw_aloha.write_folder(root / "aloha", {0: 2})
    yield from ((path, "aloha") for path in (aloha, aloha / "episode_0.hdf5"))
    maniskill = raw_maniskill.write(root / "maniskill" / "t.h5", {0: 2})
    yield from ((path, "maniskill") for path in (maniskill, maniskill.parent))
    robomind = raw_robomind.write_folder(root / "robomind", {"train/1": 2})
    file = next(robomind.rglob("*.hdf5"))
    yield from (
        (path, "robomind") for path in (root / "robomind", robomind, file, *file.parents[:3])
    )
    robomimic = root / "robomimic" / "demo.hdf5"
    robomimic.parent.mkdir()
    raw_robomimic.robomimic(robomimic)
    yield from ((path, "robomimic") for path in (robomimic, robomimic.parent))
    arrays = {**raw_d4rl.transitions((3, 2), 3, 2), "terminals": raw_d4rl.flags(5, 2)}
    yield raw_d4rl.write(root / "hopper.hdf5", arrays), "d4rl"


def test_each_hdf5_file_is_recognized_by_one_format(tmp_path):
    for path, expected in write_all(tmp_path):
        actual = [name for name, format in formats().items() if format.recognizes(path)]
        assert actual == [expected], path


CITY = b"K\xf6ln"  # In Latin-1.


@pytest.mark.parametrize(
    ("write", "groups"),
    [
        (lambda path: raw_robomimic.robomimic(path / "a.hdf5"), ["data", "data/demo_0"]),
        (lambda path: raw_robomimic.robomimic(path / "a.hdf5"), ["/", "data/demo_0/actions"]),
        (lambda path: raw_maniskill.write(path / "a.h5", {0: 2}), ["/", "traj_0"]),
        (lambda path: raw_d4rl.mujoco_v2(path / "a.hdf5"), ["/", "rewards", "infos"]),
    ],
)
def test_attributes_that_are_no_utf_8_keep_their_bytes(tmp_path, write, groups):
    path = write(tmp_path)
    with h5py.File(path, "a") as file:
        for group in groups:
            file[group].attrs["city"] = np.bytes_(CITY)
            file[group].attrs["cities"] = np.array([CITY, b"Bonn"])
            file[group].attrs.create("ascii", CITY, dtype=h5py.string_dtype("ascii"))
    name = f"copy{path.suffix.removesuffix('.h5')}"  # ManiSkill is a folder.
    exported = rlds.sources.export(path, format_of(path), tmp_path / name)
    copy = Path(exported.path)
    with h5py.File(next(copy.glob("*.h5")) if copy.is_dir() else copy) as file:
        for group in groups:
            actual = file[group].attrs
            texts = [actual["city"], actual["ascii"], *actual["cities"]]
            stored = [t.encode(errors="surrogateescape") if type(t) is str else t for t in texts]
            assert stored == [CITY, CITY, CITY, b"Bonn"]


def test_a_text_that_is_no_utf_8_is_an_error(tmp_path):
    path = raw_robomimic.robomimic(tmp_path / "a.hdf5")
    with h5py.File(path, "a") as file:
        file["data/demo_0"].attrs.create("city", CITY, dtype=h5py.string_dtype())
    with pytest.raises(SourceError, match=r"demo_0, field 'city': b'K\\xf6ln', expected UTF-8"):
        rlds.sources.open(path)[0]


@pytest.mark.parametrize("name", ["episode_0.hdf5", "t.h5", "data/trajectory.hdf5"])
def test_file_names_alone_identify_no_format(tmp_path, name):
    (tmp_path / name).parent.mkdir(exist_ok=True)
    with h5py.File(tmp_path / name, "w") as file:
        file["something"] = np.zeros(3)
    for path in (tmp_path, tmp_path / name):
        with pytest.raises(SourceError, match="unknown format"):
            format_of(path)
