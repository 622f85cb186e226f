"""Links between pages lead to existing files and headings."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGES = [*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")]

# Inline code and blocks of code have no links.
CODE = re.compile(r"^(`{3,}).*?^\1|`[^`\n]*`", flags=re.DOTALL | re.MULTILINE)


def headings(page: Path) -> set[str]:
    """Returns the anchors of the headings of a page, in the form of GitHub and MyST."""
    text = re.sub(
        r"^(`{3,}).*?^\1", "", page.read_text(encoding="utf-8"), flags=re.DOTALL | re.MULTILINE
    )
    titles = re.findall(r"^#+ +(.+?) *$", text, flags=re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}


def links(page: Path) -> list[str]:
    text = CODE.sub("", page.read_text(encoding="utf-8"))
    return [link for link in re.findall(r"\]\(([^)\s]+)\)", text) if ":" not in link]


@pytest.mark.parametrize("page", PAGES, ids=[page.relative_to(ROOT).as_posix() for page in PAGES])
def test_links_resolve(page: Path) -> None:
    for link in links(page):
        path, _, anchor = link.partition("#")
        target = page.parent / path if path else page
        assert target.exists(), link
        if anchor:
            assert anchor in headings(target), link


def test_pages_have_links() -> None:
    assert sum(len(links(page)) for page in PAGES) > 80


def test_pages_named_in_docstrings_and_messages_exist() -> None:
    names = {
        name
        for package in ("riegeli", "tfds_files", "envlogger", "rlds", "tfds_builders")
        for file in (ROOT / package).rglob("*.py")
        for name in re.findall(r"docs/\w+\.md", file.read_text(encoding="utf-8"))
    }
    assert names
    assert all((ROOT / name).exists() for name in names), names
