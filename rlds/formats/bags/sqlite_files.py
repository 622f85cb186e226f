"""Files of rosbag2 in SQLite (`.db3`)."""

from __future__ import annotations

import contextlib
import re
import shutil
import sqlite3
import tempfile
from collections.abc import Iterable, Iterator
from pathlib import Path

from rlds.formats.bags.messages import (
    ZSTD_MAGIC,
    Channel,
    Container,
    Flaws,
    Message,
    Place,
    decompressed,
)

__all__ = ["MAGIC", "SqliteFile"]

MAGIC = b"SQLite format 3\0"
# How what a recorder makes begins; sequences and the like have no statement.
_STATEMENT = re.compile(r"CREATE\s+(TABLE|(UNIQUE\s+)?INDEX)\s", re.IGNORECASE)


class SqliteFile(Container):
    """A database of rosbag2."""

    def __init__(self, path: str) -> None:
        super().__init__(path)
        self._stack = contextlib.ExitStack()
        # As it is: nothing is written, and no journal beside it is looked for.
        uri = f"{_whole_pages(Path(path), self._stack).absolute().as_uri()}?mode=ro&immutable=1"
        self._database = sqlite3.connect(uri, uri=True, check_same_thread=False)
        self._database.execute("PRAGMA trusted_schema = OFF")
        # SQLite refuses a file that is shorter than its header says, but not with this.
        self._database.execute("PRAGMA writable_schema = ON")
        self._database.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, 1 << 30)

    def close(self) -> None:
        """See `Container`."""
        self._database.close()
        self._stack.close()

    def messages(self, flaws: Flaws) -> Iterator[Message]:
        """See `Container`."""
        channels = self._channels()
        rows, number = None, -1
        while True:
            try:
                rows = rows or self._database.execute(
                    "SELECT id, topic_id, timestamp, data FROM messages ORDER BY id"
                )
                row = next(rows, None)
            except sqlite3.DatabaseError as error:
                flaws.cut = f"the database is damaged: {error}"
                return
            if row is None:
                return
            latest, (number, topic, time, data) = number, row
            if number <= latest:  # Pages of a damaged file may lead to one another for ever.
                flaws.cut = f"the database is damaged: row {number} comes after {latest}"
                return
            if topic not in channels or not isinstance(time, int) or not isinstance(data, bytes):
                flaws.cut = f"row {number} of its messages is no message of a topic"
                return
            yield Message(channels[topic], time, time, 0, _plain(data), (number, 0))

    def fetch(self, places: Iterable[Place]) -> Iterator[bytes | memoryview]:
        """See `Container`."""
        for number, _ in places:
            query = self._database.execute("SELECT data FROM messages WHERE id = ?", (number,))
            yield _plain(query.fetchone()[0])

    def _tables(self) -> list[str]:
        """Returns the names of the tables; refuses what makes values that the file does not hold.

        A view may never end, and a generated value may be of any size.
        """
        names = []
        schema = "SELECT name, type, CAST(sql AS TEXT) FROM sqlite_master"
        for name, kind, sql in self._database.execute(schema):
            # What is said of the kind may be wrong: what is there was made by this statement.
            if sql is not None and not _STATEMENT.match(sql):
                raise ValueError(f"no database of rosbag2: {name!r} is no table ({sql:.60})")
            if kind == "table":
                names.append(name)
        columns = "SELECT name, hidden FROM pragma_table_xinfo(?)"
        for table in names:
            for column, hidden in self._database.execute(columns, (table,)):
                if hidden:
                    raise ValueError(f"no database of rosbag2: {table}.{column} is generated")
        return names

    def _channels(self) -> dict[int, Channel]:
        found = self._tables()
        for name in ("topics", "messages"):
            if name not in found:
                raise ValueError(f"no database of rosbag2: it has no table {name!r}")
        definitions = {}
        if "message_definitions" in found:
            rows = self._database.execute(
                "SELECT topic_type, encoding, encoded_message_definition FROM message_definitions"
            )
            definitions = {kind: (encoding, text) for kind, encoding, text in rows}
        columns = [row[1] for row in self._database.execute("PRAGMA table_info(topics)")]
        beside = [
            name for name in ("offered_qos_profiles", "type_description_hash") if name in columns
        ]
        names = ", ".join(["id", "name", "type", "serialization_format", *beside])
        channels = {}
        for number, topic, kind, encoding, *others in self._database.execute(
            f"SELECT {names} FROM topics"
        ):
            schema_encoding, schema = definitions.get(kind, ("", ""))
            channels[number] = Channel(
                str(topic),
                str(kind),
                str(encoding),
                str(schema).encode(),
                str(schema_encoding),
                tuple((name, str(value)) for name, value in zip(beside, others)),
            )
        return channels


def _whole_pages(path: Path, stack: contextlib.ExitStack) -> Path:
    """Returns a copy without the last page if that was cut: SQLite would fill it with zeros."""
    size = path.stat().st_size
    with path.open("rb") as file:
        page = int.from_bytes(file.read(18)[16:], "big")
        page = 65536 if page == 1 else page
        if page < 512 or size % page == 0:
            return path
        folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="rlds-bag-"))
        copy = Path(folder) / "bag.db3"
        file.seek(0)
        with copy.open("wb") as target:
            shutil.copyfileobj(file, target)
            target.truncate(size - size % page)
    return copy


def _plain(data: bytes) -> bytes:
    """The message; CDR never begins as compressed bytes do."""
    return decompressed(data, "zstd") if data.startswith(ZSTD_MAGIC) else data
