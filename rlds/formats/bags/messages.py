"""What the files of recordings have in common: channels with messages, and flaws."""

from __future__ import annotations

import abc
import bz2
import dataclasses
from collections.abc import Iterable, Iterator
from typing import NamedTuple

import zstandard

from rlds.raw_files.untrusted import trusted_bytes
from rlds_ecosystem import import_extra

__all__ = ["ZSTD_MAGIC", "Channel", "Container", "Flaws", "Message", "Place", "decompressed"]

ZSTD_MAGIC = b"\x28\xb5\x2f\xfd"

# Where a message is in a file; what the two numbers mean, the container knows. They are in order.
Place = tuple[int, int]


@dataclasses.dataclass(frozen=True)
class Channel:
    """What messages with the same meaning have in common.

    Attributes:
      topic: The topic.
      type: The name of their type, as the file has it.
      encoding: How they are encoded, in the words of MCAP: cdr, ros1, json, protobuf, ....
      schema: The definition of the type; empty if the file has none.
      schema_encoding: How that is written: ros1msg, ros2msg, ros2idl, jsonschema, protobuf, ....
      metadata: What else is said of the channel.
    """

    topic: str
    type: str
    encoding: str
    schema: bytes = b""
    schema_encoding: str = ""
    metadata: tuple[tuple[str, str], ...] = ()


class Message(NamedTuple):
    """A message as it is in a file; times are in nanoseconds."""

    channel: Channel
    log_time: int
    publish_time: int
    sequence: int
    data: bytes | memoryview
    place: Place


@dataclasses.dataclass
class Flaws:
    """What is wrong with a file that was read.

    Attributes:
      cut: Why the file ends before its end; empty if it does not.
      damages: Pieces that cannot be read: log times between which they are, and why.
    """

    cut: str = ""
    damages: list[tuple[int, int, str]] = dataclasses.field(default_factory=list)


class Container(abc.ABC):
    """A file with messages, which is open.

    Args:
      path: The file, on this machine.
    """

    def __init__(self, path: str) -> None:
        self.path = path

    @abc.abstractmethod
    def messages(self, flaws: Flaws) -> Iterator[Message]:
        """Yields all messages in the order of the file; the data is valid until the next one.

        Args:
          flaws: Takes what is wrong. What can be read is yielded nevertheless.

        Raises:
          ValueError: This is no such file.
        """

    @abc.abstractmethod
    def fetch(self, places: Iterable[Place]) -> Iterator[bytes | memoryview]:
        """Yields the data of messages again; fast if the places are in order."""

    def records(self) -> Iterator[tuple[str, bytes]]:
        """Yields what the file has beside messages, for `mcap_files.Beside`."""
        yield from ()

    @abc.abstractmethod
    def close(self) -> None:
        """Closes it."""


def decompressed(data: bytes | memoryview, compression: str, size: int | None = None) -> bytes:
    """Returns what compressed bytes stand for.

    Args:
      data: The bytes.
      compression: "zstd", "lz4", "bz2"; "" or "none" if they are not compressed.
      size: How many there should be; if None, what comes out.

    Raises:
      ValueError: They are damaged, or more come out than recorded data ever has.
    """
    limit = trusted_bytes(len(data))
    if size is not None and size > limit:
        raise ValueError(f"{size:,} bytes are declared, which {len(data):,} cannot stand for")
    most = limit if size is None else size
    try:
        found = _decompress(data, compression, most + 1)
    except (zstandard.ZstdError, RuntimeError, OSError, EOFError) as error:
        raise ValueError(f"{compression}: {error}") from error
    if len(found) > most or (size is not None and len(found) != size):
        raise ValueError(f"{len(found):,} bytes came out of compressed ones, expected {most:,}")
    return found


def _decompress(data: bytes | memoryview, compression: str, most: int) -> bytes:
    """Returns no more than so many bytes."""
    if compression in ("", "none"):
        return bytes(data)
    if compression == "lz4":
        return bytes(import_extra("lz4.frame").LZ4FrameDecompressor().decompress(data, most))
    if compression == "bz2":
        return bz2.BZ2Decompressor().decompress(data, most)
    if compression != "zstd":
        raise ValueError(f"compression {compression!r} is not known")
    pieces = []
    with zstandard.ZstdDecompressor().stream_reader(data, read_across_frames=True) as reader:
        while most and (piece := reader.read(min(most, 1 << 20))):
            pieces.append(piece)
            most -= len(piece)
    return b"".join(pieces)
