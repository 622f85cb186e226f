"""Writes notebooks for Jupyter and Colab from their sources, percent scripts.

    python tools/notebooks.py

A notebook is its script, with a badge and a cell that installs the project, and without outputs.
"""

import hashlib
import tomllib
from pathlib import Path

import jupytext
import nbformat

ROOT = Path(__file__).resolve().parents[1]
SOURCES = sorted((ROOT / "examples" / "notebooks").glob("*.py"))

_PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
_TAG = f"v{_PROJECT['version']}"
REPOSITORY = _PROJECT["urls"]["Source"]
REQUIREMENT = f"rlds-ecosystem[notebooks] @ git+{REPOSITORY}@{_TAG}"

_SETUP = f"""\
# Installs the library where it is missing, as on Colab.
import importlib.util

if not importlib.util.find_spec("tfds_builders"):
    %pip install --quiet "{REQUIREMENT}"

from tfds_builders.quiet import quiet_libraries

quiet_libraries()  # TensorFlow logs nothing; errors are raised."""


def notebook(source: Path) -> str:
    """Returns the `.ipynb` text of a percent script, with badge and installation, without outputs.

    It depends only on the script, the version and the address of the project.
    """
    title, *further_cells = jupytext.reads(source.read_text("utf-8"), "py:percent").cells
    heading, _, text = title.source.partition("\n")
    path = source.with_suffix(".ipynb").relative_to(ROOT).as_posix()
    page = f"{REPOSITORY.removeprefix('https://')}/blob/{_TAG}/{path}".removeprefix("github.com/")
    badge = (
        "[![Open in Colab](https://colab.research.google.com/assets/colab-badge.svg)]"
        f"(https://colab.research.google.com/github/{page})"
    )
    title.source = f"{heading}\n\n{badge}\n{text}"
    cells = [title, nbformat.v4.new_code_cell(_SETUP), *further_cells]
    num_cells: dict[str, int] = {}
    for cell in cells:
        # The id depends only on the cell, so that changes stay local.
        digest = hashlib.sha256(cell.source.encode()).hexdigest()[:8]
        num_cells[digest] = num_cells.get(digest, 0) + 1
        cell.id = f"{digest}-{num_cells[digest]}"
        cell.metadata = {}
    result = nbformat.v4.new_notebook(
        cells=cells,
        metadata={
            "kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"},
            "language_info": {"name": "python"},
        },
    )
    nbformat.validate(result)
    return nbformat.writes(result, indent=1) + "\n"


def main() -> None:
    """Writes all notebooks."""
    for source in SOURCES:
        source.with_suffix(".ipynb").write_text(notebook(source), "utf-8")


if __name__ == "__main__":
    main()
