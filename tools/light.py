"""Converts a pyproject.toml to that of `rlds-ecosystem-light`, without TensorFlow.

    python tools/light.py [pyproject.toml]

The file is changed in place: use a copy of the project, like `make wheel`.
"""

import re
import sys
from pathlib import Path


def light(text: str) -> str:
    """Returns the text of a pyproject.toml with another name, and without TensorFlow."""
    text = re.sub(r'(?<=")rlds-ecosystem(?=["\[])', "rlds-ecosystem-light", text)
    return re.sub(r'^  "tensorflow[^"]*",\n', "", text, flags=re.MULTILINE)


if __name__ == "__main__":
    path = Path(sys.argv[1] if len(sys.argv) > 1 else "pyproject.toml")
    path.write_text(light(path.read_text(encoding="utf-8")), encoding="utf-8")
