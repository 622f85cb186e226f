"""Bags of ROS 1 (version 2.0), read from the front: those that were not closed, too."""

from __future__ import annotations

import os
import struct
from collections.abc import Iterable, Iterator, Mapping

from rlds.formats.bags.messages import Channel, Container, Flaws, Message, Place, decompressed
from rlds.raw_files.untrusted import is_damage

__all__ = ["MAGIC", "Ros1File"]

MAGIC = b"#ROSBAG V2.0\n"

_SIZE = struct.Struct("<I")
_TIME = struct.Struct("<II")
_MESSAGE, _BAG, _CHUNK, _CONNECTION = 2, 3, 5, 7


class Ros1File(Container):
    """A bag of ROS 1."""

    def __init__(self, path: str) -> None:
        super().__init__(path)
        self._file = open(path, "rb")  # noqa: SIM115
        self._size = os.fstat(self._file.fileno()).st_size
        self._chunk: tuple[int, bytes] = (-1, b"")

    def close(self) -> None:
        """See `Container`."""
        self._file.close()

    def messages(self, flaws: Flaws) -> Iterator[Message]:
        """See `Container`."""
        channels: dict[int, Channel] = {}
        latest = 0
        damages: list[str] = []
        for position, header in self._walk(flaws):
            try:
                content = self._unpacked(header)
                for at, inner, data in _inner(content):
                    code = _code(inner)
                    if code == _CONNECTION:
                        channels[_number(inner, b"conn")] = _channel(inner, data)
                    elif code == _MESSAGE:
                        message = _message(inner, data, channels, (position, at))
                        flaws.damages += [(latest, message.log_time, why) for why in damages]
                        damages = []
                        latest = max(latest, message.log_time)
                        yield message
            except Exception as error:
                if not is_damage(error):
                    raise
                damages.append(f"chunk at byte {position}: {error}")
        flaws.damages += [(latest, 2**63 - 1, why) for why in damages]

    def fetch(self, places: Iterable[Place]) -> Iterator[bytes | memoryview]:
        """See `Container`."""
        for position, at in places:
            if self._chunk[0] != position:
                header = self._header_at(position)
                self._chunk = (position, self._unpacked(header))
            content = self._chunk[1]
            _, begin, end = _record(content, at)
            yield memoryview(content)[begin:end]

    def _walk(self, flaws: Flaws) -> Iterator[tuple[int, dict[bytes, bytes]]]:
        """Yields where chunks are, and their headers; the file is behind the header then."""
        self._file.seek(0)
        if self._file.read(len(MAGIC)) != MAGIC:
            raise ValueError("no bag of ROS 1: it begins with other bytes")
        position, end, is_closed = len(MAGIC), self._size, False
        while position < end:
            try:
                header = self._header_at(position)
                begin = self._file.tell()
                (length,) = _SIZE.unpack(self._file.read(_SIZE.size))
            except (struct.error, ValueError) as error:
                flaws.cut = f"the record at byte {position} is cut off ({error})"
                return
            following = begin + _SIZE.size + length
            if following > self._size:
                flaws.cut = f"the record at byte {position} is cut off"
                return
            code = _code(header)
            if code == _BAG:
                index = int.from_bytes(header.get(b"index_pos", b""), "little")
                is_closed = 0 < index <= self._size
                end = index if is_closed else end
                if not is_closed and index:
                    flaws.cut = f"the file ends at byte {self._size}, before its index at {index}"
            elif code == _CHUNK:
                self._file.seek(begin)
                yield position, header
            position = following
        if not is_closed and not flaws.cut:
            flaws.cut = "the bag was not closed: it has no index"

    def _header_at(self, position: int) -> dict[bytes, bytes]:
        """Reads the header of a record."""
        self._file.seek(position)
        (length,) = _SIZE.unpack(self._file.read(_SIZE.size))
        if position + length > self._size:
            raise ValueError("it is longer than the file")
        return _fields(self._file.read(length))

    def _unpacked(self, header: Mapping[bytes, bytes]) -> bytes:
        """Reads the content of a chunk, whose header was read."""
        (length,) = _SIZE.unpack(self._file.read(_SIZE.size))
        if length > self._size:
            raise ValueError("it is longer than the file")
        compression = header[b"compression"].decode()
        return decompressed(self._file.read(length), compression, _number(header, b"size"))


def _code(header: Mapping[bytes, bytes]) -> int:
    """Returns which kind of record a header is of."""
    return int.from_bytes(header.get(b"op", b""), "little")


def _number(header: Mapping[bytes, bytes], name: bytes) -> int:
    return int(_SIZE.unpack(header[name])[0])


def _fields(data: bytes | memoryview) -> dict[bytes, bytes]:
    """Returns the fields of a header.

    Raises:
      ValueError: It is damaged.
    """
    fields: dict[bytes, bytes] = {}
    position = 0
    while position < len(data):
        (size,) = _SIZE.unpack_from(data, position)
        begin = position + _SIZE.size
        name, equals, value = bytes(data[begin : begin + size]).partition(b"=")
        if not equals or begin + size > len(data):
            raise ValueError("a damaged header")
        fields[name] = value
        position = begin + size
    return fields


def _record(data: bytes, position: int) -> tuple[dict[bytes, bytes], int, int]:
    """Returns the header of a record, and where its content begins and ends."""
    (size,) = _SIZE.unpack_from(data, position)
    begin = position + _SIZE.size
    fields = _fields(memoryview(data)[begin : begin + size])
    (length,) = _SIZE.unpack_from(data, begin + size)
    begin += size + _SIZE.size
    if begin + length > len(data):
        raise ValueError(f"the record at byte {position} of its content is cut off")
    return fields, begin, begin + length


def _inner(data: bytes) -> Iterator[tuple[int, dict[bytes, bytes], memoryview]]:
    """Yields the records in a chunk: their position, header, and content."""
    view, position = memoryview(data), 0
    while position < len(data):
        fields, begin, end = _record(data, position)
        yield position, fields, view[begin:end]
        position = end


def _channel(header: Mapping[bytes, bytes], data: memoryview) -> Channel:
    said = {name.decode(): value.decode() for name, value in _fields(data).items()}
    beside = ("callerid", "latching", "md5sum")
    return Channel(
        header[b"topic"].decode(),
        said["type"],
        "ros1",
        said["message_definition"].encode(),
        "ros1msg",
        tuple((name, said[name]) for name in beside if name in said),
    )


def _message(
    header: Mapping[bytes, bytes], data: memoryview, channels: Mapping[int, Channel], place: Place
) -> Message:
    number = _number(header, b"conn")
    if number not in channels:
        raise ValueError(f"a message of connection {number}, which is not declared")
    seconds, nanoseconds = _TIME.unpack(header[b"time"])
    time = seconds * 10**9 + nanoseconds
    return Message(channels[number], time, time, 0, data, place)
