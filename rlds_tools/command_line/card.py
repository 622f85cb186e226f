"""`rlds card`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from rlds_tools.command_line.printing import (
    Command,
    opens_source,
    option,
    prints_result,
    wants_progress,
)
from rlds_tools.results import Result


@click.command(cls=Command)
@click.argument("path")
@option("-o --output README.md", "Write the card to this file. By default, print it.")
@option(
    "--croissant FILE.json",
    "Also write Croissant metadata (JSON-LD) to this file. Reads all files, for their checksums.",
)
@option("--name TEXT", "Title of the card. Default: the name of the dataset.")
@option("--description TEXT", "Description of the dataset.")
@option("--license ID", "License, preferably an SPDX identifier such as CC-BY-4.0.")
@option(
    "--citation FILE.bib",
    "BibTeX file with the citation of the dataset.",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
)
@option("--homepage URL", "Web page of the dataset.")
@option("--published DATE", "Date of publication, such as 2026-11-22, for the Croissant metadata.")
@option(
    "--repository USER/NAME",
    "Repository on Hugging Face. The card shows how to load the dataset from there.",
)
@option(
    "--task tasks TEXT...",
    "Task category of Hugging Face, such as robotics.",
    default=["reinforcement-learning"],
    show_default=True,
)
@option("--tag tags TEXT...", "Additional tag.")
@option("--force", "Replace existing files.")
@opens_source
@prints_result
def command(path: str, citation: Path | None, **options: Any) -> Result:
    """Write a README for a dataset, with metadata for dataset hubs.

    The card lists splits, fields and lineage, and shows code that loads the dataset. It names
    the facts that are missing, such as the license. An existing README is replaced only with
    --force.

    Examples:
      rlds card data/walker2d -o data/walker2d/README.md --license CC-BY-4.0
      rlds card data/walker2d -o README.md --croissant croissant.json --repository me/walker2d
    """
    from rlds_tools import cards

    text = None if citation is None else citation.read_text(encoding="utf-8")
    return cards.card(path, citation=text, progress=wants_progress(), **options)
