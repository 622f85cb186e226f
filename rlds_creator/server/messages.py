"""The messages of a page during play: JSON, with the kind of the message as `op`.

All fields have limits, so that the cost of a message is proportional to its length. Pictures are
messages of `rlds_creator.frames`.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

import msgspec

from rlds_creator.server.errors import BadRequestError
from rlds_creator.type_errors import explain

__all__ = [
    "PROTOCOL",
    "Ack",
    "ControlPress",
    "Event",
    "Hello",
    "Input",
    "Message",
    "SettingsChange",
    "decode",
]

PROTOCOL = 1

_Counter = Annotated[int, msgspec.Meta(ge=0, lt=2**32)]
# The type of the value of an input, which is limited.
_Value = Annotated[float, msgspec.Meta(ge=-1000, le=1000)]
_Milliseconds = Annotated[float, msgspec.Meta(ge=0, lt=1e15)]


class _PageMessage(msgspec.Struct, frozen=True, tag_field="op", forbid_unknown_fields=True):
    pass


class Hello(_PageMessage, frozen=True, tag="hello"):
    """The first message of a page.

    Attributes:
      protocol: The version of the protocol that the page uses.
    """

    protocol: int


class Event(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """An input event of a person; see `rlds_creator.environments.playable.Inputs`.

    Attributes:
      t: The time in milliseconds, on the clock of the page.
      name: The name of the input; "*" for all inputs.
      value: The new value of the input.
      key: The typed text.
    """

    t: _Milliseconds
    name: Annotated[str, msgspec.Meta(min_length=1, max_length=32, pattern=r"^[^\0]+\Z")]
    value: _Value
    key: Annotated[str, msgspec.Meta(max_length=32)] = ""


class Input(_PageMessage, frozen=True, tag="input"):
    """Input events, in order.

    Attributes:
      seq: The index of the message.
      events: The events since the last message.
    """

    seq: _Counter
    events: Annotated[tuple[Event, ...], msgspec.Meta(max_length=100)]


class ControlPress(_PageMessage, frozen=True, tag="control"):
    """A press of a button of the page.

    Attributes:
      do: The action.
      value: The verdict for "confirm"; True or False for "success".
    """

    do: Literal["resume", "pause", "end", "retry", "success", "confirm"]
    value: Literal["completed", "cancelled", "rejected"] | bool | None = None


class SettingsChange(_PageMessage, frozen=True, tag="set", omit_defaults=True):
    """Changed settings; None leaves a setting unchanged."""

    fps: Annotated[float, msgspec.Meta(gt=0, le=120)] | None = None
    quality: Literal["draft", "low", "medium", "high"] | None = None
    camera: Annotated[int, msgspec.Meta(ge=0, lt=1000)] | None = None
    controller: Annotated[str, msgspec.Meta(max_length=200)] | None = None


class Ack(_PageMessage, frozen=True, tag="ack"):
    """The acknowledgement of a picture, and of all earlier pictures.

    Attributes:
      frame: The index of the picture.
    """

    frame: _Counter


Message = Hello | Input | ControlPress | SettingsChange | Ack

_decoder = msgspec.json.Decoder(Message)


def decode(text: str | bytes) -> Any:
    """Decodes a message of a page, one of `Message`.

    Raises:
      BadRequestError: The message is invalid.

    >>> decode('{"op": "ack", "frame": 7}')
    Ack(frame=7)
    """
    try:
        return _decoder.decode(text)
    except msgspec.DecodeError as error:
        raise BadRequestError(explain(error), code="message") from None
    except RecursionError:
        raise BadRequestError("the message is nested too deeply", code="message") from None
