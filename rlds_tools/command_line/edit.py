"""`rlds edit`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import click

from rlds_tools.command_line.printing import (
    Command,
    format_option,
    invocation,
    option,
    parse_options,
    prints_result,
    source_options,
    wants_progress,
    writers_option,
)
from rlds_tools.results import Result

# Options of the writer of the new dataset.
_WRITE_OPTIONS = ("plan", "to", "keep_old", "allow_loss", "skip_damaged", "verify", "jobs", "draft")


@click.command(cls=Command)
@click.argument("path")
@option("--to DST", "Write the new dataset here. By default, it replaces the old one.")
@option("--merge PATH...", "Add the episodes of another dataset.")
@option("--map map_fields THEIRS=OURS...", "Name of a field in merged datasets, and its name here.")
@option("--fill FIELD=VALUE...", "Value of a field in datasets that lack it.")
@option("--drop-missing", "Remove fields that some of the datasets lack.")
@option(
    "--duplicates",
    "Keep episodes that occur in two datasets, or drop the later ones. Default: keep, but refuse "
    "duplicates in different splits.",
    type=click.Choice(["keep", "drop"]),
)
@option(
    "--metadata",
    "Metadata that differs between datasets, such as arguments of an environment: use the first "
    "dataset's, or store each with its episodes. Default: refuse to merge.",
    type=click.Choice(["first", "episodes"]),
)
@option("--delete CONDITION...", "Delete these episodes.")
@option("--keep CONDITION...", "Keep only these episodes.")
@option("--delete-episodes episodes NUMBERS", "Delete episodes by number: 3,7,10:15.")
@option("--trim BEGIN:END", "Keep only these steps; :-20 removes the last 20.")
@option("--set set_fields FIELD=VALUE...", "Set a field to a value.")
@option("--where CONDITION", "Limit --set, --trim and --fix to these episodes.")
@option(
    "--describe NAME=VALUE...", "Set the description, the license or other metadata of the dataset."
)
@option(
    "--set-meaning FIELD=MEANING...",
    "Declare the meaning of a field, such as action=delta,unit=m,names=x/y/z; the numbers stay. "
    "Kinds: absolute, delta, velocity, scaled, unknown.",
)
@option("--rename OLD=NEW...", "Rename a field.")
@option("--drop FIELD...", "Remove a field.")
@option(
    "--add FIELD=MODULE:FUNCTION...", "Add a field that a Python function computes from an episode."
)
@option("--fix", "Correct is_first, is_last and is_terminal by the positions of the steps.")
@option(
    "--split NAME[=SELECTION]...",
    "Write a split of the dataset: a fraction (0.9) or a condition; without either, the remaining "
    "episodes.",
)
@option("--split-by COLUMN", "Write a split for each value of this column.")
@option("--groups COLUMN", "Keep episodes with equal values of this column in the same fraction.")
@option("--seed INTEGER", "Seed of the random choice of fractions.", default=0)
@option(
    "--recipe",
    "YAML or JSON file of operations. They run before those of other options.",
    type=click.Path(exists=True, dir_okay=False),
)
@option("--plan", "Show the operations; write nothing.")
@option("--keep-old", "Keep the old dataset as PATH.old; rename it to open it.")
@option("--as to_format FORMAT", "Format of the new dataset. Default: the format of PATH.")
@option("--format TEXT", "Format of PATH, if it is not recognized.")
@format_option("Option of the format of PATH.")
@option("--to-option -T to_pairs NAME=VALUE...", "Option of the new format.")
@option("--allow-loss", "Write the dataset even if the new format loses fields.")
@option("--skip-damaged", "Skip unreadable episodes.")
@option("--verify/--no-verify", "Read the new dataset back, and check its values.", default=True)
@writers_option
@option("--draft DIR", "Folder for unfinished work. Default: the folder of DST.")
@prints_result
def command(
    path: str,
    recipe: str | None,
    to_format: str | None,
    format: str | None,
    pairs: Sequence[str],
    to_pairs: Sequence[str],
    **options: Any,
) -> Result:
    """Edit a dataset: select, merge, split, change fields.

    All operations run in one pass, in the order of the options below. A CONDITION is SQL over the
    table of episodes before the edit: "steps > 50 and success". Unchanged data is copied without
    decoding. The new dataset replaces the old one when it is complete, or is written to DST;
    several splits become folders in DST.

    Examples:
      rlds edit my_robot --delete "not success" --plan
      rlds edit my_robot --split train=0.9 --split test=0.1 --to splits
    """
    from rlds import sources
    from rlds_tools import editing

    operations = [] if recipe is None else editing.read_recipe(recipe)
    try:
        operations += editing.parse_operations(options)
    except ValueError as error:
        raise click.UsageError(str(error)) from None
    if not operations:
        raise click.UsageError("nothing to do: give an operation, such as --delete or --set.")
    if to_format is None:
        invocation().add_path_options(path, format, pairs)
    target = to_format or format or sources.format_of(path)
    return editing.edit(
        path,
        operations,
        to_format=to_format,
        format=format,
        options=source_options(path, format, pairs),
        target_options=parse_options(sources.exports().get(target, {}), to_pairs, target),
        progress=wants_progress(),
        **{name: options[name] for name in _WRITE_OPTIONS},
    )
