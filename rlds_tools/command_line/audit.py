"""`rlds audit`."""

from __future__ import annotations

import functools
import shlex
from collections.abc import Sequence
from typing import Any

import click

from rlds_tools.command_line.printing import (
    BEAM_SETTINGS,
    Command,
    invocation,
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
    "Share of the episodes of each task that the suggested command keeps.",
    type=click.FloatRange(0, 1, min_open=True),
    default=0.5,
    show_default=True,
)
@option(
    "--worst N",
    "Number of episodes in the suggested commands: the most serious findings, or with --by the "
    "lowest scores.",
    type=click.IntRange(1),
    default=6,
    show_default=True,
)
@option("--view views", "Open these episodes in `rlds view`.")
@where_option
@jobs_option
@option("--runner TEXT", "Read episodes with Apache Beam on this runner, such as DirectRunner.")
@option("--draft DIR", "Folder for results of Beam that all its machines share.")
@opens_source
@prints_result
def command(
    path: str, words: Sequence[str], runner: str | None, views: bool, **options: Any
) -> Result:
    """Detect the meaning of actions, and unusual episodes.

    Detects the effect of each element of the action on the state (absolute, delta, velocity,
    gripper; scale and lag), and unusual episodes: frozen, dead, saturated, jumping, rough, late, in
    other units, idle, short, doubled; with cameras that are black, blurred, frozen, swapped,
    turned. Thresholds come from the dataset itself. The exit code is 1 if there are such episodes.

    Scores of episodes (smoothness, steadiness, efficiency, activity, information, agreement,
    novelty) become the column audit of the table of episodes: --where "audit.efficiency > 0.5".
    With --runner, other options such as --direct_num_workers=4 go to Beam.

    Examples:
      rlds audit data/bridge --where "success" --json
      rlds audit my_robot --by information --best 0.8 --worst 9 --view
    """
    from rlds_tools import auditing

    paths, beam_options = split_words([path, *words], runner)
    if paths != [path]:
        raise click.UsageError(f"expected one PATH, and options of Beam after it, got {paths}")
    view = _find_view_command(path, **options) if views else None
    result = auditing.audit(
        path,
        beam_runner=runner,
        beam_options=beam_options or None,
        **options,
        progress=wants_progress(),
    )
    if view is not None:
        arguments = result.view_arguments(0) if result.audits else []
        invocation().after_output = functools.partial(_open_view, view, arguments)
    return result


def _find_view_command(
    path: str, split: str | None, format: str | None, options: Any, **_: Any
) -> click.Command:
    """Returns the command `rlds view`; raises a UsageError if it cannot show audited episodes."""
    from rlds_tools.auditing import stored_split
    from rlds_tools.split_scan import open_splits

    context = click.get_current_context()
    if context.params["as_json"]:
        raise click.UsageError("--view opens a page, and --json is for programs. Pass one of them.")
    root = context.find_root()
    view = root.command.get_command(root, "view") if isinstance(root.command, click.Group) else None
    if view is None:
        raise click.UsageError("--view: there is no command `view` here. Call `rlds audit`.")
    all_splits = [e for e in open_splits(path, split, format, options) if e.has_random_access]
    nonempty = [episodes for episodes in all_splits if len(episodes)]
    if len(nonempty) > 1 or any(stored_split(episodes) is None for episodes in nonempty):
        names = ", ".join(dict.fromkeys(name for episodes in nonempty for name in episodes.splits))
        raise click.UsageError(f"--view: {path} has the splits {names}. Choose one with --split.")
    return view


def _open_view(view: click.Command, words: Sequence[str]) -> None:
    """Calls `rlds view` with the arguments of the suggested command."""
    if not words:
        click.echo("There are no unusual episodes, so no page is opened.", err=True)
        return
    root = click.get_current_context().find_root()
    _, name, *arguments = shlex.split(invocation().complete_command(shlex.join(["rlds", *words])))
    with view.make_context(name, arguments, parent=root) as context:
        view.invoke(context)
