"""Prints what an environment without TensorFlow needs for these tests, a requirement per line.

    python requirements.py [EXTRA ...]

It is what pyproject.toml says, but for TensorFlow and what comes with it.
"""

import re
import sys
import tomllib
from pathlib import Path

EXTRAS = ["hdf5", "images", "parquet"]
TOOLS = {"hypothesis", "pytest"}
PROJECT = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text())["project"]


def dependencies() -> list[str]:
    """The requirements of the packages."""
    return [line for line in PROJECT["dependencies"] if not name_of(line).startswith("tensorflow")]


def requirements(*more: str) -> list[str]:
    """The requirements of the packages, of some extras and of more of them, and of the tests."""
    extras = PROJECT["optional-dependencies"]
    return [
        *dependencies(),
        *(line for extra in [*EXTRAS, *more] for line in extras[extra]),
        *(line for line in extras["dev"] if name_of(line) in TOOLS),
    ]


def name_of(requirement: str) -> str:
    """The name of the distribution that a requirement asks for."""
    match = re.match(r"[\w.-]+", requirement)
    assert match, requirement
    return match[0]


if __name__ == "__main__":
    print("\n".join(requirements(*sys.argv[1:])))
