"""`rlds inspect`."""

from __future__ import annotations

from typing import Any

import click

from rlds_tools.command_line.printing import opens_source, prints_result, where_option
from rlds_tools.results import Result

EXAMPLES = """\b
Examples:
  rlds inspect data/walker2d
  rlds inspect logs/run7 --episode 0 --step 5
"""


@click.command(epilog=EXAMPLES)
@click.argument("path")
@click.option("--split", help="Split to show. Required for an episode if there are several splits.")
@click.option("--episode", type=int, help="Episode to show; -1 is the last one.")
@click.option("--step", type=int, help="Step of the episode to show; -1 is the last one.")
@click.option(
    "--lineage", is_flag=True, help="Show the sources of the dataset, and the operations on them."
)
@where_option
@opens_source
@prints_result
def command(
    path: str, episode: int | None, step: int | None, lineage: bool, **options: Any
) -> Result:
    """Show the structure of a dataset, an episode or a step.

    The structure is the format, the splits, the fields of steps and episodes, and the metadata.
    Showing it reads no episode.
    """
    from rlds_tools import inspection

    if lineage and options["where"] is not None:
        raise click.UsageError("--where does not work with --lineage.")
    if lineage:
        from rlds_tools import editing

        return editing.inspect_lineage(path, options["split"], episode)
    if episode is None and step is not None:
        raise click.UsageError("--step needs --episode.")
    if episode is None:
        return inspection.inspect(path, **options)
    if step is None:
        return inspection.inspect_episode(path, episode, **options)
    return inspection.inspect_step(path, episode, step, **options)
