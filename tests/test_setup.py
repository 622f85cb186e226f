"""Installing: the lines that say how, and what is built where there is no C compiler."""

import os
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

import rlds_ecosystem

ROOT = Path(__file__).parent.parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
# Everything that may say how to install something.
TEXTS = [
    path
    for path in [*ROOT.glob("*.md"), *ROOT.glob("*/**/*.md"), *ROOT.glob("*/**/*.py")]
    if not path.relative_to(ROOT).parts[0].startswith(".") and path != Path(__file__)
]


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What it takes to compile the core; it is translated to C once."""
    path = tmp_path_factory.mktemp("project")
    for name in ("setup.py", "pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, path)
    (path / "riegeli").mkdir()
    shutil.copy(ROOT / "riegeli" / "_compiled.pyx", path / "riegeli")
    return path


def build_without_compiler(project: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "setup.py", "build_ext", "--build-lib", "out"],
        cwd=project,
        env={**os.environ, "RIEGELI_IMPLEMENTATION": "", "CC": "/bin/false", **environment},
        capture_output=True,
        text=True,
    )


def test_the_compiled_core_is_left_out(project: Path) -> None:
    done = build_without_compiler(project)

    assert done.returncode == 0, done.stderr
    assert not list((project / "out").rglob("*.so"))


def test_the_environment_insists_on_the_compiled_core(project: Path) -> None:
    done = build_without_compiler(project, RIEGELI_IMPLEMENTATION="cython")

    assert done.returncode != 0
    assert "/bin/false" in done.stderr


def test_no_line_installs_another_project() -> None:
    another = re.compile(
        r"""pip\ install [\s"'-]* (rlds|envlogger|riegeli) (?![\w=-])  # ==: a published one, meant.
        |['"`] (rlds|envlogger|riegeli) \[ [a-z0-9_,]+ \]""",
        re.VERBOSE,
    )
    assert another.search("pip install \"\n    \"'rlds[hdf5]'")
    assert another.search("`'rlds[hdf5]'`")
    assert ROOT / "docs" / "install.md" in TEXTS
    for path in TEXTS:
        found = another.search(path.read_text())
        assert not found, f"{path}: {found[0]}"


def test_extras_that_are_named_exist() -> None:
    assert PROJECT["name"] == rlds_ecosystem.DISTRIBUTION
    named = re.compile(r"['\"](?:\.|rlds-ecosystem)\[([a-z0-9_,]+)\]")
    for path in TEXTS:
        for extras in named.findall(path.read_text()):
            assert set(extras.split(",")) <= set(PROJECT["optional-dependencies"]), path


def test_all_extras_are_in_the_page() -> None:
    page = (ROOT / "docs" / "install.md").read_text()
    assert set(re.findall(r"^\| `([a-z0-9_]+)` \|", page, re.MULTILINE)) == set(
        PROJECT["optional-dependencies"]
    )


def test_a_missing_library_names_its_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "h5py", None)
    with pytest.raises(ImportError, match=r"pip install 'rlds-ecosystem\[hdf5\]'") as raised:
        rlds_ecosystem.import_extra("h5py")
    assert raised.value.name == "h5py"
