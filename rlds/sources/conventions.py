"""Conventions that files keep, but do not state."""

from __future__ import annotations

import os
import sys
import warnings

__all__ = ["warn_of_convention"]

# A warning is for whoever called one of these.
_OWN = ("rlds", "rlds_tools", "tfds_builders")


def warn_of_convention(file: str | os.PathLike[str], what: str) -> None:
    """Warns the caller of the project that a convention of a file was assumed.

    Args:
      file: The file, or the folder.
      what: What was found and assumed, and the option that states the convention.
    """
    level, frame = 2, sys._getframe(1)
    while frame.f_globals.get("__name__", "").partition(".")[0] in _OWN and frame.f_back:
        level, frame = level + 1, frame.f_back
    warnings.warn(f"{os.path.basename(os.fspath(file))}: {what}", stacklevel=level)
