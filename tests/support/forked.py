"""Processes that have TensorFlow from the start: copies of one that loaded it, which is slow."""

import atexit
import functools
import gc
import json
import os
import socket
import subprocess
import sys
from collections.abc import Mapping
from typing import Any


class Process:
    """A process that runs a script, as `python -c` does in a fresh one. One at a time.

    Args:
      script: What to run, as `__main__`.
      arguments: What follows the script.
      environment: Variables that it has besides those of this process.
      cwd: Where it runs.
    """

    def __init__(
        self,
        script: str,
        *arguments: Any,
        environment: Mapping[str, str] | None = None,
        cwd: Any = None,
    ) -> None:
        request = {
            "script": script,
            "arguments": ["-c", *map(str, arguments)],
            "environment": {**os.environ, **(environment or {})},
            "path": ["", *sys.path],
            "cwd": str(cwd or os.getcwd()),
        }
        outputs, inputs = zip(os.pipe(), os.pipe())
        socket.send_fds(_server(), [json.dumps(request).encode()], inputs)
        for fd in inputs:
            os.close(fd)
        self.pid = int(_server().recv(100))
        self.stdout, self.stderr = map(open, outputs)

    def wait(self) -> int:
        """Waits for its end; returns how it ended, as `subprocess` says it."""
        with self.stdout, self.stderr:
            return int(_server().recv(100))


def run(script: str, *arguments: Any, **options: Any) -> subprocess.CompletedProcess[str]:
    """Runs a script to its end; neither of its outputs may be longer than a pipe holds."""
    process = Process(script, *arguments, **options)
    stdout, stderr = process.stdout.read(), process.stderr.read()
    return subprocess.CompletedProcess([script, *arguments], process.wait(), stdout, stderr)


@functools.cache
def _server() -> socket.socket:
    """A connection to the process that is copied; it ends when this one does."""
    here, there = socket.socketpair()
    with there:
        fd = there.fileno()
        command = [sys.executable, "-W", "ignore", __file__, str(fd)]
        process = subprocess.Popen(command, pass_fds=[fd])

    def end() -> None:
        here.close()
        process.wait()

    atexit.register(end)
    return here


def _next_script(connection: socket.socket) -> str | None:
    """Copies this process for each request, and waits for its end; returns the script in a copy."""
    while True:
        message, fds, _, _ = socket.recv_fds(connection, 1 << 20, 2)
        if not message:
            return None
        child = os.fork()
        if not child:
            break
        for fd in fds:
            os.close(fd)
        connection.send(str(child).encode())
        connection.send(str(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])).encode())
    connection.close()
    for number, fd in enumerate(fds, 1):
        os.dup2(fd, number)
        os.close(fd)
    request = json.loads(message)
    os.environ.clear()
    os.environ.update(request["environment"])
    os.chdir(request["cwd"])
    sys.argv[:], sys.path[:] = request["arguments"], request["path"]
    return request["script"]


if __name__ == "__main__":
    gc.disable()
    import tensorflow
    import tensorflow_datasets

    # TFDS loads its parts when they are used; these load the rest of TensorFlow too.
    tensorflow_datasets.features, tensorflow_datasets.core  # noqa: B018
    tensorflow.data, tensorflow.train  # noqa: B018
    gc.freeze()
    gc.enable()
    script = _next_script(socket.socket(fileno=int(sys.argv[1])))
    if script is not None:
        exec(compile(script, "<string>", "exec"), {"__name__": "__main__"})
