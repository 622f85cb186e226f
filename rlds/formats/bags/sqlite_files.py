"""Reader of rosbag2 files in SQLite (`.db3`)."""

from __future__ import annotations

import contextlib
import re
import sqlite3
from collections.abc import Collection, Iterator
from pathlib import Path

import zstandard

from rlds.formats.bags.messages import BagDamage, Channel, Message, check_decompressed

__all__ = ["MAGIC", "messages"]

MAGIC = b"SQLite format 3\0"
_ZSTD_MAGIC = b"\x28\xb5\x2f\xfd"
# The begin of the SQL statements of recorders; internal tables have no statement.
_STATEMENT = re.compile(r"CREATE\s+(TABLE|(UNIQUE\s+)?INDEX)\s", re.IGNORECASE)


def messages(
    path: str, damage: BagDamage, topics: Collection[str] | None, start: int, end: int
) -> Iterator[Message]:
    """Yields messages in the order of their rows; see `BagReader`."""
    del damage  # A SQLite bag is complete, or reading raises an error.
    # This URI opens the file read-only, without a journal.
    uri = f"{Path(path).absolute().as_uri()}?mode=ro&immutable=1"
    with contextlib.closing(sqlite3.connect(uri, uri=True)) as database:
        database.execute("PRAGMA trusted_schema = OFF")
        database.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, 1 << 30)
        _check_tables(database)
        channels = {
            channel_id: channel
            for channel_id, channel in _channels(database).items()
            if topics is None or channel.topic in topics
        }
        placeholders = ", ".join("?" * len(channels))
        rows = database.execute(
            # Sorting row ids alone is faster than sorting rows with data.
            "SELECT id, topic_id, timestamp, data FROM messages WHERE id IN (SELECT id FROM "
            f"messages WHERE timestamp >= ? AND timestamp < ? AND topic_id IN ({placeholders})) "
            "ORDER BY id",
            (start, end, *channels),
        )
        last_id = -1
        for row_id, topic, time, data in rows:
            if row_id <= last_id:  # Damaged pages may form an endless cycle.
                raise ValueError(f"the database is damaged: row {row_id} comes after {last_id}")
            if not isinstance(time, int) or not isinstance(data, bytes):
                raise ValueError(f"row {row_id} of the table messages is not a message")
            last_id = row_id
            yield Message(channels[topic], time, time, 0, _decompress(data))


def _check_tables(database: sqlite3.Connection) -> None:
    """Raises an error for views, triggers and generated columns, which may be of any size."""
    for name, sql in database.execute("SELECT name, CAST(sql AS TEXT) FROM sqlite_master"):
        # The declared kind may be wrong; only the statement is reliable.
        if sql is not None and not _STATEMENT.match(sql):
            raise ValueError(f"not a rosbag2 database: {name!r} is not a table ({sql:.60})")
    for table in ("topics", "messages", "message_definitions"):
        columns = database.execute("SELECT name, hidden FROM pragma_table_xinfo(?)", (table,))
        for column, is_hidden in columns:
            if is_hidden:
                raise ValueError(f"not a rosbag2 database: {table}.{column} is a generated column")


def _channels(database: sqlite3.Connection) -> dict[int, Channel]:
    definitions: dict[str, tuple[str, str]] = {}
    with contextlib.suppress(sqlite3.OperationalError):  # Old files lack this table.
        rows = database.execute(
            "SELECT topic_type, encoding, encoded_message_definition FROM message_definitions"
        )
        definitions = {kind: (encoding, text) for kind, encoding, text in rows}
    topics = database.execute("SELECT id, name, type, serialization_format FROM topics")
    channels = {}
    for channel_id, topic, kind, encoding in topics:
        schema_encoding, schema = definitions.get(kind, ("", ""))
        channels[channel_id] = Channel(
            str(topic), str(kind), str(encoding), str(schema).encode(), str(schema_encoding)
        )
    return channels


def _decompress(data: bytes) -> bytes:
    """Decompresses a message if needed; CDR never begins with the magic bytes of zstd."""
    if not data.startswith(_ZSTD_MAGIC):
        return data
    check_decompressed(zstandard.frame_content_size(data), len(data))
    return zstandard.ZstdDecompressor().decompress(data)
