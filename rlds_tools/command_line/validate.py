"""`rlds validate`."""

from __future__ import annotations

from typing import Any

import click

from rlds_tools.command_line.printing import (
    Command,
    jobs_option,
    most_findings_option,
    opens_source,
    option,
    prints_result,
    wants_progress,
)
from rlds_tools.results import Result


@click.command(cls=Command)
@click.argument("paths", nargs=-1, required=True, metavar="PATH...")
@option("--split TEXT", "Check this split only.")
@option("--finite FIELD...", "Report NaN and infinity in this field as errors.")
@option("--profile TEXT", "Also check the requirements of a loader: octo.")
@option("--strict", "Treat warnings as errors.")
@option("--checksums", "Also decode all images. Checksums of records are always verified.")
@most_findings_option
@jobs_option
@opens_source
@prints_result
def command(paths: tuple[str, ...], **options: Any) -> Result:
    """Check datasets for broken rules and common mistakes.

    Errors are broken rules of RLDS and unreadable data. Warnings are probable mistakes: black
    cameras, constant dimensions, values at their limits, NaN, duplicates, empty instructions. The
    exit code is 1 if there are errors.

    Examples:
      rlds validate data/walker2d
      rlds validate data/* --strict --finite observation --json
    """
    from rlds_tools import validating

    return validating.validate(*paths, **options, progress=wants_progress())
