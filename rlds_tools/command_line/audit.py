"""`rlds audit`."""

from __future__ import annotations

from typing import Any

import click

from rlds_tools.command_line.printing import (
    Command,
    jobs_option,
    opens_source,
    option,
    prints_result,
    wants_progress,
    where_option,
)
from rlds_tools.results import Result


@click.command(cls=Command)
@click.argument("path")
@option("--split TEXT", "Audit this split only.")
@option(
    "--max most",
    "Maximum number of findings to print per split.",
    type=click.IntRange(1),
    default=20,
    show_default=True,
)
@where_option
@jobs_option
@opens_source
@prints_result
def command(path: str, **options: Any) -> Result:
    """Tell what actions mean, and which episodes to look at.

    Finds what each element of the action does to the state (absolute, delta, velocity, gripper;
    scale and lag), and episodes that are unlike the others: frozen, dead, saturated, jumping,
    rough, late, in other units, idle, short, doubled. Thresholds are those of the dataset itself.
    The exit code is 1 if there are such episodes.

    Examples:
      rlds audit my_robot
      rlds audit data/bridge --where "success" --max 50 --json
    """
    from rlds_tools import auditing

    return auditing.audit(path, **options, progress=wants_progress())
