"""The message with which a picture travels from the worker through the server to the page.

A header of 36 bytes, little-endian, then the action as JSON, then the picture:

    offset  type  field
    0       u8    1, the version
    1       u8    codec of the picture: 1 JPEG, 2 WebP, 3 PNG
    2       u16   flags: 1 first step, 2 last step, 4 no new step (a camera or a quality changed)
    4       u32   index of the frame since the start of the worker
    8       u32   index of the step in the episode
    12      u32   index of the last input before the picture was drawn
    16      f32   reward of the step
    20      f32   sum of the rewards so far
    24 f64 time at which the picture was drawn, in seconds since 1970
    32      u16   length of the action
    34      u16   0

The pages read it in `static/frames.js`.
"""

from __future__ import annotations

import dataclasses
import struct

__all__ = ["CODECS", "Frame", "read_index"]

CODECS = {"jpeg": 1, "webp": 2, "png": 3}
_FORMAT_VERSION = 1
_HEADER = struct.Struct("<BBHIIIffdHH")
_INDEX_FIELD = struct.Struct("<4xI")
_IS_FIRST, _IS_LAST, _IS_REDRAWN = 1, 2, 4


@dataclasses.dataclass(frozen=True, slots=True)
class Frame:
    """A picture of a step.

    Attributes:
      index: The index of the frame since the start of the worker.
      step: The index of the step in the episode.
      picture: An image file.
      codec: The format of the picture, one of `CODECS`.
      action: The action that led to the step, as JSON; empty for the first step.
      reward: The reward of the step.
      total_reward: The sum of the rewards up to the step.
      applied_input: The index of the last input before the picture was drawn.
      time: The time at which the picture was drawn, in seconds since 1970.
      is_first: Whether the step is the first step of an episode.
      is_last: Whether the step is the last step of an episode.
      is_redrawn: Whether the picture shows the same step again, with another camera or quality.

    >>> frame = Frame(index=7, step=0, picture=b"...", codec="png", is_first=True)
    >>> Frame.decode(frame.encode()) == frame
    True
    """

    index: int
    step: int
    picture: bytes
    codec: str
    action: str = ""
    reward: float = 0.0
    total_reward: float = 0.0
    applied_input: int = 0
    time: float = 0.0
    is_first: bool = False
    is_last: bool = False
    is_redrawn: bool = False

    def encode(self) -> bytes:
        """Returns the message."""
        action = self.action.encode()[:65535]
        flags = _IS_FIRST * self.is_first | _IS_LAST * self.is_last | _IS_REDRAWN * self.is_redrawn
        header = _HEADER.pack(
            _FORMAT_VERSION,
            CODECS[self.codec],
            flags,
            self.index & 0xFFFFFFFF,
            self.step & 0xFFFFFFFF,
            self.applied_input & 0xFFFFFFFF,
            self.reward,
            self.total_reward,
            self.time,
            len(action),
            0,
        )
        return b"".join((header, action, self.picture))

    @classmethod
    def decode(cls, message: bytes) -> Frame:
        """Returns the frame of a message.

        Raises:
          ValueError: The message is not a frame.
        """
        try:
            version, codec, flags, *fields, size, _ = _HEADER.unpack_from(message)
            index, step, applied, reward, total, time = fields
            codec = {code: name for name, code in CODECS.items()}[codec]
        except (struct.error, KeyError):
            raise ValueError("not a frame message") from None
        end = _HEADER.size + size
        if version != _FORMAT_VERSION or len(message) < end:
            raise ValueError("not a frame message")
        return cls(
            index=index,
            step=step,
            picture=message[end:],
            codec=codec,
            action=message[_HEADER.size : end].decode(),
            reward=reward,
            total_reward=total,
            applied_input=applied,
            time=time,
            is_first=bool(flags & _IS_FIRST),
            is_last=bool(flags & _IS_LAST),
            is_redrawn=bool(flags & _IS_REDRAWN),
        )


def read_index(message: bytes) -> int:
    """Returns the index of the frame of a message, without decoding the rest.

    >>> read_index(Frame(index=7, step=0, picture=b"...", codec="png").encode())
    7
    """
    index: int = _INDEX_FIELD.unpack_from(message)[0]
    return index
