"""The page of questions names only valid commands, options and values of `rlds`."""

import re
import shlex
from pathlib import Path

import click
import pytest

from rlds_tools.command_line.commands import COMMANDS, rlds

PAGE = Path(__file__).parents[2] / "docs" / "questions.md"
CALLS = re.findall(r"`rlds (\S[^`]*)`", PAGE.read_text(encoding="utf-8"))
# "The same `rlds convert` command" and "keys in `rlds view`" are not calls.
COMPLETE = [call for call in CALLS if call not in {"convert command", "convert", "view"}]


def parse(call: str) -> None:
    """Parses a command line without a run."""
    name, *words = shlex.split(call)
    context = click.Context(rlds)
    command = rlds.get_command(context, name)
    if isinstance(command, click.Group):
        name, *words = words
        command = command.get_command(context, name)
    assert command is not None, call
    command.make_context(name, words)


@pytest.mark.parametrize("call", COMPLETE)
def test_command_line_is_valid(call: str) -> None:
    parse(call)


def test_all_commands_are_on_the_page() -> None:
    assert {call.split()[0] for call in CALLS} >= {*COMMANDS} - {"completion"}
