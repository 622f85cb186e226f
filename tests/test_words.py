"""The check of words, `tools/words.py`."""

import runpy
from pathlib import Path

import pytest

TOOL = runpy.run_path(str(Path(__file__).parents[1] / "tools" / "words.py"))

MODULE = '''\
"""What is in here."""

SIZE = 8
"""How many bytes a header has."""


class Split:
    """The number of steps. How many there are follows."""

    def lengths(self):
        r"""How many steps each episode has.

        Returns: What it says.
        """

    @property
    def shards(self):
        """Whatever the format."""


async def steps():
    """Where
    the files are."""
'''


def _violations(folder: Path, module: str) -> list[str]:
    (folder / "splits.py").write_text(module)
    return [*TOOL["violations"](folder, ())]


def test_docstrings_that_begin_with_a_clause_are_rejected(tmp_path: Path) -> None:
    for name in ("rlds/splits.py", "build/splits.py", ".venv/splits.py"):
        (tmp_path / name).parent.mkdir()
        (tmp_path / name).write_text(MODULE)

    assert [*TOOL["violations"](tmp_path, ())] == [
        "rlds/splits.py:1: docstring begins with a clause: What is in here.",
        "rlds/splits.py:4: docstring begins with a clause: How many bytes a header has.",
        "rlds/splits.py:11: docstring begins with a clause: How many steps each episode has.",
        "rlds/splits.py:22: docstring begins with a clause: Where",
    ]


@pytest.mark.parametrize(
    "line",
    [
        "found = 1",
        "row._place = 1",
        "def parts(): ...",
        "class Row: ...\nclass Ones: ...",
        "def read(what): ...",
        "for number in (): ...",
    ],
)
def test_vague_names_are_rejected(tmp_path: Path, line: str) -> None:
    assert len(_violations(tmp_path, line)) == 1


def test_vague_words_are_rejected_in_docstrings_messages_and_comments(tmp_path: Path) -> None:
    module = '"""Steps of others."""\n\nx = f"{1} was found"\n# Written beside it.\ny = "found"\n'

    assert _violations(tmp_path, module) == [
        "splits.py:1: docstring: others",
        "splits.py:3: message: found",
        "splits.py:4: comment: beside",
    ]


def test_exact_words_are_accepted(tmp_path: Path) -> None:
    assert not _violations(
        tmp_path, '"""Edits in place."""\n\nrow_offsets = [known_field := 1]  # Unknown.\n'
    )


def test_exceptions_are_accepted_and_needed(tmp_path: Path) -> None:
    (tmp_path / "splits.py").write_text("number = 1")
    exceptions = ("splits", "number", "a key"), ("splits", "place", "a key")

    assert [*TOOL["violations"](tmp_path, exceptions)] == [
        f"tools/words.py: an exception without a case: {exceptions[1]}"
    ]
