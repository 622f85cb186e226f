"""Builders that turn recorded or downloaded data into RLDS datasets, written by TFDS.

TensorFlow is loaded when a builder is first touched, not by importing this package.
"""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tfds_builders.envlogger_builder import EnvLoggerBuilder, build_from_logs, find_logs

__all__ = ["EnvLoggerBuilder", "build_from_logs", "find_logs"]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module("tfds_builders.envlogger_builder"), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
