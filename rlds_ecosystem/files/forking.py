"""Fork safety: objects whose state a forked process has to renew.

A forked process shares the positions in open files with its parent, and locks may be held by
threads that it does not have.
"""

from __future__ import annotations

import os
import weakref
from typing import Protocol

__all__ = ["begin_anew_in_forks"]


class _Forked(Protocol):
    def _begin_anew(self) -> None: ...


_forked: weakref.WeakSet[_Forked] = weakref.WeakSet()


def begin_anew_in_forks(forked: _Forked) -> None:
    """Calls the method `_begin_anew` of an object in each process that is forked of this one."""
    _forked.add(forked)


def _begin_anew() -> None:
    for forked in list(_forked):
        forked._begin_anew()


if hasattr(os, "register_at_fork"):  # Not on Windows, which does not fork.
    os.register_at_fork(after_in_child=_begin_anew)
