"""Archives of strangers: files and directories come out of them, and nothing else.

An archive can name places outside its directory, be full of links and devices, and stand for a
thousand times as many bytes as it has. What is not plain is refused here, with the name of the
member. Archives that are trusted can be unpacked with any other tool instead.

A tar archive is a sequence of blocks of 512 bytes: a header, the data of the file, the next header,
and so on, up to a block of zeros.
"""

from __future__ import annotations

import hashlib
import os
import stat
import uuid
import zipfile
from collections.abc import Iterator
from pathlib import PurePosixPath
from typing import NamedTuple

from etils import epath

from rlds.raw_files.byte_streams import GZIP_MAGIC, ByteStream
from rlds.raw_files.untrusted import (
    Budget,
    SourceError,
    check_is_file,
    source_errors,
    trusted_bytes,
)
from rlds_ecosystem import stores
from rlds_ecosystem.errors import storage_errors

__all__ = ["SUFFIXES", "check_method", "extracted", "read_member"]

SUFFIXES = (".tar.gz", ".tgz", ".tar", ".zip")

_PIECE = 1 << 20
_MAX_NAME = 255
_METHODS = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)

_BLOCK = 512
_FILE, _DIRECTORY = "a file", "a directory"
_KINDS = {
    b"\0": _FILE,
    b"0": _FILE,
    b"7": _FILE,
    b"1": "a link",
    b"2": "a symbolic link",
    b"3": "a device",
    b"4": "a device",
    b"5": _DIRECTORY,
    b"6": "a pipe",
}
# Headers with data of their own: the long name of the next member, or its attributes.
_LONG_NAME, _ATTRIBUTES, _DEFAULTS = b"L", b"x", b"g"
_MAX_ATTRIBUTES = 1 << 16


class _Member(NamedTuple):
    """A member of an archive: its name, what it is, and its bytes."""

    name: str
    kind: str
    pieces: Iterator[bytes]


def extracted(archive: epath.Path, directory: epath.Path) -> epath.Path:
    """Returns a directory with the files of an archive, which it has been extracted to.

    It is below `directory`, and has the name of the archive. It is used again as long as the
    archive stays the same. Files whose names begin with a dot are left out, as TFDS does.

    Args:
      archive: A file with one of the `SUFFIXES`.
      directory: Where archives are extracted to.

    Raises:
      SourceError: The archive is damaged or was cut. Or it holds something else than files and
        directories below its own, or much more than its size lets expect.
      StorageError: It cannot be extracted there.
    """
    check_is_file(archive)
    size = archive.stat().length
    identity = f"{os.fspath(archive)}\0{stores.version_of(archive)}"
    place = directory / hashlib.sha256(identity.encode()).hexdigest()[:16]
    result, draft = place / archive.name, place / f"incomplete.{uuid.uuid4().hex}"
    if result.is_dir():
        return result
    try:
        with storage_errors(directory):
            draft.mkdir(parents=True)
        members = _zip_members if archive.name.endswith(".zip") else _tar_members
        with source_errors(archive):
            _Extraction(archive, size, draft).write(members(archive))
        if not result.is_dir():  # Another process was not faster.
            with storage_errors(directory):
                draft.rename(result)
    finally:
        if draft.exists():
            draft.rmtree()
    return result


def read_member(archive: epath.Path, name: str, max_bytes: int) -> bytes:
    """Returns a file of a zip archive.

    Args:
      archive: The archive.
      name: The name of the file in it.
      max_bytes: How large it may be.

    Raises:
      SourceError: It is larger than its compressed size lets expect, or than `max_bytes`.
    """
    with archive.open("rb") as file, zipfile.ZipFile(file) as opened:
        info = opened.getinfo(name)
        check_method(info, archive)
        size = min(info.compress_size, archive.stat().length)
        most = min(max_bytes, trusted_bytes(size))
        if info.file_size > most:  # No more than that is ever read.
            raise _too_large(archive / name, most, size)
        return opened.read(info)


def _too_large(file: epath.Path, most: int, size: int, member: str | None = None) -> SourceError:
    return SourceError(
        f"it holds more than {most:,} bytes, which is what {size:,} bytes in an archive are "
        "trusted with; if you know where it comes from, unpack it, and pass the directory",
        file=file,
        field=member,
    )


class _Extraction:
    """Writes members of an archive to a directory.

    Args:
      archive: The archive.
      size: How many bytes it has.
      directory: Where its members go.
    """

    def __init__(self, archive: epath.Path, size: int, directory: epath.Path) -> None:
        self._archive, self._size, self._directory = archive, size, directory
        self._budget = Budget(archive, size)
        self._left = trusted_bytes(size)
        self._files: set[PurePosixPath] = set()
        self._directories: set[PurePosixPath] = set()

    def write(self, members: Iterator[_Member]) -> None:
        """Writes all of them."""
        for member in members:
            name = self._check_name(member)
            is_kept = member.kind == _FILE and not name.name.startswith(".")
            path = self._directory / name
            with storage_errors(path):
                (path.parent if member.kind == _FILE else path).mkdir(parents=True, exist_ok=True)
            pieces = self._counted(member)
            if not is_kept:
                for _ in pieces:
                    pass
                continue
            with storage_errors(path), path.open("wb") as file:
                for piece in pieces:
                    file.write(piece)

    def _check_name(self, member: _Member) -> PurePosixPath:
        name = PurePosixPath(member.name)
        if name.is_absolute() or ".." in name.parts or any(c in member.name for c in "\\\0"):
            raise self._error("its name leads out of the archive", member)
        if any(len(os.fsencode(part)) > _MAX_NAME for part in name.parts):
            raise self._error(f"its name is longer than {_MAX_NAME} bytes", member)
        if member.kind not in (_FILE, _DIRECTORY):
            raise self._error(f"{member.kind}, expected files and directories", member)
        self._budget.enter(len(name.parts), member.name[:_MAX_NAME])
        above = name.parents
        if name in self._files or not self._files.isdisjoint(above):
            raise self._error("a file of its name is there already", member)
        if member.kind == _FILE:
            if name in self._directories or not name.parts:
                raise self._error("a directory of its name is there already", member)
            self._files.add(name)
        else:
            self._directories.add(name)
        self._directories.update(above)
        return name

    def _counted(self, member: _Member) -> Iterator[bytes]:
        for piece in member.pieces:
            self._left -= len(piece)
            if self._left < 0:
                most = trusted_bytes(self._size)
                raise _too_large(self._archive, most, self._size, member.name)
            yield piece

    def _error(self, what: str, member: _Member) -> SourceError:
        return SourceError(
            f"{what}; if you trust it, unpack it, and pass the directory",
            file=self._archive,
            field=member.name[:_MAX_NAME],
        )


