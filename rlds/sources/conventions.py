"""Conventions of raw files that are not stated in them: warnings and options."""

from __future__ import annotations

import os
import sys
import warnings
from collections.abc import Sequence

__all__ = ["check_option", "check_time_limit", "warn_of_convention"]

# Warnings point to the caller of these packages.
_OWN_PACKAGES = ("rlds", "rlds_tools", "tfds_builders")


def warn_of_convention(file: str | os.PathLike[str], finding: str) -> None:
    """Warns the caller of the project that a convention of a file was assumed.

    Args:
      file: The file, or the folder.
      finding: The finding and the assumption, and the option that states the convention.
    """
    level, frame = 2, sys._getframe(1)
    while frame.f_globals.get("__name__", "").partition(".")[0] in _OWN_PACKAGES and frame.f_back:
        level, frame = level + 1, frame.f_back
    warnings.warn(f"{os.path.basename(os.fspath(file))}: {finding}", stacklevel=level)


def check_option(name: str, given: str | None, allowed: Sequence[str]) -> None:
    """Checks an option that states a convention; None states nothing.

    Raises:
      ValueError: The option has another value than those allowed.
    """
    if given is not None and given not in allowed:
        raise ValueError(f"{name}: got {given!r}, expected {' or '.join(map(repr, allowed))}")


def check_time_limit(time_limit: int | None, least: int = 0) -> None:
    """Checks the number of transitions after which an environment cuts an episode.

    Raises:
      ValueError: The number is less than the least allowed.
    """
    if time_limit is not None and time_limit < least:
        raise ValueError(f"time_limit: got {time_limit}, expected {least} or more")
