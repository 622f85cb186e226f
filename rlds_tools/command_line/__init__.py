"""The command `rlds`: one module for each subcommand, which is imported when it is called."""

from rlds_tools.command_line.commands import main, rlds

__all__ = ["main", "rlds"]
