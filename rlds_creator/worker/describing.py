"""Descriptions of the supported environments of this interpreter, with their options."""

from __future__ import annotations

import inspect
import json
import re
import typing
from typing import Any, Literal

from rlds.sources.options import Option
from rlds_creator.environments import families, family, options_of

__all__ = ["describe"]

_KINDS = {bool: "flag", int: "integer", float: "number", str: "text"}
# The description of an argument in a docstring.
_ARGUMENT = re.compile(r"^  (\w+): ((?:.+\n?)(?:    .+\n?)*)", re.MULTILINE)


def describe() -> dict[str, Any]:
    """Returns the description of each family of environments by its name, in the types of JSON.

    If a family cannot be loaded, `identifiers` is None and `error` has the reason.
    """
    return {name: _describe(name) for name in families()}


def _describe(name: str) -> dict[str, Any]:
    facts: dict[str, Any] = {"title": name, "requires": "", "identifiers": None, "error": ""}
    try:
        loaded = family(name)
        facts.update(title=loaded.title or name, requires=loaded.requires)
        helps = _helps(inspect.getdoc(loaded.make) or "")
        options = [_option(it, helps.get(name, "")) for name, it in options_of(loaded).items()]
        json.dumps(options, allow_nan=False)
        facts["options"] = options
        facts["identifiers"] = list(loaded.identifiers())
    except Exception as e:  # An error of one family must not affect another one.
        facts["error"] = f"{type(e).__name__}: {e}"
    return {"options": [], **facts}


def _helps(docstring: str) -> dict[str, str]:
    """Returns the description of each argument in a docstring."""
    _, _, arguments = docstring.partition("\nArgs:\n")
    return {name: " ".join(text.split()) for name, text in _ARGUMENT.findall(arguments)}


def _option(option: Option, help: str) -> dict[str, Any]:
    arguments, choices = typing.get_args(option.kind), None
    if typing.get_origin(option.kind) is Literal:
        kind, choices = "choice", list(arguments)
    else:  # A type, or a union such as `int | None`.
        types = (option.kind, *arguments)
        kind = next((_KINDS[each] for each in types if each in _KINDS), "text")
    default = None if option.default is inspect.Parameter.empty else option.default
    return {
        "name": option.name,
        "kind": kind,
        "default": default,
        "choices": choices,
        "help": help,
    }
