"""A share of many cases for the fast tests; the others are slow ones."""

from collections.abc import Iterable
from typing import Any

import pytest


def one_in(number: int, cases: Iterable[Any]) -> list[Any]:
    """Marks all but each `number`th case as slow; a tuple is a case of several arguments."""
    return [
        case
        if index % number == 0
        else pytest.param(*(case if isinstance(case, tuple) else (case,)), marks=pytest.mark.slow)
        for index, case in enumerate(cases)
    ]
