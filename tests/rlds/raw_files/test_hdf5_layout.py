"""Groups of HDF5 files as JSON, and made again."""

import json

import h5py
import numpy as np
import pytest
from hdf5_dump import dump

from rlds.raw_files.hdf5_access import Hdf5File
from rlds.raw_files.hdf5_layout import group_layout, layout_changes, make_group, with_changes
from rlds.raw_files.untrusted import SourceError


def write(path):
    with h5py.File(path, "w", track_order=True) as file:
        file.attrs["sim"] = False
        file.attrs.create("names", ["ä", "b"])
        file.attrs["nothing"] = h5py.Empty("f4")
        group = file.create_group("z/inner", track_order=True)
        group.create_dataset(
            "numbers", data=np.arange(12, dtype=">f8").reshape(4, 3), maxshape=(None, 3),
            chunks=(2, 3), compression="gzip", compression_opts=5, shuffle=True,
        )  # fmt: skip
        group.create_dataset("a", data=np.array([True, False]), compression="lzf")
        group["a"].attrs["unit"] = np.bytes_("m")
        files = file.create_dataset("files", (3,), h5py.vlen_dtype(np.uint8))
        for row, data in enumerate([b"ab\0", b"", b"cd\0"]):
            files[row] = np.frombuffer(data, np.uint8)
        file["text"] = ["ü", ""]
        file["fixed"] = np.array([b"ab", b"c"], "S3")
        file["scalar"] = np.int8(3)
        file["empty"] = h5py.Empty("i8")
        file["no rows"] = np.zeros((0, 2), "f4")
    return path


def test_a_group_is_made_again(tmp_path):
    hdf5 = Hdf5File(write(tmp_path / "a.hdf5"))
    with hdf5.read() as file:
        layout = json.loads(json.dumps(group_layout(hdf5, file)))
        assert layout["z/inner"] == {"ordered": True}
        assert layout["empty"] == {"dtype": "<i8", "empty": True}
        with h5py.File(tmp_path / "b.hdf5", "w", track_order=layout[""]["ordered"]) as made:
            make_group(made, layout, lambda path, facts: file[path][()])
    assert dump(tmp_path / "b.hdf5") == dump(tmp_path / "a.hdf5")


def test_what_differs_from_another_layout(tmp_path):
    first = {"": {}, "x": {"dtype": "<f4"}, "y": {"dtype": "<f4", "chunks": [1]}}
    other = {"": {}, "y": {"dtype": "<f4", "chunks": [2]}, "z": {"dtype": "<i8"}}
    changes = layout_changes(other, first)
    assert changes == {"x": None, "y": {"dtype": "<f4", "chunks": [2]}, "z": {"dtype": "<i8"}}
    assert with_changes(first, changes) == other
    assert layout_changes(first, first) == {}


def test_what_cannot_be_kept(tmp_path):
    with h5py.File(tmp_path / "a.hdf5", "w") as file:
        file.create_dataset("rows", (2,), h5py.vlen_dtype(np.int32))
    hdf5 = Hdf5File(tmp_path / "a.hdf5")
    with pytest.raises(SourceError, match="'rows': rows of different lengths"), hdf5.read() as file:
        group_layout(hdf5, file)
