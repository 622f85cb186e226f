"""What can be done with recordings on the command line.

python -m envlogger recover DIRECTORY (--destination OTHER | --in-place)
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from rich.console import Console
from rich.progress import BarColumn, DownloadColumn, Progress, TaskID, TextColumn

from envlogger.errors import EnvLoggerError
from envlogger.recovery import RecoveryReport, recover


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs a command.

    Returns:
      The exit status: 0 if it did what it should, 1 if it could not. Wrong arguments exit with 2.
    """
    options = _parser().parse_args(arguments)
    try:
        report = _recover(options)
    except (EnvLoggerError, ValueError) as e:
        print(f"error: {e}", file=sys.stderr)
        return 1
    print(report)
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m envlogger")
    commands = parser.add_subparsers(title="commands", required=True)
    command = commands.add_parser(
        "recover",
        help="make a recording whole that was cut short or damaged",
        description="Makes readable what a recorder that was killed, or a damaged disk, has left "
        "of a recording of this package or of the published EnvLogger. The recording must have "
        "ended.",
    )
    command.add_argument("directory", help="the recording")
    target = command.add_mutually_exclusive_group(required=True)
    target.add_argument(
        "--destination",
        metavar="OTHER",
        help="write the recovered recording to this directory, which must be empty or not there",
    )
    target.add_argument(
        "--in-place",
        action="store_true",
        help="replace the index in the directory; what is replaced is kept as *.damaged",
    )
    return parser


def _recover(options: argparse.Namespace) -> RecoveryReport:
    columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn())
    console = Console(stderr=True)
    with Progress(*columns, console=console, disable=not console.is_terminal) as progress:
        tasks: dict[str, TaskID] = {}

        def show(path: str, position: int, size: int) -> None:
            if path not in tasks:
                tasks[path] = progress.add_task(path, total=size)
            progress.update(tasks[path], completed=position)

        return recover(
            options.directory, options.destination, in_place=options.in_place, on_progress=show
        )


if __name__ == "__main__":
    sys.exit(main())
