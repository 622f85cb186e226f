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
@click.option(
    "-o", "--output", metavar="README.md", help="Write the card to this file. By default, print it."
)
@click.option(
    "--croissant",
    metavar="FILE.json",
    help="Also write Croissant metadata (JSON-LD) to this file. Reads all files, for "
    "their checksums.",
)
@click.option("--name", help="Title of the card. Default: the name of the dataset.")
@click.option("--description", metavar="TEXT", help="Description of the dataset.")
@click.option(
    "--license", metavar="ID", help="License, preferably an SPDX identifier such as CC-BY-4.0."
)
@click.option(
    "--citation",
    metavar="FILE.bib",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="BibTeX file with the citation of the dataset.",
)
@click.option("--homepage", metavar="URL", help="Web page of the dataset.")
@click.option(
    "--published",
    metavar="DATE",
    help="Date of publication, such as 2026-11-22, for the Croissant metadata.",
)
@click.option(
    "--repository",
    metavar="USER/NAME",
    help="Repository on Hugging Face. The card shows how to load the dataset from there.",
)
@click.option(
    "--task",
    "tasks",
    multiple=True,
    default=["reinforcement-learning"],
    show_default=True,
    help="Task category of Hugging Face, such as robotics. Repeatable.",
)
@click.option("--tag", "tags", multiple=True, help="Additional tag. Repeatable.")
@click.option("--force", is_flag=True, help="Replace existing files.")
@opens_source
@prints_result
def command(path: str, citation: Path | None, **options: Any) -> Result:
    """Write a README for a dataset, with metadata for dataset hubs.

    The card lists splits, fields and lineage, and shows code that loads the dataset. It names
    the facts that are missing, such as the license. An existing README is replaced only with
    --force.
    """
    from rlds_tools import cards

    text = None if citation is None else citation.read_text(encoding="utf-8")
    return cards.card(path, citation=text, progress=wants_progress(), **options)
