"""Faulty installations are reported with a reason."""

import os
import subprocess
import sys
import sysconfig
from importlib.machinery import EXTENSION_SUFFIXES
from pathlib import Path

import pytest

import riegeli
from rlds_ecosystem import installation

ERROR = ModuleNotFoundError("No module named 'riegeli._compiled'")


@pytest.fixture
def package(tmp_path: Path) -> Path:
    (tmp_path / "site-packages" / "riegeli").mkdir(parents=True)
    return tmp_path / "site-packages" / "riegeli"


def reason_for(package: Path, error: ImportError = ERROR) -> str:
    return installation.explain_uncompiled(package.parent, package.name, error=error)


def test_packages_of_the_same_names_are_reported_on_import(tmp_path: Path) -> None:
    for name in ("envlogger-1.2", "rlds_ecosystem-0.2", "riegeli_tools-1.0", "RLDS-0.1.8"):
        (tmp_path / f"{name}.dist-info").mkdir()
    path = os.pathsep.join([str(Path(riegeli.__file__).parents[1]), str(tmp_path)])
    process = subprocess.run(
        [sys.executable, "-c", "import riegeli, envlogger"],
        env={**os.environ, "PYTHONPATH": path, "RIEGELI_IMPLEMENTATION": "python"},
        capture_output=True,
        text=True,
        check=True,
    )
    assert process.stderr.count("RuntimeWarning") == 1
    assert f"in {tmp_path} and rlds-ecosystem have packages with the same names" in process.stderr
    assert "pip uninstall RLDS envlogger, and then reinstall it" in process.stderr


def test_own_and_missing_distributions_are_not_reported(tmp_path: Path) -> None:
    (tmp_path / "rlds_ecosystem-0.2.dist-info").mkdir()
    assert installation.other_distributions([str(tmp_path), str(tmp_path / "missing.zip")]) == []


def test_a_core_for_another_python_is_reported(package: Path) -> None:
    (package / "_compiled.cpython-37m-x86_64-linux-gnu.so").touch()
    reason = reason_for(package)
    assert "is for another Python (_compiled.cpython-37m-x86_64-linux-gnu.so; this one" in reason


@pytest.mark.parametrize("suffix", EXTENSION_SUFFIXES)  # For this Python, and for the stable ABI.
def test_a_core_that_does_not_load_is_reported(package: Path, suffix: str) -> None:
    (package / f"_compiled{suffix}").touch()
    reason = reason_for(package, ImportError("undefined symbol: x"))
    assert "its compiled core does not load (undefined symbol: x). Reinstall it" in reason


def test_a_checkout_that_hides_the_installed_package_is_reported(
    package: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (package / "_compiled.cpython-311.so").touch()
    checkout = tmp_path / "checkout"
    (checkout / "riegeli").mkdir(parents=True)
    (checkout / "riegeli" / "_compiled.pyx").touch()
    (checkout / "setup.py").touch()
    monkeypatch.setattr(sys, "path", ["", str(checkout), str(package.parent)])
    reason = reason_for(checkout / "riegeli")
    assert f"hides the installed package in {package.parent}. Start Python in another" in reason
    assert f"compile it: pip install --editable {checkout}" in reason


def test_missing_headers_are_reported(package: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sysconfig, "get_path", lambda name: str(package))
    (package / "Python.h").touch()
    reason = reason_for(package)
    assert "the installed package is not compiled, although that is possible: pip install" in reason

    (package / "Python.h").unlink()
    reason = reason_for(package)
    assert f"the headers of Python are missing ({package}/Python.h). Install" in reason
    assert "python3-dev), and then: pip install --force-reinstall" in reason

    monkeypatch.setenv("PATH", "/nowhere")
    reason = reason_for(package)
    assert "not compiled, and there is no C compiler (" in reason
