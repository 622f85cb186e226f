"""Prints what an environment without TensorFlow needs for these tests, a requirement per line.

It is what pyproject.toml says, but for TensorFlow and what comes with it.
"""

import re
import tomllib
from pathlib import Path

EXTRAS = ["hdf5", "images", "parquet"]
TOOLS = {"hypothesis", "pytest"}


def requirements() -> list[str]:
    """The requirements of the packages, of some extras, and of the tests."""
    path = Path(__file__).parents[2] / "pyproject.toml"
    project = tomllib.loads(path.read_text())["project"]
    extras = project["optional-dependencies"]
    return [
        *(line for line in project["dependencies"] if not name_of(line).startswith("tensorflow")),
        *(line for extra in EXTRAS for line in extras[extra]),
        *(line for line in extras["dev"] if name_of(line) in TOOLS),
    ]


def name_of(requirement: str) -> str:
    """The name of the distribution that a requirement asks for."""
    match = re.match(r"[\w.-]+", requirement)
    assert match, requirement
    return match[0]


if __name__ == "__main__":
    print("\n".join(requirements()))
