"""Readable messages of msgspec type errors: the field, the value and the expected type."""

from __future__ import annotations

import re

__all__ = ["explain"]

_PROBLEM_WITH_PATH = re.compile(r"(.*?)(?: - at (?:`key` in )?`\$\.?(.*)`)?", re.DOTALL)
_FIELD_PROBLEM = re.compile(r"Object (missing required|contains unknown) field `(.*)`")
_TYPE_NOUNS = {
    "str": "text",
    "int": "a whole number",
    "float": "a number",
    "bool": "true or false",
    "null": "nothing",
    "array": "a list",
    "object": "an object",
}
_BOUND_WORDS = {">=": "of at least", "<=": "of at most", ">": "above", "<": "below"}
_REPLACEMENTS = (
    (r"`([^`]*)`", lambda match: " or ".join(_TYPE_NOUNS.get(x, x) for x in match[1].split(" | "))),
    (r"of length >= 1$", lambda _: "that is not empty"),
    (r"of length ([<>]=) (\d+)$", lambda m: f"{_BOUND_WORDS[m[1]]} {m[2]} characters or elements"),
    (r"([<>]=?) ([-\d.]+)$", lambda match: f"{_BOUND_WORDS[match[1]]} {float(match[2]):,.12g}"),
    (r"matching regex .*", lambda _: "of letters, digits, - and _"),
    (r"^Invalid enum value (.*)", lambda match: f"{match[1]} is not one of the choices"),
    (r"^E", lambda _: "e"),
)


def explain(error: Exception) -> str:
    """Returns a readable message of an error of msgspec: the field, and the expected type.

    >>> explain(ValueError("Expected `str` of length >= 1 - at `$.name`"))
    'name: expected text that is not empty.'
    >>> explain(ValueError("Object missing required field `type`"))
    'type: is missing.'
    """
    match = _PROBLEM_WITH_PATH.fullmatch(str(error))
    assert match is not None
    problem, field_path = match[1], match[2] or ""
    if field_problem := _FIELD_PROBLEM.fullmatch(problem):
        field_path = ".".join(filter(None, [field_path, field_problem[2]]))
        problem = "is missing" if field_problem[1].startswith("missing") else "unknown field"
    for pattern, replacement in _REPLACEMENTS:
        problem = re.sub(pattern, replacement, problem)
    return f"{field_path}: {problem}." if field_path else f"The request: {problem}."
