"""Closes recorders at the end of the process, and keeps forked processes from using them.

A recorder that is not closed is closed when the interpreter exits. A process that gets SIGTERM, and
has no handler of its own for it, exits in the same orderly way, with status 143; without that the
signal ends it at once.
"""

from __future__ import annotations

import atexit
import os
import signal
import threading
import weakref
from types import FrameType
from typing import NoReturn, Protocol

__all__ = ["watch"]


class Recorder(Protocol):
    """Something that has to be closed."""

    def close(self) -> None:
        """Stores what is pending; further calls do nothing."""

    def disown(self) -> None:
        """Called in a forked process: what is open belongs to the parent."""


# Destructors that run at the end of the process find modules that are torn down already.
_recorders: weakref.WeakSet[Recorder] = weakref.WeakSet()


def watch(recorder: Recorder) -> None:
    """Has the recorder closed at the end of the process, if it still exists then."""
    _recorders.add(recorder)
    if (
        threading.current_thread() is threading.main_thread()
        and signal.getsignal(signal.SIGTERM) is signal.SIG_DFL
    ):
        signal.signal(signal.SIGTERM, _exit)


def _exit(number: int, frame: FrameType | None) -> NoReturn:
    # Not closed right here: the signal may have come while the recorder was in use.
    raise SystemExit(128 + number)


@atexit.register
def _close_all() -> None:
    for recorder in list(_recorders):
        recorder.close()


def _disown_all() -> None:
    for recorder in list(_recorders):
        recorder.disown()


if hasattr(os, "register_at_fork"):  # Not on Windows, which does not fork.
    os.register_at_fork(after_in_child=_disown_all)
