"""The options of commands that serve pages."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import click

__all__ = ["serving_options"]


def serving_options(*, port: int, host: str, allowed_host: str, verbose: str) -> Callable[..., Any]:
    """Returns a decorator that adds the options to a command.

    Args:
      port: The port by default; 0 for any free port.
      host: What it means to serve on an address that others reach.
      allowed_host: What another name is for.
      verbose: What is shown in addition.
    """
    options = (
        click.option(
            "--host",
            default="127.0.0.1",
            show_default=True,
            metavar="ADDRESS",
            help=f"Address to serve on. {host}",
        ),
        click.option(
            "--port",
            type=click.IntRange(0, 65535),
            default=port,
            show_default=True,
            metavar="N",
            help="Port to serve on; 0 for any free port.",
        ),
        click.option(
            "--allowed-host",
            "allowed_hosts",
            metavar="NAME",
            multiple=True,
            help=f"Additional host name of this machine for browsers. {allowed_host}Repeatable.",
        ),
        click.option(
            "--open/--no-open",
            "opens",
            default=None,
            help="Open the page in a browser. Default: if there is a screen.",
        ),
        click.option("-q", "--quiet", is_flag=True, help="Print only the address."),
        click.option("-v", "--verbose", is_flag=True, help=f"Show {verbose}, and tracebacks."),
    )

    def add(command: Callable[..., Any]) -> Callable[..., Any]:
        for option in reversed(options):
            command = option(command)
        return command

    return add
