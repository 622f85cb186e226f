"""`rlds audit`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import click

from rlds_tools.command_line.printing import (
    BEAM_SETTINGS,
    Command,
    jobs_option,
    most_findings_option,
    opens_source,
    option,
    prints_result,
    split_words,
    wants_progress,
    where_option,
)
from rlds_tools.results import Result


@click.command(cls=Command, context_settings=BEAM_SETTINGS)
@click.argument("path")
@click.argument("words", nargs=-1, metavar="[BEAM_OPTIONS]")
@option("--split TEXT", "Audit this split only.")
@most_findings_option
@option("--by SCORE", "Also list the episodes of the lowest score: smoothness, information, ...")
@option(
    "--best",
    "Part of the episodes of each task that the next command keeps.",
    type=click.FloatRange(0, 1, min_open=True),
    default=0.5,
    show_default=True,
)
@where_option
@jobs_option
@option("--runner TEXT", "Read episodes with Apache Beam on this runner, such as DirectRunner.")
@option("--draft DIR", "Folder for results of Beam that all its machines see.")
@opens_source
@prints_result
def command(path: str, words: Sequence[str], runner: str | None, **options: Any) -> Result:
    """Tell what actions mean, and which episodes to look at.

    Finds what each element of the action does to the state (absolute, delta, velocity, gripper;
    scale and lag), and episodes that are unlike the others: frozen, dead, saturated, jumping,
    rough, late, in other units, idle, short, doubled; with cameras that are black, blurred, frozen,
    swapped, turned. Thresholds are those of the dataset itself. The exit code is 1 if there are
    such episodes.

    Scores of episodes (smoothness, steadiness, efficiency, activity, information, agreement,
    novelty) become the column audit of the table of episodes: --where "audit.efficiency > 0.5".
    With --runner, other options such as --direct_num_workers=4 go to Beam.

    Examples:
      rlds audit data/bridge --where "success" --json
      rlds audit my_robot --by information --best 0.8
    """
    from rlds_tools import auditing

    paths, beam_options = split_words([path, *words], runner)
    if paths != [path]:
        raise click.UsageError(f"expected one PATH, and options of Beam after it, got {paths}")
    return auditing.audit(
        path,
        beam_runner=runner,
        beam_options=beam_options or None,
        **options,
        progress=wants_progress(),
    )
