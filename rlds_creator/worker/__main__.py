"""`python -m rlds_creator.worker FD`; see `rlds_creator.worker`."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import sys
import tempfile


def main(arguments: list[str]) -> int:
    """Runs the worker; returns the exit status."""
    os.dup2(2, 1)  # Output of environments goes to the standard error.
    if len(arguments) != 1 or not arguments[0].isdigit():
        print("usage: python -m rlds_creator.worker FD", file=sys.stderr)
        return 2
    connection = socket.socket(fileno=int(arguments[0]))
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C stops the server, then its workers.
    from rlds_creator.worker.link import Link
    from rlds_creator.worker.player import serve

    scratch = tempfile.mkdtemp(prefix="rlds-play-")
    os.environ["TMPDIR"] = tempfile.tempdir = scratch
    sys.path[:] = map(os.path.abspath, sys.path)
    os.chdir(scratch)
    try:
        return serve(Link(connection))
    finally:
        os.chdir("/")
        shutil.rmtree(scratch, ignore_errors=True)


if __name__ == "__main__":
    status = main(sys.argv[1:])
    sys.stderr.flush()
    # Threads of the environment may still run; they must not keep the process alive.
    os._exit(status)
