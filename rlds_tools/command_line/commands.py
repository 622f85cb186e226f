"""The entry point: loads the called subcommand, and turns errors into one line and an exit code.

0    success
1    findings, or an error
2    a wrong command line
130  Ctrl-C
"""

from __future__ import annotations

import difflib
import importlib
import os
import sys
import warnings
from collections.abc import Sequence
from typing import Any, NoReturn

import click

from rlds_ecosystem.model.texts import printable
from rlds_tools.command_line.printing import Invocation

__all__ = ["COMMANDS", "main", "rlds"]

# The commands are in the order of use: record, inspect, convert, edit and label, share.
COMMANDS = (
    "record",
    "create",
    "export",
    "recover",
    "list",
    "inspect",
    "view",
    "report",
    "episodes",
    "stats",
    "validate",
    "audit",
    "convert",
    "diff",
    "edit",
    "label",
    "card",
    "completion",
)

# Commands of the web tool, which imports this package.
_CREATOR_COMMANDS = {"create", "export", "view"}

# The commands to suggest for names that users try.
_ALIASES = {
    "delete": "rlds edit PATH --delete-episodes 3,7",
    "merge": "rlds edit PATH --merge OTHER --to NEW",
    "split": "rlds edit PATH --split-by FIELD --to NEW",
}

_EXIT_INTERRUPTED = 130
# Errors of data, files and arguments. Any other error is a fault of the program.
_USER_ERRORS = (OSError, ValueError, LookupError, ImportError, RuntimeError, MemoryError)


class _Commands(click.Group):
    """Loads a command when it is called, from the module of the same name."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        package = "rlds_creator" if cmd_name in _CREATOR_COMMANDS else "rlds_tools"
        module = importlib.import_module(f"{package}.command_line.{cmd_name}")
        command: click.Command = module.command
        return command

    def resolve_command(self, ctx: click.Context, args: list[str]) -> Any:
        try:
            return super().resolve_command(ctx, args)
        except click.UsageError as error:
            if args[0] in _ALIASES:
                message = f"{error.message} Use: {_ALIASES[args[0]]}"
                raise click.UsageError(message, ctx) from None
            similar = difflib.get_close_matches(args[0], COMMANDS, n=1)
            if not similar:
                raise
            raise click.UsageError(f"{error.message} Did you mean {similar[0]!r}?", ctx) from None


def _print_version(ctx: click.Context, _: click.Parameter, value: bool) -> None:
    if value:
        from rlds_ecosystem import version

        click.echo(f"rlds {version()}")
        ctx.exit()


@click.group(
    cls=_Commands,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    epilog="`rlds COMMAND --help` shows the options of a command, and examples.",
)
@click.option(
    "-v",
    "--version",
    is_flag=True,
    is_eager=True,
    expose_value=False,
    callback=_print_version,
    help="Print the version.",
)
def rlds() -> None:
    """Record, inspect, convert, edit and share datasets of episodes.

    PATH is a dataset in any format that `rlds list --formats` shows: an EnvLogger log, a TFDS,
    LeRobot or Minari dataset, or raw data.
    """


def main(arguments: Sequence[str] | None = None) -> NoReturn:
    """Runs a command, and exits.

    Args:
      arguments: The command line without the program name; `sys.argv[1:]` if None.
    """
    sys.exit(run(arguments))


def run(arguments: Sequence[str] | None = None) -> int:
    """Runs a command, and returns the exit code; see `main`."""
    call = Invocation(owns_process=arguments is None)
    arguments = list(sys.argv[1:] if arguments is None else arguments)
    if call.owns_process:
        _shorten_warnings(call)
    try:
        code = rlds.main(arguments, rlds.name, standalone_mode=False, obj=call)
        sys.stdout.flush()
        return code if isinstance(code, int) else 0
    except click.ClickException as error:
        error.show()
        return error.exit_code
    except (KeyboardInterrupt, click.Abort) as error:
        # Click before 8.2 wraps the KeyboardInterrupt in an Abort, which lacks its notes.
        interrupt = error.__context__ if isinstance(error, click.Abort) else error
        click.echo(_with_notes("Interrupted.", interrupt or error), err=True)
        return _EXIT_INTERRUPTED
    except BrokenPipeError:
        # The reader has closed the pipe; without this, Python reports an error when it flushes.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except Exception as error:
        if call.verbose or not _is_expected(error):
            raise
        # `str` of a KeyError would quote the text.
        text = error.args[0] if isinstance(error, KeyError) and error.args else str(error)
        if isinstance(error, OSError) and error.strerror and error.filename:
            text = f"{error.filename}: {error.strerror}"
        click.echo(_with_notes(f"error: {str(text) or repr(error)}", error), err=True)
        return 1


def _shorten_warnings(call: Invocation) -> None:
    """Shows warnings without the line of code."""
    show = warnings.showwarning

    def show_line(message: Warning | str, *args: Any, **kwargs: Any) -> None:
        if call.verbose:
            show(message, *args, **kwargs)
        elif not call.quiet:
            click.echo(printable(f"warning: {click.unstyle(str(message))}"), err=True)

    warnings.showwarning = show_line


def _is_expected(error: Exception) -> bool:
    riegeli = sys.modules.get("riegeli")  # Only a loaded module can raise.
    return isinstance(error, _USER_ERRORS) or (
        riegeli is not None and isinstance(error, riegeli.RiegeliError)
    )


def _with_notes(text: str, error: BaseException) -> str:
    return "\n".join(map(printable, [text, *getattr(error, "__notes__", ())]))
