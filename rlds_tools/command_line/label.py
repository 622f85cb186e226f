"""`rlds label`."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from typing import Any

import click

from rlds_tools.command_line.printing import Command, opens_source, option, prints_result
from rlds_tools.results import Result


class _Group(Command, click.Group):
    """Shows labels, if the first word is none of its commands."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        is_help = not args or args[0] in ctx.help_option_names
        if not is_help and args[0] not in self.commands:
            args = ["show", *args]
        return super().parse_args(ctx, args)


@click.group(cls=_Group, subcommand_metavar="[COMMAND] PATH [ARGS]...")
def command() -> None:
    """Label episodes and steps, without changing the data.

    Without a COMMAND, show the layers of labels of PATH: the count of each value, the episodes
    without a label, and the episodes on which annotators disagree.

    Examples:
      rlds label add my_robot quality 3,7,10:15 good --by ann
      rlds label import my_robot labels.csv
    """


def _command(name: str) -> Callable[[Callable[..., Result]], Any]:
    """Makes a command of a function that takes a path."""

    def made(function: Callable[..., Result]) -> Any:
        @functools.wraps(function)
        def opening(options: Mapping[str, Any], **arguments: Any) -> Result:
            return function(**arguments, **options)

        return command.command(name)(click.argument("path")(opens_source(prints_result(opening))))

    return made


@_command("show")
def _show(**arguments: Any) -> Result:
    """Show the layers of labels and their values."""
    from rlds_tools import labelling

    return labelling.show(**arguments)


@_command("add")
@click.argument("layer")
@click.argument("episodes")
@click.argument("value")
@option("--by NAME", "Name of the annotator.", required=True)
@option("--steps BEGIN:END", "Label these steps instead of the whole episode.")
@option(
    "--type",
    "Type of a new layer. Default: inferred from VALUE.",
    type=click.Choice(["flag", "choice", "text", "number"]),
)
def _add(**arguments: Any) -> Result:
    """Add a label to episodes, by number: 3,7,10:15.

    It replaces the label of the same annotator on the same episode or steps.
    """
    from rlds_tools import labelling

    return labelling.add(**arguments)


@_command("export")
@click.argument("file")
def _export(**arguments: Any) -> Result:
    """Write the labels to FILE: .csv, .jsonl, .parquet, or .json for Label Studio."""
    from rlds_tools import labelling

    return labelling.export_labels(**arguments)


@_command("import")
@click.argument("file", type=click.Path(exists=True, dir_okay=False))
def _import(**arguments: Any) -> Result:
    """Import the new labels of FILE, all or none.

    Episodes are matched by digest, or by key if their lengths are equal.
    """
    from rlds_tools import labelling

    return labelling.import_labels(**arguments)


@_command("agreement")
@option("--layer TEXT", "Layer to compare. Default: all layers.")
def _agreement(**arguments: Any) -> Result:
    """Measure how far annotators agree: Krippendorff's alpha, of all and of each pair."""
    from rlds_tools import labelling

    return labelling.agreement(**arguments)
