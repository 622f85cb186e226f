"""Safe printing of text from files: no control sequences, no overlong words."""

from __future__ import annotations

import re
from collections.abc import Callable

__all__ = ["printable", "replace_unprintable", "shorten"]

# No readable word or path is longer.
_MAX_WORD_LENGTH = 1000
_LONG_WORD = re.compile(rf"\S{{{_MAX_WORD_LENGTH + 1},}}")


def printable(text: str) -> str:
    r"""Returns a text without terminal control sequences and overlong words.

    Control characters, and characters that change the direction of text, are shown by their codes.

    >>> print(printable("a\x1b[2Jb"))
    a\x1b[2Jb
    >>> len(printable("a" * 1_000_000))
    1000
    """
    if not text.isprintable():
        text = replace_unprintable(text, lambda character: ascii(character)[1:-1], keep="\n")
    return _LONG_WORD.sub(lambda match: shorten(match[0], _MAX_WORD_LENGTH), text)


def replace_unprintable(text: str, replacement: Callable[[str], str], keep: str = "") -> str:
    """Returns a text with unprintable characters replaced.

    Args:
      text: The text.
      replacement: Returns the replacement of a character.
      keep: Characters that are not replaced.
    """
    return "".join(c if c.isprintable() or c in keep else replacement(c) for c in text)


def shorten(text: str, max_length: int) -> str:
    """Truncates a text to a maximum number of characters."""
    return text if len(text) <= max_length else f"{text[: max_length - 1]}…"
