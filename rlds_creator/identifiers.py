"""Identifiers and tokens: names that nobody can guess.

What is in an identifier is safe in an address and as the name of a directory. Free text, such as
the name of a study, never becomes part of a path.
"""

from __future__ import annotations

import hashlib
import re
import secrets

__all__ = [
    "PATTERN",
    "check_identifier",
    "hash_token",
    "is_identifier",
    "new_identifier",
]

PATTERN = "[A-Za-z0-9_][A-Za-z0-9_-]{0,63}"
"""The regular expression of identifiers."""


def new_identifier() -> str:
    """Returns an identifier that there has never been, with 96 bits of chance in it."""
    return secrets.token_hex(12)


def is_identifier(text: str) -> bool:
    """Whether a text may be an identifier: up to 64 letters, digits, `_` and `-`, no `-` first.

    >>> is_identifier("q7Xb-2_"), is_identifier("../salt"), is_identifier("-rf"), is_identifier("")
    (True, False, False, False)
    """
    return re.fullmatch(PATTERN, text) is not None


def check_identifier(text: str) -> str:
    """Returns an identifier as it is; call this where one becomes part of a path.

    Raises:
      ValueError: It cannot be one.
    """
    if not is_identifier(text):
        raise ValueError(f"{text[:80]!r} is not an identifier")
    return text


def hash_token(token: str) -> str:
    """Returns what is stored of a token: who reads the database cannot use it."""
    return hashlib.sha256(token.encode(errors="backslashreplace")).hexdigest()
