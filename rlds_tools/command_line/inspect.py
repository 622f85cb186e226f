"""`rlds inspect`."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
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
@option("--split TEXT", "Split to show. Required for an episode if there are several splits.")
@option("--episode", "Episode to show; -1 is the last one.", type=int)
@option("--step", "Step of the episode to show; -1 is the last one.", type=int)
@option("--lineage", "Show the sources of the dataset, and the operations on them.")
@where_option
@opens_source
@prints_result
def command(
    path: str, episode: int | None, step: int | None, lineage: bool, **options: Any
) -> Result:
    """Show the structure of a dataset, an episode or a step.

    The structure is the format, the splits, the fields of steps and episodes, and the metadata.
    The meaning of float actions is shown, too, by the last audit or a sample of 20 episodes; no
    other episodes are read.

    Examples:
      rlds inspect data/walker2d
      rlds inspect logs/run7 --episode 0 --step 5
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
        return _inspect_or_propose(path, options)
    if step is None:
        return inspection.inspect_episode(path, episode, **options)
    return inspection.inspect_step(path, episode, step, **options)


def _inspect_or_propose(path: str, options: Mapping[str, Any]) -> Result:
    """Inspects a dataset, or proposes a layout if no format recognizes it."""
    from rlds_tools import inspection

    try:
        inspected = inspection.inspect(path, **options)
        return inspection.with_meanings(inspected, options["options"] or {})
    except ValueError as error:
        from rlds.sources import UnknownFormatError  # This import is slow.

        if isinstance(error, UnknownFormatError):
            with contextlib.suppress(ImportError, OSError, ValueError):
                return inspection.propose_layout(path, str(error))
        raise
