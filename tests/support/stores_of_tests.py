"""Object stores on this machine, for the three clients that the packages use."""

import contextlib
import os

import gcs_server
import pytest
from etils.epath import gpath

# Read when gcsfs is imported: without it, it asks Google what kind of bucket it is.
os.environ["GCSFS_EXPERIMENTAL_ZB_HNS_SUPPORT"] = "false"

CLIENTS = ("tensorflow", "gcsfs", "s3fs")


class StoreOfTests:
    """A store with one bucket.

    Attributes:
      client: The client that is used for it.
      url: The URL of the bucket.
      control: See `gcs_server`; None for s3, which cannot be made to fail.
    """

    def __init__(self, client, control):
        self.client = client
        self.control = control
        self.scheme = "s3" if client == "s3fs" else "gs"
        self.url = f"{self.scheme}://{gcs_server.BUCKET}"
        self._num_directories = 0

    def directory(self):
        """A URL that was not used."""
        self._num_directories += 1
        return f"{self.url}/{self.client}/{self._num_directories}"


@contextlib.contextmanager
def running(client, folder):
    """A store that runs, and the environment variables that lead there."""
    with contextlib.ExitStack() as stack:
        patch = stack.enter_context(pytest.MonkeyPatch.context())
        control = None
        if client == "s3fs":
            pytest.importorskip("s3fs")
            moto = pytest.importorskip("moto.server")
            server = moto.ThreadedMotoServer("127.0.0.1", 0, verbose=False)
            server.start()
            stack.callback(server.stop)
            _, port = server.get_host_and_port()
            environment = {
                "AWS_ENDPOINT_URL": f"http://127.0.0.1:{port}",
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
            environment = control.environment(client)
        for name in ("http_proxy", "https_proxy", "HTTP_PROXY", "HTTPS_PROXY", "AWS_CA_BUNDLE"):
            patch.delenv(name, raising=False)
        patch.setenv("no_proxy", "127.0.0.1,localhost")
        for name, value in environment.items():
            patch.setenv(name, value)
        if client != "tensorflow":
            import fsspec

            if client == "gcsfs":  # It remembers where the last one was.
                fsspec.get_filesystem_class("gs").clear_instance_cache()
                stack.callback(fsspec.get_filesystem_class("gs").clear_instance_cache)
            else:
                fsspec.get_filesystem_class("s3").clear_instance_cache()
                stack.callback(fsspec.get_filesystem_class("s3").clear_instance_cache)
                fsspec.filesystem("s3", use_listings_cache=False).mkdir(gcs_server.BUCKET)
        # It looks at EPATH_USE_TF but once.
        gpath._is_tf_installed.cache_clear()
        stack.callback(gpath._is_tf_installed.cache_clear)
        yield StoreOfTests(client, control)


def environment():
    """The environment of this process, for others."""
    return {**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3"}
