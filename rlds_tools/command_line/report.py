"""`rlds report`."""

from __future__ import annotations

import os
import pathlib
import re
import webbrowser
from typing import Any

import click

from rlds_tools.command_line.printing import (
    opens_source,
    prints_result,
    wants_progress,
    where_option,
)
from rlds_tools.results import Result

EXAMPLES = """\b
Examples:
  rlds report data/walker2d --open
  rlds report data/bridge -o bridge.html --split train --episodes 0,5,10:13
"""

_UNITS = {"B": 1, "kB": 1000, "MB": 1000**2}


def _size(ctx: click.Context, param: click.Parameter, value: str) -> int:
    """A number of bytes, with a unit."""
    found = re.fullmatch(r"(\d+(?:\.\d+)?) ?(B|kB|MB)", value)
    if found is None:
        raise click.BadParameter(f"{value!r} is no size such as 3MB or 500kB", ctx, param)
    return int(float(found[1]) * _UNITS[found[2]])


def _indices(ctx: click.Context, param: click.Parameter, value: str | None) -> list[int]:
    """Indices, separated by commas; a range ends before its second number."""
    indices: list[int] = []
    for part in value.split(",") if value else ():
        found = re.fullmatch(r" *(\d+)(?::(\d+))? *", part)
        if found is None:
            raise click.BadParameter(f"{value!r} is no list such as 0,5,10:20", ctx, param)
        begin = int(found[1])
        indices += range(begin, int(found[2]) if found[2] else begin + 1)
    return indices


@click.command(epilog=EXAMPLES)
@click.argument("path")
@click.option("-o", "--output", metavar="FILE", help="The file; report.html if none.")
@click.option("--split", help="The split, or a part of one; needed if there are several.")
@click.option(
    "--episodes", callback=_indices, metavar="LIST", help="Show these episodes: 0,5,10:20."
)
@click.option("--cameras", metavar="FIELDS", help="Show these cameras, separated by commas.")
@click.option(
    "--frames",
    type=click.IntRange(1),
    default=100,
    show_default=True,
    help="The most frames that a video has.",
)
@click.option(
    "--max-size",
    callback=_size,
    metavar="SIZE",
    default="3MB",
    show_default=True,
    help="The most that the page has; videos become coarser, shorter, fewer.",
)
@click.option(
    "--max-episodes",
    type=click.IntRange(1),
    help="The most episodes to read, evenly spread. [default: 5000, or 2 GB]",
)
@where_option
@click.option("--overwrite", is_flag=True, help="Replace a file that is no report.")
@click.option("--open", "opens", is_flag=True, help="Open the page in a browser.")
@opens_source
@prints_result
def command(
    path: str,
    output: str | None,
    cameras: str | None,
    overwrite: bool,
    opens: bool,
    **options: Any,
) -> Result:
    """Make one page of a dataset: videos, curves, distributions, and what is wrong.

    The page is a file that you can send: it needs nothing else, and fetches nothing. Of large
    datasets it shows a sample, and says so.
    """
    from rlds_tools import reporting

    folder = os.path.dirname(output or "") or "."
    if not os.path.isdir(folder):  # Told before anything is read.
        raise click.UsageError(f"--output: there is no folder {folder!r}")
    output = output or "report.html"
    if output.endswith(".md"):
        raise click.UsageError("a report is a page in HTML; `rlds card` writes one in Markdown")
    if not overwrite and os.path.exists(output) and not reporting.is_report(output):
        raise click.UsageError(f"--output: {output!r} is no report; --overwrite replaces it")
    made = reporting.report(
        path,
        cameras=None if cameras is None else cameras.split(","),
        progress=wants_progress(),
        **options,
    )
    saved = made.save(output)
    if opens and not webbrowser.open(pathlib.Path(output).resolve().as_uri()):
        click.echo(f"no browser was found: open {output} in one", err=True)
    return saved
