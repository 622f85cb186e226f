"""Reader of MCAP files with the library mcap; reads the complete records of truncated files."""

from __future__ import annotations

import contextlib
import io
import itertools
import os
import struct
from collections.abc import Collection, Iterator
from typing import Any

from rlds.formats.bags.messages import LAST_TIME, BagDamage, Channel, Message, check_decompressed
from rlds.raw_files.untrusted import SourceError, is_damage, source_errors, words_of
from rlds_ecosystem import import_extra

__all__ = ["MAGIC", "attachment", "messages", "metadata"]

MAGIC = b"\x89MCAP0\r\n"

# The header of a record: its type and length.
_RECORD_HEADER = struct.Struct("<BQ")
_RECORD_HEADER_SIZE = _RECORD_HEADER.size
# The types of records with messages and their schemas.
_NEEDED_RECORDS = ("SCHEMA", "CHANNEL", "MESSAGE", "CHUNK")
# The library treats other values as "none".
_COMPRESSIONS = ("", "none", "zstd", "lz4")


class _File(io.BufferedReader):
    """A file whose reads allocate no more memory than its size, whatever lengths it declares."""

    def __init__(self, path: str) -> None:
        super().__init__(io.FileIO(path))
        self.size = os.path.getsize(path)
        if self.read(len(MAGIC)) != MAGIC:
            raise ValueError("not an MCAP file: it begins with other bytes")

    def read(self, size: int | None = -1) -> bytes:
        return super().read(size if size is None else min(size, self.size))


def messages(
    path: str, damage: BagDamage, topics: Collection[str] | None, start: int, end: int
) -> Iterator[Message]:
    """Yields messages in the order of the file; see `BagReader`."""
    types = import_extra("mcap.records")
    schemas: dict[int, Any] = {0: types.Schema(0, b"", "", "")}
    channels: dict[int, Channel] = {}
    count = 0
    with _File(path) as file:
        summary = _summary(file)
        for record in _records(file, summary, damage, start, end):
            for item in _content(record, damage):
                if isinstance(item, types.Schema):
                    schemas[item.id] = item
                elif isinstance(item, types.Channel) and item.id not in channels:
                    schema = schemas[item.schema_id]
                    channels[item.id] = Channel(
                        item.topic, schema.name, item.message_encoding, schema.data, schema.encoding
                    )
                elif isinstance(item, types.Message):
                    count += 1
                    channel, times = channels[item.channel_id], (item.log_time, item.publish_time)
                    if max(times) >= LAST_TIME:
                        problem = f"has impossible times: {times[0]}, {times[1]}"
                        raise ValueError(f"a message of {channel.topic} {problem}")
                    is_requested = topics is None or channel.topic in topics
                    if is_requested and start <= item.log_time < end:
                        yield Message(channel, *times, item.sequence, item.data)
    if topics is None and summary is not None and summary.statistics is not None:
        expected = summary.statistics.message_count
        if count < expected and not damage.gaps:
            damage.cut = damage.cut or f"{count} messages, but its summary says {expected}"


def _records(file: _File, summary: Any, damage: BagDamage, start: int, end: int) -> Iterator[Any]:
    """Yields the records with messages between two log times; skips other indexed chunks.

    Messages may be outside chunks, too: between indexed chunks, all records are read.
    """
    if summary is None or not summary.chunk_indexes or not summary.channels:
        yield from _all_records(file, damage)
        return
    chunk, stream = import_extra("mcap.records").Chunk, import_extra("mcap.data_stream")
    yield from summary.schemas.values()
    yield from summary.channels.values()
    chunks = {index.chunk_start_offset: index for index in summary.chunk_indexes}
    position = len(MAGIC)
    for offset, index in sorted(chunks.items()):
        yield from _records_between(file, damage, position, offset, chunks)
        position = max(position, offset + index.chunk_length + index.message_index_length)
        if index.message_start_time < end and index.message_end_time >= start:
            file.seek(offset + _RECORD_HEADER_SIZE)
            yield chunk.read(stream.ReadDataStream(file))
    yield from _records_between(file, damage, position, file.size, chunks)


def _records_between(
    file: _File, damage: BagDamage, offset: int, end: int, indexed: Collection[int]
) -> Iterator[Any]:
    """Yields the records with messages and their schemas between two offsets.

    Skips indexed chunks by their offsets, because the lengths in an index may be wrong.
    """
    types = import_extra("mcap.records")
    stream = import_extra("mcap.data_stream").ReadDataStream(file)
    codes = import_extra("mcap.opcode").Opcode
    needed_types = {
        code: getattr(types, code.name.title()) for code in codes if code.name in _NEEDED_RECORDS
    }
    try:
        while offset < end:
            file.seek(offset)
            code, size = _RECORD_HEADER.unpack(file.read(_RECORD_HEADER_SIZE))
            if code in (codes.DATA_END, codes.FOOTER):
                return
            start, offset = offset, offset + _RECORD_HEADER_SIZE + size
            if offset > end:
                raise ValueError(f"a record of {size} bytes reaches beyond byte {end}")
            if code in needed_types and start not in indexed:
                arguments = (size,) if code == codes.MESSAGE else ()
                yield needed_types[code].read(stream, *arguments)
    except Exception as error:
        if not is_damage(error):
            raise
        damage.gaps.append((0, LAST_TIME, f"damaged records outside chunks: {words_of(error)}"))


def _all_records(file: _File, damage: BagDamage) -> Iterator[Any]:
    """Yields all records except the last one: the footer, or a truncated record."""
    file.seek(0)
    reader = import_extra("mcap.stream_reader").StreamReader(file, emit_chunks=True)
    try:
        for record, _ in itertools.pairwise(reader.records):
            yield record
    except Exception as error:
        if not is_damage(error):
            raise
        reason = words_of(error)
        damage.cut = f"the file ends at byte {file.size} or is damaged before it ({reason})"


def _content(record: Any, damage: BagDamage) -> list[Any]:
    """Returns the records in a chunk record; a record of another type is returned alone."""
    if not isinstance(record, import_extra("mcap.records").Chunk):
        return [record]
    try:
        if record.compression not in _COMPRESSIONS:
            raise ValueError(f"unknown compression {record.compression!r}")
        check_decompressed(record.uncompressed_size, len(record.data))
        records: list[Any] = import_extra("mcap.stream_reader").breakup_chunk(record, True)
        return records
    except Exception as error:
        if not is_damage(error):
            raise
        times = record.message_start_time, record.message_end_time
        damage.gaps.append((*times, f"the chunk from log time {times[0]} on is damaged: {error}"))
        return []


def _summary(file: _File) -> Any:
    """Returns the summary at the end of a file; None for a truncated file."""
    with contextlib.suppress(SourceError), source_errors(file.name):
        file.seek(0)
        return import_extra("mcap.reader").make_reader(file).get_summary()
    return None


def metadata(path: str) -> list[tuple[str, dict[str, str]]]:
    """Returns the metadata records of a file: their names and contents."""
    with _File(path) as file:
        if _summary(file) is not None:
            file.seek(0)
            records = list(import_extra("mcap.reader").make_reader(file).iter_metadata())
        else:
            kind = import_extra("mcap.records").Metadata
            records = [item for item in _all_records(file, BagDamage()) if isinstance(item, kind)]
    return [(record.name, record.metadata) for record in records]


def attachment(path: str, name: str) -> bytes | None:
    """Returns an attachment of a complete MCAP file; None without an attachment of that name."""
    with _File(path) as file:
        file.seek(0)
        for record in import_extra("mcap.reader").make_reader(file).iter_attachments():
            if record.name == name:
                return bytes(record.data)
    return None
