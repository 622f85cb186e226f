"""Undeclared conventions of raw files: warnings and options."""

from __future__ import annotations

import os
import sys
import warnings
from collections.abc import Sequence

__all__ = ["check_option", "check_time_limit", "warn_of_convention"]

# Warnings point to the caller of these packages.
_OWN_PACKAGES = ("rlds", "rlds_tools", "tfds_builders")


def warn_of_convention(file: str | os.PathLike[str], finding: str) -> None:
    """Warns the caller of the project about the assumed convention of a file.

    Args:
      file: The file, or the folder.
      finding: The finding, the assumption, and the option that declares the convention.
    """
    level, frame = 2, sys._getframe(1)
    while frame.f_globals.get("__name__", "").partition(".")[0] in _OWN_PACKAGES and frame.f_back:
        level, frame = level + 1, frame.f_back
    warnings.warn(f"{os.path.basename(os.fspath(file))}: {finding}", stacklevel=level)


def check_option(name: str, value: str | None, allowed: Sequence[str]) -> None:
    """Checks an option that declares a convention; None declares nothing.

    Raises:
      ValueError: The value is not allowed.
    """
    if value is not None and value not in allowed:
        raise ValueError(f"{name}: got {value!r}, expected {' or '.join(map(repr, allowed))}")


def check_time_limit(time_limit: int | None, minimum: int = 0) -> None:
    """Checks the number of transitions after which an environment cuts an episode.

    Raises:
      ValueError: The number is less than the minimum.
    """
    if time_limit is not None and time_limit < minimum:
        raise ValueError(f"time_limit: got {time_limit}, expected {minimum} or more")
