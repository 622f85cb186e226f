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
    """Returns the description of each family of environments, as JSON, by its name.

    `identifiers` is None where `error` says why there are none.
    """
    return {name: _describe(name) for name in families()}


def _describe(name: str) -> dict[str, Any]:
    facts: dict[str, Any] = {"title": name, "requires": "", "identifiers": None, "error": ""}
    try:
        loaded = family(name)
        facts.update(title=loaded.title or name, requires=loaded.requires)
        helps = _helps(inspect.getdoc(loaded.make) or "")
        options = [_option(one, helps.get(name, "")) for name, one in options_of(loaded).items()]
        json.dumps(options, allow_nan=False)
        facts["options"] = options
        facts["identifiers"] = list(loaded.identifiers())
    except Exception as e:  # An error in the code of one family must not affect the others.
        facts["error"] = f"{type(e).__name__}: {e}"
    return {"options": [], **facts}


def _helps(docstring: str) -> dict[str, str]:
    """Returns the description of each argument in a docstring."""
    _, _, arguments = docstring.partition("\nArgs:\n")
    return {name: " ".join(text.split()) for name, text in _ARGUMENT.findall(arguments)}


def _option(option: Option, help: str) -> dict[str, Any]:
    kind, arms = option.kind, typing.get_args(option.kind)
    choices = None
    if typing.get_origin(kind) is Literal:
        kind_name, choices = "choice", list(arms)
    else:  # Such as `int | None`.
        kind_name = next((_KINDS[arm] for arm in (kind, *arms) if arm in _KINDS), "text")
    default = None if option.default is inspect.Parameter.empty else option.default
    return {
        "name": option.name,
        "kind": kind_name,
        "default": default,
        "choices": choices,
        "help": help,
    }
