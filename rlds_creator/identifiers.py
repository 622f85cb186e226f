"""Identifiers and tokens: names that nobody can guess.

An identifier is safe in a URL and as the name of a directory. Free text, such as
the name of a study, is never used in a path.
"""

from __future__ import annotations

import hashlib
import re
import secrets

__all__ = ["PATTERN", "check_identifier", "hash_token", "is_identifier", "new_identifier"]

PATTERN = "[A-Za-z0-9_][A-Za-z0-9_-]{0,63}"
"""The regular expression of identifiers."""


def new_identifier() -> str:
    """Returns a new random identifier of 96 bits."""
    return secrets.token_hex(12)


def is_identifier(text: str) -> bool:
    """True if a text is an identifier: up to 64 letters, digits, `_` and `-`, no `-` first.

    >>> is_identifier("q7Xb-2_"), is_identifier("../salt"), is_identifier("-rf"), is_identifier("")
    (True, False, False, False)
    """
    return re.fullmatch(PATTERN, text) is not None


def check_identifier(text: str) -> str:
    """Returns an identifier unchanged; call this before it is used in a path.

    Raises:
      ValueError: The text is not an identifier.
    """
    if not is_identifier(text):
        raise ValueError(f"{text[:80]!r} is not an identifier")
    return text


def hash_token(token: str) -> str:
    """Returns the hash of a token, to store the hash instead: nobody can log in with a hash."""
    return hashlib.sha256(token.encode(errors="backslashreplace")).hexdigest()
