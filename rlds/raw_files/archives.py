"""Safe extraction of untrusted zip and tar archives: only files and directories.

A malicious archive names paths outside its directory, or contains links and devices; libraries do
not report a truncated archive. Members other than files and directories are refused by name. Unpack
trusted archives with any other tool.
"""

from __future__ import annotations

import functools
import hashlib
import os
import shutil
import stat
import tarfile
import uuid
import zipfile
from collections.abc import Callable, Iterator
from pathlib import PurePosixPath
from typing import IO, Any, NamedTuple, Self

from etils import epath

from rlds.raw_files.untrusted import SourceError, check_declared, check_is_file, source_errors
from rlds_ecosystem.files import stores
from rlds_ecosystem.model.errors import storage_errors

__all__ = [
    "SUFFIXES",
    "TarHeader",
    "check_method",
    "extract",
    "has_end_mark",
    "read_member",
    "tar_members",
]

SUFFIXES = (".tar.gz", ".tgz", ".tar", ".zip")

_COMPRESSION_METHODS = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)
# Types of tar members that `tarfile` reads into memory: long names, and attributes.
_TEXT_MEMBER_TYPES = (tarfile.GNUTYPE_LONGNAME, tarfile.GNUTYPE_LONGLINK, b"x", b"g", b"X")
_MAX_TEXT_BYTES = 1 << 20


class _Member(NamedTuple):
    """A file or a directory in an archive; `open` returns the content of a file."""

    name: str
    size: int
    open: Callable[[], IO[bytes]] | None


def extract(archive: epath.Path, directory: epath.Path) -> epath.Path:
    """Extracts an archive, and returns the directory of its files.

    The directory is below `directory`, and has the name of the archive. The directory is reused
    until the archive changes. Files whose names begin with a dot are left out, as in TFDS.

    Args:
      archive: A file with one of the `SUFFIXES`.
      directory: The target folder for archives.

    Raises:
      SourceError: The archive is damaged or truncated, has members other than files and directories
        inside its own directory, or declares more bytes than it can hold.
      StorageError: The archive cannot be extracted to the directory.
    """
    check_is_file(archive)
    identity = f"{os.fspath(archive)}\0{stores.version_of(archive)}"
    folder = directory / hashlib.sha256(identity.encode()).hexdigest()[:16]
    result, draft = folder / archive.name, folder / f"incomplete.{uuid.uuid4().hex}"
    if result.is_dir():
        return result
    try:
        with storage_errors(directory):
            draft.mkdir(parents=True)
        with source_errors(archive):
            _extract(archive, draft)
        if not result.is_dir():  # Another process may have created it.
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
      name: The name of the file in the archive.
      max_bytes: The size limit.

    Raises:
      SourceError: The file is larger than `max_bytes`, or than its compressed size allows.
    """
    with archive.open("rb") as file, zipfile.ZipFile(file) as zip_archive:
        info = zip_archive.getinfo(name)
        check_method(info, archive)
        size = min(info.compress_size, archive.stat().length)
        check_declared(info.file_size, size, file=archive / name)
        if info.file_size > max_bytes:
            message = f"it holds {info.file_size:,} bytes, expected no more than {max_bytes:,}"
            raise SourceError(message, file=archive / name)
        return zip_archive.read(info)


def check_method(info: zipfile.ZipInfo, file: epath.Path) -> None:
    """Checks that a member of a zip archive is uncompressed, or compressed by deflate.

    Raises:
      SourceError: The member has another compression.
    """
    if info.compress_type not in _COMPRESSION_METHODS:
        raise SourceError(
            f"compressed by method {info.compress_type} of zip, expected none or deflate",
            file=file,
            field=info.filename,
        )


def _extract(archive: epath.Path, directory: epath.Path) -> None:
    """Writes the files of an archive to a directory."""
    size, num_bytes = archive.stat().length, 0
    members = _list_zip_members if archive.name.endswith(".zip") else _list_tar_members
    for member in members(archive):
        name = PurePosixPath(member.name)
        if name.is_absolute() or ".." in name.parts or any(c in member.name for c in "\\\0"):
            raise _create_error("its path leads out of the archive", archive, member.name)
        num_bytes += member.size
        check_declared(num_bytes, size, file=archive, field=member.name)
        path = directory / name
        with storage_errors(path):
            (path.parent if member.open else path).mkdir(parents=True, exist_ok=True)
        if member.open and not name.name.startswith("."):
            if path.exists():
                raise _create_error("a second file has this name", archive, member.name)
            with member.open() as content, storage_errors(path), path.open("wb") as file:
                shutil.copyfileobj(content, file)


def _create_error(reason: str, archive: epath.Path, name: str) -> SourceError:
    reason = f"{reason}; if you trust the archive, unpack it, and pass the directory"
    return SourceError(reason, file=archive, field=name)


def _list_zip_members(archive: epath.Path) -> Iterator[_Member]:
    with archive.open("rb") as file, zipfile.ZipFile(file) as zip_archive:
        for info in zip_archive.infolist():
            check_method(info, archive)
            if stat.S_ISLNK(info.external_attr >> 16):
                raise _create_error("neither a file nor a directory", archive, info.filename)
            content = None if info.is_dir() else functools.partial(zip_archive.open, info)
            yield _Member(info.filename, info.file_size, content)


def _list_tar_members(archive: epath.Path) -> Iterator[_Member]:
    with archive.open("rb") as file, tarfile.open(fileobj=file, tarinfo=TarHeader) as tar:
        for info in tar_members(tar):
            if not info.isdir() and (not info.isreg() or info.issparse()):
                raise _create_error("neither a file nor a directory", archive, info.name)
            content: Any = None if info.isdir() else functools.partial(tar.extractfile, info)
            yield _Member(info.name, info.size, content)
        if not has_end_mark(tar):
            raise SourceError("the archive was cut or is damaged; download it again", file=archive)
        # Damage of a compressed file is detected at its end.
        while tar.fileobj.read(1 << 20):
            pass


class TarHeader(tarfile.TarInfo):
    """A tar header with a size limit for its long name and attributes."""

    @classmethod
    def frombuf(cls, buf: bytes | bytearray, encoding: str, errors: str) -> Self:
        """Reads a header; see `tarfile.TarInfo`."""
        header = super().frombuf(buf, encoding, errors)
        if header.type in _TEXT_MEMBER_TYPES and header.size > _MAX_TEXT_BYTES:
            raise tarfile.ReadError(
                f"a name of {header.size:,} bytes, expected at most {_MAX_TEXT_BYTES:,}"
            )
        return header


def tar_members(tar: tarfile.TarFile) -> Iterator[tarfile.TarInfo]:
    """Yields the members of an archive, without keeping them, up to a cut or damage."""
    while True:
        try:
            info = tar.next()
        except tarfile.ReadError:
            if tar.offset == 0:
                raise
            return
        if info is None or tar.offset <= info.offset:  # The size is negative.
            return
        yield info
        tar.members = []  # type: ignore[attr-defined]


def has_end_mark(tar: tarfile.TarFile) -> bool:
    """Whether a block of zeros follows the last member of an archive."""
    tar.fileobj.seek(tar.offset)
    return bool(tar.fileobj.read(tarfile.BLOCKSIZE) == bytes(tarfile.BLOCKSIZE))
