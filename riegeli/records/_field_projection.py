"""Field projections: the fields of proto messages that a Riegeli reader reads."""

from collections.abc import Iterable
from typing import Final

from riegeli._pure.machine import Scope
from riegeli.base.riegeli_error import InvalidArgumentError

EXISTENCE_ONLY: Final = 0
"""At the end of a path: whether and how often the field is there matters, its value does not."""

FieldProjection = Iterable[Iterable[int]]
"""Paths of field numbers from the record down."""

_MAX_FIELD_NUMBER = (1 << 29) - 1


def scope_of(projection: FieldProjection | None) -> Scope:
    """Converts a field projection to the scope that the transposed decoder takes.

    >>> scope_of([[1], [2, 3], [2, 4, EXISTENCE_ONLY]])
    {1: True, 2: {3: True, 4: None}}
    >>> scope_of(None)
    True

    Raises:
      TypeError: a field number is no integer.
      OverflowError: a field number is out of range.
      InvalidArgumentError: `EXISTENCE_ONLY` stands before the end of a path.
    """
    if projection is None:
        return True
    paths = [_checked(path) for path in projection]
    if [] in paths:
        return True
    scope: dict[int, Scope | None] = {}
    for path in paths:
        _add(scope, path)
    return scope


def _checked(path: Iterable[int]) -> list[int]:
    numbers = list(path)
    for number in numbers:
        if not isinstance(number, int):
            raise TypeError(f"a field number is an int, got {number!r} in the path {numbers}")
        if not 0 <= number <= _MAX_FIELD_NUMBER:
            raise OverflowError(
                f"field number {number} in the path {numbers} is not from 0 to {_MAX_FIELD_NUMBER}"
            )
    if EXISTENCE_ONLY in numbers[:-1]:
        raise InvalidArgumentError(
            f"EXISTENCE_ONLY can only be the last item of a path, not as in {numbers}"
        )
    return numbers


def _add(scope: dict[int, Scope | None], path: list[int]) -> None:
    """Adds a path to a scope. A whole field includes its members; a member, the existence."""
    if path == [EXISTENCE_ONLY]:
        return
    existence_only = path[-1] == EXISTENCE_ONLY
    *parents, last = path[:-1] if existence_only else path
    for number in parents:
        child = scope.get(number)
        if child is True:
            return
        if not isinstance(child, dict):
            child = scope[number] = {}
        scope = child
    if existence_only:
        scope.setdefault(last, None)
    else:
        scope[last] = True
