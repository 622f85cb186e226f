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
    "--finite", multiple=True, metavar="FIELD", help="NaN and infinity are errors in this field."
)
@click.option("--profile", help="Check what loaders need, too: octo.")
@click.option("--strict", is_flag=True, help="Warnings count as errors do.")
@click.option(
    "--checksums",
    is_flag=True,
    help="Decode all images, too. The checksums of records are always verified.",
)
@click.option(
    "--max",
    "most",
    type=click.IntRange(1),
    default=20,
    show_default=True,
    help="Print so many findings of a split.",
)
@jobs_option
@opens_source
@prints_result
def command(paths: tuple[str, ...], jobs: int | None, **options: Any) -> Result:
    """Check datasets: the rules of RLDS, and what goes wrong in practice.

    Errors are broken rules and data that cannot be read. Warnings are what is probably a mistake:
    black cameras, dead dimensions, values at their limits, NaN, duplicates, empty instructions.
    The exit code is 1 if there are errors.
    """
    from rlds_ecosystem.processes import default_jobs
    from rlds_tools import validating

    return validating.validate(
        *paths, **options, jobs=jobs or default_jobs(), progress=wants_progress()
    )
