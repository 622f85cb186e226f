"""`rlds report`."""

from __future__ import annotations

import os
import pathlib
import re
import webbrowser
from typing import Any

import click

from rlds_tools.command_line.printing import (
    Command,
    jobs_option,
    opens_source,
    option,
    prints_result,
    wants_progress,
    where_option,
)
from rlds_tools.results import Result

_UNIT_BYTES = {"B": 1, "kB": 1000, "MB": 1000**2}


def _size(ctx: click.Context, param: click.Parameter, value: str) -> int:
    """Parses a size with a unit; returns bytes."""
    match = re.fullmatch(r"(\d+(?:\.\d+)?) ?(B|kB|MB)", value)
    if match is None:
        raise click.BadParameter(
            f"got {value!r}, expected a size such as 3MB or 500kB.", ctx, param
        )
    return int(float(match[1]) * _UNIT_BYTES[match[2]])


def _episodes(ctx: click.Context, param: click.Parameter, value: str | None) -> list[int]:
    """Parses stored indices of episodes, such as `0,5,10:20`; ranges exclude their end."""
    from rlds_tools.editing import parse_episodes

    try:
        indices = parse_episodes(value, "--episodes") if value else []
    except ValueError as error:
        raise click.UsageError(str(error), ctx) from None
    if any(index < 0 for index in indices):
        raise click.BadParameter(f"got {value!r}, expected numbers such as 0,5,10:20.", ctx, param)
    return indices


@click.command(cls=Command)
@click.argument("path")
@option("-o --output FILE", "File of the report. Default: report.html.")
@option("--split TEXT", "Split, or a slice of one. Required if there are several splits.")
@option("--episodes LIST", "Episodes to show: 0,5,10:20.", callback=_episodes)
@option("--cameras FIELDS", "Cameras to show, separated by commas.")
@option(
    "--frames",
    "Maximum number of frames per video.",
    type=click.IntRange(1),
    default=100,
    show_default=True,
)
@option(
    "--max-size SIZE",
    "Maximum size of the report. Videos become coarser, shorter and fewer to fit.",
    callback=_size,
    default="3MB",
    show_default=True,
)
@option(
    "--max-episodes",
    "Maximum number of episodes to read, evenly spread. [default: 5000, or 2 GB]",
    type=click.IntRange(1),
)
@where_option
@jobs_option
@option("--overwrite", "Replace an existing file that is not a report.")
@option("--open opens", "Open the report in a browser.")
@opens_source
@prints_result
def command(
    path: str, output: str | None, cameras: str | None, overwrite: bool, opens: bool, **options: Any
) -> Result:
    """Create an HTML report: videos, curves, distributions, findings.

    The report of a dataset is one file that you can send. For a large dataset, it shows a sample,
    and says so.

    Examples:
      rlds report data/walker2d --open
      rlds report data/bridge -o bridge.html --split train --episodes 0,5,10:13
    """
    from rlds_tools import reporting

    folder = os.path.dirname(output or "") or "."
    if not os.path.isdir(folder):  # The folder is checked before reading, which may take hours.
        raise click.UsageError(f"--output: the folder {folder!r} does not exist. Create it first.")
    output = output or "report.html"
    if output.endswith(".md"):
        raise click.UsageError("--output: a report is an HTML file. For Markdown, use `rlds card`.")
    if not overwrite and os.path.exists(output) and not reporting.is_report(output):
        raise click.UsageError(
            f"--output: {output!r} exists, and is not a report. Pass --overwrite to replace it."
        )
    built_report = reporting.report(
        path,
        cameras=None if cameras is None else cameras.split(","),
        progress=wants_progress(),
        **options,
    )
    saved_file = built_report.save(output)
    if opens and not webbrowser.open(pathlib.Path(output).resolve().as_uri()):
        click.echo(f"No browser is available. Open {output} in a browser.", err=True)
    return saved_file
