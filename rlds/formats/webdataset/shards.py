"""The samples of tar files, grouped as by the library webdataset.

Consecutive members with the same key are a sample. The key is the path up to the first dot of the
file name, and the rest is the name of a field: `dir.v1/ep1.steps.npz` is the field `steps.npz` of
the sample `dir.v1/ep1`. Members without a dot in the file name are skipped, like `__meta__`. A
repeated key begins another sample.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import re
import tarfile
from collections import Counter
from collections.abc import Collection, Iterator
from typing import NamedTuple

from etils import epath

from rlds.raw_files.archives import TarHeader, has_end_mark, tar_members
from rlds.raw_files.input_files import files_at
from rlds.raw_files.untrusted import source_errors
from rlds.sources.source import SourceError

__all__ = ["Sample", "TarShard", "find_shards", "first_fields"]

_MEMBER_NAME = re.compile(r"((?:.*/|)[^.]+)[.]([^/]*)")
_TAR_BLOCK, _REGULAR_FILE = tarfile.BLOCKSIZE, ord(tarfile.REGTYPE)
_SKIPPED_MEMBERS = re.compile(r"__[^/]*__($|/)")


class Sample(NamedTuple):
    """The location of a sample in its shard.

    Attributes:
      key: The key of the sample.
      position: The index of the sample in the file.
      start: The offset of its first member in the file.
      end: The end of its last member.
      damage: The damage of the sample; empty if it is valid.
    """

    key: str
    position: int
    start: int
    end: int
    damage: str = ""


class TarShard:
    """The index of the samples of a tar file.

    Args:
      path: The file.

    Attributes:
      path: The argument.
      samples: The samples, in order.
      is_complete: Whether it has the end mark; otherwise it was cut, or is damaged.
      num_fields: The number of members in samples.

    Raises:
      SourceError: The file is not a tar file.
    """

    def __init__(self, path: epath.Path) -> None:
        self.path = path
        self.samples: list[Sample] = []
        self.num_fields = 0
        names: set[str] = set()
        with source_errors(self.path), _open(path) as tar:
            size = int(path.stat().length)
            for info, key, field in _fields(tar):
                end = info.offset_data + info.size
                if not self.samples or self.samples[-1].key != key:
                    self.samples.append(Sample(key, len(self.samples), info.offset, end))
                    names = set()
                sample = self.samples[-1]._replace(end=end)
                if end > size:
                    sample = sample._replace(end=size, damage=f"the archive ends in {field!r}")
                elif field in names:
                    sample = sample._replace(damage=f"two members for the field {field!r}")
                elif info.issparse():
                    sample = sample._replace(damage=f"{field!r} is a sparse file")
                names.add(field)
                self.samples[-1] = sample
                self.num_fields += 1
            self.is_complete = has_end_mark(tar)

    def read(self, sample: Sample, fields: Collection[str] | None = None) -> dict[str, bytes]:
        """Returns the bytes of the fields of a sample, or of some of them.

        Raises:
          SourceError: The sample is damaged.
        """
        if sample.damage:
            raise SourceError(sample.damage, file=self.path, episode=sample.key)
        values = {}
        with source_errors(self.path, episode=sample.key), _open(self.path, sample.start) as tar:
            for info, _, field in _fields(tar):
                if info.offset >= sample.end:
                    break
                if fields is None or field in fields:
                    tar.fileobj.seek(info.offset_data)
                    values[field] = tar.fileobj.read(info.size)
        return values

    def rename(self, sample: Sample, key: str) -> bytes | None:
        """Returns the stored members of a sample with another key.

        None for extended headers, or a key of another length.
        """
        with self.path.open("rb") as file:
            file.seek(sample.start)
            data = bytearray(file.read(-(-(sample.end - sample.start) // _TAR_BLOCK) * _TAR_BLOCK))
        old, new, start = sample.key.encode(), key.encode(), 0
        while start < len(data):
            header = memoryview(data)[start : start + _TAR_BLOCK]
            if len(new) != len(old) or header[: len(old)] != old or header[156] != _REGULAR_FILE:
                return None
            header[: len(old)] = new
            checksum = int(bytes(header[148:154]), 8) + sum(new) - sum(old)
            header[148:154] = b"%06o" % checksum
            start += _TAR_BLOCK + -(-int(bytes(header[124:135]), 8) // _TAR_BLOCK) * _TAR_BLOCK
        return bytes(data)


@contextlib.contextmanager
def _open(path: epath.Path, start: int = 0) -> Iterator[tarfile.TarFile]:
    """Opens a tar file at the offset of a member."""
    with path.open("rb") as file:
        file.seek(start)
        with tarfile.TarFile(fileobj=file, tarinfo=TarHeader) as tar:
            yield tar


def _fields(tar: tarfile.TarFile) -> Iterator[tuple[tarfile.TarInfo, str, str]]:
    """Yields the members that are fields of samples, with the keys of samples and field names."""
    for info in tar_members(tar):
        match = _MEMBER_NAME.fullmatch(info.name)
        if info.isreg() and match is not None and not _SKIPPED_MEMBERS.match(info.name):
            yield info, match[1], match[2].lower()


def find_shards(path: str | os.PathLike[str]) -> list[epath.Path]:
    """Returns the tar files of a folder in order, or the tar file at the path."""
    return files_at(path, lambda name: name.endswith(".tar"))


def first_fields(path: epath.Path) -> list[str]:
    """Returns the names of the fields of the first sample of a file."""
    with _open(path) as tar:
        _, sample = next(itertools.groupby(_fields(tar), lambda field: field[1]), ("", ()))
        return [field for _, _, field in sample]


def unique(keys: list[str]) -> list[str]:
    """Makes keys unique: repeated keys get a number."""
    seen: Counter[str] = Counter()
    unique_keys = []
    for key in keys:
        seen[key] += 1
        unique_keys.append(key if seen[key] == 1 else f"{key}#{seen[key]}")
    return unique_keys
