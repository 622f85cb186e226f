"""The documentation site: every public name is in the API reference, and the site can be built."""

import importlib
import pkgutil
import re
import shutil
import subprocess
import sys
from pathlib import Path
from urllib.parse import quote

import click
import pytest

from rlds_tools.command_line.commands import COMMANDS, rlds

ROOT = Path(__file__).parents[2]
CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
PACKAGES = (
    "riegeli",
    "tfds_files",
    "envlogger",
    "rlds",
    "tfds_builders",
    "rlds_tools",
    "rlds_ecosystem",
)


def public_packages() -> list[str]:
    """Returns the packages with `__all__`."""
    names = list(PACKAGES)
    for package in PACKAGES:
        path = importlib.import_module(package).__path__
        for module in pkgutil.walk_packages(path, f"{package}."):
            # `rlds_tools` itself exports the names of its packages.
            internal = r"\._|\.examples|\.testing|rlds_tools\."
            if module.ispkg and not re.search(internal, module.name):
                names.append(module.name)
    return [name for name in names if hasattr(importlib.import_module(name), "__all__")]


def documented_names() -> set[str]:
    """Returns the names in the directives of the pages of the API."""
    names = set()
    for page in (ROOT / "docs" / "api").glob("*.md"):
        directives = re.findall(
            r"^\.\. automodule:: (\S+)\n(?:   :exclude-members: (.*)\n)?",
            page.read_text(encoding="utf-8"),
            flags=re.MULTILINE,
        )
        for module, excluded in directives:
            for name in importlib.import_module(module).__all__:
                if name not in excluded.split(", "):
                    names |= {f"{module}.{name}", origin(module, name)}
    return names


def origin(module: str, name: str) -> str:
    """Returns the name of a class or function in its defining module."""
    exported = getattr(importlib.import_module(module), name)
    return f"{getattr(exported, '__module__', module)}.{name}"


def missing_names(documented: set[str]) -> list[str]:
    """Returns the public names without a page, under their exported and defined names."""
    missing = []
    for package in public_packages():
        for name in importlib.import_module(package).__all__:
            if not {f"{package}.{name}", origin(package, name)} & documented:
                missing.append(f"{package}.{name}")
    return missing


def test_every_public_name_is_in_the_api_reference() -> None:
    assert {"rlds", "rlds.transformations", "tfds_files"} <= set(public_packages())
    assert missing_names(documented_names()) == []


def test_every_command_is_on_its_page_with_its_options_and_examples(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.syspath_prepend(ROOT / "docs")
    page = importlib.import_module("commands").as_markdown()
    common, *sections = re.split(r"^## rlds (.*)$", page, flags=re.MULTILINE)
    assert sections[::2] == list(COMMANDS)
    for name, section in zip(sections[::2], sections[1::2], strict=True):
        command = rlds.get_command(click.Context(rlds), name)
        options = [parameter for parameter in command.params if isinstance(parameter, click.Option)]
        for option in options:
            assert option.hidden or option.opts[0] in common + section
        assert f"\nrlds {name} " in section, "the help has no examples"


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The site, built without a warning; notebooks run only if they changed."""
    pages = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "sphinx", "-W", "--keep-going", "-q", "docs", pages]
    process = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert process.returncode == 0, process.stderr
    return pages


@pytest.mark.slow
def test_the_built_site_has_every_public_name(site: Path) -> None:
    from sphinx.util.inventory import InventoryFile

    with open(site / "objects.inv", "rb") as file:
        inventory = InventoryFile.load(file, "", lambda base, page: page)
    names = {
        name for kind, entries in inventory.items() if kind.startswith("py:") for name in entries
    }
    assert len(names) > 500
    assert missing_names(names) == []


@pytest.mark.slow
def test_built_pages_of_notebooks_have_the_figures_of_their_outputs(site: Path) -> None:
    notebooks = sorted((ROOT / "examples" / "notebooks").glob("*.ipynb"))
    assert notebooks
    for notebook in notebooks:
        num_figures = notebook.read_text(encoding="utf-8").count("plt.show()")
        page = (site / "notebooks" / f"{notebook.stem}.html").read_text(encoding="utf-8")
        outputs = "".join(re.split(r'<div class="cell_output', page)[1:])
        figures = set(re.findall(r'<img [^>]*src="\.\./(_images/[^"]+)"', outputs))
        assert len(figures) >= num_figures > 0, notebook.name
        assert all((site / figure).stat().st_size > 1000 for figure in figures)


@pytest.mark.slow
def test_the_sample_report_does_not_replace_the_page_on_reports(site: Path) -> None:
    page = (site / "report.html").read_text(encoding="utf-8")
    assert "<title>Reports" in page
    landing = (site / "index.html").read_text(encoding="utf-8")
    assert 'href="sample_report.html"' in landing
    assert (site / "sample_report.html").stat().st_size > 10_000


FIRST_HITS = {
    "resume": "feeds_resume.html",
    "merge": "editing.html#merge",
    "off-policy": "evaluation.html",
    "crash": "recover.html",
    "cluster": "cluster.html",
    "delete episodes": "editing.html#delete-episodes",
    "object stores": "object_stores.html",
    "truncation": "semantics.html",
    "video": "robotics_video.html",
    "EpisodeWriter": "api/rlds_tfds.html#rlds.tfds.EpisodeWriter",
}


@pytest.mark.slow
@pytest.mark.skipif(CHROMIUM is None, reason="no Chromium")
def test_the_search_finds_tasks_at_the_first_hit(site: Path) -> None:
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        page = browser.new_page()
        first_hits = {}
        for query in FIRST_HITS:
            page.goto(f"{(site / 'search.html').as_uri()}?q={quote(query)}")
            page.locator("#search-results .search-summary", has_text="finished").wait_for()
            link = page.locator("ul.search > li > a").first.get_attribute("href")
            first_hits[query] = re.sub(r"\?[^#]*", "", link or "")
        browser.close()
    assert first_hits == FIRST_HITS


@pytest.mark.slow
@pytest.mark.skipif(CHROMIUM is None, reason="no Chromium")
@pytest.mark.parametrize("width", [1440, 1024, 390])
def test_pages_fit_the_width_of_the_screen(site: Path, width: int) -> None:
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        page = browser.new_page(viewport={"width": width, "height": 800})
        too_wide = {}
        for file in sorted(site.glob("*.html")):
            page.goto(file.as_uri())
            width_of_content = page.evaluate("document.documentElement.scrollWidth")
            if width_of_content > width:
                too_wide[file.name] = width_of_content
        browser.close()
    assert not too_wide
