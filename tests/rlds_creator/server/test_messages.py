"""Messages of pages are checked before a worker gets them."""

import json

import pytest

from rlds_creator.server import messages
from rlds_creator.server.errors import BadRequestError

EVENT = {"t": 0.0, "name": "KeyA", "value": 1.0, "key": "a"}


def test_valid_message_is_decoded():
    message = messages.decode(json.dumps({"op": "input", "seq": 3, "events": [EVENT]}))
    assert message == messages.Input(seq=3, events=(messages.Event(**EVENT),))


@pytest.mark.parametrize(
    "changes",
    [
        *({name: value} for name in ("t", "value") for value in ("x", 1e400, 10**400, None)),
        *({"name": name} for name in ("", "K" * 33, "Key\0", 7, None)),
        *({"key": key} for key in ("k" * 33, 7)),
        {"other": 1},
    ],
)
def test_invalid_events_are_refused(changes):
    text = json.dumps({"op": "input", "seq": 3, "events": [{**EVENT, **changes}]})
    with pytest.raises(BadRequestError):
        messages.decode(text)


@pytest.mark.parametrize(
    "message",
    [
        {"op": "unknown"},
        {"op": "input", "seq": "3", "events": []},
        {"op": "input", "seq": 3, "events": {}},
        {"op": "control", "do": "unknown"},
        {"op": "set", "fps": 0},
        {"op": "set", "fps": 1e9},
        {"op": "set", "fps": "fast"},
        {"op": "set", "controller": "c" * 201},
    ],
)
def test_invalid_messages_are_refused(message):
    with pytest.raises(BadRequestError):
        messages.decode(json.dumps(message))
