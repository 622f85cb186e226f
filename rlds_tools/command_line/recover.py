"""`rlds recover`."""

from __future__ import annotations

import click

from rlds_tools.command_line.printing import prints_result, wants_progress
from rlds_tools.results import Result

EXAMPLES = """\b
Examples:
  rlds recover logs/run7 --dry-run
  rlds recover logs/run7 -o logs/run7-repaired
"""


@click.command(epilog=EXAMPLES)
@click.argument("log")
@click.option("--dry-run", is_flag=True, help="Write nothing; show what would be recovered.")
@click.option(
    "-o",
    "--output",
    metavar="COPY",
    help="Write the repaired log here, and leave the other as it is. By default it is repaired in "
    "place.",
)
@prints_result
def command(log: str, dry_run: bool, output: str | None) -> Result:
    """Repair a log that was cut short or damaged.

    LOG is the directory of a log of this project, or of the published EnvLogger. Its recorder must
    have ended. No recorded step is changed, and the old index is kept as *.damaged.
    """
    from rlds_tools import recovering

    if dry_run and output:
        raise click.UsageError("--dry-run writes no copy: leave out one of them.")
    return recovering.recover(log, output, dry_run=dry_run, progress=wants_progress())
