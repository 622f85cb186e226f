"""The process of a job: `python -m rlds_creator.exporting`, started by `Job`.

The first line of the standard input is the job: the arguments of `export` as JSON. The process ends
when its standard input is closed, also by the death of its parent. Lines of the standard output:

    {"progress": 0.4}
    {"done": {...}}                       the result of `export`
    {"error": "...", "details": "..."}    a message for users, and details for the server's log
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import signal
import sys
import threading
import time
import traceback
from typing import Any

__all__ = ["main"]

# The time for a clean exit before the process is killed.
_STOP_TIMEOUT_S = 30.0


def main() -> int:
    """Runs the export job; returns the exit code."""
    _lower_priority()
    signal.signal(signal.SIGTERM, _stop)
    job = json.loads(sys.stdin.readline())
    threading.Thread(target=_wait_for_end_of_input, daemon=True).start()
    # Output of libraries must not mix with the protocol lines.
    lines = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)

    def send(**message: Any) -> None:
        lines.write(json.dumps(message) + "\n")
        lines.flush()

    try:
        from rlds_creator.exporting.exports import export

        download = export(**job, progress=lambda done: send(progress=done))
    except Exception as error:
        outcome: dict[str, Any] = {"error": _user_message(error), "details": _format_details(error)}
    else:
        outcome = {"done": dataclasses.asdict(download)}
    # Exits at once: no cleanup is left, and the reader of the final message may close the input.
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    send(**outcome)
    return int("error" in outcome)


def _lower_priority() -> None:
    """Lowers the CPU and I/O priority of the process."""
    with contextlib.suppress(OSError, AttributeError):
        os.nice(19)
    with contextlib.suppress(OSError, AttributeError):  # Linux only: the I/O priority follows.
        os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))


def _wait_for_end_of_input() -> None:
    # `sys.stdin` is not used, because its lock would keep the interpreter from ending.
    while os.read(0, 1024):
        pass
    os.kill(os.getpid(), signal.SIGTERM)
    time.sleep(_STOP_TIMEOUT_S)
    os._exit(1)  # Python ignores exceptions in destructors, so the exit may have failed.


def _stop(*_: object) -> None:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)  # Another signal must not interrupt the cleanup.
    sys.exit(128 + signal.SIGTERM)


def _user_message(error: Exception) -> str:
    """Returns the message of an error for users, without paths."""
    from rlds_creator.exporting.recordings import ExportError

    if isinstance(error, ExportError | ImportError):
        return str(error)
    if isinstance(error, OSError) and error.strerror:
        return f"the export cannot be written: {error.strerror}"
    return f"the export failed ({type(error).__name__})"


def _format_details(error: Exception) -> str:
    return f"{getattr(error, 'details', '')}\n{''.join(traceback.format_exception(error))}".strip()


if __name__ == "__main__":
    sys.exit(main())
