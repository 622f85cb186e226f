"""Fork safety: objects whose locks and open files are reset in forked processes.

A forked process shares the positions in open files with its parent, and locks may be held by
threads that it does not have.
"""

from __future__ import annotations

import os
import weakref
from typing import Protocol

__all__ = ["reset_in_forks"]


class _Forked(Protocol):
    def _reset(self) -> None: ...


_forked: weakref.WeakSet[_Forked] = weakref.WeakSet()


def reset_in_forks(forked: _Forked) -> None:
    """Calls the method `_reset` of an object in each fork of this process."""
    _forked.add(forked)


def _reset() -> None:
    for forked in list(_forked):
        forked._reset()


if hasattr(os, "register_at_fork"):  # Not on Windows, which does not fork.
    os.register_at_fork(after_in_child=_reset)
