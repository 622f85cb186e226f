"""Fork safety: objects whose locks and open files are reset in forked processes.

A forked process shares the positions in open files with its parent, and inherits locks that are
held by threads of the parent.
"""

from __future__ import annotations

import os
import weakref
from typing import Protocol

__all__ = ["reset_in_forks"]


class _Resettable(Protocol):
    def _reset(self) -> None: ...


_resettables: weakref.WeakSet[_Resettable] = weakref.WeakSet()


def reset_in_forks(resettable: _Resettable) -> None:
    """Calls the method `_reset` of an object in each fork of this process."""
    _resettables.add(resettable)


def _reset() -> None:
    for resettable in list(_resettables):
        resettable._reset()


if hasattr(os, "register_at_fork"):  # Windows does not fork.
    os.register_at_fork(after_in_child=_reset)
