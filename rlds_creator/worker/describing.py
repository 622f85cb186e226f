"""Descriptions of the supported environments of this interpreter, with their options."""

from __future__ import annotations

import inspect
import json
import re
import typing
from collections.abc import Mapping
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
    return {name: _describe_family(name) for name in families()}


def _describe_family(name: str) -> dict[str, Any]:
    description: dict[str, Any] = {"title": name, "requires": "", "identifiers": None, "error": ""}
    try:
        loaded = family(name)
        description.update(title=loaded.title or name, requires=loaded.requires)
        docs = _parse_argument_docs(inspect.getdoc(loaded.make) or "")
        options = [_describe_option(option, docs) for option in options_of(loaded).values()]
        json.dumps(options, allow_nan=False)
        description["options"] = options
        description["identifiers"] = list(loaded.identifiers())
    except Exception as e:  # An error of one family must not affect another one.
        description["error"] = f"{type(e).__name__}: {e}"
    return {"options": [], **description}


def _parse_argument_docs(docstring: str) -> dict[str, str]:
    """Returns the description of each argument in a docstring."""
    _, _, arguments = docstring.partition("\nArgs:\n")
    return {name: " ".join(text.split()) for name, text in _ARGUMENT.findall(arguments)}


def _describe_option(option: Option, docs: Mapping[str, str]) -> dict[str, Any]:
    arguments, choices = typing.get_args(option.kind), None
    if typing.get_origin(option.kind) is Literal:
        kind, choices = "choice", list(arguments)
    else:  # The type may be a union.
        types = (option.kind, *arguments)
        kind = next((_KINDS[kind] for kind in types if kind in _KINDS), "text")
    default = None if option.default is inspect.Parameter.empty else option.default
    details = {"default": default, "choices": choices, "help": docs.get(option.name, "")}
    return {"name": option.name, "kind": kind, **details}
