"""`rlds diff`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import click

from rlds_tools.command_line.printing import (
    Command,
    format_option,
    invocation,
    option,
    prints_result,
    source_options,
    wants_progress,
)
from rlds_tools.results import Result


@click.command(cls=Command)
@click.argument("one")
@click.argument("other")
@option("--split TEXT", "Split, or a slice of one. Default: all splits.")
@option("--structure-only", "Compare splits, fields and numbers of episodes; read no values.")
@option(
    "--match",
    "How to pair episodes. auto: by id if the splits share ids, else by index.",
    type=click.Choice(["auto", "index", "id"]),
    default="auto",
    show_default=True,
)
@option("--ignore FIELD...", "Field to leave out.")
@option("--rtol FLOAT", "Relative tolerance of numbers. Default: 0.", default=0.0)
@option("--atol FLOAT", "Absolute tolerance of numbers. Default: 0.", default=0.0)
@option("--format TEXT", "Format of ONE, if it is not recognized.")
@option("--other-format TEXT", "Format of OTHER, if it is not recognized.")
@format_option("Option of the format of ONE.")
@option("--other-option NAME=VALUE...", "Option of the format of OTHER.")
@prints_result
def command(
    one: str,
    other: str,
    format: str | None,
    other_format: str | None,
    pairs: Sequence[str],
    other_option: Sequence[str],
    **settings: Any,
) -> Result:
    """Compare all values of two datasets, also of different formats.

    ONE and OTHER are compared episode by episode: fields, dtypes, shapes, and the value of each
    field in each step. Images are equal if their pixels are. File names and shards are ignored. The
    exit code is 0 if nothing differs, and 1 otherwise.

    Examples:
      rlds diff logs/run7 data/run7/1.0.0
      rlds diff raw.hdf5 data/demos/1.0.0 --ignore steps/observation/image --rtol 1e-6
    """
    from rlds_tools import comparing

    invocation().add_path_options(one, format, pairs, split=settings["split"])
    other_words = ["--other-format", other_format] if other_format else []
    other_words += [word for pair in other_option for word in ("--other-option", pair)]
    invocation().path_options[one] += other_words
    return comparing.diff(
        one,
        other,
        format=format,
        other_format=other_format,
        options=source_options(one, format, pairs),
        other_options=source_options(other, other_format, other_option),
        progress=wants_progress(),
        **settings,
    )
