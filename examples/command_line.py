"""Command-line helpers of the example scripts: arguments, output directory, verdicts."""

import argparse
import datetime
import sys
from collections.abc import Mapping
from pathlib import Path

from rich.console import Console

__all__ = ["conclude", "console", "parse", "positive"]

console = Console()


def positive(text: str) -> int:
    """Parses a positive integer."""
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"must be at least 1, got {text}")
    return int(text)


def parse(description: str, name: str, **options: tuple[int, str]) -> argparse.Namespace:
    """Returns the arguments of a script, and creates its output directory.

    Args:
      description: The description of the script.
      name: The default name of the output directory, before the time.
      **options: Further positive arguments: their defaults and descriptions.
    """
    parser = argparse.ArgumentParser(
        description=description, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seed", type=int, default=0, help="seed of all random choices")
    for argument, (default, text) in options.items():
        parser.add_argument(f"--{argument}", type=positive, default=default, help=text)
    output = Path("out") / f"{name}-{datetime.datetime.now():%Y%m%d-%H%M%S}"
    parser.add_argument("--output", type=Path, default=output, help="new directory for results")
    arguments = parser.parse_args()
    try:
        arguments.output.mkdir(parents=True)
    except FileExistsError:
        parser.error(f"{arguments.output} exists. Give a new directory.")
    return arguments


def conclude(claims: Mapping[str, bool], picture: Path) -> None:
    """Prints the claims and the picture; exits with an error if a claim does not hold."""
    for claim, holds in claims.items():
        console.print(f"{claim}: {'yes' if holds else 'NO'}")
    console.print(f"Figure: {picture}", soft_wrap=True)
    sys.exit(not all(claims.values()))
