"""Object stores on this machine, for the three clients that the packages use."""

import contextlib
import os

import gcs_server
import pytest
from etils.epath import gpath

from rlds_ecosystem.files.stores import _clients, _paths

# Read at the import of gcsfs, which would ask Google for the kind of the bucket.
os.environ["GCSFS_EXPERIMENTAL_ZB_HNS_SUPPORT"] = "false"

clients, paths = _clients, _paths
CLIENTS = ("tensorflow", "gcsfs", "s3fs")


class StoreOfTests:
    """A store with one bucket.

    Attributes:
      client: The name of its client.
      url: The URL of the bucket.
      control: See `gcs_server`; None for s3, which counts no requests.
      set: Makes the store refuse all requests (`refuse=True`), or drop them (`down=True`); without
        arguments, it answers again.
    """

    def __init__(self, client, control, set_state):
        self.client = client
        self.control = control
        self.set = set_state
        self.scheme = "s3" if client == "s3fs" else "gs"
        self.url = f"{self.scheme}://{gcs_server.BUCKET}"
        self._num_directories = 0

    def directory(self):
        """Returns a new URL."""
        self._num_directories += 1
        return f"{self.url}/{self.client}/{self._num_directories}"


class _MotoServer:
    """An s3 in memory, which keeps its objects while its server is stopped."""

    def __init__(self, server_class):
        self._class, self._running, self.port = server_class, None, 0
        self.set()

    def set(self, *, refuse=False, down=False):
        from moto import settings

        # The number of requests without authentication; all credentials are invalid.
        settings.INITIAL_NO_AUTH_ACTION_COUNT = 0 if refuse else float("inf")
        if down and self._running:
            self._running.stop()
            self._running = None
        elif not down and not self._running:
            self._running = self._class("127.0.0.1", self.port, verbose=False)
            self._running.start()
            _, self.port = self._running.get_host_and_port()


@contextlib.contextmanager
def running(client, folder):
    """Runs a store, and sets the environment variables of its client."""
    with contextlib.ExitStack() as stack:
        patch = stack.enter_context(pytest.MonkeyPatch.context())
        control = None
        if client == "s3fs":
            pytest.importorskip("s3fs")
            moto = pytest.importorskip("moto.server")
            server = _MotoServer(moto.ThreadedMotoServer)
            stack.callback(server.set, down=True)
            set_state = server.set
            # Removes the objects of an earlier store in this process.
            gcs_server.ask(f"http://127.0.0.1:{server.port}/moto-api/reset", b"")
            environment = {
                "AWS_ENDPOINT_URL": f"http://127.0.0.1:{server.port}",
                "AWS_ACCESS_KEY_ID": "of tests",
                "AWS_SECRET_ACCESS_KEY": "of tests",
                "AWS_DEFAULT_REGION": "us-east-1",
            }
        else:
            if client == "gcsfs":
                pytest.importorskip("gcsfs")
            pytest.importorskip("cryptography")
            control = gcs_server.Control(folder)
            stack.callback(control.close)
            set_state = control.set
            environment = control.environment(client)
        for name in ("http_proxy", "https_proxy", "HTTP_PROXY", "HTTPS_PROXY", "AWS_CA_BUNDLE"):
            patch.delenv(name, raising=False)
        patch.setenv("no_proxy", "127.0.0.1,localhost")
        for name, value in environment.items():
            patch.setenv(name, value)
        if client != "tensorflow":
            import fsspec

            if client == "gcsfs":  # It caches the address of an earlier store.
                fsspec.get_filesystem_class("gs").clear_instance_cache()
                stack.callback(fsspec.get_filesystem_class("gs").clear_instance_cache)
            else:
                fsspec.get_filesystem_class("s3").clear_instance_cache()
                stack.callback(fsspec.get_filesystem_class("s3").clear_instance_cache)
                fsspec.filesystem("s3", use_listings_cache=False).mkdir(gcs_server.BUCKET)
        # It reads EPATH_USE_TF only once.
        gpath._is_tf_installed.cache_clear()
        stack.callback(gpath._is_tf_installed.cache_clear)
        yield StoreOfTests(client, control, set_state)


def environment():
    """The environment variables for subprocesses."""
    return {**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3"}
