"""`rlds completion`."""

from __future__ import annotations

import click

from rlds_tools.command_line.printing import Command


@click.command(cls=Command)
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
def command(shell: str) -> None:
    """Print the completion script for a shell.

    Examples:
      rlds completion bash >> ~/.bashrc
      rlds completion fish > ~/.config/fish/completions/rlds.fish
    """
    from click.shell_completion import get_completion_class

    from rlds_tools.command_line.commands import rlds

    completion = get_completion_class(shell)
    assert completion is not None
    click.echo(completion(rlds, {}, "rlds", "_RLDS_COMPLETE").source())
