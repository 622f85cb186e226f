"""Silences the log output of TensorFlow, TFDS and Beam for command lines."""

from __future__ import annotations

import contextlib
import importlib
import logging
import os
import pickle
import sys
import tempfile
from collections.abc import Iterator
from typing import Any

__all__ = ["make_quietly", "quiet_libraries"]


def quiet_libraries() -> None:
    """Loads TensorFlow without its messages, and lets TFDS and Beam report warnings only.

    TensorFlow prints notes on the processor and on missing graphics cards before it reads any
    setting, so standard error is captured during the import, and shown if the import fails. This
    changes the whole process: only programs may call it, not libraries.
    """
    # Real errors are raised. TensorFlow logs details as errors, such as hundreds of copied slices
    # while shuffling.
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    for name, level in (("absl", logging.ERROR), ("apache_beam", logging.WARNING)):
        logging.getLogger(name).setLevel(level)
    with _capture_standard_error(), _hide_packages("keras", "jax"):
        import tensorflow as tf

        tf.config.list_physical_devices()


def make_quietly(module: str, name: str, pickled: bytes, *arguments: Any) -> Any:
    """Creates an object that needs TensorFlow in a worker, without messages of libraries.

    Args:
      module: The module of its class.
      name: The name of the class.
      pickled: The first argument of the class, pickled.
      *arguments: The other arguments.
    """
    quiet_libraries()
    return getattr(importlib.import_module(module), name)(pickle.loads(pickled), *arguments)


@contextlib.contextmanager
def _hide_packages(*packages: str) -> Iterator[None]:
    """Hides packages that TensorFlow would import without need, which doubles its import time.

    They can be imported afterwards, `tf.keras` too.
    """
    hidden_modules: dict[str, Any] = {name: None for name in packages if name not in sys.modules}
    sys.modules.update(hidden_modules)
    try:
        yield
    finally:
        for name in hidden_modules:
            del sys.modules[name]


@contextlib.contextmanager
def _capture_standard_error() -> Iterator[None]:
    sys.stderr.flush()
    descriptor = os.dup(2)
    with tempfile.TemporaryFile() as captured:
        os.dup2(captured.fileno(), 2)
        try:
            yield
        except Exception:
            captured.seek(0)
            os.write(descriptor, captured.read())
            raise
        finally:
            sys.stderr.flush()
            os.dup2(descriptor, 2)
            os.close(descriptor)
