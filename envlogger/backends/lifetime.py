"""Closes recorders at the end of the process, and keeps forked processes from using them.

An open recorder is closed when the interpreter exits. A process without its own handler of SIGTERM
then exits normally on SIGTERM, with status 143, and closes its recorders too. A forked process has
nothing to close, so the signal kills it without delay.
"""

from __future__ import annotations

import _thread
import atexit
import contextlib
import functools
import os
import signal
import sys
import threading
import time
import traceback
import weakref
from collections.abc import Callable
from types import FrameType
from typing import Protocol

__all__ = ["close_at_exit", "leave_to_wrapper"]


class Recorder(Protocol):
    """A recorder of steps or streams that must be closed."""

    def close(self) -> None:
        """Stores pending data; further calls do nothing."""

    def disown(self) -> None:
        """Drops open files in a forked process, because the files belong to the parent."""


# Destructors run too late: at the end of the process, modules are gone.
_recorders: weakref.WeakKeyDictionary[Recorder, None] = weakref.WeakKeyDictionary()

# The process whose recorders the handler of SIGTERM closes.
_owner = 0
# False while a signal is sent again.
_is_handled = True


def close_at_exit(recorder: Recorder) -> None:
    """Registers a recorder to be closed at the end of the process."""
    global _owner
    _recorders[recorder] = None
    if threading.current_thread() is threading.main_thread() and signal.getsignal(
        signal.SIGTERM
    ) in (signal.SIG_DFL, _exit):
        signal.signal(signal.SIGTERM, _exit)
        _owner = os.getpid()


def leave_to_wrapper(recorder: Recorder) -> None:
    """Unregisters a recorder that a wrapping recorder closes, after its last writes."""
    _recorders.pop(recorder, None)


def _exit(signal_number: int, frame: FrameType | None) -> None:
    global _is_handled
    if os.getpid() != _owner:
        # Exceptions during a fork are ignored.
        signal.signal(signal_number, signal.SIG_DFL)
        os.kill(os.getpid(), signal_number)
    if any(each.f_code is _resend.__code__ for each, _ in traceback.walk_stack(frame)):
        # Python drops an exception of the hook, and does not call the hook again.
        _send_again(signal_number)
        return
    _is_handled = True
    # Recorders are closed at exit, because the signal may interrupt a call of a recorder.
    exit_error = SystemExit(128 + signal_number)
    hook = sys.unraisablehook
    sys.unraisablehook = functools.partial(_resend, exit_error, hook, signal_number)
    raise exit_error


def _resend(
    exit_error: SystemExit,
    previous_hook: Callable[[sys.UnraisableHookArgs], object],
    signal_number: int,
    unraisable: sys.UnraisableHookArgs,
) -> None:
    """Sends SIGTERM again if Python drops its exception, in destructors or garbage collection."""
    if unraisable.exc_value is not exit_error:
        previous_hook(unraisable)
        return
    sys.unraisablehook = previous_hook
    _send_again(signal_number)


def _send_again(signal_number: int) -> None:
    """Sends a signal in a thread until its handler raises."""
    global _is_handled
    _is_handled = False
    # `threading` has locks, which the interrupted code may hold.
    _thread.start_new_thread(_send_until_handled, (signal_number,))


def _send_until_handled(signal_number: int) -> None:
    while True:
        time.sleep(0.05)
        if _is_handled:
            return
        # Python notices a signal late if the main thread is about to block in a system call.
        os.kill(os.getpid(), signal_number)


@atexit.register
def _close_all() -> None:
    # The newest recorder is closed first, because it may write to an older recorder. Errors do not
    # keep recorders open.
    with contextlib.ExitStack() as closing:
        for recorder in list(_recorders):
            closing.callback(recorder.close)


def _disown_all() -> None:
    for recorder in list(_recorders):
        recorder.disown()
    # A handler in Python may never run while the process is blocked in a system call.
    if signal.getsignal(signal.SIGTERM) is _exit:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)


if hasattr(os, "register_at_fork"):  # Windows does not fork.
    os.register_at_fork(after_in_child=_disown_all)
