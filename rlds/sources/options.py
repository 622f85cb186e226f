"""Options of sources on a command line: `length=500`, `boundary=["flags", "length"]`.

The signature of the source declares the options and their types. Values are JSON; other values are
texts, if the type allows texts.
"""

from __future__ import annotations

import collections.abc
import dataclasses
import inspect
import json
import types
import typing
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, Literal

__all__ = ["Option", "options_of", "parse_options"]

_TYPE_NAMES: Mapping[Any, str] = {
    bool: "true|false",
    int: "integer",
    float: "number",
    str: "text",
    types.NoneType: "null",
    Any: "...",
}


@dataclasses.dataclass(frozen=True)
class Option:
    """An option of a source.

    Attributes:
      name: The name of the option.
      kind: The annotated type.
      default: The default value.
    """

    name: str
    kind: Any
    default: Any

    def parse(self, text: str) -> Any:
        """Parses a value of the option from text.

        Raises:
          ValueError: The text is not a value of the type.
        """
        for parse in (json.loads, str):
            try:
                return _convert(parse(text), self.kind)
            except ValueError:
                continue
        raise ValueError(f"option {self.name}: got {text}, expected {_describe_type(self.kind)}")

    @property
    def is_json(self) -> bool:
        """True if the option can be set on a command line, in JSON."""
        return _describe_type(self.kind) != "null"

    def __str__(self) -> str:
        default = "" if self.default is None else f" ({json.dumps(self.default)})"
        return f"{self.name}={_describe_type(self.kind)}{default}"


def options_of(source: Callable[..., Any], *, leave_out: Collection[str] = ()) -> dict[str, Option]:
    """Returns the options of a source by name: its arguments except the path.

    Args:
      source: The class of the source.
      leave_out: The names of arguments that are not options.

    >>> from rlds.formats.d4rl.pybullet import D4rlPybulletSource
    >>> print(options_of(D4rlPybulletSource)["time_limit"])
    time_limit=integer (1000)
    """
    init = source.__init__ if isinstance(source, type) else source  # type: ignore[misc]
    kinds = typing.get_type_hints(init)
    _, *parameters = inspect.signature(source).parameters.values()
    return {
        parameter.name: Option(parameter.name, kinds[parameter.name], parameter.default)
        for parameter in parameters
        if parameter.name not in leave_out
    }


def parse_options(options: Mapping[str, Option], words: Sequence[str], name: str) -> dict[str, Any]:
    """Parses options of a command line.

    Args:
      options: The available options.
      words: The given options, each as `name=value`.
      name: The owner of the options, for error messages.

    Raises:
      ValueError: An option or its value does not exist; the message lists the options.
    """
    options = {name: option for name, option in options.items() if option.is_json}
    parsed: dict[str, Any] = {}
    for word in words:
        option, equals, text = word.partition("=")
        if not equals:
            raise ValueError(f"option {word}: expected name=value")
        if option not in options:
            descriptions = "; ".join(map(str, options.values())) or "none"
            raise ValueError(f"{name} has no option {option!r}; its options are: {descriptions}")
        if option in parsed:
            raise ValueError(f"option {option} is given twice; write a list as {option}=[...]")
        parsed[option] = options[option].parse(text)
    return parsed


def _convert(value: Any, kind: Any) -> Any:
    """Converts a JSON value to a type.

    Raises:
      ValueError: The value is not of the type.
    """
    origin, arguments = typing.get_origin(kind), typing.get_args(kind)
    if kind is Any:
        return value
    if origin in (typing.Union, types.UnionType):
        for argument in arguments:
            try:
                return _convert(value, argument)
            except ValueError:
                continue
    elif origin is Literal:
        if value in arguments:
            return value
    elif origin is tuple and isinstance(value, list) and len(value) == len(arguments):
        return tuple(map(_convert, value, arguments))
    elif origin is collections.abc.Sequence and isinstance(value, list):
        return [_convert(item, arguments[0]) for item in value]
    elif origin is collections.abc.Mapping and isinstance(value, dict):
        return {name: _convert(item, arguments[1]) for name, item in value.items()}
    elif kind is float and type(value) is int:
        return float(value)
    elif type(value) is kind:
        return value
    raise ValueError(f"{value!r} is not of type {kind}")


def _describe_type(kind: Any) -> str | None:
    """Describes the JSON values of a type; None for a type without JSON values."""
    origin, arguments = typing.get_origin(kind), typing.get_args(kind)
    if origin in (typing.Union, types.UnionType):
        words = [word for word in map(_describe_type, arguments) if word is not None]
        return " | ".join(word for word in words if word != "null") or "null"
    if origin is Literal:
        return "|".join(map(str, arguments))
    if origin is tuple:
        return f"[{', '.join(str(_describe_type(argument)) for argument in arguments)}]"
    if origin is collections.abc.Sequence:
        return f"[{_describe_type(arguments[0])}, ...]"
    if origin is collections.abc.Mapping:
        return f'{{"...": {_describe_type(arguments[1])}, ...}}'
    return _TYPE_NAMES.get(kind)
