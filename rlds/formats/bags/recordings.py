"""Search for recordings of robots, and access to their files."""

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
from rlds.formats.bags.messages import LAST_TIME, BagDamage, BagReader, Message, check_decompressed
from rlds.raw_files.input_files import natural_order
from rlds.raw_files.untrusted import check_is_file, check_link, source_errors
from rlds.sources.source import require_files
from rlds_ecosystem import import_extra
from rlds_ecosystem.files import stores

__all__ = ["BagRecording", "find_recordings", "is_mcap", "is_rosbag"]

Family = Literal["mcap", "rosbag"]

_READERS: dict[str, BagReader] = {
    ".mcap": mcap_files.messages,
    ".bag": ros1_files.messages,
    ".db3": sqlite_files.messages,
}
_MAGIC_BYTES = {".mcap": mcap_files.MAGIC, ".bag": ros1_files.MAGIC, ".db3": sqlite_files.MAGIC}
_COMPRESSED_SUFFIXES = (".zstd", ".zst")
_FAMILY_SUFFIXES: dict[Family, tuple[str, ...]] = {"mcap": (".mcap",), "rosbag": (".bag", ".db3")}
_METADATA_FILE, _METADATA_KEY = "metadata.yaml", "rosbag2_bagfile_information"


@dataclasses.dataclass(frozen=True)
class BagRecording:
    """A recording in one file, or in several consecutive files.

    Attributes:
      name: The name, relative to the opened path, without a suffix.
      files: The files.
      metadata_file: The `metadata.yaml` of rosbag2; None if there is no such file.
    """

    name: str
    files: tuple[epath.Path, ...]
    metadata_file: epath.Path | None = None

    def all_messages(self, damage: BagDamage) -> Iterator[Message]:
        """Yields all messages in the order of the files.

        Args:
          damage: Collects the damage; readable messages are still yielded.

        Raises:
          SourceError: A file is no recording, or is missing.
        """
        expected, count = self._expected_count(), 0
        for message in self.messages(damage):
            count += 1
            yield message
        if count < expected and not damage.gaps:
            damage.cut = damage.cut or f"{count} messages, but {_METADATA_FILE} says {expected}"

    def messages(
        self,
        damage: BagDamage,
        topics: Collection[str] | None = None,
        start: int = -LAST_TIME,
        end: int = LAST_TIME,
    ) -> Iterator[Message]:
        """Yields the messages of some topics between two log times, in the order of the files."""
        for path in self.files:
            file_damage = BagDamage()
            with source_errors(path), _local_copy(path) as local:
                yield from _READERS[_suffix(path.name)](local, file_damage, topics, start, end)
            damage.gaps += file_damage.gaps
            damage.cut = damage.cut or (file_damage.cut and f"{path.name}: {file_damage.cut}")

    def metadata(self) -> list[tuple[str, dict[str, str]]]:
        """Returns the names and contents of the metadata records of MCAP files."""
        records: list[tuple[str, dict[str, str]]] = []
        for path in self.files:
            if _suffix(path.name) == ".mcap":
                with source_errors(path), _local_copy(path) as local:
                    records += mcap_files.metadata(local)
        return records

    def attachment(self, name: str) -> bytes | None:
        """Returns an attachment of the first MCAP file; None if there is no such attachment."""
        with source_errors(self.files[0]), _local_copy(self.files[0]) as local:
            return mcap_files.attachment(local, name)

    def sha256(self) -> str:
        """Returns the digests of the files in hexadecimal, with a line for each file."""
        return "\n".join(map(_sha256, self.files))

    def _expected_count(self) -> int:
        """Returns the number of messages in `metadata.yaml`; 0 without such a file.

        Raises:
          SourceError: A listed file is missing.
        """
        if self.metadata_file is None:
            return 0
        with source_errors(self.metadata_file, episode=self.name):
            yaml = import_extra("ruamel.yaml").YAML(typ="safe")
            content = yaml.load(self.metadata_file.read_text())[_METADATA_KEY]
            # Files may have a new suffix after compression, and listed names may have a folder.
            stems = {_stem(file.name) for file in self.files}
            names = [os.path.basename(name) for name in content.get("relative_file_paths") or ()]
            if missing := [name for name in names if _stem(name) not in stems]:
                raise ValueError(f"it lists missing files: {', '.join(missing)}")
            return int(content.get("message_count", 0))


def find_recordings(path: str | os.PathLike[str], family: Family) -> list[BagRecording]:
    """Returns the recordings at a path, in the natural order of their names.

    Args:
      path: A file, the folder of a bag of ROS 2, or a folder of files or bags.
      family: The kind of recordings.
    """
    root = stores.as_path(path)
    if not root.is_dir():
        if _suffix(root.name) not in _FAMILY_SUFFIXES[family]:
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
        elif _suffix(entry.name) in _FAMILY_SUFFIXES[family]:
            recordings.append(BagRecording(_stem(entry.name), tuple(require_files(inner))))
        else:
            check_link(inner)
    return recordings


def _has_recordings(path: str | os.PathLike[str], family: Family) -> bool:
    """Returns True if a path has recordings, by the first bytes of a file."""
    recordings = find_recordings(path, family)
    if not recordings:
        return False
    file = recordings[0].files[0]
    if file.name.endswith(_COMPRESSED_SUFFIXES):
        return True
    magic = _MAGIC_BYTES[_suffix(file.name)]
    with stores.open_binary(file) as stream:
        return stream.read(len(magic)) == magic


is_mcap = functools.partial(_has_recordings, family="mcap")
is_rosbag = functools.partial(_has_recordings, family="rosbag")


def _rosbag2(folder: epath.Path, name: str) -> BagRecording | None:
    metadata_file = folder / _METADATA_FILE
    if not metadata_file.exists() or metadata_file.is_dir():
        return None
    check_is_file(metadata_file)
    if _METADATA_KEY.encode() not in metadata_file.read_bytes():
        return None
    names = [
        entry.name
        for entry in stores.list_directory(folder)
        if _suffix(entry.name) in (".db3", ".mcap") and not entry.is_dir
    ]
    if not names:
        return None
    files = require_files(*(folder / name for name in sorted(names, key=natural_order)))
    return BagRecording(name, tuple(files), metadata_file)


def _stem(name: str) -> str:
    for suffix in (*_COMPRESSED_SUFFIXES, *_READERS):
        name = name.removesuffix(suffix)
    return name


def _suffix(name: str) -> str:
    """Returns the suffix of a file without the suffix of its compression."""
    for suffix in _COMPRESSED_SUFFIXES:
        name = name.removesuffix(suffix)
    return os.path.splitext(name)[1]


@contextlib.contextmanager
def _local_copy(path: epath.Path) -> Iterator[str]:
    """Yields the local path of a file, or of a decompressed copy."""
    with contextlib.ExitStack() as stack:
        local = stack.enter_context(stores.on_disk(path))
        if not path.name.endswith(_COMPRESSED_SUFFIXES):
            yield local
            return
        folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="rlds-bag-"))
        target = os.path.join(folder, "bag")
        with open(local, "rb") as archive, open(target, "wb") as file:
            size = zstandard.frame_content_size(archive.read(1 << 10))
            check_decompressed(size, os.path.getsize(local))
            archive.seek(0)
            reader = zstandard.ZstdDecompressor().stream_reader(archive, read_across_frames=True)
            shutil.copyfileobj(reader, file)
        yield target


def _sha256(path: epath.Path) -> str:
    with stores.open_binary(path) as file:
        return hashlib.file_digest(file, "sha256").hexdigest()  # type: ignore[arg-type]
