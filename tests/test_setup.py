"""Installation: the documented commands, builds, the package page, and the workflows."""

import email
import fnmatch
import os
import re
import runpy
import shlex
import shutil
import subprocess
import sys
import tomllib
import zipfile
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import yaml

import rlds_ecosystem

ROOT = Path(__file__).parent.parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
PYTHONS = re.findall(r"Python :: (3\.\d+)", " ".join(PROJECT["classifiers"]))
# Files that may have install commands.
TEXTS = [
    path
    for top in ROOT.glob("[!.]*")
    for path in ([*top.rglob("*.md"), *top.rglob("*.py")] if top.is_dir() else [top])
    if path.suffix in {".md", ".py"} and path != Path(__file__)
]


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the project for builds of the cores, which are translated to C once."""
    path = tmp_path_factory.mktemp("project")
    for name in ("setup.py", "pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, path)
    for package in runpy.run_path(str(ROOT / "setup.py"), run_name="setup")["COMPILED"]:
        source = Path(*package.split("."), "_compiled.pyx")
        (path / source).parent.mkdir(parents=True)
        shutil.copy(ROOT / source, path / source)
    return path


def build_without_compiler(project: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "setup.py", "build_ext", "--build-lib", "out"],
        cwd=project,
        env={**os.environ, "RIEGELI_IMPLEMENTATION": "", "CC": "/bin/false", **environment},
        capture_output=True,
        text=True,
    )


@pytest.mark.slow
def test_build_without_a_compiler_tells_the_pure_python_option(project: Path) -> None:
    process = build_without_compiler(project)

    assert process.returncode != 0
    assert "/bin/false" in process.stderr
    assert "RIEGELI_IMPLEMENTATION=python pip install" in process.stderr


@pytest.mark.slow
def test_compiled_cores_can_be_left_out(project: Path) -> None:
    process = build_without_compiler(project, RIEGELI_IMPLEMENTATION="python")

    assert process.returncode == 0, process.stderr
    assert not list((project / "out").rglob("*.so"))


def test_the_light_distribution_differs_in_name_and_in_tensorflow_only() -> None:
    light = runpy.run_path(str(ROOT / "tools" / "light.py"))["light"]
    text = light((ROOT / "pyproject.toml").read_text())
    project = tomllib.loads(text)["project"]
    assert project["name"] == f"{PROJECT['name']}-light"
    missing = set(PROJECT["dependencies"]) - set(project["dependencies"])
    assert {re.split("[<>=]", line)[0] for line in missing} == {
        *("tensorflow", "tensorflow-datasets", "tensorflow-metadata")
    }
    extras_text = str(project["optional-dependencies"])
    assert "rlds-ecosystem-light[" in extras_text
    assert "rlds-ecosystem[" not in extras_text


def test_no_install_command_names_another_project() -> None:
    other_project = re.compile(
        r"""pip\ install [\s"'-]* (rlds|envlogger|riegeli) (?![\w=-])  # ==: a published one.
        |['"`] (rlds|envlogger|riegeli) \[ [a-z0-9_,]+ \]""",
        re.VERBOSE,
    )
    assert other_project.search("pip install \"\n    \"'rlds[hdf5]'")
    assert other_project.search("`'rlds[hdf5]'`")
    assert ROOT / "docs" / "install.md" in TEXTS
    for path in TEXTS:
        match = other_project.search(path.read_text())
        assert not match, f"{path}: {match[0]}"


def test_named_extras_exist() -> None:
    assert PROJECT["name"] == rlds_ecosystem.DISTRIBUTION
    extras_pattern = re.compile(r"['\"](?:\.|rlds-ecosystem)\[([a-z0-9_,]+)\]")
    for path in TEXTS:
        for extras in extras_pattern.findall(path.read_text()):
            assert set(extras.split(",")) <= set(PROJECT["optional-dependencies"]), path


def test_extra_all_has_the_extras_of_the_library() -> None:
    (line,) = PROJECT["optional-dependencies"]["all"]
    extras = set(line.removeprefix("rlds-ecosystem[").removesuffix("]").split(","))
    for_the_checkout = {"all", "dev", "docs", "examples", "fuzz", "notebooks", "wheel"}
    frameworks = {"grain", "jax", "torch"}  # Large, and installed where they are used.
    applications = {"creator", "postgresql"}  # Not needed by the library.
    excluded = for_the_checkout | frameworks | applications
    assert extras == set(PROJECT["optional-dependencies"]) - excluded


def test_the_install_command_without_tensorflow_lists_the_tested_requirements() -> None:
    """`make test-without-tensorflow` runs in an environment of these requirements."""
    requirements = runpy.run_path(str(ROOT / "tests/without_tensorflow/requirements.py"))
    page = (ROOT / "docs" / "install.md").read_text()
    (line,) = re.findall(r"^pip install --no-deps \.\npip install ((?:.*\\\n)*.*)$", page, re.M)
    assert shlex.split(line.replace("\\\n", "")) == requirements["dependencies"]()


def test_install_page_lists_all_extras() -> None:
    page = (ROOT / "docs" / "install.md").read_text()
    assert set(re.findall(r"^\| `([a-z0-9_]+)` \|", page, re.MULTILINE)) == set(
        PROJECT["optional-dependencies"]
    )


def test_a_missing_library_names_its_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "h5py", None)
    with pytest.raises(ImportError, match=r"pip install 'rlds-ecosystem\[hdf5\]'") as raised:
        rlds_ecosystem.import_extra("h5py")
    assert raised.value.name == "h5py"


