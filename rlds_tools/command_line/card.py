"""`rlds card`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from rlds_tools.command_line.printing import opens_source, prints_result, wants_progress
from rlds_tools.results import Result

EXAMPLES = """\b
Examples:
  rlds card data/walker2d -o data/walker2d/README.md --license CC-BY-4.0
  rlds card data/walker2d -o README.md --croissant croissant.json --repository me/walker2d
"""


@click.command(epilog=EXAMPLES)
@click.argument("path")
@click.option("-o", "--output", metavar="README.md", help="Write the card here; else print it.")
@click.option(
    "--croissant",
    metavar="FILE.json",
    help="Write Croissant metadata (JSON-LD) too. This reads all files, for their checksums.",
)
@click.option("--name", help="The name for people; by default that of the dataset.")
@click.option("--description", metavar="TEXT", help="What the dataset is.")
@click.option("--license", metavar="ID", help="The license, best by SPDX, such as CC-BY-4.0.")
@click.option(
    "--citation",
    metavar="FILE.bib",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="How to cite the dataset: a file of BibTeX.",
)
@click.option("--homepage", metavar="URL", help="The page of the dataset.")
@click.option(
    "--published",
    metavar="DATE",
    help="When the dataset was published, such as 2026-11-22: for the Croissant metadata.",
)
@click.option(
    "--repository",
    metavar="USER/NAME",
    help="The repository on Hugging Face; the card says how to load the dataset from there.",
)
@click.option(
    "--task",
    "tasks",
    multiple=True,
    default=["reinforcement-learning"],
    show_default=True,
    help="What the dataset is for, by the names of Hugging Face, such as robotics. May be given "
    "several times.",
)
@click.option("--tag", "tags", multiple=True, help="A tag more. May be given several times.")
@click.option("--force", is_flag=True, help="Replace files that are there.")
@opens_source
@prints_result
def command(path: str, citation: Path | None, **options: Any) -> Result:
    """Write a README for the dataset at PATH, with the front matter that dataset hubs read.

    The card says what there is: splits, fields, how to load the dataset, where it comes from. What
    nobody has said, such as the license, it calls missing. A README that is there is left as it is,
    unless you say --force.
    """
    from rlds_tools import cards

    text = None if citation is None else citation.read_text(encoding="utf-8")
    return cards.card(path, citation=text, progress=wants_progress(), **options)
