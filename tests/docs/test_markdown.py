"""The Python of the pages runs, from top to bottom, as a reader would type it."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]

# Every page, and how many blocks of Python it has: a page that loses one is a page untested.
BLOCKS = {
    "README.md": 1,
    "docs/cookbook.md": 18,
    "docs/datasets.md": 2,
    "docs/envlogger.md": 7,
    "docs/own_format.md": 4,
    "docs/patterns.md": 7,
    "docs/riegeli.md": 7,
    "docs/rlds_tfds.md": 10,
    "docs/semantics.md": 5,
    "docs/sources.md": 3,
    "docs/tfds_builders.md": 2,
    "docs/tfds_files.md": 5,
    "docs/transformations.md": 17,
}


def python_blocks(page: Path) -> list[tuple[int, str]]:
    """The blocks of Python in a page, each with the number of its first line."""
    text = page.read_text(encoding="utf-8")
    matches = re.finditer(r"^```python\n(.*?)^```$", text, flags=re.DOTALL | re.MULTILINE)
    return [(text.count("\n", 0, match.start(1)), match[1]) for match in matches]


def test_all_pages_with_python_are_listed() -> None:
    pages = [ROOT / "README.md", *sorted((ROOT / "docs").glob("**/*.md"))]
    blocks = {page.relative_to(ROOT).as_posix(): len(python_blocks(page)) for page in pages}
    assert {page: count for page, count in blocks.items() if count} == BLOCKS


@pytest.mark.parametrize("page", BLOCKS)
def test_python_runs(page: str) -> None:
    blocks = python_blocks(ROOT / page)
    assert blocks
    namespace: dict[str, object] = {"__name__": "__main__"}
    for line, code in blocks:
        # The empty lines make the line numbers of a traceback those of the page.
        exec(compile("\n" * line + code, ROOT / page, "exec"), namespace)
