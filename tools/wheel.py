"""Builds the sdists and the wheels, checks them, and tries the wheel: `make wheel`.

The wheels are built from the sdists; on Linux they become manylinux wheels. There are two of each:
`rlds-ecosystem`, and `rlds-ecosystem-light`, the same files without the requirement TensorFlow. The
light wheel is installed with the extra `creator` and tried in a new environment of each available
Python.
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
from requirements import PROJECT  # noqa: E402


def run(*command: str | Path, cwd: Path = ROOT) -> None:
    """Runs a command with the commands of this environment, and without the checkout."""
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    environment["PATH"] = f"{Path(sys.executable).parent}{os.pathsep}{environment['PATH']}"
    environment["RIEGELI_IMPLEMENTATION"] = "cython"  # A core that does not compile is an error.
    print("$", *command, flush=True)
    subprocess.run(command, cwd=cwd, env=environment, check=True)


def build(project: Path, out: Path) -> tuple[Path, Path]:
    """Builds an sdist and a wheel; returns both."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        run(sys.executable, "-m", "build", "--outdir", folder, project)
        (sdist,) = folder.glob("*.tar.gz")
        (wheel,) = folder.glob("*.whl")
        out.mkdir(parents=True, exist_ok=True)
        if sys.platform == "linux":
            repaired = folder / "repaired"
            run(sys.executable, "-m", "auditwheel", "repair", "--wheel-dir", repaired, wheel)
            (wheel,) = repaired.glob("*.whl")
        return Path(shutil.copy(sdist, out)), Path(shutil.copy(wheel, out))


def build_light(sdist: Path, out: Path) -> tuple[Path, Path]:
    """Builds both without TensorFlow as a requirement, from an sdist."""
    with tempfile.TemporaryDirectory() as name:
        shutil.unpack_archive(sdist, name)
        (project,) = Path(name).iterdir()
        run(sys.executable, ROOT / "tools" / "light.py", project / "pyproject.toml")
        return build(project, out)


def check(sdist: Path, wheel: Path) -> None:
    """Raises an error if a distribution is incomplete or has wrong tags."""
    run(sys.executable, "-m", "abi3audit", "--strict", wheel)
    run(sys.executable, "-m", "twine", "check", "--strict", sdist, wheel)
    # Both have the tracked files of the packages, and the wheel the compiled cores.
    process = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True)
    tracked = process.stdout.splitlines()
    packages = {file.removesuffix("__init__.py") for file in tracked if file.count("/") == 1}
    files = {file for file in tracked if f"{file.partition('/')[0]}/" in packages}
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


def find_pythons() -> dict[str, Path]:
    """Finds a Python of each supported version, on PATH or of pyenv."""
    pythons_by_version = {}
    for classifier in PROJECT["classifiers"]:
        match = re.fullmatch(r"Programming Language :: Python :: (3\.\d+)", classifier)
        if match:
            version = match[1]
            on_path = shutil.which(f"python{version}")
            installed = sorted(Path.home().glob(f".pyenv/versions/{version}.*/bin/python"))
            for python in [*([on_path] if on_path else []), *installed]:
                # A Python on PATH may be a shim of pyenv for a version that is not selected.
                process = subprocess.run([python, "-c", "import ensurepip"], capture_output=True)
                if process.returncode == 0:
                    pythons_by_version[version] = Path(python)
                    break
    return pythons_by_version


def try_wheel(python: Path, wheel: Path) -> None:
    """Installs a wheel in a new virtual environment, and tries it there."""
    with tempfile.TemporaryDirectory() as name:
        environment = Path(name, "venv")
        run(python, "-m", "venv", environment)
        python_of_environment = environment / "bin" / "python"
        run(python_of_environment, "-m", "pip", "install", "--quiet", f"{wheel}[creator]")
        run(python_of_environment, "-I", ROOT / "tools" / "try_wheel.py", cwd=Path(name))


def main() -> None:
    """Builds, checks and tries."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--out", type=Path, default=ROOT / "dist", metavar="DIR")
    out = parser.parse_args().out
    standard = build(ROOT, out)
    light = build_light(standard[0], out)
    check(*standard)
    check(*light)
    pythons_by_version = find_pythons()
    for python in pythons_by_version.values():
        try_wheel(python, light[1])
    print(*standard, *light, f"tried on Python {', '.join(pythons_by_version)}", sep="\n")


if __name__ == "__main__":
    main()
