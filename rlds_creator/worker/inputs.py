"""The input queue: the input events of a person until the next step."""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Mapping
from typing import Any

from rlds_creator.environments.playable import Inputs
from rlds_creator.worker.states import RefusedError

__all__ = ["ALL_INPUTS", "InputQueue"]

# The name of the event that releases all inputs.
ALL_INPUTS = "*"

# Hysteresis of gamepad axes: the values at which an axis counts as held, and as released.
_DEAD_ZONE = 0.1
_RELEASE_ZONE = 0.08

_AXIS_NAME = re.compile(r"(Axis|Space)\d+")
_POINTER_POSITION = re.compile(r"Pointer[XY]")

# The maximum number of held inputs, and of events between two steps.
_MAX_HELD_INPUTS = 64
_MAX_EVENTS = 1000


class InputQueue:
    """Collects input events until the next step.

    No press is lost: an input that was pressed and released since the last step counts for the next
    step. An event with the value 0 releases an input, the event `ALL_INPUTS` releases all inputs.

    >>> queue = InputQueue()
    >>> queue.add({"t": 0, "name": "KeyA", "value": 1.0, "key": "a"})
    True
    >>> queue.add({"t": 9, "name": "KeyA", "value": 0.0, "key": "a"})
    False
    >>> queue.take()
    Inputs(held={'KeyA': 1.0}, pressed=('KeyA',), text='a')
    >>> queue.take()
    Inputs(held={}, pressed=(), text='')
    """

    def __init__(self) -> None:
        self._events: deque[list[Any]] = deque(maxlen=_MAX_EVENTS)
        self._held: dict[str, float] = {}
        self._recent_inputs: dict[str, float] = {}
        self._pressed: list[str] = []
        self._text: list[str] = []

    @property
    def is_held(self) -> bool:
        """True if an input other than a position is held."""
        return any(not _POINTER_POSITION.fullmatch(name) for name in self._held)

    def add(self, event: Mapping[str, Any]) -> bool:
        """Adds an event, see `rlds_creator.server.messages.Event`; returns True if it is a press.

        Raises:
          RefusedError: There are too many held inputs or events.
        """
        time, name, value, key = event["t"], event["name"], event["value"], event["key"]
        self._events.append([time, name, value, key])
        if name == ALL_INPUTS:
            self.release()
            return False
        previous_value = self._held.get(name, 0.0)
        if _AXIS_NAME.fullmatch(name):
            value = max(-1.0, min(value, 1.0))
            if abs(value) < (_RELEASE_ZONE if previous_value else _DEAD_ZONE):
                value = 0.0
        if not value and not _POINTER_POSITION.fullmatch(name):
            self._held.pop(name, None)
            return False
        if name not in self._recent_inputs and len(self._recent_inputs) >= _MAX_HELD_INPUTS:
            raise RefusedError(f"more than {_MAX_HELD_INPUTS} inputs are held at once")
        if len(self._pressed) >= _MAX_EVENTS:
            raise RefusedError(f"more than {_MAX_EVENTS} events in one step")
        self._held[name] = self._recent_inputs[name] = value
        if _POINTER_POSITION.fullmatch(name) or previous_value * value > 0:
            return False
        self._pressed.append(name)
        if len(key) == 1 and key.isprintable():
            self._text.append(key)
        return True

    def release(self) -> None:
        """Releases all inputs."""
        self._held.clear()

    def take(self) -> Inputs:
        """Returns the inputs that were held at any time since the last step."""
        return self._take(self._recent_inputs)

    def take_now(self) -> Inputs:
        """Returns the inputs that are held now or were pressed since the last step.

        An environment with a step for each press uses this: an input that was held before and is
        released by now does not count.
        """
        pressed = {name: self._recent_inputs[name] for name in self._pressed}
        return self._take({**pressed, **self._held})

    def _take(self, held: dict[str, float]) -> Inputs:
        inputs = Inputs(held=held, pressed=tuple(self._pressed), text="".join(self._text))
        self._recent_inputs = dict(self._held)
        self._pressed.clear()
        self._text.clear()
        return inputs

    def take_events(self) -> list[list[Any]]:
        """Returns and clears the raw events, each of them `[t_ms, name, value, key]`."""
        events = list(self._events)
        self._events.clear()
        return events

    def clear(self) -> None:
        """Discards inputs that are not held now, such as keys pressed during a pause."""
        self.take()
        self._events.clear()
