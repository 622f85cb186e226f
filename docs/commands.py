"""The commands of `rlds` as Markdown, for the page cli.md."""

from __future__ import annotations

import inspect
import re
from collections import Counter

import click

from rlds_tools.command_line import rlds

__all__ = ["as_markdown"]


def as_markdown() -> str:
    """Returns the common options, and a section for each command."""
    context = click.Context(rlds, info_name="rlds")
    commands = {name: rlds.get_command(context, name) for name in rlds.list_commands(context)}
    rows = {name: _rows(command) for name, command in commands.items() if command}
    # Options of most commands are common, because some commands print no result.
    count = Counter(row for command_rows in rows.values() for row in command_rows)
    common = [row for row, times in count.items() if times > max(1, len(rows) / 2)]
    lines = ["", "## Options of all commands", "", *_table(common)]
    for name, command in commands.items():
        if command:
            own = [row for row in rows[name] if row not in common]
            lines += _section(command, f"rlds {name}", own, common)
    return "\n".join(lines)


def _section(command: click.Command, name: str, rows: list[str], common: list[str]) -> list[str]:
    usage = command.get_usage(click.Context(command, info_name=name)).removeprefix("Usage: ")
    text = inspect.cleandoc(command.help or "").replace("\b\n", "")
    examples = re.findall(r"^ *(rlds .*)$", command.epilog or "", flags=re.MULTILINE)
    lines = [f"## {name}", "", text, "", "```text", usage, "```", "", *_table(rows)]
    lines += ["```sh", *examples, "```", ""] if examples else []
    subcommands = command.commands if isinstance(command, click.Group) else {}
    for word, subcommand in subcommands.items():
        own_rows = [row for row in _rows(subcommand) if row not in common]
        lines += [
            f"#{line}" if line[:1] == "#" else line
            for line in _section(subcommand, f"{name} {word}", own_rows, common)
        ]
    return lines


def _rows(command: click.Command) -> list[str]:
    context = click.Context(command)
    records = [parameter.get_help_record(context) for parameter in command.get_params(context)]
    return [
        f"| {_code(record[0])} | {_cell(record[1])} |"
        for record in records
        if record and record[1] and "--help" not in record[0]
    ]


def _table(rows: list[str]) -> list[str]:
    return ["| option | |", "|---|---|", *rows, ""] if rows else []


def _code(text: str) -> str:
    return f"`{text}`".replace("|", r"\|")


def _cell(text: str) -> str:
    # Brackets, as in [default: 3], would be links.
    return re.sub(r"([|<>\[\]*_])", r"\\\1", text)
