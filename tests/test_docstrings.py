"""The check of docstrings, `tools/docstrings.py`."""

import runpy
from pathlib import Path

TOOL = runpy.run_path(str(Path(__file__).parents[1] / "tools" / "docstrings.py"))

MODULE = '''\
"""What is in here."""

SIZE = 8
"""How many bytes a header has."""


class Split:
    """The number of steps. How many there are is known."""

    def lengths(self):
        r"""How many steps each episode has.

        Returns: What it says.
        """

    @property
    def shards(self):
        """Whatever the format."""


async def places():
    """Where
    the files are."""
'''


def test_docstrings_that_begin_with_a_clause_are_found(tmp_path: Path) -> None:
    for name in ("rlds/splits.py", "build/splits.py", ".venv/splits.py"):
        (tmp_path / name).parent.mkdir()
        (tmp_path / name).write_text(MODULE)

    assert set(TOOL["violations"](tmp_path)) == {
        "rlds/splits.py:1: What is in here.",
        "rlds/splits.py:4: How many bytes a header has.",
        "rlds/splits.py:11: How many steps each episode has.",
        "rlds/splits.py:22: Where",
    }
