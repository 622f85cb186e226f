"""Builds indexes of shards, and opens saved indexes."""

from __future__ import annotations

import contextlib
import functools
import mmap
import os
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import numpy as np

from rlds_ecosystem.files import stores
from tfds_files import index_files
from tfds_files.errors import DamagedFileError, UnsupportedFileError
from tfds_files.example_scan import Scanner, layouts_of
from tfds_files.record_files import FOOTER, HEADER, masked_checksum, record_length
from tfds_files.shard_index import ShardIndex, stored_checksum

if TYPE_CHECKING:
    from tfds_files.features import Features
    from tfds_files.folder import Split

__all__ = ["index_shard", "open_indexes", "save_index"]

# The number of records in a scan.
_RECORDS_PER_SCAN = 1 << 14
# The minimum size of indexed files: smaller ones are scanned as fast as an index is loaded.
_MIN_INDEXED_BYTES = 1 << 20


def open_indexes(
    split: Split,
    *,
    verify: bool = False,
    progress: Callable[[int, int], object] | None = None,
    copies: stores.CopiedObjects | None = None,
) -> list[ShardIndex]:
    """Returns the indexes of the shards of a split, cut to its examples, in its order.

    Missing and outdated indexes are built and saved. Several processes may do so at a time; after
    an interruption, the next call continues.

    Args:
      split: The split.
      verify: Whether to compare the checksums of all data, unless they were compared.
      progress: Called after each shard with the number of finished shards and of all shards.
      copies: The copies of the shards of the split, if they are in a store; these are indexed. An
        index next to a shard in the store is used if the sizes fit. Otherwise the whole shard is
        fetched once.

    Raises:
      UnsupportedFileError: The files have no index, because they are compressed, not on this
        machine, or not TFRecord files; says why.
      DamagedFileError: A file is damaged, or has another number of examples than
        `dataset_info.json` says.
      OSError: A file cannot be read.
    """
    shards = list(split.record_ranges(0, len(split)))
    if not shards:
        return []
    if copies is None and not stores.is_local(shards[0].path):
        raise UnsupportedFileError(
            f"{shards[0].path}: the file is not on this machine; reading single steps would "
            "download each of them. Copy the dataset first"
        )
    folder = split.folder
    if folder.file_format != "tfrecord":
        raise UnsupportedFileError(
            f"{folder.directory}: its files have the format {folder.file_format!r}, compressed "
            "record by record; only records of TFRecord files can be read in pieces"
        )
    lengths = {path: n for s in folder.values() for path, n in zip(s.paths, s.shard_lengths)}
    paths = [os.fspath(shard.path) for shard in shards]
    layouts = layouts_of(folder.features)
    if copies is not None:
        paths = [copied.path for copied in copies.objects]
        index_files.fetch(copies.urls, paths)
    indexes = []
    for done, (shard, path) in enumerate(zip(shards, paths, strict=True), 1):
        saved_index = index_files.load(path, *layouts, is_copy=copies is not None)
        if saved_index is not None and verify and not saved_index.is_verified:
            saved_index = None
        index = saved_index
        if index is None:
            build = functools.partial(index_shard, path, folder.features, verify=verify)
            if copies is None:
                index = build()
            else:
                if done < len(shards):  # The next shard is likely to have no index either.
                    copies.fetch(copies.blocks_of_object(done), wait=False)
                index = copies.read(copies.blocks_of_object(done - 1), build)
        expected = lengths.get(shard.path, shard.end)
        if len(index) != expected:
            raise DamagedFileError(
                f"{path}: {len(index)} records, but dataset_info.json declares {expected}"
            )
        if saved_index is None:
            index_files.save(index)
        indexes.append(index[shard.begin : shard.end])
        if progress is not None:
            progress(done, len(shards))
    return indexes


def index_shard(
    path: os.PathLike[str] | str, features: Features, *, verify: bool = False
) -> ShardIndex:
    """Returns the index of a TFRecord file, without saving it.

    Args:
      path: The file.
      features: The features of an example.
      verify: Whether to compare the checksums of all data, which reads all of it. The checksums of
        the framing are always compared.

    Raises:
      DamagedFileError: The file is damaged; the error has the byte offset.
      UnsupportedFileError: The file is compressed.
      OSError: The file cannot be read.
    """
    path = os.fspath(path)
    sequence, layouts = layouts_of(features)
    with open(path, "rb") as file:
        stat = os.fstat(file.fileno())
        raw = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) if stat.st_size else None
    records, checksum = np.zeros((0, 2), np.int64), 0
    blocks: list[dict[str, np.ndarray]] = []
    if raw is not None:
        records = np.array(list(_scan_records(path, raw, stat.st_size, verify)), np.int64)
        begins, ends = records[:, 0], records.sum(axis=1)
        scanner = Scanner(features, raw, path)
        for start in range(0, len(records), _RECORDS_PER_SCAN):
            rows = slice(start, start + _RECORDS_PER_SCAN)
            blocks.append(scanner.scan(begins[rows], ends[rows], start))
        checksum = stored_checksum(np.frombuffer(raw, np.uint8), ends)

    def join(name: str, dtype: Any, *shape: int) -> np.ndarray:
        return np.concatenate([np.zeros((0, *shape), dtype), *(block[name] for block in blocks)])

    strings = [layout.name for layout in layouts if layout.kind == "strings"]
    return ShardIndex(
        path=path,
        file_size=stat.st_size,
        modified_ns=stat.st_mtime_ns,
        checksum=checksum,
        is_verified=verify,
        sequence=sequence,
        layouts=layouts,
        offsets=np.ascontiguousarray(records[:, 0]),
        lengths=np.ascontiguousarray(records[:, 1]),
        num_elements=join("num_elements", np.uint32),
        starts=join("starts", np.uint32, len(layouts)),
        sizes=join("sizes", np.uint32, len(layouts)),
        last_bytes=join("last_bytes", np.uint8, len(layouts)),
        string_ends={
            name: (
                np.cumsum(np.concatenate([[0], join(f"counts/{name}", np.int64)]), dtype=np.int64),
                join(f"ends/{name}", np.uint32),
            )
            for name in strings
        },
    )


def save_index(path: os.PathLike[str] | str, features: Callable[[], Features]) -> None:
    """Saves the index of a newly written TFRecord file next to it.

    Errors are ignored: the first reader builds a missing index.

    Args:
      path: The file; small files and files in a store are skipped.
      features: Returns the features of an example.
    """
    with contextlib.suppress(Exception):
        if stores.is_local(path) and os.path.getsize(path) >= _MIN_INDEXED_BYTES:
            index_files.save(index_shard(path, features()), cache=False)


def _scan_records(path: str, raw: mmap.mmap, size: int, verify: bool) -> Iterator[tuple[int, int]]:
    """Yields the byte offset and the length of the data of each record."""
    position = 0
    while position < size:
        length = record_length(path, raw[position : position + HEADER.size], position)
        begin = position + HEADER.size
        end = begin + length
        if end + FOOTER.size > size:
            raise DamagedFileError(f"{path}: the file ends within the record at byte {position}")
        if verify:
            (expected,) = FOOTER.unpack(raw[end : end + FOOTER.size])
            if masked_checksum(raw[begin:end]) != expected:
                raise DamagedFileError(
                    f"{path}: the record at byte {position} does not match its checksum"
                )
        yield begin, length
        position = end + FOOTER.size
