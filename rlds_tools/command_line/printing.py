"""What all commands have in common: how they print their results."""

from __future__ import annotations

import functools
import json
import os
import sys
from collections.abc import Callable
from typing import Any

import click

from rlds_tools.results import Result

__all__ = ["prints_result"]

_STYLES: dict[str, dict[str, Any]] = {
    "title": {"bold": True},
    "heading": {"dim": True},
    "hint": {"fg": "cyan"},
}


def prints_result(function: Callable[..., Result]) -> Callable[..., int]:
    """Makes a command of a function that returns a result, with the options that all commands have.

    The data goes to the standard output; the command ends with the result's `exit_code`.
    """

    @click.option("--json", "as_json", is_flag=True, help="Print JSON, whose keys are stable.")
    @click.option(
        "--color",
        type=click.Choice(["auto", "always", "never"]),
        default="auto",
        help="When to use colors; auto: on a terminal, unless NO_COLOR is set.",
    )
    @click.option("-q", "--quiet", is_flag=True, help="Print errors only.")
    @click.option("-v", "--verbose", is_flag=True, help="Show what libraries say, and tracebacks.")
    @functools.wraps(function)
    def command(
        *args: Any, as_json: bool, color: str, quiet: bool, verbose: bool, **kwargs: Any
    ) -> int:
        context = click.get_current_context()
        context.obj = {"quiet": quiet, "verbose": verbose}
        context.color = _wants_color(color)
        result = function(*args, **kwargs)
        if as_json:
            click.echo(json.dumps(result.to_dict(), indent=2, ensure_ascii=False))
        elif not quiet:
            click.echo(result.text(lambda text, kind: click.style(text, **_STYLES[kind])))
        return result.exit_code

    return command


def _wants_color(color: str) -> bool:
    if color == "auto":
        return sys.stdout.isatty() and not os.environ.get("NO_COLOR")
    return color == "always"
