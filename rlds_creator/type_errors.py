"""Readable messages of msgspec type errors: the field, the value and the expected type."""

from __future__ import annotations

import re

__all__ = ["in_words"]

_PLACE = re.compile(r"(.*?)(?: - at (?:`key` in )?`\$\.?(.*)`)?", re.DOTALL)
_OF_OBJECT = re.compile(r"Object (missing required|contains unknown) field `(.*)`")
_TYPES = {
    "str": "text",
    "int": "a whole number",
    "float": "a number",
    "bool": "true or false",
    "null": "nothing",
    "array": "a list",
    "object": "an object",
}
_BOUNDS = {">=": "of at least", "<=": "of at most", ">": "above", "<": "below"}
_CHANGES = (
    (r"`([^`]*)`", lambda found: " or ".join(_TYPES.get(x, x) for x in found[1].split(" | "))),
    (r"of length >= 1$", lambda _: "that is not empty"),
    (
        r"of length ([<>]=) (\d+)$",
        lambda found: f"{_BOUNDS[found[1]]} {found[2]} characters or elements",
    ),
    (r"([<>]=?) ([-\d.]+)$", lambda found: f"{_BOUNDS[found[1]]} {float(found[2]):,.12g}"),
    (r"matching regex .*", lambda _: "of letters, digits, - and _"),
    (r"^Invalid enum value (.*)", lambda found: f"{found[1]} is not one of the choices"),
    (r"^E", lambda _: "e"),
)


def in_words(error: Exception) -> str:
    """Returns a readable message of an error of msgspec: the field, and the expected type.

    >>> in_words(ValueError("Expected `str` of length >= 1 - at `$.name`"))
    'name: expected text that is not empty.'
    >>> in_words(ValueError("Object missing required field `type`"))
    'type: is missing.'
    """
    match = _PLACE.fullmatch(str(error))
    assert match is not None
    what, place = match[1], match[2] or ""
    if of_object := _OF_OBJECT.fullmatch(what):
        place = ".".join(filter(None, [place, of_object[2]]))
        what = "is missing" if of_object[1].startswith("missing") else "unknown field"
    for pattern, words in _CHANGES:
        what = re.sub(pattern, words, what)
    return f"{place}: {what}." if place else f"The request: {what}."
