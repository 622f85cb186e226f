"""`rlds recover`."""

from __future__ import annotations

import click

from rlds_tools.command_line.printing import Command, option, prints_result, wants_progress
from rlds_tools.results import Result


@click.command(cls=Command)
@click.argument("path")
@option("--dry-run", "Show what would be recovered; write nothing.")
@option(
    "-o --output COPY",
    "Write a repaired copy here, and do not change the original. By default, a log itself is "
    "repaired.",
)
@option("--in-place", "Repair PATH itself. A damaged LeRobot dataset is kept as NAME.old.")
@prints_result
def command(path: str, dry_run: bool, output: str | None, in_place: bool) -> Result:
    """Repair a log or a LeRobot dataset after a crash or damage.

    PATH is an EnvLogger log, of this project or of the published EnvLogger, whose recorder has
    ended. Recorded steps do not change, and the old index is kept as *.damaged.

    PATH may also be a LeRobot dataset that LeRobot or this project recorded. Episodes with all rows
    and all camera frames are written to a new dataset.

    Examples:
      rlds recover logs/run7 --dry-run
      rlds recover lerobot/so100 -o lerobot/so100-repaired
    """
    from rlds_tools import recovering

    if dry_run and output:
        raise click.UsageError("--dry-run does not work with --output.")
    if in_place and (output or dry_run):
        raise click.UsageError("--in-place does not work with --output or --dry-run.")
    return recovering.recover(
        path, output, in_place=in_place or None, dry_run=dry_run, progress=wants_progress()
    )