def test_a_thread_waits_for_a_library_that_another_thread_loads(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "slow_library.py").write_text("import time\ntime.sleep(0.2)\nvalue = 1\n")
    monkeypatch.syspath_prepend(tmp_path)
    with ThreadPoolExecutor(2) as threads:
        actual = threads.map(lambda _: rlds_ecosystem.import_extra("slow_library").value, range(2))
        assert list(actual) == [1, 1]


def test_each_optional_library_has_an_extra() -> None:
    import_extra_call = re.compile(r"""import_extra\(\s*["'](\w+)""")
    libraries = {
        library for path in TEXTS for library in import_extra_call.findall(path.read_text())
    }
    assert "h5py" in libraries
    assert libraries - {"PIL"} <= set(rlds_ecosystem._EXTRA_OF)


# --- The package page and releases ---------------------------------------------------------------


@pytest.fixture(scope="module")
def page() -> Callable[[str, str], str]:
    """Returns the text of the package page for a README and a version."""
    page_of_setup = runpy.run_path(str(ROOT / "setup.py"), run_name="setup")["page"]
    return lambda text, version: page_of_setup(text, "https://github.com/some/where", version)


@pytest.mark.parametrize(("version", "ref"), [("1.2.0", "v1.2.0"), ("1.3.0.dev0", "main")])
def test_links_of_the_page_are_absolute(
    page: Callable[[str, str], str], version: str, ref: str
) -> None:
    files = f"https://github.com/some/where/blob/{ref}"
    images = f"https://raw.githubusercontent.com/some/where/{ref}"
    text = "[a](docs/a.md#b), [`c`](c), ![d](docs/d.png) [![e](e.svg)](LICENSE)"
    assert page(text, version) == (
        f"[a]({files}/docs/a.md#b), [`c`]({files}/c), ![d]({images}/docs/d.png) "
        f"[![e]({images}/e.svg)]({files}/LICENSE)"
    )
    absolute_links = "[a](https://b.c/d), [e](#f), [g](mailto:h@i)\n```python\nx[0](y)\n```"
    assert page(absolute_links, version) == absolute_links


def test_links_of_the_readme_lead_to_files(page: Callable[[str, str], str]) -> None:
    text = page((ROOT / "README.md").read_text(), "1.0")
    targets = re.findall(r"\]\(([^)]+)\)", text)
    assert targets
    for target in targets:
        assert re.match("https?://", target), target
        _, own_link, path = target.partition("/v1.0/")
        assert not own_link or (ROOT / path.partition("#")[0]).exists(), target


