"""The commands of `rlds` as Markdown, for the page cli.md."""

from __future__ import annotations

import inspect
import re

import click

from rlds_tools.command_line import rlds

__all__ = ["as_markdown"]


def as_markdown(group: click.Group = rlds, name: str = "rlds") -> str:
    """Returns a section for each command of a group."""
    context = click.Context(group, info_name=name)
    parts = []
    for command_name in group.list_commands(context):
        command = group.get_command(context, command_name)
        assert command is not None, command_name
        if isinstance(command, click.Group):
            parts.append(as_markdown(command, f"{name} {command_name}"))
        else:
            parts.append(_section(command, f"{name} {command_name}"))
    return "\n".join(parts)


def _section(command: click.Command, name: str) -> str:
    context = click.Context(command, info_name=name)
    text = inspect.cleandoc(command.help or "").replace("\b\n", "")
    lines = [f"## {name}", "", *text.split("\n"), "", "```text"]
    lines += [command.get_usage(context).removeprefix("Usage: "), "```", ""]
    rows = []
    for parameter in command.get_params(context):
        record = parameter.get_help_record(context)
        if record and record[1] and "--help" not in record[0]:
            rows.append(f"| {_code(record[0])} | {_cell(record[1])} |")
    if rows:
        lines += ["| option | |", "|---|---|", *rows, ""]
    examples = re.findall(r"^ *(rlds .*)$", command.epilog or "", flags=re.MULTILINE)
    if examples:
        lines += ["```sh", *examples, "```", ""]
    return "\n".join(lines)


def _code(text: str) -> str:
    return f"`{text}`".replace("|", r"\|")


def _cell(text: str) -> str:
    # Brackets, as in [default: 3], would be links.
    return re.sub(r"([|<>\[\]*_])", r"\\\1", text)
