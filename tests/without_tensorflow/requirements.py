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


def dependencies(*extras: str) -> list[str]:
    """The requirements of the packages, and of some extras."""
    own = [line for line in PROJECT["dependencies"] if not name_of(line).startswith("tensorflow")]
    return [*own, *(line for one in extras for line in PROJECT["optional-dependencies"][one])]


def requirements(*more: str) -> list[str]:
    """The requirements of the packages, of some extras and of more of them, and of the tests."""
    tools = PROJECT["optional-dependencies"]["dev"]
    return [
        *dependencies(*EXTRAS, *more),
        *(line for line in tools if name_of(line) in TOOLS),
    ]


def name_of(requirement: str) -> str:
    """The name of the distribution that a requirement asks for."""
    match = re.match(r"[\w.-]+", requirement)
    assert match, requirement
    return match[0]


if __name__ == "__main__":
    print("\n".join(requirements(*sys.argv[1:])))
