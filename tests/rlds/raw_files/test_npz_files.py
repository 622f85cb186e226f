"""NumPy files: reading, false headers and replaced files."""

import os
import pickle
import zipfile

import numpy as np
import pytest
from etils import epath

from rlds.raw_files.npz_files import NpzRows, open_npz, parse_npy, read_npy
from rlds.sources import SourceChangedError, SourceError

ARRAYS = {
    "numbers": np.arange(12, dtype=">f8").reshape(4, 3),
    "text": np.array(["a", "ü"]),
    "scalar": np.int8(3),
    "columns": np.asfortranarray(np.arange(6).reshape(2, 3)),
    "none": np.zeros((0, 4), np.float32),
}


@pytest.mark.parametrize("save", [np.savez, np.savez_compressed])
def test_arrays_and_ranges_of_rows_are_read(tmp_path, save):
    save(tmp_path / "a.npz", **ARRAYS)
    with open_npz(tmp_path / "a.npz") as file:
        for name, expected in ARRAYS.items():
            array = file.read(name)
            assert array.dtype == (object if name == "text" else expected.dtype.newbyteorder("="))
            assert array.flags.writeable
            np.testing.assert_array_equal(array, expected)
    rows = pickle.loads(pickle.dumps(NpzRows(tmp_path / "a.npz")))
    for begin, end in ((1, 3), (3, 4), (0, 2)):
        np.testing.assert_array_equal(
            rows.rows("numbers", begin, end), ARRAYS["numbers"][begin:end]
        )
    assert rows.rows("scalar", 0, 1).tolist() == [3]
    with pytest.raises(SourceError, match="field 'columns': the array is in Fortran order"):
        rows.rows("columns", 0, 1)
    np.savez(tmp_path / "b.npz", numbers=np.zeros(3))
    copy = pickle.loads(pickle.dumps(rows))
    os.replace(tmp_path / "b.npz", tmp_path / "a.npz")
    with pytest.raises(SourceChangedError, match=r"a\.npz"):
        copy.rows("numbers", 0, 1)


def test_shapes_that_contradict_the_number_of_bytes_are_refused(tmp_path):
    np.save(tmp_path / "a.npy", np.zeros((3, 4)))
    data = (tmp_path / "a.npy").read_bytes().replace(b"(3, 4)", b"(9, 4)")
    with zipfile.ZipFile(tmp_path / "a.npz", "w") as archive:
        archive.writestr("x.npy", data)
    message = r"field 'x': the number of bytes does not fit shape \(9, 4\)"
    with pytest.raises(SourceError, match=message), open_npz(tmp_path / "a.npz"):
        pass
    with pytest.raises(SourceError, match="96 bytes do not fit"):
        parse_npy(data, epath.Path(tmp_path / "a.npy"))
    (tmp_path / "a.npy").write_bytes(data)
    with pytest.raises(SourceError, match="96 bytes do not fit"):
        read_npy(tmp_path / "a.npy")
