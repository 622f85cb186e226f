"""The notebooks are generated from their sources, are complete, and run."""

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path

import nbclient
import nbformat
import pytest
from IPython.core.inputtransformer2 import TransformerManager

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "examples" / "notebooks"
SOURCES = sorted(FOLDER.glob("*.py"))
NAMES = [source.stem for source in SOURCES]


@pytest.fixture(scope="module")
def writer():
    spec = importlib.util.spec_from_file_location("notebooks", ROOT / "tools" / "notebooks.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_every_notebook_has_a_source_and_a_link_in_the_index():
    assert NAMES
    assert sorted(path.stem for path in FOLDER.glob("*.ipynb")) == NAMES
    index = (FOLDER / "README.md").read_text("utf-8")
    assert [name for name in NAMES if f"({name}.ipynb)" not in index] == []


@pytest.mark.parametrize("source", SOURCES, ids=NAMES)
def test_notebook_is_generated_from_its_source(source, writer):
    content = source.with_suffix(".ipynb").read_text("utf-8")
    assert content == writer.notebook(source), "run `make notebooks`"
    cells = json.loads(content)["cells"]
    title, install, *_ = ("".join(cell["source"]) for cell in cells)
    assert title.startswith("# ")
    assert f"/examples/notebooks/{source.stem}.ipynb)" in title
    assert "%pip install" in install
    assert writer.REPOSITORY in install
    assert sum("\n# " in "\n" + "".join(c["source"]) for c in cells if _is_text(c)) == 1
    assert len({cell["id"] for cell in cells}) == len(cells)
    as_python = TransformerManager().transform_cell
    for cell in cells:
        if not _is_text(cell):
            assert cell["outputs"] == []
            assert cell["execution_count"] is None
            compile(as_python("".join(cell["source"])), source.name, "exec")


def _is_text(cell):
    return cell["cell_type"] == "markdown"


@pytest.mark.slow
@pytest.mark.parametrize("source", SOURCES, ids=NAMES)
def test_source_runs_as_a_script(source, tmp_path):
    environment = {**os.environ, "MPLBACKEND": "agg", "TMPDIR": str(tmp_path)}
    process = subprocess.run(
        [sys.executable, source], cwd=tmp_path, env=environment, capture_output=True, text=True
    )
    assert process.returncode == 0, process.stderr


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # From libraries of Jupyter.
@pytest.mark.parametrize("name", ["00_tour", "03_imitation"])
def test_notebook_shows_its_figures_and_no_messages(name, tmp_path, monkeypatch):
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.delenv("MPLBACKEND", raising=False)  # Imported examples set it.
    notebook = nbformat.read(FOLDER / f"{name}.ipynb", as_version=4)
    executed = nbclient.NotebookClient(
        notebook, timeout=300, resources={"metadata": {"path": tmp_path}}
    ).execute()
    outputs = [output for cell in executed.cells for output in cell.get("outputs", [])]
    assert [output for output in outputs if output.get("name") == "stderr"] == []
    figures = [output for output in outputs if "image/png" in output.get("data", {})]
    assert len(figures) == sum("plt.show()" in cell.source for cell in executed.cells) > 0
