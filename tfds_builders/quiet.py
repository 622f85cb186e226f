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

__all__ = ["quiet_libraries", "quietly_made"]


def quiet_libraries() -> None:
    """Loads TensorFlow without its messages, and lets TFDS and Beam report warnings only.

    TensorFlow's notes on the processor and on missing graphics cards come before it looks at any
    setting, so the standard error output is held back meanwhile; it is shown if loading fails. This
    changes the whole process: programs may call it, libraries may not.
    """
    # Errors are raised. What TensorFlow only logs as one are details: each slice that it has to
    # copy, hundreds of them while it shuffles.
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    for name, level in (("absl", logging.ERROR), ("apache_beam", logging.WARNING)):
        logging.getLogger(name).setLevel(level)
    with _standard_error_held_back(), _not_loaded("keras", "jax"):
        import tensorflow as tf

        tf.config.list_physical_devices()


def quietly_made(module: str, name: str, packed: bytes, *arguments: Any) -> Any:
    """Makes what needs TensorFlow in a worker, whose libraries say nothing.

    Args:
      module: The module of its class.
      name: The name of that.
      packed: The first argument of that, pickled.
      *arguments: The others.
    """
    quiet_libraries()
    return getattr(importlib.import_module(module), name)(pickle.loads(packed), *arguments)


@contextlib.contextmanager
def _not_loaded(*packages: str) -> Iterator[None]:
    """Has TensorFlow not load packages that nothing here uses, which takes as long as the rest.

    It does without them. They can be imported afterwards, `tf.keras` too.
    """
    absent: dict[str, Any] = {name: None for name in packages if name not in sys.modules}
    sys.modules.update(absent)
    try:
        yield
    finally:
        for name in absent:
            del sys.modules[name]


@contextlib.contextmanager
def _standard_error_held_back() -> Iterator[None]:
    sys.stderr.flush()
    descriptor = os.dup(2)
    with tempfile.TemporaryFile() as held:
        os.dup2(held.fileno(), 2)
        try:
            yield
        except Exception:
            held.seek(0)
            os.write(descriptor, held.read())
            raise
        finally:
            sys.stderr.flush()
            os.dup2(descriptor, 2)
            os.close(descriptor)
