"""`rlds episodes`."""

from __future__ import annotations

from typing import Any

import click

from rlds_tools.command_line.printing import (
    Command,
    opens_source,
    option,
    prints_result,
    where_option,
)
from rlds_tools.results import Result


@click.command(cls=Command)
@click.argument("path")
@option("--split TEXT", "List this split only.")
@where_option
@option("--columns TEXT", "Columns to show, separated by commas; or all.")
@option("--csv is_csv", "Print CSV.")
@opens_source
@prints_result
def command(path: str, columns: str | None, **options: Any) -> Result:
    """List the episodes at PATH with their indices.

    `rlds inspect --episode` and `rlds edit --delete-episodes` take these indices. The first call
    reads all episodes, and stores a table of them next to the data.

    Examples:
      rlds episodes data/so100 --where 'steps < 10'
      rlds episodes data/so100 --columns index,steps,instruction --csv
    """
    from rlds_tools import listing

    names = None if columns is None else [name.strip() for name in columns.split(",")]
    return listing.list_episodes(path, columns=names, **options)
