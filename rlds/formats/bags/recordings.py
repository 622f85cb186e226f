"""Recordings: files that belong together, found and opened."""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import os
import re
import tempfile
from collections.abc import Iterable, Iterator
from typing import Any, Literal, NamedTuple

import zstandard
from etils import epath

from rlds.formats.bags import mcap_files, ros1_files, sqlite_files
from rlds.formats.bags.messages import Container, Flaws, Message
from rlds.raw_files.input_files import natural_order
from rlds.raw_files.untrusted import check_is_file, check_link, source_errors, trusted_bytes
from rlds.sources.source import SourceError, require_files
from rlds_ecosystem import stores

__all__ = ["Located", "Recording", "find_recordings", "looks_like"]

Family = Literal["mcap", "rosbag"]

_KINDS: dict[str, type[Container]] = {
    ".mcap": mcap_files.McapFile,
    ".bag": ros1_files.Ros1File,
    ".db3": sqlite_files.SqliteFile,
}
_MAGIC = {".mcap": mcap_files.MAGIC, ".bag": ros1_files.MAGIC, ".db3": sqlite_files.MAGIC}
_COMPRESSED = (".zstd", ".zst")
_SUFFIXES: dict[Family, tuple[str, ...]] = {"mcap": (".mcap",), "rosbag": (".bag", ".db3")}
_METADATA_FILE, _METADATA_MARK = "metadata.yaml", b"rosbag2_bagfile_information"
_MAX_METADATA = 1 << 24
# What it says of files and messages, as all that write it do; YAML has other ways.
_LISTED = re.compile(rb"^ +relative_file_paths:((?: *\[[^\]]*\])|(?:\n *- [^\n]*)*)", re.MULTILINE)
_FILE_NAME = re.compile(rb"""(?:- |[\[,]) *["']?([^"',\[\]\n]+\.(?:db3|mcap)[.\w]*)""")
_NUM_MESSAGES = re.compile(rb"^ {0,2}message_count: *([0-9]{1,18})", re.MULTILINE)


class Located(NamedTuple):
    """A message, and which file of its recording it is in."""

    file: int
    message: Message


@dataclasses.dataclass(frozen=True)
class Recording:
    """What was recorded at a time: a file, or several that follow one another.

    Attributes:
      name: Its name, relative to what was opened, without a suffix.
      files: Its files.
      described: The `metadata.yaml` of rosbag2, if there is one.
      missing: The files that it names, but that are not there.
      num_messages: How many messages it says that there are; 0 if it does not say so.
    """

    name: str
    files: tuple[epath.Path, ...]
    described: epath.Path | None = None
    missing: tuple[str, ...] = ()
    num_messages: int = 0

    @property
    def file_names(self) -> str:
        """What its files are called."""
        return ", ".join(file.name for file in self.files)

    def messages(self, flaws: Flaws) -> Iterator[Located]:
        """Yields all messages in the order of the files; see `Container.messages`.

        Raises:
          SourceError: A file is no recording, or one is missing.
        """
        if self.missing and self.described is not None:
            what = f"it names files that are not there: {', '.join(self.missing)}"
            raise SourceError(what, file=self.described, episode=self.name)
        count = 0
        for number, path in enumerate(self.files):
            found = Flaws()
            with source_errors(path), _opened(path) as file:
                for message in file.messages(found):
                    count += 1
                    yield Located(number, message)
            flaws.damages += found.damages
            flaws.cut = flaws.cut or (f"{path.name}: {found.cut}" if found.cut else "")
        if count < self.num_messages and not flaws.damages:
            what = f"{count} messages, but {_METADATA_FILE} says {self.num_messages}"
            flaws.cut = flaws.cut or what

    def fetch(self, places: Iterable[tuple[int, int, int]]) -> Iterator[bytes | memoryview]:
        """Yields the data of messages again.

        Args:
          places: Where they are: their files, and their places in them; in order.
        """
        with contextlib.ExitStack() as stack:
            is_open, file = -1, None
            for number, *place in places:
                if number != is_open or file is None:
                    stack.close()
                    file = stack.enter_context(_opened(self.files[number]))
                    is_open = number
                with source_errors(self.files[number]):
                    yield next(iter(file.fetch([(place[0], place[1])])))

    def records(self) -> Iterator[tuple[str, bytes]]:
        """Yields what the files have beside messages."""
        for path in self.files:
            with source_errors(path), _opened(path) as file:
                yield from file.records()

    def sha256(self) -> str:
        """Returns the digests of the files, in hexadecimal, one in a line."""
        return "\n".join(map(_sha256, self.files))


