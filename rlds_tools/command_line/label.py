"""`rlds label`."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from typing import Any

import click

from rlds_tools.command_line.printing import Command, opens_source, option, prints_result
from rlds_tools.results import Result


class _Group(Command, click.Group):
    """A group with the default command `show`."""

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


def _command(name: str, function: str = "") -> Callable[[Callable[[], None]], Any]:
    """Returns a decorator that creates a command which calls a function of `labelling`.

    Args:
      name: The name of the command.
      function: The name of the function if it differs.
    """

    def decorate(documented: Callable[[], None]) -> Any:
        @functools.wraps(documented)
        def call(options: Mapping[str, Any], **arguments: Any) -> Result:
            from rlds_tools import labelling

            result: Result = getattr(labelling, function or name)(**arguments, **options)
            return result

        return command.command(name)(click.argument("path")(opens_source(prints_result(call))))

    return decorate


@_command("show")
def _show() -> None:
    """Show the layers of labels and their values."""


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
def _add() -> None:
    """Add a label to episodes, by index: 3,7,10:15.

    The new label replaces the label of the same annotator on the same episode or steps.
    """


@_command("export", "export_labels")
@click.argument("file")
def _export() -> None:
    """Write the labels to FILE: .csv, .jsonl, .parquet, or .json for Label Studio."""


@_command("import", "import_labels")
@click.argument("file", type=click.Path(exists=True, dir_okay=False))
def _import() -> None:
    """Import the new labels of FILE; an invalid label stops the import.

    Episodes are matched by digest, or by key if their lengths are equal.
    """


@_command("agreement")
@option("--layer TEXT", "Layer to compare. Default: all layers.")
def _agreement() -> None:
    """Measure inter-annotator agreement: Krippendorff's alpha, of all and of each pair."""
