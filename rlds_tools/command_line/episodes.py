"""`rlds episodes`."""

from __future__ import annotations

from typing import Any

import click

from rlds_tools.command_line.printing import opens_source, prints_result, where_option
from rlds_tools.results import Result

EXAMPLES = """\b
Examples:
  rlds episodes data/so100 --where 'steps < 10'
  rlds episodes data/so100 --columns index,steps,instruction --csv
"""


@click.command(epilog=EXAMPLES)
@click.argument("path")
@click.option("--split", help="Only the episodes of this split.")
@where_option
@click.option(
    "--columns", help="Columns of the table of episodes, separated by commas; all: all of them."
)
@click.option("--csv", "is_csv", is_flag=True, help="Print CSV.")
@opens_source
@prints_result
def command(path: str, columns: str | None, **options: Any) -> Result:
    """List the episodes at PATH, by their numbers in the dataset.

    The numbers are those that `rlds inspect --episode` and `rlds edit --delete-episodes` take.
    All episodes are read once, for a table that is kept beside the data.
    """
    from rlds_tools import listing

    chosen = None if columns is None else [name.strip() for name in columns.split(",")]
    return listing.list_episodes(path, columns=chosen, **options)
