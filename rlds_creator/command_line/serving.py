"""The options of commands that serve pages."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import click

from rlds_tools.command_line.printing import option

__all__ = ["serving_options"]


def serving_options(*, port: int, host: str, allowed_host: str, verbose: str) -> Callable[..., Any]:
    """Returns a decorator that adds the options to a command.

    Args:
      port: The port by default; 0 for any free port.
      host: The warning about an address that other machines reach.
      allowed_host: An additional sentence about host names, after a space; may be empty.
      verbose: The additional output.
    """
    options = (
        option(
            "--host ADDRESS", f"Address to serve on. {host}", default="127.0.0.1", show_default=True
        ),
        option(
            "--port N",
            "Port to serve on; 0 for any free port.",
            type=click.IntRange(0, 65535),
            default=port,
            show_default=True,
        ),
        option(
            "--allowed-host allowed_hosts NAME...",
            f"Additional host name of this machine for browsers.{allowed_host}",
        ),
        option(
            "--open/--no-open opens_browser",
            "Open the page in a browser. Default: if there is a screen.",
            default=None,
        ),
        option("-q --quiet", "Print only the address."),
        option("-v --verbose", f"Show {verbose}, and tracebacks."),
    )

    def add(command: Callable[..., Any]) -> Callable[..., Any]:
        for decorate in reversed(options):
            command = decorate(command)
        return command

    return add
