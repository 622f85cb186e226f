"""`rlds label`."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from typing import Any

import click

from rlds_tools.command_line.printing import opens_source, prints_result
from rlds_tools.results import Result

EXAMPLES = """\b
Examples:
  rlds label add my_robot quality 3,7,10:15 good --by ann
  rlds label import my_robot labels.csv
"""


class _Group(click.Group):
    """Shows labels, if the first word is none of its commands."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        is_help = not args or args[0] in ctx.help_option_names
        if not is_help and args[0] not in self.commands:
            args = ["show", *args]
        return super().parse_args(ctx, args)


@click.group(cls=_Group, epilog=EXAMPLES, subcommand_metavar="[COMMAND] PATH [ARGS]...")
def command() -> None:
    """Label episodes and steps, beside data that stays as it is.

    Without a COMMAND: show the layers of labels that PATH has. Its values are counted, and the
    episodes that have no label or of which annotators say different things.
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
    """Show the layers of labels, with what is in them."""
    from rlds_tools import labelling

    return labelling.show(**arguments)


@_command("add")
@click.argument("layer")
@click.argument("episodes")
@click.argument("value")
@click.option("--by", required=True, metavar="NAME", help="Who says so.")
@click.option("--steps", metavar="BEGIN:END", help="Of these steps, not of the whole episode.")
@click.option(
    "--type",
    type=click.Choice(["flag", "choice", "text", "number"]),
    help="The type of a new layer; by default what VALUE looks like.",
)
def _add(**arguments: Any) -> Result:
    """Add a label to episodes, whose numbers are 3,7,10:15.

    It replaces that of the same annotator in the same place.
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
    """Add the labels of FILE that are not there yet, all or none.

    Episodes are found by their digests, or by their keys if their lengths are equal.
    """
    from rlds_tools import labelling

    return labelling.import_labels(**arguments)


@_command("agreement")
@click.option("--layer", help="The layer; default: all.")
def _agreement(**arguments: Any) -> Result:
    """Say how far annotators agree: Krippendorff's alpha, of all and of each two."""
    from rlds_tools import labelling

    return labelling.agreement(**arguments)
