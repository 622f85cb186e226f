"""The page of questions names commands, options and values that `rlds` takes."""

import re
import shlex
from pathlib import Path

import click
import pytest

from rlds_tools.command_line.commands import COMMANDS, rlds

PAGE = Path(__file__).parents[2] / "docs" / "questions.md"
CALLS = re.findall(r"`rlds (\S[^`]*)`", PAGE.read_text(encoding="utf-8"))
# "The same `rlds convert` command" and "keys in `rlds view`" are no calls.
COMPLETE = [call for call in CALLS if call not in {"convert command", "convert", "view"}]


def parse(call: str) -> None:
    """Parses a command line, and runs nothing."""
    name, *words = shlex.split(call)
    context = click.Context(rlds)
    command = rlds.get_command(context, name)
    if isinstance(command, click.Group):
        name, *words = words
        command = command.get_command(context, name)
    assert command is not None, call
    command.make_context(name, words)


@pytest.mark.parametrize("call", COMPLETE)
def test_command_can_be_called(call: str) -> None:
    parse(call)


def test_commands_are_found() -> None:
    assert {call.split()[0] for call in CALLS} >= {*COMMANDS} - {"completion"}
