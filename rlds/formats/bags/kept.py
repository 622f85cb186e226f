"""The untouched messages of an episode, as an MCAP file."""

from __future__ import annotations

import io
from collections.abc import Iterable, Mapping
from typing import Any, BinaryIO

from rlds.formats.bags.mcap_files import McapFile
from rlds.formats.bags.messages import Channel, Flaws, Message
from rlds.formats.bags.recordings import Recording
from rlds_ecosystem import import_extra

__all__ = ["RECORDING_RECORD", "MessageWriter", "kept_messages", "merge", "parse_record"]

# The metadata record in which an export says what a recording was made of.
RECORDING_RECORD = "rlds_recording"


class MessageWriter:
    """Writes an MCAP file.

    Args:
      file: Where to.
      profile: What conventions its messages follow: `ros1`, `ros2`, or none.
    """

    def __init__(self, file: BinaryIO, profile: str = "") -> None:
        self._writer = import_extra("mcap.writer").Writer(file)
        self._writer.start(profile=profile, library="rlds")
        self._schemas: dict[tuple[str, str, bytes], int] = {}
        self._channels: dict[Channel, int] = {}

    def add(self, message: Message) -> None:
        """Adds a message."""
        channel = message.channel
        if channel not in self._channels:
            schema = (channel.type, channel.schema_encoding, channel.schema)
            if any(schema) and schema not in self._schemas:
                self._schemas[schema] = self._writer.register_schema(*schema)
            self._channels[channel] = self._writer.register_channel(
                channel.topic,
                channel.encoding,
                self._schemas.get(schema, 0),
                dict(channel.metadata),
            )
        self._writer.add_message(
            self._channels[channel],
            message.log_time,
            bytes(message.data),
            message.publish_time,
            message.sequence,
        )

    def add_metadata(self, name: str, said: Mapping[str, str]) -> None:
        """Adds a metadata record."""
        self._writer.add_metadata(name, dict(said))

    def add_attachment(self, name: str, kind: str, data: bytes, times: tuple[int, int]) -> None:
        """Adds an attachment, with the times at which it was made and logged."""
        self._writer.add_attachment(times[0], times[1], name, kind, data)

    def copy(self, kind: str, data: bytes) -> None:
        """Adds a record that is no message, as `Recording.records` yields it."""
        record = parse_record(kind, data)
        if kind == "Metadata":
            self.add_metadata(record.name, record.metadata)
        else:
            times = (record.create_time, record.log_time)
            self.add_attachment(record.name, record.media_type, record.data, times)

    def finish(self) -> None:
        """Ends the file."""
        self._writer.finish()


def parse_record(kind: str, data: bytes) -> Any:
    """Returns an attachment or a metadata record."""
    stream = import_extra("mcap.data_stream").ReadDataStream(io.BytesIO(data))
    return getattr(import_extra("mcap.records"), kind).read(stream)


def kept_messages(recording: Recording, begin: int, end: int, with_records: bool) -> bytes:
    """Returns an MCAP file with the messages between two log times, in the order of the files.

    Args:
      recording: The recording.
      begin: The first log time.
      end: The log time after the last one.
      with_records: Whether to take what the recording has beside messages, too.
    """
    file = io.BytesIO()
    writer = MessageWriter(file)
    for _, message in recording.messages(Flaws()):
        if begin <= message.log_time < end:
            writer.add(message)
    for kind, data in recording.records() if with_records else ():
        if kind != "Metadata" or parse_record(kind, data).name != RECORDING_RECORD:
            writer.copy(kind, data)
    writer.finish()
    return file.getvalue()


def merge(blobs: Iterable[bytes], writer: MessageWriter) -> None:
    """Writes what was kept of episodes."""
    for blob in blobs:
        with McapFile.of_bytes(blob) as file:
            flaws = Flaws()
            for message in file.messages(flaws):
                writer.add(message)
            if flaws.cut or flaws.damages:
                raise ValueError(f"damaged messages: {flaws}")
            for kind, data in file.records():
                writer.copy(kind, data)
