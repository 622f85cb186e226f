"""The command `rlds`: each module here has a command, and imports what it needs when it runs."""

from rlds_tools.command_line.commands import main, rlds

__all__ = ["main", "rlds"]
