"""Signs of formats in files and their contents."""

import h5py
import numpy as np
import pytest

from rlds.sources.signs import FileSigns, Signs


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "meta").mkdir()
    (tmp_path / "meta" / "info.json").write_text('{"version": 2, "features": {}}')
    np.savez(tmp_path / "a.npz", **{"action/arm": np.zeros(3), "x": np.zeros(3)})
    deep = tmp_path / "lab" / "day" / "run"
    deep.mkdir(parents=True)
    with h5py.File(deep / "trajectory.h5", "w") as file:
        file["action/arm"] = np.zeros((3, 2))
    (tmp_path / ".hidden.npz").write_bytes(b"")
    return tmp_path


@pytest.mark.parametrize(
    ("signs", "expected"),
    [
        (FileSigns("meta/info.json"), True),
        (FileSigns("meta/info.json", ('"version" "features"',)), True),
        (FileSigns("meta/info.json", ('"version" "fields"', '"features"')), True),
        (FileSigns("meta/info.json", ('"fields"',)), False),
        (FileSigns("./info.json"), False),
        (FileSigns("nowhere/info.json *.npz", ("action",)), True),
        (FileSigns("*.npz", ("action x",)), True),
        (FileSigns("*.npz", ("observation",)), False),
        (FileSigns("*.npz", max_files=0), False),
        (FileSigns("**/trajectory.h5", ("action/arm:2 !reward",)), True),
        (FileSigns("**/trajectory.h5", ("action/arm:1",)), False),
        (FileSigns("trajectory.h5"), False),
    ],
    ids=str,
)
def test_signs_are_found_in_folders(folder, signs, expected):
    assert Signs(folder).has_file(signs) is expected


def test_signs_of_a_file_are_its_name_and_arrays(folder):
    file = Signs(folder / "lab" / "day" / "run" / "trajectory.h5")
    assert file.has_file(FileSigns("*.h5", ("action",)))
    assert not file.has_file(FileSigns("**/trajectory.h5"))
    assert not file.has_file(FileSigns("./trajectory.h5"))
    assert file.hdf5_names == ["action"]


def test_damage_of_a_file_is_reported(tmp_path):
    (tmp_path / "a.h5").write_bytes(b"\x89HDF\r\n\x1a\n" + bytes(99))
    signs = Signs(tmp_path / "a.h5")
    assert not signs.has_file(FileSigns("*.h5", ("action",)))
    assert "not a complete HDF5 file" in str(signs.damage)
