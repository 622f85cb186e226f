"""Recordings of robots: files that belong together, located and opened."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import hashlib
import os
import shutil
import tempfile
from collections.abc import Collection, Iterator
from typing import Literal

import zstandard
from etils import epath

from rlds.formats.bags import mcap_files, ros1_files, sqlite_files
from rlds.formats.bags.messages import LAST_TIME, Flaws, Message, MessageReader, check_decompressed
from rlds.raw_files.input_files import natural_order
from rlds.raw_files.untrusted import check_is_file, check_link, source_errors
from rlds.sources.source import require_files
from rlds_ecosystem import import_extra
from rlds_ecosystem.files import stores

__all__ = ["BagRecording", "find_recordings", "is_mcap", "is_rosbag"]

Family = Literal["mcap", "rosbag"]

_READERS: dict[str, MessageReader] = {
    ".mcap": mcap_files.messages,
    ".bag": ros1_files.messages,
    ".db3": sqlite_files.messages,
}
_MAGIC = {".mcap": mcap_files.MAGIC, ".bag": ros1_files.MAGIC, ".db3": sqlite_files.MAGIC}
_COMPRESSED = (".zstd", ".zst")
_SUFFIXES: dict[Family, tuple[str, ...]] = {"mcap": (".mcap",), "rosbag": (".bag", ".db3")}
_METADATA_FILE, _METADATA_KEY = "metadata.yaml", "rosbag2_bagfile_information"


@dataclasses.dataclass(frozen=True)
class BagRecording:
    """A recording: a file, or several consecutive ones.

    Attributes:
      name: Its name, relative to what was opened, without a suffix.
      files: Its files.
      described: The `metadata.yaml` of rosbag2, if there is one.
    """

    name: str
    files: tuple[epath.Path, ...]
    described: epath.Path | None = None

    def all_messages(self, flaws: Flaws) -> Iterator[Message]:
        """Yields all messages in the order of the files.

        Args:
          flaws: Collects the damage. Readable messages are yielded nevertheless.

        Raises:
          SourceError: A file is no recording, or one is missing.
        """
        expected, count = self._num_described(), 0
        for message in self.messages(flaws):
            count += 1
            yield message
        if count < expected and not flaws.damages:
            flaws.cut = flaws.cut or f"{count} messages, but {_METADATA_FILE} says {expected}"

    def messages(
        self,
        flaws: Flaws,
        topics: Collection[str] | None = None,
        begin: int = -LAST_TIME,
        end: int = LAST_TIME,
    ) -> Iterator[Message]:
        """Yields the messages of some topics between two log times, in the order of the files."""
        for path in self.files:
            of_file = Flaws()
            with source_errors(path), _on_disk(path) as local:
                yield from _READERS[_suffix(path.name)](local, of_file, topics, begin, end)
            flaws.damages += of_file.damages
            flaws.cut = flaws.cut or (f"{path.name}: {of_file.cut}" if of_file.cut else "")

    def metadata(self) -> list[tuple[str, dict[str, str]]]:
        """Returns the metadata records of MCAP files: their names and contents."""
        records: list[tuple[str, dict[str, str]]] = []
        for path in self.files:
            if _suffix(path.name) == ".mcap":
                with source_errors(path), _on_disk(path) as local:
                    records += mcap_files.metadata(local)
        return records

    def attachment(self, name: str) -> bytes | None:
        """Returns an attachment of its first file, an MCAP file; None if there is none."""
        with source_errors(self.files[0]), _on_disk(self.files[0]) as local:
            return mcap_files.attachment(local, name)

    def sha256(self) -> str:
        """Returns the digests of the files, in hexadecimal, one in a line."""
        return "\n".join(map(_sha256, self.files))

    def _num_described(self) -> int:
        """Returns the number of messages in `metadata.yaml`; 0 if it has none.

        Raises:
          SourceError: It names a file that is not there.
        """
        if self.described is None:
            return 0
        with source_errors(self.described, episode=self.name):
            yaml = import_extra("ruamel.yaml").YAML(typ="safe")
            content = yaml.load(self.described.read_text())[_METADATA_KEY]
            # Some were compressed or converted later, and some lists begin with the folder.
            there = {_stem(file.name) for file in self.files}
            listed = [os.path.basename(name) for name in content.get("relative_file_paths") or ()]
            if missing := [name for name in listed if _stem(name) not in there]:
                raise ValueError(f"it lists missing files: {', '.join(missing)}")
            return int(content.get("message_count", 0))


def find_recordings(path: str | os.PathLike[str], family: Family) -> list[BagRecording]:
    """Returns the recordings at a path, in the natural order of their names.

    Args:
      path: A file; the folder of a bag of ROS 2; or a folder with several of either.
      family: The kinds to search for.
    """
    root = stores.as_path(path)
    if not root.is_dir():
        if _suffix(root.name) not in _SUFFIXES[family]:
            return []
        return [BagRecording(_stem(root.name), tuple(require_files(root)))]
    if (bag := _rosbag2(root, root.name)) is not None:
        return [bag] if family == "rosbag" else []
    recordings = []
    for entry in sorted(stores.list_directory(root), key=lambda entry: natural_order(entry.name)):
        inner = root / entry.name
        if entry.is_dir:
            if family == "rosbag" and (bag := _rosbag2(inner, entry.name)) is not None:
                recordings.append(bag)
        elif entry.name.startswith("."):
            continue
        elif _suffix(entry.name) in _SUFFIXES[family]:
            recordings.append(BagRecording(_stem(entry.name), tuple(require_files(inner))))
        else:
            check_link(inner)
    return recordings


def _looks_like(path: str | os.PathLike[str], family: Family) -> bool:
    """Whether a path holds recordings; reads little of them."""
    recordings = find_recordings(path, family)
    if not recordings:
        return False
    file = recordings[0].files[0]
    if file.name.endswith(_COMPRESSED):
        return True
    magic = _MAGIC[_suffix(file.name)]
    with stores.open_binary(file) as opened:
        return opened.read(len(magic)) == magic


is_mcap = functools.partial(_looks_like, family="mcap")
is_rosbag = functools.partial(_looks_like, family="rosbag")


def _rosbag2(folder: epath.Path, name: str) -> BagRecording | None:
    described = folder / _METADATA_FILE
    if not described.exists() or described.is_dir():
        return None
    check_is_file(described)
    if _METADATA_KEY.encode() not in described.read_bytes():
        return None
    names = [
        entry.name
        for entry in stores.list_directory(folder)
        if _suffix(entry.name) in (".db3", ".mcap") and not entry.is_dir
    ]
    if not names:
        return None
    files = require_files(*(folder / name for name in sorted(names, key=natural_order)))
    return BagRecording(name, tuple(files), described)


def _stem(name: str) -> str:
    for suffix in (*_COMPRESSED, *_READERS):
        name = name.removesuffix(suffix)
    return name


def _suffix(name: str) -> str:
    """Returns the suffix that tells the kind of file."""
    for suffix in _COMPRESSED:
        name = name.removesuffix(suffix)
    return os.path.splitext(name)[1]


@contextlib.contextmanager
def _on_disk(path: epath.Path) -> Iterator[str]:
    """Gives the path of a file on this machine: itself, or a copy that is not compressed."""
    with contextlib.ExitStack() as stack:
        local = stack.enter_context(stores.on_disk(path))
        if not path.name.endswith(_COMPRESSED):
            yield local
            return
        folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="rlds-bag-"))
        target = os.path.join(folder, "bag")
        with open(local, "rb") as packed, open(target, "wb") as file:
            size = zstandard.frame_content_size(packed.read(1 << 10))
            check_decompressed(size, os.path.getsize(local))
            packed.seek(0)
            reader = zstandard.ZstdDecompressor().stream_reader(packed, read_across_frames=True)
            shutil.copyfileobj(reader, file)
        yield target


def _sha256(path: epath.Path) -> str:
    with stores.open_binary(path) as file:
        return hashlib.file_digest(file, "sha256").hexdigest()  # type: ignore[arg-type]
