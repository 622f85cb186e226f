"""Builds the sdist and the wheel, checks them, and tries the wheel: `make wheel`.

The wheel is built from the sdist. On Linux it becomes a manylinux wheel. It is tried on every
Python at hand, in new environments that have all dependencies, and what serves the pages, but not
TensorFlow: that takes minutes to install, and the trial does not touch what needs it.
"""

import argparse
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.append(str(ROOT / "tests" / "without_tensorflow"))
from requirements import PROJECT, dependencies  # noqa: E402


def run(*command: str | Path, cwd: Path = ROOT) -> None:
    """Runs a command, which finds those of this environment, and nothing of the checkout."""
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    environment["PATH"] = f"{Path(sys.executable).parent}{os.pathsep}{environment['PATH']}"
    environment["RIEGELI_IMPLEMENTATION"] = "cython"  # A core that does not compile is an error.
    print("$", *command, flush=True)
    subprocess.run(command, cwd=cwd, env=environment, check=True)


def build(out: Path) -> tuple[Path, Path]:
    """Builds both; returns the sdist and the wheel."""
    with tempfile.TemporaryDirectory() as name:
        built = Path(name)
        run(sys.executable, "-m", "build", "--outdir", built)
        (sdist,) = built.glob("*.tar.gz")
        (wheel,) = built.glob("*.whl")
        out.mkdir(parents=True, exist_ok=True)
        if sys.platform == "linux":
            repaired = built / "repaired"
            run(sys.executable, "-m", "auditwheel", "repair", "--wheel-dir", repaired, wheel)
            (wheel,) = repaired.glob("*.whl")
        return Path(shutil.copy(sdist, out)), Path(shutil.copy(wheel, out))


def check(sdist: Path, wheel: Path) -> None:
    """Raises an error if one of them lacks something, or is not what its name says."""
    run(sys.executable, "-m", "abi3audit", "--strict", wheel)
    run(sys.executable, "-m", "twine", "check", "--strict", sdist, wheel)
    # What git knows of the packages has to be in both, and nothing else but the cores in the wheel.
    listed = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True)
    known = listed.stdout.splitlines()
    packages = {file.removesuffix("__init__.py") for file in known if file.count("/") == 1}
    files = {file for file in known if f"{file.partition('/')[0]}/" in packages}
    assert files, f"{ROOT} is not a checkout"
    with tarfile.open(sdist) as archive:
        sources = {name.partition("/")[2] for name in archive.getnames()}
    assert files <= sources, f"not in the sdist: {sorted(files - sources)}"
    with zipfile.ZipFile(wheel) as archive:
        names = {name for name in archive.namelist() if not name.endswith("/")}
    installed = {name for name in names if ".dist-info/" not in name}
    cores = {file for file in files if file.endswith(".pyx")}
    compiled = {f"{file.removesuffix('.pyx')}.abi3.so" for file in cores}
    expected = files - cores | compiled
    assert installed == expected, f"the wheel differs: {sorted(installed ^ expected)}"


def pythons() -> dict[str, Path]:
    """Finds a Python of each version that the project supports, on PATH or of pyenv."""
    found = {}
    for classifier in PROJECT["classifiers"]:
        match = re.fullmatch(r"Programming Language :: Python :: (3\.\d+)", classifier)
        if match:
            version = match[1]
            named = shutil.which(f"python{version}")
            installed = sorted(Path.home().glob(f".pyenv/versions/{version}.*/bin/python"))
            for python in [*([named] if named else []), *installed]:
                # What is on PATH may be a stand-in of pyenv for a Python that is not chosen.
                works = subprocess.run([python, "-c", "import ensurepip"], capture_output=True)
                if works.returncode == 0:
                    found[version] = Path(python)
                    break
    return found


def try_on(python: Path, wheel: Path) -> None:
    """Installs the wheel in a new virtual environment, and tries it there."""
    with tempfile.TemporaryDirectory() as name:
        environment = Path(name, "venv")
        run(python, "-m", "venv", environment)
        installed = environment / "bin" / "python"
        run(installed, "-m", "pip", "install", "--quiet", *dependencies("creator"))
        run(installed, "-m", "pip", "install", "--quiet", "--no-deps", wheel)
        run(installed, "-I", ROOT / "tools" / "try_wheel.py", cwd=Path(name))


def main() -> None:
    """Builds, checks and tries."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--out", type=Path, default=ROOT / "dist", metavar="DIR")
    sdist, wheel = build(parser.parse_args().out)
    check(sdist, wheel)
    found = pythons()
    for python in found.values():
        try_on(python, wheel)
    print(f"{sdist}\n{wheel}\ntried on Python {', '.join(found)}")


if __name__ == "__main__":
    main()
