"""`rlds recover`."""

from __future__ import annotations

import click

from rlds_tools.command_line.printing import prints_result, wants_progress
from rlds_tools.results import Result

EXAMPLES = """\b
Examples:
  rlds recover logs/run7 --dry-run
  rlds recover lerobot/so100 -o lerobot/so100-repaired
"""


@click.command(epilog=EXAMPLES)
@click.argument("path")
@click.option("--dry-run", is_flag=True, help="Write nothing; show what would be recovered.")
@click.option(
    "-o",
    "--output",
    metavar="COPY",
    help="Write the repaired one here, and leave the other as it is. By default, a log is repaired "
    "in place.",
)
@click.option(
    "--in-place",
    is_flag=True,
    help="Repair it where it is. A damaged LeRobot dataset is kept as NAME.old.",
)
@prints_result
def command(path: str, dry_run: bool, output: str | None, in_place: bool) -> Result:
    """Repair a log or a LeRobot dataset that was cut short or damaged.

    PATH is the directory of a log of this project, or of the published EnvLogger. Its recorder must
    have ended. No recorded step is changed, and the old index is kept as *.damaged.

    Or PATH is a LeRobot dataset that was recorded with LeRobot or with this project. The episodes
    that are provably there, rows and frames of all cameras, are written to a new dataset.
    """
    from rlds_tools import recovering

    if dry_run and output:
        raise click.UsageError("--dry-run writes no copy: leave out one of them.")
    if in_place and (output or dry_run):
        raise click.UsageError("--in-place writes no copy and is no dry run: choose one of them.")
    return recovering.recover(
        path, output, in_place=in_place or None, dry_run=dry_run, progress=wants_progress()
    )
