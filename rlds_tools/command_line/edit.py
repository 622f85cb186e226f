"""`rlds edit`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import click

from rlds_tools.command_line.printing import (
    format_option,
    invocation,
    parsed_options,
    prints_result,
    source_options,
    wants_progress,
)
from rlds_tools.results import Result

EXAMPLES = """\b
Examples:
  rlds edit my_robot --delete "not success" --plan
  rlds edit my_robot --split train=0.9 --split test=0.1 --to parts
"""


@click.command(epilog=EXAMPLES)
@click.argument("path")
@click.option(
    "--to", metavar="DST", help="Write the new dataset here. By default, it replaces the old one."
)
@click.option(
    "--merge",
    multiple=True,
    metavar="PATH",
    help="Add the episodes of another dataset. Repeatable.",
)
@click.option(
    "--map",
    "map_fields",
    multiple=True,
    metavar="THEIRS=OURS",
    help="Name of a field in merged datasets, and its name here. Repeatable.",
)
@click.option(
    "--fill",
    multiple=True,
    metavar="FIELD=VALUE",
    help="Value of a field in datasets that lack it. Repeatable.",
)
@click.option("--drop-missing", is_flag=True, help="Remove fields that some of the datasets lack.")
@click.option(
    "--duplicates",
    type=click.Choice(["keep", "drop"]),
    help="Keep episodes that occur in two datasets, or drop the later ones. Default: "
    "keep, but refuse duplicates in different splits.",
)
@click.option(
    "--metadata",
    type=click.Choice(["first", "episodes"]),
    help="Metadata that differs between datasets, such as arguments of an environment: "
    "use the first dataset's, or store each with its episodes. Default: refuse to "
    "merge.",
)
@click.option(
    "--delete", multiple=True, metavar="CONDITION", help="Delete these episodes. Repeatable."
)
@click.option(
    "--keep", multiple=True, metavar="CONDITION", help="Keep only these episodes. Repeatable."
)
@click.option(
    "--delete-episodes", "episodes", metavar="NUMBERS", help="Delete episodes by number: 3,7,10:15."
)
@click.option(
    "--trim", metavar="BEGIN:END", help="Keep only these steps; :-20 removes the last 20."
)
@click.option(
    "--set",
    "set_fields",
    multiple=True,
    metavar="FIELD=VALUE",
    help="Set a field to a value. Repeatable.",
)
@click.option(
    "--where", metavar="CONDITION", help="Limit --set, --trim and --fix to these episodes."
)
@click.option(
    "--describe",
    multiple=True,
    metavar="NAME=VALUE",
    help="Set the description, the license or other metadata of the dataset. Repeatable.",
)
@click.option("--rename", multiple=True, metavar="OLD=NEW", help="Rename a field. Repeatable.")
@click.option("--drop", multiple=True, metavar="FIELD", help="Remove a field. Repeatable.")
@click.option(
    "--add",
    multiple=True,
    metavar="FIELD=MODULE:FUNCTION",
    help="Add a field that a Python function computes from an episode. Repeatable.",
)
@click.option(
    "--fix",
    is_flag=True,
    help="Correct is_first, is_last and is_terminal by the positions of the steps.",
)
@click.option(
    "--split",
    multiple=True,
    metavar="NAME[=PART]",
    help="Write a part of the dataset: a fraction (0.9) or a condition; without either, "
    "the remaining episodes. Repeatable.",
)
@click.option("--split-by", metavar="COLUMN", help="Write a part for each value of this column.")
@click.option(
    "--groups",
    metavar="COLUMN",
    help="Keep episodes with equal values of this column in the same fraction.",
)
@click.option("--seed", default=0, help="Seed of the random choice of fractions.")
@click.option(
    "--recipe",
    type=click.Path(exists=True, dir_okay=False),
    help="YAML or JSON file of operations. They run before those of other options.",
)
@click.option("--plan", is_flag=True, help="Show what would be done; write nothing.")
@click.option(
    "--keep-old", is_flag=True, help="Keep the old dataset as PATH.old; rename it to open it."
)
@click.option(
    "--as",
    "to_format",
    metavar="FORMAT",
    help="Format of the new dataset. Default: the format of PATH.",
)
@click.option("--format", help="Format of PATH, if it is not recognized.")
@format_option("Option of the format of PATH. Repeatable.")
@click.option(
    "--to-option",
    "-T",
    "to_given",
    multiple=True,
    metavar="NAME=VALUE",
    help="Option of the new format. Repeatable.",
)
@click.option(
    "--allow-loss", is_flag=True, help="Write the dataset even if the new format loses fields."
)
@click.option("--skip-damaged", is_flag=True, help="Skip unreadable episodes.")
@click.option(
    "--verify/--no-verify",
    default=True,
    help="Read the new dataset back, and check its values.",
)
@prints_result
def command(
    path: str,
    to: str | None,
    recipe: str | None,
    plan: bool,
    keep_old: bool,
    to_format: str | None,
    format: str | None,
    given: Sequence[str],
    to_given: Sequence[str],
    allow_loss: bool,
    skip_damaged: bool,
    verify: bool,
    **operations: Any,
) -> Result:
    """Edit a dataset: select, merge, split, change fields.

    All operations run in one pass, in the order of the options below. A CONDITION is SQL over the
    table of episodes before the edit: "steps > 50 and success". Unchanged data is copied as it is
    stored. The new dataset replaces the old one when it is complete, or is written to DST; several
    parts become folders in DST.
    """
    from rlds import sources
    from rlds_tools import editing

    found = [] if recipe is None else editing.read_recipe(recipe)
    try:
        found += editing.operations_of(operations)
    except ValueError as error:
        raise click.UsageError(str(error)) from None
    if not found:
        raise click.UsageError("nothing to do: give an operation, such as --delete or --set.")
    if to_format is None:
        invocation().carry(path, format, given)
    target = to_format or format or sources.format_of(path)
    target_options = parsed_options(sources.exports().get(target, {}), to_given, target)
    return editing.edit(
        path,
        found,
        plan=plan,
        to=to,
        keep_old=keep_old,
        to_format=to_format,
        format=format,
        options=source_options(path, format, given),
        target_options=target_options,
        allow_loss=allow_loss,
        skip_damaged=skip_damaged,
        verify=verify,
        progress=wants_progress(),
    )
