"""A share of many cases for the fast tests; the remaining cases are slow tests."""

from collections.abc import Iterable
from typing import Any

import pytest


def one_in(step: int, cases: Iterable[Any]) -> list[Any]:
    """Marks all but each `step`th case as slow; a tuple is a case of several arguments."""
    return [
        case
        if index % step == 0
        else pytest.param(*(case if isinstance(case, tuple) else (case,)), marks=pytest.mark.slow)
        for index, case in enumerate(cases)
    ]