def test_package_page_has_links_authors_and_the_oldest_python() -> None:
    assert PROJECT["urls"].keys() >= {"Documentation", "Source", "Changelog", "Issues"}
    assert all(
        url.startswith(PROJECT["urls"]["Source"])
        for url in map(PROJECT["urls"].get, ["Changelog", "Issues"])
    )
    assert PROJECT["authors"]
    assert "readme" in PROJECT["dynamic"]
    oldest = min(PYTHONS, key=lambda version: int(version.partition(".")[2]))
    assert PROJECT["requires-python"] == f">={oldest}"


WORKFLOWS = ROOT / ".github" / "workflows"
TRIGGERS = True  # The key `on` in YAML 1.1.


def load_workflow(name: str) -> dict[Any, Any]:
    return yaml.safe_load((WORKFLOWS / name).read_text())


@pytest.mark.parametrize("name", [path.name for path in WORKFLOWS.iterdir()])
def test_workflows_have_triggers_permissions_and_valid_steps(name: str) -> None:
    workflow = load_workflow(name)
    assert workflow[TRIGGERS]
    assert workflow["permissions"] == {"contents": "read"}  # Jobs may add permissions.
    targets = re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE)
    for job in workflow["jobs"].values():
        assert job["runs-on"]
        needs = job.get("needs", [])
        assert set([needs] if isinstance(needs, str) else needs) <= workflow["jobs"].keys()
        for step in job["steps"]:
            assert ("uses" in step) != ("run" in step)
            assert "@" in step.get("uses", "@")
            command, *arguments = step.get("run", "true").split()
            assert command != "make" or set(arguments) <= set(targets)


def test_every_change_is_tested_on_every_python() -> None:
    workflow = load_workflow("ci.yml")
    job = workflow["jobs"]["test"]
    assert job["strategy"]["matrix"]["python"] == PYTHONS
    (command,) = (step["run"] for step in job["steps"] if "run" in step)
    assert os.access(ROOT / command, os.X_OK)


def test_wheels_of_all_systems_are_published_from_tags_only() -> None:
    workflow = load_workflow("wheels.yml")
    jobs = workflow["jobs"]
    publish = jobs.pop("publish")
    assert workflow[TRIGGERS]["push"] == {"tags": ["v*"]}
    assert "startsWith(github.ref, 'refs/tags/v')" in publish["if"]
    assert set(publish["needs"]) == jobs.keys()
    # Trusted publishing: only this job may request a token, and there are no secrets.
    assert publish["permissions"] == {"id-token": "write"}
    assert "secrets" not in str(workflow)
    pattern = next(step["with"]["pattern"] for step in publish["steps"] if "with" in step)
    for job in jobs.values():
        (upload,) = (step for step in job["steps"] if "upload-artifact" in step.get("uses", ""))
        assert fnmatch.fnmatch(upload["with"]["name"], pattern)
    systems = {
        row["os"].partition("-")[0] for row in jobs["wheels"]["strategy"]["matrix"]["include"]
    }
    assert systems == {"ubuntu", "macos", "windows"}


@pytest.mark.slow
def test_the_wheel_works_on_every_installed_python(tmp_path: Path) -> None:
    process = subprocess.run(
        [sys.executable, ROOT / "tools" / "wheel.py", "--out", tmp_path],
        capture_output=True,
        text=True,
    )
    assert process.returncode == 0, process.stderr + process.stdout
    (wheel,) = tmp_path.glob("rlds_ecosystem-*-cp311-abi3-*.whl")
    assert len([*tmp_path.glob("rlds_ecosystem_light-*")]) == 2
    with zipfile.ZipFile(wheel) as archive:
        (name,) = (name for name in archive.namelist() if name.endswith(".dist-info/METADATA"))
        metadata = email.message_from_bytes(archive.read(name))
    assert metadata["Description-Content-Type"] == "text/markdown"
    assert "](docs/" not in metadata.get_payload()
    assert f"works on Python {sys.version_info.major}.{sys.version_info.minor}." in process.stdout
