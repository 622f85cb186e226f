"""`rlds diff`."""

from __future__ import annotations

import click

from rlds_tools.command_line.printing import prints_result, wants_progress
from rlds_tools.results import Result

EXAMPLES = """\b
Examples:
  rlds diff data/hopper/1.0.0 data/hopper/1.1.0
  rlds diff logs/run7 data/run7 --statistics
"""


@click.command(epilog=EXAMPLES)
@click.argument("one")
@click.argument("other")
@click.option("--statistics", is_flag=True, help="Compare the numbers too, which reads both.")
@click.option(
    "--tolerance", default=1e-6, show_default=True, help="How far numbers may differ, relatively."
)
@prints_result
def command(one: str, other: str, statistics: bool, tolerance: float) -> Result:
    """Show how two datasets differ.

    ONE and OTHER are compared in their fields, splits, metadata and, with --statistics, numbers.
    The exit code is 0 if nothing differs, and 1 if something does.
    """
    from rlds_tools import comparing

    return comparing.diff(
        one, other, statistics=statistics, tolerance=tolerance, progress=wants_progress()
    )
