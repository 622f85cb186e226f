"""The state machine of a play: its states and their transitions."""

from __future__ import annotations

import dataclasses
import enum
import math

__all__ = ["Expiry", "PlayStates", "RefusedError", "State"]


class State(enum.StrEnum):
    """The state of a play.

    NEW: the environment is being created. READY: the first step is still to come. RUNNING and
    PAUSED: during an episode. ENDED: the verdict of the player is missing. CLOSED: the player was
    inactive for too long.
    """

    NEW = "new"
    READY = "ready"
    RUNNING = "running"
    PAUSED = "paused"
    ENDED = "ended"
    CLOSED = "closed"


class RefusedError(Exception):
    """The request is not allowed in the current state; the text is for the player."""


@dataclasses.dataclass(frozen=True)
class Expiry:
    """The timeouts of an inactive player, in seconds.

    Attributes:
      idle: Time without an input after which a real-time environment is paused.
      paused: Time without an input after which the episode is abandoned.
    """

    idle: float = 30.0
    paused: float = 900.0


class PlayStates:
    """The state machine of a play, with one or more episodes.

    Methods take the time `now` in seconds, on a monotonic clock.

    Args:
      is_async: Whether the environment runs in real time.
      expiry: The timeouts of an inactive player.
      now: The time.

    Attributes:
      state: The current state.
      reason: The reason of the last transition: "start", "user", "idle", "network", "terminated",
        "truncated", "failed", "expired", or "".
      played_seconds: The running time of the episode, up to the last change of the state.

    >>> play = PlayStates(is_async=True, expiry=Expiry(idle=30), now=0)
    >>> play.start(0)
    >>> play.resume(1), play.tick(40)
    (True, True)
    >>> play.state.value, play.reason
    ('paused', 'idle')
    """

    def __init__(self, *, is_async: bool, expiry: Expiry, now: float) -> None:
        self.state = State.NEW
        self.reason = ""
        self.played_seconds = 0.0
        self._is_async = is_async
        self._expiry = expiry
        self._entered_at = self._active_at = now
        self._is_held = False

    def start(self, now: float) -> None:
        """Enters the state READY, after a reset."""
        if self.state not in (State.NEW, State.ENDED):
            raise RefusedError("the episode is running. End it before you start another one.")
        self._enter(State.READY, "start", now)
        self.played_seconds = 0.0

    def resume(self, now: float) -> bool:
        """Starts or resumes the play; returns True if the state changes."""
        if self.state is State.RUNNING:
            return False
        if self.state not in (State.READY, State.PAUSED):
            raise RefusedError("the episode has ended. Keep it or discard it.")
        self._enter(State.RUNNING, "user", now)
        return True

    def pause(self, now: float, reason: str = "user") -> bool:
        """Pauses the play; returns True if the state changes."""
        if self.state is not State.RUNNING:
            return False
        self._enter(State.PAUSED, reason, now)
        return True

    def end(self, now: float, reason: str) -> None:
        """Ends the episode."""
        if self.state not in (State.RUNNING, State.PAUSED):
            raise RefusedError("no episode is running")
        self._enter(State.ENDED, reason, now)

    def check_confirm(self) -> None:
        """Raises `RefusedError` if no verdict on an episode is expected."""
        if self.state is not State.ENDED:
            raise RefusedError("the episode is running. End it before you keep or discard it.")

    def check_retry(self) -> None:
        """Raises `RefusedError` if there is no episode to discard."""
        if self.state not in (State.RUNNING, State.PAUSED, State.ENDED):
            raise RefusedError("no episode to discard")

    def touch(self, now: float, *, is_held: bool) -> None:
        """Restarts the timeout of inactivity, after an input.

        Args:
          now: The time.
          is_held: Whether an input is held from now on.
        """
        self._active_at = now
        self._is_held = is_held

    def tick(self, now: float) -> bool:
        """Pauses or closes an inactive play; returns True if the state changes."""
        if now < self.deadline(now):
            return False
        if self.state is State.RUNNING and self._is_async:
            return self.pause(now, "idle")
        self._enter(State.CLOSED, "expired", now)
        return True

    def deadline(self, now: float) -> float:
        """Returns the time of the next call of `tick`."""
        if self.state in (State.NEW, State.CLOSED):
            return math.inf
        if self.state is State.RUNNING and self._is_held:
            self._active_at = now
        if self.state is State.RUNNING and self._is_async:
            return max(self._entered_at, self._active_at) + self._expiry.idle
        return max(self._entered_at, self._active_at) + self._expiry.paused

    def _enter(self, state: State, reason: str, now: float) -> None:
        if self.state is State.RUNNING:
            self.played_seconds += now - self._entered_at
        self.state = state
        self.reason = reason
        self._entered_at = now
