"""Messages, channels and damage of recording files, for all formats of bags."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Collection, Iterator
from typing import NamedTuple, TypeAlias

from rlds.raw_files.untrusted import trusted_bytes

__all__ = ["LAST_TIME", "BagDamage", "BagReader", "Channel", "Message", "check_decompressed"]

LAST_TIME = 2**63 - 1
"""An upper bound of the times of messages."""


@dataclasses.dataclass(frozen=True)
class Channel:
    """A channel: the topic, type and encoding of its messages.

    Attributes:
      topic: The topic.
      type: The name of the message type in the file.
      encoding: The MCAP name of the message encoding: cdr, ros1, json, protobuf, ....
      schema: The definition of the type; empty if it is missing.
      schema_encoding: The language of the schema: ros1msg, ros2msg, ros2idl, jsonschema, ....
    """

    topic: str
    type: str
    encoding: str
    schema: bytes = b""
    schema_encoding: str = ""


class Message(NamedTuple):
    """A message as stored in a recording; times are in nanoseconds."""

    channel: Channel
    log_time: int
    publish_time: int
    sequence: int
    data: bytes


@dataclasses.dataclass
class BagDamage:
    """The damage in a file.

    Attributes:
      cut: The reason why the file is incomplete; empty if it is complete.
      gaps: Unreadable pieces: the log times before and after a piece, and the reason.
    """

    cut: str = ""
    gaps: list[tuple[int, int, str]] = dataclasses.field(default_factory=list)


BagReader: TypeAlias = Callable[
    [str, BagDamage, Collection[str] | None, int, int], Iterator[Message]
]
"""Yields the messages of a file in a fixed order.

The arguments are the path of the file, the damage, to which the reader adds, the requested topics
(None for all), and the range of log times: the first time, and the end.
"""


def check_decompressed(declared_size: int, size: int) -> None:
    """Checks that the declared size is plausible for the compressed size of recorded data.

    Raises:
      ValueError: The declared size is not plausible.
    """
    if declared_size > trusted_bytes(size):
        raise ValueError(f"{declared_size:,} bytes are declared, but only {size:,} are stored")
