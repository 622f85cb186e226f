"""Index files of shards: saving, loading and moving.

| bytes | content |
|---|---|
| 8 | length of the header, little-endian |
| length | header: JSON, see `_create_header` |
| | the arrays, each aligned to 64 bytes |
| 4 | CRC-32C of the bytes above |

An index file is untrusted, and its numbers become addresses. Therefore loading compares all numbers
with the sizes of the shard and of its records.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import struct
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import google_crc32c
import numpy as np

from rlds_ecosystem.files import stores
from rlds_ecosystem.files.caches import cache_folder
from rlds_ecosystem.files.mapping import map_file
from rlds_ecosystem.files.stores import is_local
from rlds_ecosystem.files.whole_files import write_atomically
from tfds_files.example_scan import NOT_DIRECT, FieldLayout
from tfds_files.record_files import FOOTER, HEADER
from tfds_files.shard_index import ARRAYS, ShardIndex, stored_checksum

__all__ = ["FOLDER", "fetch", "load", "move", "remove", "save"]

FOLDER = ".feeds"
"""The folder of indexes in the folder of a dataset."""

_VERSION = 1
_LENGTH_STRUCT, _CHECKSUM_STRUCT = struct.Struct("<Q"), struct.Struct("<I")
_ALIGNMENT_BYTES = 64
_CRC_BLOCK_BYTES = 1 << 18


def save(index: ShardIndex, *, cache: bool = True) -> None:
    """Saves an index next to its shard, or else in the cache.

    If neither is possible, a warning says why.

    Args:
      index: The index of a whole shard.
      cache: Whether to use the cache.
    """
    content = _encode(index)
    reason: OSError | str = "no folder for it"
    for path in [*_dataset_paths(index.path), *(_cache_paths(index.path) if cache else ())]:
        try:
            path.parent.mkdir(parents=path.parent.name != FOLDER, exist_ok=True)
            write_atomically(path, content, durable=False)
        except OSError as e:
            reason = e
        else:
            return
    if cache:
        warnings.warn(
            f"the index of {index.path} cannot be saved, so it is built each time: {reason}",
            stacklevel=2,
        )


def fetch(urls: Sequence[str], paths: Sequence[str]) -> None:
    """Copies index files in an object store next to local copies of their shards.

    Args:
      urls: The shards.
      paths: The copies of the shards.
    """

    def fetch_index(index: int) -> None:
        url, (target, *_) = stores.as_path(urls[index]), _dataset_paths(paths[index])
        if target.exists():
            return
        with contextlib.suppress(OSError):
            content = (url.parent / FOLDER / target.name).read_bytes()
            target.parent.mkdir(exist_ok=True)
            write_atomically(target, content, durable=False)

    stores.in_parallel(fetch_index, range(len(urls)), urls[0])


def load(
    path: str, sequence: str, layouts: tuple[FieldLayout, ...], *, is_copy: bool = False
) -> ShardIndex | None:
    """Returns the index of a shard if a usable one is stored.

    Args:
      path: The shard.
      sequence: The sequence in the examples.
      layouts: The storage of the fields of the examples.
      is_copy: Whether it is a copy of an object, which may be incomplete, and whose times have no
        meaning.

    Raises:
      OSError: The shard cannot be read.
    """
    shard = os.stat(path)
    candidates = []
    for file in [*_dataset_paths(path), *_cache_paths(path)]:
        with contextlib.suppress(OSError, _InvalidIndexError):
            index = _parse_index(_map_index(file), path, sequence, layouts)
            _check_index(index, shard.st_size)
            if is_copy or index.modified_ns == shard.st_mtime_ns:
                return index
            candidates.append(index)
    for index in candidates:  # The shard may be a copy of the indexed shard.
        if _has_checksum(index):
            index = dataclasses.replace(index, modified_ns=shard.st_mtime_ns)
            save(index)
            return index
    return None


def move(path: os.PathLike[str] | str, target: os.PathLike[str] | str) -> None:
    """Moves the index file of a moved shard, if it exists."""
    if is_local(path) and is_local(target):
        for old, new in zip(_dataset_paths(os.fspath(path)), _dataset_paths(os.fspath(target))):
            with contextlib.suppress(OSError):  # A lost index is rebuilt.
                if old.exists():
                    new.parent.mkdir(exist_ok=True)
                    os.replace(old, new)


def remove(path: os.PathLike[str] | str) -> None:
    """Removes the index file of a removed shard, if it exists."""
    if is_local(path):
        for file in [*_dataset_paths(os.fspath(path)), *_cache_paths(os.fspath(path))]:
            with contextlib.suppress(OSError):
                file.unlink()
                file.parent.rmdir()  # Keeps a folder with other indexes.


class _InvalidIndexError(Exception):
    """An index is damaged, or of another file."""


def _dataset_paths(path: str) -> list[Path]:
    """Returns the path of the index in the dataset; empty if a link leads out of the dataset."""
    folder, name = os.path.split(os.path.abspath(path))
    indexes = Path(folder, FOLDER)
    return [] if indexes.is_symlink() else [indexes / f"{name}.index"]


def _cache_paths(path: str) -> list[Path]:
    """Returns the path of the index in the cache, if there is a cache."""
    folder, name = os.path.split(os.path.abspath(path))
    cached = cache_folder("feeds", os.path.realpath(folder))
    return [] if cached is None else [cached / f"{name}.index"]


def _list_arrays(index: ShardIndex) -> dict[str, np.ndarray]:
    arrays = {name: getattr(index, name) for name in ARRAYS}
    for name, (begins, ends) in index.string_ends.items():
        arrays |= {f"begins/{name}": begins, f"ends/{name}": ends}
    return arrays


def _encode(index: ShardIndex) -> bytes:
    arrays = _list_arrays(index)
    header: dict[str, Any] = _create_header(index.sequence, index.layouts)
    header |= {
        "shard_size": index.file_size,
        "shard_modified_ns": index.modified_ns,
        "shard_checksum": index.checksum,
        "is_verified": index.is_verified,
        "num_examples": len(index),
        "num_entries": {name: len(ends) for name, (_, ends) in index.string_ends.items()},
    }
    encoded = json.dumps(header).encode()
    pieces = [_LENGTH_STRUCT.pack(len(encoded)), encoded]
    position = len(encoded) + _LENGTH_STRUCT.size
    for array in arrays.values():
        content = array.astype(array.dtype.newbyteorder("<"), copy=False).tobytes()
        padding = -position % _ALIGNMENT_BYTES
        pieces += [bytes(padding), content]
        position += padding + len(content)
    body = b"".join(pieces)
    return body + _CHECKSUM_STRUCT.pack(google_crc32c.value(body))


def _create_header(sequence: str, layouts: tuple[FieldLayout, ...]) -> dict[str, Any]:
    """Returns the header of an index file; an index with another header has other features."""
    return {"version": _VERSION, "sequence": sequence, "fields": [*map(list, layouts)]}


def _map_index(path: Path) -> memoryview:
    if not path.is_file():  # A pipe might block.
        raise _InvalidIndexError
    raw, _ = map_file(path)
    if len(raw) < _LENGTH_STRUCT.size + _CHECKSUM_STRUCT.size:
        raise _InvalidIndexError
    body, stored = raw[: -_CHECKSUM_STRUCT.size], raw[-_CHECKSUM_STRUCT.size :]
    checksum = 0
    for start in range(0, len(body), _CRC_BLOCK_BYTES):  # Slices: the library copies other buffers.
        checksum = google_crc32c.extend(checksum, bytes(body[start : start + _CRC_BLOCK_BYTES]))
    if checksum != _CHECKSUM_STRUCT.unpack(stored)[0]:
        raise _InvalidIndexError
    return body


def _parse_index(
    body: memoryview, path: str, sequence: str, layouts: tuple[FieldLayout, ...]
) -> ShardIndex:
    """Returns the index that is stored in a file."""
    (length,) = _LENGTH_STRUCT.unpack(body[: _LENGTH_STRUCT.size])
    position = _LENGTH_STRUCT.size + length
    if position > len(body):
        raise _InvalidIndexError
    try:
        header = json.loads(bytes(body[_LENGTH_STRUCT.size : position]))
        if any(header[key] != value for key, value in _create_header(sequence, layouts).items()):
            raise _InvalidIndexError
        count = _parse_count(header["num_examples"])
        columns: dict[str, tuple[str, tuple[int, ...]]] = {
            name: (dtype, (count, len(layouts)) if by_field else (count,))
            for name, (dtype, by_field) in ARRAYS.items()
        }
        strings = [layout.name for layout in layouts if layout.kind == "strings"]
        for name in strings:
            columns[f"begins/{name}"] = "<i8", (count + 1,)
            columns[f"ends/{name}"] = "<u4", (_parse_count(header["num_entries"][name]),)
        arrays = {}
        for name, (dtype, shape) in columns.items():
            position += -position % _ALIGNMENT_BYTES
            size = int(np.prod([np.dtype(dtype).itemsize, *shape], dtype=object))
            if position + size > len(body):
                raise _InvalidIndexError
            arrays[name] = np.frombuffer(body[position : position + size], dtype).reshape(shape)
            position += size
        return ShardIndex(
            path=path,
            file_size=_parse_count(header["shard_size"]),
            modified_ns=_parse_count(header["shard_modified_ns"]),
            checksum=_parse_count(header["shard_checksum"]),
            is_verified=header["is_verified"] is True,
            sequence=sequence,
            layouts=layouts,
            string_ends={
                name: (arrays.pop(f"begins/{name}"), arrays.pop(f"ends/{name}")) for name in strings
            },
            **arrays,
        )
    except (KeyError, RecursionError, TypeError, ValueError) as e:
        raise _InvalidIndexError from e


def _parse_count(value: Any) -> int:
    if type(value) is not int or not 0 <= value < 1 << 63:
        raise _InvalidIndexError
    return value


def _check_index(index: ShardIndex, file_size: int) -> None:
    """Checks that the byte offsets of an index lie in the data of their examples."""
    framing = HEADER.size + FOOTER.size
    ends = index.offsets + index.lengths
    positions = np.concatenate([[0], ends + FOOTER.size])
    is_valid = index.file_size == file_size == int(positions[-1])
    is_valid &= bool(((index.lengths >= 0) & (index.lengths <= file_size)).all())
    is_valid &= bool(((index.offsets >= 0) & (index.offsets <= file_size)).all())
    is_valid &= bool((np.diff(positions) == index.lengths + framing).all())
    is_valid &= bool((index.num_elements <= index.lengths).all())
    if not is_valid:
        raise _InvalidIndexError
    for field, layout in enumerate(index.layouts):
        starts, sizes = (array[:, field].astype(np.int64) for array in (index.starts, index.sizes))
        is_direct = starts != NOT_DIRECT
        count = index.num_elements.astype(np.int64) if layout.in_sequence else np.ones_like(sizes)
        stride = len(layout.head) + layout.width
        value_ends = starts + sizes - len(layout.head)
        if layout.kind == "strings":
            is_inside = _check_strings(
                *index.string_ends[layout.name], np.where(is_direct, count, 0), sizes
            )
        else:
            is_inside = (sizes == count * stride) & (starts >= len(layout.head))
        is_inside &= (value_ends <= index.lengths) & (count > 0) & (layout.kind != "")
        if not (is_inside | ~is_direct).all():
            raise _InvalidIndexError


def _check_strings(
    begins: np.ndarray, ends: np.ndarray, counts: np.ndarray, sizes: np.ndarray
) -> np.ndarray:
    """Whether strings are contiguous, and the last one ends with its list."""
    if begins[0] != 0 or begins[-1] != len(ends) or (np.diff(begins) != counts).any():
        raise _InvalidIndexError
    if not len(ends):
        return counts >= 0
    rows = np.flatnonzero(counts)
    first_strings, last_strings = begins[rows], begins[rows + 1] - 1
    string_sizes = np.diff(ends.astype(np.int64), prepend=0)
    string_sizes[first_strings] = ends[first_strings]
    if (string_sizes < 2).any():
        raise _InvalidIndexError
    is_inside = counts >= 0
    is_inside[rows] = ends[last_strings] == sizes[rows]
    return is_inside


def _has_checksum(index: ShardIndex) -> bool:
    """Whether the records of the shard match the index, by their checksums."""
    if not len(index):
        return True
    data: np.ndarray = np.memmap(index.path, np.uint8, "r")
    ends = index.offsets + index.lengths
    return len(data) == index.file_size and stored_checksum(data, ends) == index.checksum