def _zip_members(archive: epath.Path) -> Iterator[_Member]:
    with archive.open("rb") as file, zipfile.ZipFile(file) as opened:
        for info in opened.infolist():
            kind = _DIRECTORY if info.is_dir() else _FILE
            if stat.S_ISLNK(info.external_attr >> 16):
                kind = "a symbolic link"
            check_method(info, archive)
            yield _Member(info.filename, kind, _zip_pieces(opened, info))


def check_method(info: zipfile.ZipInfo, file: epath.Path) -> None:
    """Checks that a member of a zip archive is stored as it is, or compressed by deflate.

    Raises:
      SourceError: It is not.
    """
    if info.compress_type not in _METHODS:
        raise SourceError(
            f"compressed by method {info.compress_type} of zip, expected none or deflate",
            file=file,
            field=info.filename[:_MAX_NAME],
        )


def _zip_pieces(opened: zipfile.ZipFile, info: zipfile.ZipInfo) -> Iterator[bytes]:
    with opened.open(info) as stream:
        while piece := stream.read(_PIECE):
            yield piece


def _tar_members(archive: epath.Path) -> Iterator[_Member]:
    with archive.open("rb") as file:
        compressed = file.read(len(GZIP_MAGIC)) == GZIP_MAGIC
    with ByteStream(archive, os.fspath(archive), compressed=compressed) as stream:
        yield from _TarReader(stream).members()


class _TarReader:
    """Reads a tar archive from front to end."""

    def __init__(self, stream: ByteStream) -> None:
        self._stream = stream

    def members(self) -> Iterator[_Member]:
        """Yields the members. The bytes of each must be read before the next one is asked for."""
        attributes: dict[str, bytes] = {}
        while any(header := self._read(_BLOCK)):
            kind, size = header[156:157], self._size(header)
            if kind in (_LONG_NAME, _ATTRIBUTES, _DEFAULTS):
                attributes |= self._attributes(kind, size)
                continue
            name = attributes.get("path", _name(header))
            size = int(attributes.get("size", size))
            if size < 0:
                raise self._error(f"a member of {size} bytes")
            is_sparse = any(key.startswith("GNU.sparse") for key in attributes)
            words = _KINDS.get(kind, f"a member of the type {kind!r}")
            if words == _FILE and is_sparse:
                words = "a file with holes"
            elif words == _FILE and name.endswith(b"/"):  # As the oldest archives have them.
                words = _DIRECTORY
            yield _Member(os.fsdecode(name), words, self._pieces(size))
            attributes = {}
        # Only at its end a compressed file turns out to be damaged.
        while self._stream.read(_PIECE):
            pass

    def _read(self, size: int) -> bytes:
        data = self._stream.read(size)
        if len(data) < size:
            raise self._error("the archive ends too early: it was cut, fetch it again")
        return data

    def _pieces(self, size: int) -> Iterator[bytes]:
        left = size
        while left > 0:
            yield self._read(piece := min(left, _PIECE))
            left -= piece
        self._read(-size % _BLOCK)

    def _size(self, header: bytes) -> int:
        stored = int(header[148:156].strip(b"\0 ") or b"0", 8)
        if stored != sum(header) - sum(header[148:156]) + 8 * ord(" "):
            raise self._error("a header of the archive does not have the checksum stored with it")
        field = header[124:136]
        if field[0] == 0x80:  # Octal digits are not enough.
            return int.from_bytes(field[1:], "big")
        return int(field.strip(b"\0 ") or b"0", 8)

    def _attributes(self, kind: bytes, size: int) -> dict[str, bytes]:
        if not 0 <= size <= _MAX_ATTRIBUTES:
            raise self._error(f"a name or attributes of {size} bytes")
        data = b"".join(self._pieces(size))
        if kind == _LONG_NAME:
            return {"path": data.rstrip(b"\0")}
        found = {}
        while data:
            length = int(data[: data.index(b" ")])
            key, _, value = data[:length].partition(b" ")[2].partition(b"=")
            if length < 5 or data[length - 1 : length] != b"\n":
                raise self._error("the attributes of a member are damaged")
            found[key.decode()] = value[:-1]
            data = data[length:]
        return {} if kind == _DEFAULTS else found

    def _error(self, what: str) -> SourceError:
        return SourceError(what, file=self._stream.name)


def _name(header: bytes) -> bytes:
    name = header[:100].split(b"\0")[0]
    prefix = header[345:500].split(b"\0")[0] if header[257:263] == b"ustar\0" else b""
    return prefix + b"/" + name if prefix else name
