"""A file is written completely or not at all, and a lock has one owner."""

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
    lock_directory,
    sync,
    try_to_lock,
    write_atomically,
)

fcntl = pytest.importorskip("fcntl")


@pytest.mark.parametrize("failing", ["fsync", "replace"])
def test_a_failed_write_leaves_the_old_file(tmp_path, monkeypatch, failing):
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


def test_a_file_is_synced_before_it_is_visible(tmp_path, monkeypatch):
    events = []
    replace, fsync = os.replace, os.fsync

    def record_fsync(descriptor):
        events.append(os.fstat(descriptor).st_size)
        fsync(descriptor)

    def record_replace(draft, target):
        events.append("visible")
        replace(draft, target)

    monkeypatch.setattr(os, "fsync", record_fsync)
    monkeypatch.setattr(os, "replace", record_replace)
    monkeypatch.chdir(tmp_path)
    write_atomically("file", b"old")
    write_atomically(tmp_path / "file", b"newer")
    assert events == [3, "visible", 5, "visible"]
    assert (tmp_path / "file").read_bytes() == b"newer"
    sync(tmp_path / "file")
    assert events[4:] == [5]
    assert os.listdir(tmp_path) == ["file"]


def test_a_lock_has_one_owner(tmp_path):
    events = []

    def wait():
        with lock_directory(tmp_path):
            events.append("second")

    with lock_directory(tmp_path):
        descriptor = os.open(tmp_path, os.O_RDONLY)
        assert not lock(descriptor, wait=False)
        assert try_to_lock(tmp_path) is None
        thread = threading.Thread(target=wait)
        thread.start()
        thread.join(0.1)
        events.append("first")
    thread.join(600)
    assert events == ["first", "second"]
    assert lock(descriptor, wait=False)
    assert lock(descriptor)  # This descriptor has the lock.
    os.close(descriptor)
    own_descriptor = try_to_lock(tmp_path)
    assert try_to_lock(tmp_path) is None
    os.close(own_descriptor)
    with lock_directory(tmp_path):
        pass


def test_nobody_waits_where_locks_do_not_exist(tmp_path, monkeypatch):
    with lock_directory(tmp_path):
        monkeypatch.setattr(whole_files, "fcntl", None)  # As on Windows.
        with lock_directory(tmp_path):
            descriptor = os.open(tmp_path, os.O_RDONLY)
            assert lock(descriptor, wait=False)
            os.close(descriptor)
        assert try_to_lock(tmp_path) is None  # The owner is unknown.
        assert not can_lock(tmp_path)
    with lock_directory("gs://bucket/data"):  # No request is sent.
        sync("gs://bucket/data/file")
    assert not can_lock("gs://bucket/data")


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::ResourceWarning")
def test_a_target_in_a_store_is_uploaded_if_no_error_occurs(tmp_path):
    (tmp_path / "server").mkdir()
    with stores_of_tests.running("gcsfs", tmp_path / "server") as store:
        root = as_path(store.directory())
        with pytest.raises(OSError, match="no more"), atomic_target(root / "failed") as target:
            target.write_bytes(b"half")
            raise OSError("no more")
        with atomic_target(root / "a.h5") as target:
            assert target.name == "a.h5"
            target.write_bytes(b"file")
        with atomic_target(root / "folder") as target:
            (target / "in").mkdir(parents=True)
            (target / "in" / "b").write_bytes(b"b")
            (target / "c").write_bytes(b"c")
        for name in ("a.h5", "folder"):
            with pytest.raises(FileExistsError, match=name), atomic_target(root / name):
                raise AssertionError("it is there")
        assert (root / "a.h5").read_bytes() == b"file"
        assert (root / "folder" / "in" / "b").read_bytes() == b"b"
        assert (root / "folder" / "c").read_bytes() == b"c"
        assert not (root / "failed").exists()
