import os

import pytest

from rlds_ecosystem.files.mapping import map_file


def test_mapped_memory_outlives_its_file(tmp_path):
    file = tmp_path / "file"
    file.write_bytes(b"some bytes")
    memory, state = map_file(file)
    view = memory[5:]
    assert state.st_size == len(memory) == 10
    assert memory.readonly
    del memory
    os.replace(tmp_path / "file", tmp_path / "other")
    (tmp_path / "other").unlink()
    assert bytes(view) == b"bytes"


def test_folders_and_missing_files_are_not_mapped(tmp_path):
    (tmp_path / "empty").touch()
    assert not map_file(tmp_path / "empty")[0]
    for path in (tmp_path, tmp_path / "nothing"):
        with pytest.raises(OSError, match=str(path)):
            map_file(path)


def test_writes_to_mapped_memory_reach_the_file(tmp_path):
    (tmp_path / "file").write_bytes(b"some bytes")
    memory, _ = map_file(tmp_path / "file", writable=True)
    memory[:4] = b"more"
    assert (tmp_path / "file").read_bytes() == b"more bytes"
