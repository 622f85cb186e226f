"""Expressions in the registry of robot datasets: pieces of standard actions and states.

0                                   a zero
observation/state                   a field
observation/state[0:6]              some elements of a field
invert(clip(action[6]))             an element after rules, the inner rule first
"""

from __future__ import annotations

import dataclasses
import functools
import re

from rlds.robotics.rules import RULES

__all__ = ["Piece", "parse"]

_MAX_NESTED_RULES = 8
_CALL = re.compile(r"(\w+)\((.+)\)")
_CONSTANT = re.compile(r"-?[0-9]{1,9}(?:\.[0-9]{1,9})?")
_FIELD = re.compile(r"([^\[\]()]+)(?:\[(?:(-?[0-9]{1,9})|(-?[0-9]{1,9})?:(-?[0-9]{1,9})?)\])?")


@dataclasses.dataclass(frozen=True)
class Piece:
    """A piece of a standard action or state, or of a stored field.

    Attributes:
      path: The path of the field; empty for a constant.
      constant: The value of a constant.
      begin: The index of the first element.
      end: The index after the last element; None for the end of the field.
      rules: The rules, in the order of application.
    """

    path: str = ""
    constant: float = 0.0
    begin: int | None = None
    end: int | None = None
    rules: tuple[str, ...] = ()

    @property
    def size(self) -> int | None:
        """The number of elements; None if it depends on the field."""
        if not self.path:
            return 1
        if self.begin is None or (self.end is None and self.begin >= 0):
            return None
        return (self.end or 0) - self.begin

    @property
    def elements(self) -> slice:
        """The elements of the field."""
        return slice(self.begin, self.end)


@functools.cache
def parse(text: str) -> Piece:
    """Parses an expression.

    Raises:
      ValueError: The expression is invalid.

    >>> parse("invert(clip(action[-1]))")
    Piece(path='action', constant=0.0, begin=-1, end=None, rules=('clip', 'invert'))
    """
    if match := _CALL.fullmatch(text):
        rule, inner = match.groups()
        if text.count("(") > _MAX_NESTED_RULES:
            raise ValueError(f"{text[:60]!r}...: more than {_MAX_NESTED_RULES} rules")
        if rule not in RULES:
            raise ValueError(f"{text!r}: unknown rule {rule!r}, expected one of {', '.join(RULES)}")
        piece = parse(inner)
        return dataclasses.replace(piece, rules=(*piece.rules, rule))
    if _CONSTANT.fullmatch(text):
        return Piece(constant=float(text))
    match = _FIELD.fullmatch(text)
    if match is None:
        raise ValueError(f"{text!r} is neither a number nor a field such as 'action[0:6]'")
    path, element, begin, end = match.groups()
    if element is not None:
        return Piece(path, begin=int(element), end=int(element) + 1 or None)
    if not text.endswith("]"):
        return Piece(path)
    return Piece(path, begin=int(begin or 0), end=int(end) if end else None)
