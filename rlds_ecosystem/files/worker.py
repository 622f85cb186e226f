"""The program of a worker process of `rlds_ecosystem.files.processes`.

The program reads a pickled function and then tasks from the standard input, and writes results to
the standard output. The program ends at the end of the input.
"""

from __future__ import annotations

import os
import pickle
import queue
import signal
import sys
import threading
import traceback
import warnings
from typing import IO, Any

from rlds_ecosystem.files import processes
from rlds_ecosystem.files.processes import _WORK_FRAME, read_frame, write_frame

__all__: list[str] = []


def _main() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C ends the parent, which ends its workers.
    tasks: queue.SimpleQueue[bytes] = queue.SimpleQueue()
    output = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # Output of libraries goes to the standard error.
    threading.Thread(target=_receive, args=(sys.stdin.buffer, tasks), daemon=True).start()
    processes._on_advance = lambda progress: write_frame(
        output, pickle.dumps(("advance", progress, []))
    )
    pickled_work, work = b"", None
    while True:
        task = tasks.get()
        if task.startswith(_WORK_FRAME):
            pickled_work, work = task[1:], None
            continue
        with warnings.catch_warnings(record=True) as caught_warnings:
            try:
                work = work or pickle.loads(pickled_work)
                result = work(pickle.loads(task[1:]))
                reply = pickle.dumps(("done", result, _list_messages(caught_warnings)))
            except BaseException as error:
                reply = _pickle_error(error, _list_messages(caught_warnings))
        write_frame(output, reply)


def _receive(stream: IO[bytes], tasks: queue.SimpleQueue[bytes]) -> None:
    try:
        while True:
            tasks.put(read_frame(stream))
    except EOFError:
        os._exit(0)


def _list_messages(caught_warnings: list[warnings.WarningMessage]) -> list[Any]:
    return [each.message for each in caught_warnings if issubclass(each.category, UserWarning)]


def _pickle_error(error: BaseException, messages: list[Any]) -> bytes:
    """Returns an error as an answer, with its causes and the traceback of this process."""
    text = "".join(traceback.format_exception(error))
    chain: list[BaseException] = []
    cause: BaseException | None = error
    while cause is not None:
        try:
            pickle.loads(pickle.dumps(cause))  # Some pickled errors cannot be loaded.
            chain.append(cause)
        except Exception:
            chain.append(RuntimeError(f"{type(cause).__name__}: {cause}"))
        cause = cause.__cause__ or cause.__context__
    return pickle.dumps(("error", (chain, text), messages))


if __name__ == "__main__":
    _main()
