"""Which environments can be made in this interpreter, and with what options."""

from __future__ import annotations

import inspect
import typing
from collections.abc import Callable
from typing import Any

from rlds_creator.environments import families, family

__all__ = ["describe"]

_KINDS = {bool: "flag", int: "integer", float: "number", str: "text"}


def describe() -> dict[str, Any]:
    """Returns what there is of each family, in the types of JSON, by its name.

    `identifiers` is None where `error` says why there are none.
    """
    return {name: _describe(name) for name in sorted(families())}


def _describe(name: str) -> dict[str, Any]:
    found: dict[str, Any] = {
        "title": name,
        "requires": "",
        "identifiers": None,
        "options": [],
        "error": "",
    }
    try:
        made = family(name)
        found.update(title=made.title or name, requires=made.requires)
        found["options"] = options(made.make)
        found["identifiers"] = list(made.identifiers())
    except Exception as e:  # Code of others: what is wrong with it does not concern the rest.
        found["error"] = f"{type(e).__name__}: {e}"
    return found


def options(make: Callable[..., Any]) -> list[dict[str, Any]]:
    """Returns the options of a family, see `Family.make`.

    >>> def make(*, id: str, keys, level: int = 1, mode: typing.Literal["easy", "hard"] = "easy"):
    ...     pass
    >>> for option in options(make):
    ...     print(option)
    {'name': 'level', 'kind': 'integer', 'default': 1, 'choices': None}
    {'name': 'mode', 'kind': 'choice', 'default': 'easy', 'choices': ['easy', 'hard']}
    """
    return [
        _option(parameter)
        for parameter in inspect.signature(make, eval_str=True).parameters.values()
        if parameter.kind is parameter.KEYWORD_ONLY and parameter.name not in ("id", "keys")
    ]


def _option(parameter: inspect.Parameter) -> dict[str, Any]:
    default = None if parameter.default is parameter.empty else parameter.default
    annotation = parameter.annotation
    arms = [arm for arm in typing.get_args(annotation) if arm is not type(None)]
    choices = None
    if typing.get_origin(annotation) is typing.Literal:
        kind, choices = "choice", arms
    elif annotation in _KINDS:
        kind = _KINDS[annotation]
    else:  # Such as `int | None`.
        kind = next((_KINDS[arm] for arm in arms if arm in _KINDS), "text")
    return {"name": parameter.name, "kind": kind, "default": default, "choices": choices}
