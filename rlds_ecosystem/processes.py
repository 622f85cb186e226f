"""How much of the machine this process may use."""

from __future__ import annotations

import os

__all__ = ["default_jobs"]


def default_jobs() -> int:
    """Returns how many processors this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1
