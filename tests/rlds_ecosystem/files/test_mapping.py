import os

import pytest

from rlds_ecosystem.files.mapping import map_file


def test_what_is_mapped_is_there_as_long_as_it_is_needed(tmp_path):
    file = tmp_path / "file"
    file.write_bytes(b"some bytes")
    memory, state = map_file(file)
    part = memory[5:]
    assert state.st_size == len(memory) == 10
    assert memory.readonly
    del memory
    os.replace(tmp_path / "file", tmp_path / "other")
    (tmp_path / "other").unlink()
    assert bytes(part) == b"bytes"


def test_folders_and_missing_files_are_not_mapped(tmp_path):
    (tmp_path / "empty").touch()
    assert not map_file(tmp_path / "empty")[0]
    for wrong in (tmp_path, tmp_path / "nothing"):
        with pytest.raises(OSError, match=str(wrong)):
            map_file(wrong)


def test_what_is_written_to_memory_is_in_the_file(tmp_path):
    (tmp_path / "file").write_bytes(b"some bytes")
    memory, _ = map_file(tmp_path / "file", writable=True)
    memory[:4] = b"more"
    assert (tmp_path / "file").read_bytes() == b"more bytes"
