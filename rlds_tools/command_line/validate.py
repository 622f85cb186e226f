"""`rlds validate`."""

from __future__ import annotations

from typing import Any

import click

from rlds_tools.command_line.printing import (
    jobs_option,
    opens_source,
    prints_result,
    wants_progress,
)
from rlds_tools.results import Result

EXAMPLES = """\b
Examples:
  rlds validate data/walker2d
  rlds validate data/* --strict --finite observation --json
"""


@click.command(epilog=EXAMPLES)
@click.argument("paths", nargs=-1, required=True, metavar="PATH...")
@click.option("--split", help="Check this split only.")
@click.option(
    "--finite",
    multiple=True,
    metavar="FIELD",
    help="Report NaN and infinity in this field as errors. Repeatable.",
)
@click.option("--profile", help="Also check the requirements of a loader: octo.")
@click.option("--strict", is_flag=True, help="Treat warnings as errors.")
@click.option(
    "--checksums",
    is_flag=True,
    help="Also decode all images. Checksums of records are always verified.",
)
@click.option(
    "--max",
    "most",
    type=click.IntRange(1),
    default=20,
    show_default=True,
    help="Maximum number of findings to print per split.",
)
@jobs_option
@opens_source
@prints_result
def command(paths: tuple[str, ...], jobs: int | None, **options: Any) -> Result:
    """Check datasets for broken rules and common mistakes.

    Errors are broken rules of RLDS and unreadable data. Warnings are probable mistakes: black
    cameras, constant dimensions, values at their limits, NaN, duplicates, empty instructions. The
    exit code is 1 if there are errors.
    """
    from rlds_ecosystem.files.processes import default_jobs
    from rlds_tools import validating

    return validating.validate(
        *paths, **options, jobs=jobs or default_jobs(), progress=wants_progress()
    )
