"""`rlds stats`."""

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
@option("--split TEXT", "Split to read. Required if there are several splits.")
@option("--fields TEXT", "Fields, separated by commas. Default: all numeric fields.")
@option("--by FIELD", "Group episodes by this field of episodes.")
@option("--out FILE", "Also write the statistics to a .json or .npz file.")
@where_option
@jobs_option
@opens_source
@prints_result
def command(path: str, fields: str | None, out: str | None, **options: Any) -> Result:
    """Compute statistics of a dataset.

    Shows the lengths and returns of episodes, and mean, range and quantiles of each element
    of each field. Reads the whole split. FILE holds statistics for normalization: .json in the form
    of Octo and OpenVLA.

    Examples:
      rlds stats data/walker2d
      rlds stats data/bridge --fields action --by language_instruction --out stats.json
    """
    if out is not None and not out.endswith((".json", ".npz")):
        raise click.UsageError(f"--out: got {out!r}, expected a name that ends with .json or .npz.")
    from rlds_tools import describing

    statistics = describing.stats(
        path,
        fields=None if fields is None else fields.split(","),
        progress=wants_progress(),
        **options,
    )
    if out is not None:
        statistics.save(out)
    return statistics
