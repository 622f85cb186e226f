"""Field projections: the fields of proto messages for a Riegeli reader to read."""

from collections.abc import Iterable
from typing import Final

from riegeli._pure.machine import Scope
from riegeli.base.riegeli_error import InvalidArgumentError

EXISTENCE_ONLY: Final = 0
"""The end of a path whose field is read without its value: only its presence and count matter."""

FieldProjection = Iterable[Iterable[int]]
"""Paths of field numbers from the record down."""

_MAX_FIELD_NUMBER = (1 << 29) - 1


def to_scope(projection: FieldProjection | None) -> Scope:
    """Converts a field projection to a scope for the transposed decoder.

    >>> to_scope([[1], [2, 3], [2, 4, EXISTENCE_ONLY]])
    {1: True, 2: {3: True, 4: None}}
    >>> to_scope(None)
    True

    Raises:
      TypeError: a field number is not an integer.
      OverflowError: a field number is out of range.
      InvalidArgumentError: `EXISTENCE_ONLY` is not at the end of a path.
    """
    if projection is None:
        return True
    paths = [_check_path(path) for path in projection]
    if [] in paths:
        return True
    scope: dict[int, Scope | None] = {}
    for path in paths:
        _add_path(scope, path)
    return scope


def _check_path(path: Iterable[int]) -> list[int]:
    fields = list(path)
    for field in fields:
        if not isinstance(field, int):
            raise TypeError(f"a field number is an int, got {field!r} in the path {fields}")
        if not 0 <= field <= _MAX_FIELD_NUMBER:
            raise OverflowError(
                f"field number {field} in the path {fields} is not from 0 to {_MAX_FIELD_NUMBER}"
            )
    if EXISTENCE_ONLY in fields[:-1]:
        raise InvalidArgumentError(
            f"EXISTENCE_ONLY can only be the last item of a path, not as in {fields}"
        )
    return fields


def _add_path(scope: dict[int, Scope | None], path: list[int]) -> None:
    """Adds a path to a scope; a complete field includes all of its members."""
    if path == [EXISTENCE_ONLY]:
        return
    existence_only = path[-1] == EXISTENCE_ONLY
    *parent_fields, last_field = path[:-1] if existence_only else path
    for parent in parent_fields:
        child = scope.get(parent)
        if child is True:
            return
        if not isinstance(child, dict):
            child = scope[parent] = {}
        scope = child
    if existence_only:
        scope.setdefault(last_field, None)
    else:
        scope[last_field] = True
