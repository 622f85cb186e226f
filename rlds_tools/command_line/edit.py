"""`rlds edit`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import click

from rlds_tools.command_line.printing import (
    format_option,
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
@click.option("--to", metavar="DST", help="Make a new dataset there, in place of the old one's.")
@click.option("--merge", multiple=True, metavar="PATH", help="Add the episodes of another dataset.")
@click.option(
    "--map", "map_fields", multiple=True, metavar="THEIRS=OURS", help="Fields of merged datasets."
)
@click.option(
    "--fill", multiple=True, metavar="FIELD=VALUE", help="The value of a field where it is missing."
)
@click.option("--drop-missing", is_flag=True, help="Leave out fields that not all datasets have.")
@click.option(
    "--duplicates",
    type=click.Choice(["keep", "drop"]),
    help="What becomes of episodes that two datasets have; an error, if in different splits.",
)
@click.option(
    "--metadata",
    type=click.Choice(["first", "episodes"]),
    help="What becomes of metadata in which datasets differ, such as arguments of an environment: "
    "that of the first, or each kept with its episodes; an error otherwise.",
)
@click.option("--delete", multiple=True, metavar="CONDITION", help="Leave out these episodes.")
@click.option("--keep", multiple=True, metavar="CONDITION", help="Leave out all other episodes.")
@click.option(
    "--delete-episodes", "episodes", metavar="NUMBERS", help="Leave out episodes: 3,7,10:15."
)
@click.option("--trim", metavar="BEGIN:END", help="Keep these steps; :-20 leaves out 20.")
@click.option(
    "--set", "set_fields", multiple=True, metavar="FIELD=VALUE", help="Give a field a value."
)
@click.option(
    "--where", metavar="CONDITION", help="The episodes that --set, --trim and --fix are for."
)
@click.option(
    "--describe",
    multiple=True,
    metavar="NAME=VALUE",
    help="Say something of the dataset: description, license, or any name.",
)
@click.option("--rename", multiple=True, metavar="OLD=NEW", help="Give a field another name.")
@click.option("--drop", multiple=True, metavar="FIELD", help="Leave out a field.")
@click.option(
    "--add",
    multiple=True,
    metavar="FIELD=MODULE:FUNCTION",
    help="Add a field that a Python function makes of an episode.",
)
@click.option("--fix", is_flag=True, help="Make the flags of steps what their places say.")
@click.option(
    "--split",
    multiple=True,
    metavar="NAME[=PART]",
    help="A part: of a fraction (0.9), or a condition; without either, the rest.",
)
@click.option("--split-by", metavar="COLUMN", help="A part for each value of a column.")
@click.option("--groups", metavar="COLUMN", help="Equal values stay in one fraction.")
@click.option("--seed", default=0, help="What decides which episodes a fraction gets.")
@click.option(
    "--recipe",
    type=click.Path(exists=True, dir_okay=False),
    help="Operations in a file, YAML or JSON; done before those of other options.",
)
@click.option("--plan", is_flag=True, help="Say what would be done, and write nothing.")
@click.option(
    "--keep-old", is_flag=True, help="Keep the old dataset as PATH.old, a file as NAME.old.hdf5."
)
@click.option("--as", "to_format", metavar="FORMAT", help="The format of the new dataset.")
@click.option("--format", help="The format of PATH, if it cannot be recognized.")
@format_option("An option of PATH.")
@click.option(
    "--to-option", "-T", "to_given", multiple=True, metavar="NAME=VALUE", help="One of the new."
)
@click.option("--allow-loss", is_flag=True, help="Write it even if fields get lost.")
@click.option("--skip-damaged", is_flag=True, help="Leave out episodes that cannot be read.")
@click.option("--verify/--no-verify", default=True, help="Read the dataset back, and compare it.")
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
    """Edit a dataset: choose episodes, join datasets, change fields.

    All that is asked for is done in one pass, in the order of the options below. A CONDITION is SQL
    over the table of episodes, as they are before: "steps > 50 and success". What stays is copied
    as it is stored. The new dataset takes the place of the old one at one moment, or is made at
    DST; several parts are folders in it.
    """
    from rlds import sources
    from rlds_tools import editing

    found = [] if recipe is None else editing.read_recipe(recipe)
    try:
        found += editing.operations_of(operations)
    except ValueError as error:
        raise click.UsageError(str(error)) from None
    if not found:
        raise click.UsageError("nothing to do: say --delete, --set or another operation.")
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
