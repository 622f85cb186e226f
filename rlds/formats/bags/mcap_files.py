"""MCAP files, read from the front: what is complete of a file that was cut is there."""

from __future__ import annotations

import contextlib
import io
import os
import struct
import zlib
from collections.abc import Iterable, Iterator
from typing import Any, BinaryIO

from rlds.formats.bags.messages import Channel, Container, Flaws, Message, Place, decompressed
from rlds.raw_files.untrusted import is_damage
from rlds_ecosystem import import_extra

__all__ = ["MAGIC", "McapFile"]

MAGIC = b"\x89MCAP0\r\n"

_RECORD = struct.Struct("<BQ")
_MESSAGE = struct.Struct("<HIQQ")
_CHUNK = struct.Struct("<QQQII")
_SCHEMA, _CHANNEL, _CHUNK_CODE, _MESSAGE_CODE = 0x03, 0x04, 0x06, 0x05
_ATTACHMENT, _METADATA, _DATA_END, _FOOTER = 0x09, 0x0C, 0x0F, 0x02
_WANTED = (_SCHEMA, _CHANNEL, _CHUNK_CODE, _MESSAGE_CODE)
# In the place of the position in a chunk, for messages that are in none.
_NO_CHUNK = -1


class McapFile(Container):
    """An MCAP file."""

    def __init__(self, path: str, file: BinaryIO | None = None) -> None:
        super().__init__(path)
        self._records = import_extra("mcap.records")
        self._stream = import_extra("mcap.data_stream").ReadDataStream
        self._file: BinaryIO = file or open(path, "rb")  # noqa: SIM115
        self._size = self._file.seek(0, os.SEEK_END)
        self._chunk: tuple[int, bytes] = (-1, b"")

    @classmethod
    def of_bytes(cls, data: bytes) -> contextlib.closing[McapFile]:
        """Opens what was read of a file, to be closed at the end of a block."""
        return contextlib.closing(cls("messages", io.BytesIO(data)))

    def close(self) -> None:
        """See `Container`."""
        self._file.close()

    def messages(self, flaws: Flaws) -> Iterator[Message]:
        """See `Container`."""
        schemas: dict[int, Any] = {0: None}
        channels: dict[int, Channel] = {}
        for code, position, content in self._walk(_WANTED, flaws):
            if code != _CHUNK_CODE:
                yield from self._one(code, content, (position, _NO_CHUNK), schemas, channels)
                continue
            begin, end = 0, 2**63 - 1
            try:
                begin, end = struct.unpack_from("<QQ", content)
                for inner, at, piece in _inner(_unpacked(content)):
                    yield from self._one(inner, piece, (position, at), schemas, channels)
            except Exception as error:
                if not is_damage(error):
                    raise
                flaws.damages.append((begin, end, f"chunk at byte {position}: {error}"))

    def _one(
        self,
        code: int,
        content: bytes | memoryview,
        place: Place,
        schemas: dict[int, Any],
        channels: dict[int, Channel],
    ) -> Iterator[Message]:
        if code == _MESSAGE_CODE:
            number, sequence, log_time, publish_time = _MESSAGE.unpack_from(content)
            if number not in channels:
                raise ValueError(f"a message of channel {number}, which is not declared")
            data = memoryview(content)[_MESSAGE.size :]
            yield Message(channels[number], log_time, publish_time, sequence, data, place)
        elif code == _SCHEMA:
            schema = self._parse("Schema", content)
            schemas[schema.id] = schema
        elif code == _CHANNEL:
            found = self._parse("Channel", content)
            if found.schema_id not in schemas:
                raise ValueError(f"channel {found.topic!r} has no schema {found.schema_id}")
            schema = schemas[found.schema_id]
            channels[found.id] = Channel(
                found.topic,
                "" if schema is None else schema.name,
                found.message_encoding,
                b"" if schema is None else bytes(schema.data),
                "" if schema is None else schema.encoding,
                tuple(found.metadata.items()),
            )

    def fetch(self, places: Iterable[Place]) -> Iterator[bytes | memoryview]:
        """See `Container`."""
        for position, at in places:
            if at == _NO_CHUNK:
                yield memoryview(self._record_at(position))[_MESSAGE.size :]
                continue
            if self._chunk[0] != position:
                self._chunk = (position, _unpacked(self._record_at(position)))
            data = self._chunk[1]
            _, length = _RECORD.unpack_from(data, at)
            begin = at + _RECORD.size
            yield memoryview(data)[begin + _MESSAGE.size : begin + length]

    def records(self) -> Iterator[tuple[str, bytes]]:
        """Yields attachments and metadata records, as they are in the file."""
        for code, _, content in self._walk((_ATTACHMENT, _METADATA), Flaws()):
            yield ("Attachment" if code == _ATTACHMENT else "Metadata"), bytes(content)

    def _walk(self, wanted: Iterable[int], flaws: Flaws) -> Iterator[tuple[int, int, bytes]]:
        """Yields records of the data section: their kind, position, and content."""
        self._file.seek(0)
        if self._file.read(len(MAGIC)) != MAGIC:
            raise ValueError("no MCAP file: it begins with other bytes")
        position = len(MAGIC)
        while True:
            self._file.seek(position)
            head = self._file.read(_RECORD.size)
            if len(head) < _RECORD.size:
                flaws.cut = f"the file ends at byte {self._size}, before the end of its data"
                return
            code, length = _RECORD.unpack(head)
            if code in (_DATA_END, _FOOTER):
                return
            following = position + _RECORD.size + length
            if following > self._size:
                flaws.cut = f"the record at byte {position} is cut off"
                return
            if code in wanted:
                yield code, position, self._file.read(length)
            position = following

    def _record_at(self, position: int) -> bytes:
        self._file.seek(position)
        _, length = _RECORD.unpack(self._file.read(_RECORD.size))
        if length > self._size:
            raise ValueError(f"the record at byte {position} is cut off")
        return self._file.read(length)

    def _parse(self, name: str, content: bytes | memoryview) -> Any:
        kind = getattr(self._records, name)
        return kind.read(self._stream(io.BytesIO(content)))


def _inner(data: bytes) -> Iterator[tuple[int, int, memoryview]]:
    """Yields the records in a chunk: their kind, position, and content."""
    view, position = memoryview(data), 0
    while position < len(data):
        code, length = _RECORD.unpack_from(data, position)
        begin = position + _RECORD.size
        if begin + length > len(data):
            raise ValueError(f"the record at byte {position} of its content is cut off")
        yield code, position, view[begin : begin + length]
        position = begin + length


def _unpacked(content: bytes) -> bytes:
    """Returns the content of a chunk.

    Raises:
      ValueError: It is damaged.
    """
    _, _, size, checksum, name_size = _CHUNK.unpack_from(content)
    at = _CHUNK.size + name_size
    compression = content[_CHUNK.size : at].decode()
    (length,) = struct.unpack_from("<Q", content, at)
    data = decompressed(memoryview(content)[at + 8 : at + 8 + length], compression, size)
    if checksum and zlib.crc32(data) != checksum:
        raise ValueError("its checksum is another")
    return data
