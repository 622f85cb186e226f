"""Personal data of recognizable form in texts; names of people are not recognized."""

from __future__ import annotations

import re
from collections.abc import Iterable

__all__ = ["personal_data_in"]

# Accounts of services and of containers are not people.
_SERVICE_ACCOUNTS = r"(?!(?:git|no-?reply|root|user|ubuntu|runner|app|shared|public|default)\b)"
_PERSONAL_DATA_PATTERNS = {
    "an e-mail address": re.compile(
        rf"(?<![\w.+-]){_SERVICE_ACCOUNTS}[\w.+-]+@[\w-]+(\.[\w-]+)*\.[a-z]{{2,}}\b", re.IGNORECASE
    ),
    "a telephone number": re.compile(r"(?<![\w+])\+\d{1,3}[ ./()-]*\d[\d ./()-]{6,}\d(?!\w)"),
    "the home folder of a person": re.compile(
        rf"(?:/home/|/Users/|\b[a-z]:\\Users\\){_SERVICE_ACCOUNTS}[^/\\\s]+", re.IGNORECASE
    ),
}


def personal_data_in(texts: Iterable[str]) -> str:
    """Returns the kind of the first personal data in texts; "" if there is none.

    Only unambiguous forms are recognized: e-mail addresses, telephone numbers with a country
    code, and home folders.

    >>> personal_data_in(["pick up the cup", "file:///home/ada/recordings/7.hdf5"])
    'the home folder of a person'
    >>> personal_data_in(["git@github.com:robots/data", "2026-01-01T12:00:00+00:00"])
    ''
    """
    for text in texts:
        for kind, form in _PERSONAL_DATA_PATTERNS.items():
            if form.search(text):
                return kind
    return ""
