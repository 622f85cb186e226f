"""Errors about names that do not exist: what was probably meant, and what there is."""

from __future__ import annotations

import difflib
from collections.abc import Iterable

__all__ = ["what_there_is"]

_MOST = 12


def what_there_is(name: str, known: Iterable[str]) -> str:
    """Returns what to say of a name that is none of those known: the nearest, and what there is.

    >>> what_there_is("lerobt", ["tfds", "lerobot", "minari"])
    "did you mean 'lerobot'? There are: tfds, lerobot, minari"
    >>> what_there_is("x", map(str, range(100)))
    'there are: 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, and 88 more'
    """
    known = list(known)
    shown = [*known[:_MOST], *([f"and {len(known) - _MOST} more"] if len(known) > _MOST else [])]
    listed = f"here are: {', '.join(shown)}" if known else "here are none"
    near = difflib.get_close_matches(name, known, n=2)
    return f"did you mean {' or '.join(map(repr, near))}? T{listed}" if near else f"t{listed}"
