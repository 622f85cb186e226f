"""`rlds list`."""

from __future__ import annotations

import click

from rlds_tools.command_line.printing import prints_result
from rlds_tools.results import Result

EXAMPLES = """\b
Examples:
  rlds list ~/tensorflow_datasets
  rlds list --formats
"""


@click.command(epilog=EXAMPLES)
@click.argument("directory", default=".")
@click.option("--depth", default=6, show_default=True, help="How many folders deep to look.")
@click.option("--formats", is_flag=True, help="List the formats that can be read, and options.")
@prints_result
def command(directory: str, depth: int, formats: bool) -> Result:
    """List the datasets below a folder.

    Finds datasets of TFDS, of Minari, and logs of EnvLogger.
    """
    from rlds_tools import listing

    return listing.list_formats() if formats else listing.list_datasets(directory, depth=depth)
