"""Processes with TensorFlow: forks of one that has loaded it, which takes seconds."""

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
      script: The script, run as `__main__`.
      arguments: The arguments of the script.
      environment: Variables in addition to those of this process.
      cwd: Its working directory.
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
        """Waits for its end; returns its exit code, in the form of `subprocess`."""
        with self.stdout, self.stderr:
            return int(_server().recv(100))


def run(script: str, *arguments: Any, **options: Any) -> subprocess.CompletedProcess[str]:
    """Runs a script to its end; each output must fit into a pipe."""
    process = Process(script, *arguments, **options)
    stdout, stderr = process.stdout.read(), process.stderr.read()
    return subprocess.CompletedProcess([script, *arguments], process.wait(), stdout, stderr)


@functools.cache
def _server() -> socket.socket:
    """A connection to the process that is forked; it ends with this process."""
    parent_end, child_end = socket.socketpair()
    with child_end:
        fd = child_end.fileno()
        command = [sys.executable, "-W", "ignore", __file__, str(fd)]
        process = subprocess.Popen(command, pass_fds=[fd])

    def end() -> None:
        parent_end.close()
        process.wait()

    atexit.register(end)
    return parent_end


def _next_script(connection: socket.socket) -> str | None:
    """Forks for each request, and waits for the end of the fork; returns the script in a fork."""
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
    for output_fd, fd in enumerate(fds, 1):
        os.dup2(fd, output_fd)
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

    # TFDS loads its modules at first use; these load the rest of TensorFlow too.
    tensorflow_datasets.features, tensorflow_datasets.core  # noqa: B018
    tensorflow.data, tensorflow.train  # noqa: B018
    gc.freeze()
    gc.enable()
    script = _next_script(socket.socket(fileno=int(sys.argv[1])))
    if script is not None:
        exec(compile(script, "<string>", "exec"), {"__name__": "__main__"})
