"""Each record is in the file once, at its position, even if the disk is full at any byte."""

import errno
import io
import os
from unittest import mock

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import riegeli
from envlogger.backends.riegeli_files import growing_file
from envlogger.backends.riegeli_files.growing_file import GrowingFile

OPTIONS = [
    "uncompressed,chunk_size:1k",
    "zstd:1,chunk_size:3k",
    "transpose,brotli:1,chunk_size:1k,parallelism:3",
]


RECORDS = [bytes([i % 256, i // 256]) + np.random.default_rng(i).bytes(150) for i in range(800)]


class DiskIsFull(OSError):
    pass


class Disk:
    """A disk for `size` bytes, and for `reserve` more once they are released."""

    def __init__(self, size, reserve):
        self.size, self.reserve = size, reserve
        self.is_released = False

    def release_after(self, error):
        assert isinstance(error, DiskIsFull)
        was_released, self.is_released = self.is_released, True
        self.size += 0 if was_released else self.reserve
        return not was_released

    def open(self, path, *_, **__):
        disk = self

        class File(io.FileIO):
            def write(self, data):
                data = bytes(data)[: max(0, disk.size - self.tell())]
                if not data:
                    raise DiskIsFull(errno.ENOSPC, os.strerror(errno.ENOSPC))
                return super().write(data)

        return File(path, "x")


def read_records(path):
    with riegeli.RecordReader(path) as reader:
        return list(reader.read_records())


def check_records(path, positions):
    with riegeli.RecordReader(path) as reader:
        actual = [(reader.last_pos.numeric, record) for record in reader.read_records()]
    assert actual == list(zip(positions, RECORDS))


def is_full_after(action):
    """Calls an action; returns True if the disk is full."""
    try:
        action()
    except DiskIsFull:
        return True
    return False


@settings(max_examples=40)
@given(
    options=st.sampled_from(OPTIONS),
    size=st.integers(0, 60_000),
    reserve=st.sampled_from([0, 5_000, 1_000_000]),
    batches=st.lists(
        st.tuples(st.integers(0, 30), st.sampled_from(["push", "sync", "go on"])),
        min_size=10,
        max_size=25,
    ),
)
def test_records_are_written_once_when_the_disk_is_full(
    tmp_path_factory, options, size, reserve, batches
):
    path = tmp_path_factory.mktemp("disk") / "file"
    disk = Disk(size, reserve)
    with mock.patch.object(growing_file, "open", disk.open, create=True):
        try:
            file = GrowingFile(path, options, disk)
        except DiskIsFull:
            assert disk.size < 100
            return
    num_written = 0
    has_failed = False
    for count, action in batches:
        batch = RECORDS[num_written : num_written + count]
        num_written += count
        has_failed = is_full_after(lambda batch=batch: file.write(batch)) or (
            action != "go on" and is_full_after(file.push)
        )
        if has_failed:
            break
        if action == "sync":
            file.sync()
            assert len(read_records(path)) == num_written  # A reader sees all records.
    has_failed = has_failed or is_full_after(file.push)
    assert not has_failed or (disk.is_released and reserve < 1_000_000)
    if has_failed:
        num_written = file.salvage()
    positions = [position.numeric for position in file.positions[:num_written]]
    if not has_failed:
        file.close()
    assert len(positions) == num_written
    check_records(path, positions)


def test_positions_of_pushed_records_may_be_cleared(tmp_path):
    disk = Disk(20_000, 1_000_000)
    with mock.patch.object(growing_file, "open", disk.open, create=True):
        file = GrowingFile(tmp_path / "file", "uncompressed,chunk_size:1k", disk)
    positions = []
    for i in range(0, 300, 10):
        file.write(RECORDS[i : i + 10])
        file.push()
        positions += [position.numeric for position in file.positions]
        file.positions.clear()
    file.close()
    assert disk.is_released
    check_records(tmp_path / "file", positions)


def test_pushed_records_survive_errors_of_the_disk(tmp_path):
    class BrokenFile(io.FileIO):
        is_broken = False

        def write(self, data):
            if self.is_broken:
                raise OSError(errno.EIO, os.strerror(errno.EIO))
            return super().write(data)

    files = []

    def open_broken(path, *_, **__):
        files.append(BrokenFile(path, "x"))
        return files[0]

    with mock.patch.object(growing_file, "open", open_broken, create=True):
        file = GrowingFile(tmp_path / "file", "uncompressed,chunk_size:1k")
    file.write([b"kept"])
    file.push()
    files[0].is_broken = True
    with pytest.raises(OSError, match=os.strerror(errno.EIO)):
        file.write([bytes(500)] * 10)
    assert file.salvage() == 1
    assert read_records(tmp_path / "file") == [b"kept"]


def test_records_that_were_not_pushed_are_lost_with_the_process(tmp_path):
    file = GrowingFile(tmp_path / "file", "zstd:1")
    file.write([b"first"])
    file.push()
    file.write([b"second"])
    assert read_records(tmp_path / "file") == [b"first"]
    os.unlink(tmp_path / "file")
    with pytest.raises(FileNotFoundError, match="was deleted while it was being written"):
        file.sync()
    file.close()


def test_an_existing_file_is_not_overwritten(tmp_path):
    (tmp_path / "file").write_bytes(b"precious")
    with pytest.raises(FileExistsError):
        GrowingFile(tmp_path / "file", "zstd:1")
    with pytest.raises(riegeli.RiegeliError):
        GrowingFile(tmp_path / "other", "no such option")
    assert (tmp_path / "file").read_bytes() == b"precious"
