"""Explanations of errors of DuckDB, in terms of the condition and the table of episodes."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from rlds_ecosystem.model.names import suggest_names

__all__ = ["explain_error", "explain_syntax_error", "quote_name", "unknown_column"]

# Names of columns in other formats.
_COLUMN_ALIASES = {
    **dict.fromkeys(("length", "num_steps", "num_frames"), "steps"),
    "task": "instruction",
    **dict.fromkeys(("episode_index", "episode"), "number"),
}
_UNKNOWN_COLUMN = re.compile(r'Referenced (?:column|table) "(.+?)" (?:was )?not found')
_STATISTIC_SUFFIX = re.compile(r"\.(min|max|mean)$")
_TYPE_DESCRIPTIONS = (
    (r"STRUCT.*", "a group of values"),
    (r"VARCHAR.*|STRING_LITERAL|ENUM.*", "a text"),
    (r"BOOLEAN", "a flag"),
    (r"\w*INT\w*|DOUBLE|FLOAT|DECIMAL.*", "a number"),
)
_OPERATOR_NAMES = {"~~": "like", "!~~": "not like", "~~*": "ilike", "!~~*": "not ilike"}


def explain_syntax_error(condition: str, message: str) -> str:
    """Explains a syntax error of a condition.

    Args:
      condition: The condition.
      message: The message of DuckDB's parser, which reads the condition in parentheses.
    """
    if "unterminated" in message:
        return "a quote is not closed: texts are in single quotes, names in double quotes"
    token = re.search('near "(.*)"', message, re.DOTALL)
    if token is None:
        return f"this is not a condition, such as `steps > 10 and success` (DuckDB: {message})"
    is_end = token[1] == ")" and condition.count(")") <= condition.count("(")
    problem = "the condition ends too early" if is_end else f"{token[1]!r} is not expected here"
    return f"{problem}. Example: `steps > 10 and success`"


def explain_error(
    error: Exception, condition: str, columns: Mapping[str, Any], aliases: Mapping[str, str]
) -> str:
    """Explains an error of a condition on a table, with a remedy.

    Args:
      error: The error of DuckDB.
      condition: The condition.
      columns: The types of all columns, by their names and aliases.
      aliases: The names of columns by their aliases.
    """
    if hints := [*_hints(condition, columns, aliases)]:
        return "; ".join(hints)
    message = " ".join(line.strip() for line in str(error).splitlines())
    if match := _UNKNOWN_COLUMN.search(message):
        dotted = re.search(rf"{re.escape(match[1])}(\.\w+)*", condition)
        name = dotted[0] if dotted else match[1]
        return unknown_column(_STATISTIC_SUFFIX.sub("", name), columns)
    if match := re.search(r"argument types '(.+?)\((.*?)\)'\. You", message):
        types = " and ".join(dict.fromkeys(map(_describe_type, match[2].split(", "))))
        return f"{_OPERATOR_NAMES.get(match[1], match[1])!r} does not accept {types}"
    if match := re.search(r"Could not convert string '(.*)' to (\w+)", message):
        return f"the text {match[1]!r} is compared with {_describe_type(match[2])}"
    if match := re.search(r"compare values of type (.+) and type (.+) - an", message):
        return " is compared with ".join(map(_describe_type, match.groups()))
    return f"it cannot be evaluated (DuckDB: {re.sub(r'^[A-Z][A-Za-z ]+ Error: ', '', message)})"


def unknown_column(name: str, columns: Mapping[str, Any]) -> str:
    """Returns the error about the name of an unknown column.

    Args:
      name: The name.
      columns: The types of all columns, by their names and aliases.
    """
    if name.split(".")[0] == "audit" and "audit" not in columns:
        return f"{name!r}: there is no audit of these files: run `rlds audit` first"
    typed = {column: _as_typed(column, kind) for column, kind in columns.items()}
    aliases = {
        alias: column
        for alias, column in _COLUMN_ALIASES.items()
        if column in columns and alias not in columns
    }
    return f"there is no column {name!r}; {suggest_names(name, columns, {**aliases, **typed})}"


def _as_typed(name: str, kind: Any) -> str:
    """Returns a column name in the syntax of conditions: quoted, with a member of a struct."""
    text = name if re.fullmatch(r"\w+", name) else quote_name(name)
    return f"{text}.{kind.children[0][0]}" if getattr(kind, "id", "") == "struct" else text


def _hints(condition: str, columns: Mapping[str, Any], aliases: Mapping[str, str]) -> Iterator[str]:
    """Yields remedies for structs and aliases that cannot be used directly."""
    for name, kind in columns.items():
        mention = re.search(rf'(?<![\w."/])"?{re.escape(name)}(?![\w/])"?(\.\w)?', condition)
        if mention is None:
            continue
        if kind.id == "struct" and not mention[1]:
            members = [member for member, _ in kind.children]
            yield f"{name!r} has {', '.join(members)}: write {quote_name(name)}.{members[0]}"
        elif name in aliases and "." in name and '"' not in mention[0]:
            yield f"write {quote_name(name)}, in double quotes"


def quote_name(name: str) -> str:
    """Returns the name of a column in double quotes."""
    escaped = name.replace('"', '""')
    return f'"{escaped}"'


def _describe_type(kind: str) -> str:
    kind = kind.strip()
    return next(
        (text for pattern, text in _TYPE_DESCRIPTIONS if re.fullmatch(pattern, kind)), kind.lower()
    )
