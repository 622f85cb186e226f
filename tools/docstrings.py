"""Checks that docstrings begin with a noun or a verb, and not with a relative clause.

    python tools/docstrings.py [FOLDER]

"How many steps it has." is a riddle in a list of names; "The number of steps." is not. The folder
is the checkout by default. Prints each violation with its file and line; exits with 1 if there are
any.
"""

import ast
import re
import sys
from collections.abc import Iterator
from pathlib import Path

OPENING = re.compile(r"(What|Which|How|Where|Those|That|Whoever|As many)\b")
# Folders whose docstrings may begin so, with the reason.
EXCEPTIONS = {"build": "copies of the packages, and outputs"}


def violations(root: Path) -> Iterator[str]:
    """Yields the docstrings below a folder, also of constants, that begin with a clause."""
    for path in sorted(root.rglob("*.py")):
        file = path.relative_to(root)
        if file.parts[0] in EXCEPTIONS or any(name.startswith(".") for name in file.parts):
            continue
        for node in ast.walk(ast.parse(path.read_bytes())):
            if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
                text = str(node.value.value).lstrip()
                if OPENING.match(text):
                    yield f"{file.as_posix()}:{node.lineno}: {text.splitlines()[0]}"


if __name__ == "__main__":
    lines = [*violations(Path(sys.argv[1] if len(sys.argv) > 1 else "."))]
    if lines:
        sys.exit("\n".join([*lines, "Docstrings that begin with a clause: name the thing."]))