def find_recordings(path: str | os.PathLike[str], family: Family) -> list[Recording]:
    """Returns the recordings at a path, in the natural order of their names.

    Args:
      path: A file; the folder of a bag of ROS 2; or a folder with several of either.
      family: Which kinds to look for.
    """
    place = stores.as_path(path)
    if not place.is_dir():
        if _suffix(place.name) not in _SUFFIXES[family]:
            return []
        return [Recording(_stem(place.name), tuple(require_files(place)))]
    if (bag := _rosbag2(place, place.name)) is not None:
        return [bag] if family == "rosbag" else []
    found = []
    for entry in sorted(stores.list_directory(place), key=lambda entry: natural_order(entry.name)):
        inner = place / entry.name
        if entry.is_dir:
            if family == "rosbag" and (bag := _rosbag2(inner, entry.name)) is not None:
                found.append(bag)
        elif entry.name.startswith("."):
            continue
        elif _suffix(entry.name) in _SUFFIXES[family]:
            found.append(Recording(_stem(entry.name), tuple(require_files(inner))))
        else:
            check_link(inner)
    return found


def looks_like(path: str | os.PathLike[str], family: Family) -> bool:
    """Whether there are recordings at a path; reads little of them."""
    found = find_recordings(path, family)
    if not found:
        return False
    file = found[0].files[0]
    if found[0].missing:
        return True
    if file.name.endswith(_COMPRESSED):
        return True
    magic = _MAGIC[_suffix(file.name)]
    with stores.open_binary(file) as opened:
        return opened.read(len(magic)) == magic


def _rosbag2(folder: epath.Path, name: str) -> Recording | None:
    described = folder / _METADATA_FILE
    if not described.exists() or described.is_dir():
        return None
    check_is_file(described)
    with stores.open_binary(described) as file:
        said = file.read(_MAX_METADATA)
    if _METADATA_MARK not in said:
        return None
    names = [
        entry.name
        for entry in stores.list_directory(folder)
        if _suffix(entry.name) in (".db3", ".mcap") and not entry.is_dir
    ]
    files = [folder / name for name in sorted(names, key=natural_order)]
    if not files:
        return None
    listed = _LISTED.search(said)
    # Some were compressed or converted later, and some lists begin with the name of the folder.
    there = {_stem(name) for name in names}
    found = [
        os.path.basename(match[1].decode(errors="replace"))
        for match in _FILE_NAME.finditer(listed[1] if listed else b"")
    ]
    missing = tuple(file for file in found if _stem(file) not in there)
    count = _NUM_MESSAGES.search(said)
    return Recording(
        name, tuple(require_files(*files)), described, missing, int(count[1]) if count else 0
    )


def _stem(name: str) -> str:
    for suffix in (*_COMPRESSED, *_KINDS):
        name = name.removesuffix(suffix)
    return name


def _suffix(name: str) -> str:
    """Returns the suffix that says which kind of file it is."""
    for suffix in _COMPRESSED:
        name = name.removesuffix(suffix)
    return os.path.splitext(name)[1]


@contextlib.contextmanager
def _opened(path: epath.Path) -> Iterator[Any]:
    """Opens a file, a copy of one in an object store, or what comes out of a compressed one."""
    with contextlib.ExitStack() as stack:
        local = stack.enter_context(stores.on_disk(path))
        if path.name.endswith(_COMPRESSED):
            folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="rlds-bag-"))
            local = _decompressed_file(local, os.path.join(folder, "bag"))
        file = _KINDS[_suffix(path.name)](local)
        stack.callback(file.close)
        yield file


def _decompressed_file(path: str, target: str) -> str:
    left = trusted_bytes(os.path.getsize(path))
    with open(path, "rb") as packed, open(target, "wb") as file:
        reader = zstandard.ZstdDecompressor().stream_reader(packed, read_across_frames=True)
        while piece := reader.read(1 << 20):
            left -= len(piece)
            if left < 0:
                raise SourceError("more comes out of it than recorded data ever has", file=path)
            file.write(piece)
    return target


def _sha256(path: epath.Path) -> str:
    with stores.open_binary(path) as file:
        return hashlib.file_digest(file, "sha256").hexdigest()  # type: ignore[arg-type]
