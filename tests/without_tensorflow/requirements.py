"""Prints the requirements of these tests in an environment without TensorFlow, one per line.

    python requirements.py [EXTRA ...]

They are those of pyproject.toml without TensorFlow and its companions.
"""

import re
import sys
import tomllib
from pathlib import Path

EXTRAS = ["hdf5", "images", "parquet"]
TOOLS = {"hypothesis", "pytest"}
PROJECT = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text())["project"]


def dependencies(*extras: str) -> list[str]:
    """Returns the requirements of the packages and of extras."""
    own = [line for line in PROJECT["dependencies"] if not name_of(line).startswith("tensorflow")]
    return [*own, *(line for extra in extras for line in PROJECT["optional-dependencies"][extra])]


def requirements(*more_extras: str) -> list[str]:
    """Returns the requirements of the packages, of extras, and of the tests."""
    tools = PROJECT["optional-dependencies"]["dev"]
    return [
        *dependencies(*EXTRAS, *more_extras),
        *(line for line in tools if name_of(line) in TOOLS),
    ]


def name_of(requirement: str) -> str:
    """Returns the name of the distribution of a requirement."""
    match = re.match(r"[\w.-]+", requirement)
    assert match, requirement
    return match[0]


if __name__ == "__main__":
    print("\n".join(requirements(*sys.argv[1:])))
