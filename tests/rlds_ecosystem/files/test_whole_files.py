"""A file is there whole or not at all, whatever fails; a lock is one process's at a time."""

import os
import threading

import pytest
import stores_of_tests

from rlds_ecosystem.files import whole_files
from rlds_ecosystem.files.stores import as_path
from rlds_ecosystem.files.whole_files import (
    atomic_target,
    can_lock,
    lock,
    locked,
    sync,
    try_to_lock,
    write_atomically,
)

fcntl = pytest.importorskip("fcntl")


@pytest.mark.parametrize("failing", ["fsync", "replace"])
def test_a_file_that_cannot_be_written_stays_what_it_was(tmp_path, monkeypatch, failing):
    def fail(*_):
        raise OSError("no more")

    file = tmp_path / "file"
    with monkeypatch.context() as patch:
        patch.setattr(os, failing, fail)
        with pytest.raises(OSError, match="no more"):
            write_atomically(file, b"first")
    assert list(tmp_path.iterdir()) == []
    write_atomically(file, b"first")
    with monkeypatch.context() as patch:
        patch.setattr(os, failing, fail)
        with pytest.raises(OSError, match="no more"):
            write_atomically(file, b"second")
    assert list(tmp_path.iterdir()) == [file]
    assert file.read_bytes() == b"first"
    with pytest.raises(FileNotFoundError):
        write_atomically(tmp_path / "missing" / "file", b"")


def test_a_file_is_on_the_disk_before_others_see_it(tmp_path, monkeypatch):
    steps = []
    replace, fsync = os.replace, os.fsync

    def syncing(descriptor):
        steps.append(os.fstat(descriptor).st_size)
        fsync(descriptor)

    def replacing(draft, target):
        steps.append("visible")
        replace(draft, target)

    monkeypatch.setattr(os, "fsync", syncing)
    monkeypatch.setattr(os, "replace", replacing)
    monkeypatch.chdir(tmp_path)
    write_atomically("file", b"old")
    write_atomically(tmp_path / "file", b"newer")
    assert steps == [3, "visible", 5, "visible"]
    assert (tmp_path / "file").read_bytes() == b"newer"
    sync(tmp_path / "file")
    assert steps[4:] == [5]
    assert os.listdir(tmp_path) == ["file"]


def test_one_at_a_time_has_a_lock(tmp_path):
    events = []

    def wait():
        with locked(tmp_path):
            events.append("second")

    with locked(tmp_path):
        descriptor = os.open(tmp_path, os.O_RDONLY)
        assert not lock(descriptor, wait=False)
        assert try_to_lock(tmp_path) is None
        thread = threading.Thread(target=wait)
        thread.start()
        thread.join(0.1)
        events.append("first")
    thread.join(30)
    assert events == ["first", "second"]
    assert lock(descriptor, wait=False)
    assert lock(descriptor)  # It is this one's.
    os.close(descriptor)
    held = try_to_lock(tmp_path)
    assert try_to_lock(tmp_path) is None
    os.close(held)
    with locked(tmp_path):
        pass


def test_where_nothing_can_be_locked_nobody_waits(tmp_path, monkeypatch):
    with locked(tmp_path):
        monkeypatch.setattr(whole_files, "fcntl", None)  # As on Windows.
        with locked(tmp_path):
            descriptor = os.open(tmp_path, os.O_RDONLY)
            assert lock(descriptor, wait=False)
            os.close(descriptor)
        assert try_to_lock(tmp_path) is None  # Whose it is nobody knows.
        assert not can_lock(tmp_path)
    with locked("gs://bucket/data"):  # It is not even asked whether that is there.
        sync("gs://bucket/data/file")
    assert not can_lock("gs://bucket/data")


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::ResourceWarning")
def test_what_is_made_for_a_store_goes_there_if_all_went_well(tmp_path):
    (tmp_path / "server").mkdir()
    with stores_of_tests.running("gcsfs", tmp_path / "server") as store:
        place = as_path(store.directory())
        with pytest.raises(OSError, match="no more"), atomic_target(place / "failed") as made:
            made.write_bytes(b"half")
            raise OSError("no more")
        with atomic_target(place / "a.h5") as made:
            assert made.name == "a.h5"
            made.write_bytes(b"file")
        with atomic_target(place / "folder") as made:
            (made / "in").mkdir(parents=True)
            (made / "in" / "b").write_bytes(b"b")
            (made / "c").write_bytes(b"c")
        for name in ("a.h5", "folder"):
            with pytest.raises(FileExistsError, match=name), atomic_target(place / name):
                raise AssertionError("it is there")
        assert (place / "a.h5").read_bytes() == b"file"
        assert (place / "folder" / "in" / "b").read_bytes() == b"b"
        assert (place / "folder" / "c").read_bytes() == b"c"
        assert not (place / "failed").exists()
