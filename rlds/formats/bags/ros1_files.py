"""Reader of ROS 1 bags with the library rosbags; unclosed bags need `rosbag reindex`."""

from __future__ import annotations

from collections.abc import Collection, Iterator

from rlds.formats.bags.messages import BagDamage, Channel, Message
from rlds_ecosystem import import_extra

__all__ = ["MAGIC", "messages"]

MAGIC = b"#ROSBAG V2.0\n"


def messages(
    path: str, damage: BagDamage, topics: Collection[str] | None, start: int, end: int
) -> Iterator[Message]:
    """Yields messages in the order of their times; see `BagReader`."""
    del damage  # A ROS 1 bag is complete, or reading raises an error.
    with import_extra("rosbags.rosbag1").Reader(path) as reader:
        connections = [it for it in reader.connections if topics is None or it.topic in topics]
        channels = {
            it.id: Channel(it.topic, it.msgtype, "ros1", it.msgdef.data.encode(), "ros1msg")
            for it in connections
        }
        records = reader.messages(connections, start, end) if connections else ()
        for connection, time, data in records:
            yield Message(channels[connection.id], time, time, 0, data)
