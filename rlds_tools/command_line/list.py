"""`rlds list`."""

from __future__ import annotations

import click

from rlds_tools.command_line.printing import Command, option, prints_result, where_option
from rlds_tools.results import Result


@click.command(cls=Command)
@click.argument("directory", default=".")
@option("--depth INTEGER", "Maximum depth of the folders to search.", default=6, show_default=True)
@option("--formats", "List the formats and their options.")
@where_option
@prints_result
def command(directory: str, depth: int, formats: bool, where: str | None) -> Result:
    """List the datasets below a folder.

    Finds TFDS, LeRobot and Minari datasets, and EnvLogger logs. With --where, counts the matching
    episodes of each dataset.

    Examples:
      rlds list data --where 'steps > 50 and success'
      rlds list --formats
    """
    from rlds_tools import listing

    if formats and where is not None:
        raise click.UsageError("--where does not work with --formats.")
    if formats:
        return listing.list_formats()
    return listing.list_datasets(directory, depth=depth, where=where)
