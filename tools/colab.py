"""Installs the project in an environment with Colab's packages, and runs notebooks there.

    python tools/colab.py [--folder .venv-colab]

The packages are those that `colab.txt` lists, in the versions that Colab has. Afterwards you see
which of them the installation of the notebooks changed, and what it added.
"""

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
CHECKOUT = HERE.parent
FOLDER = CHECKOUT / "examples" / "notebooks"
NOTEBOOKS = ("00_tour", "02_transformations")

# The Python of Colab, and other supported versions.
PYTHONS = ("3.13", "3.12", "3.11")


def find_python() -> str:
    """Returns the interpreter closest to that of Colab."""
    for version in PYTHONS:
        path = shutil.which(f"python{version}")
        works = path and not subprocess.run([path, "-c", "0"], capture_output=True).returncode
        if path and works:
            return path
        # Installed by pyenv, but not selected.
        for python in Path.home().glob(f".pyenv/versions/{version}.*/bin/python"):
            return str(python)
    return sys.executable


def install_line() -> str:
    """Returns the requirement that the notebooks install, from the checkout."""
    first = json.loads((FOLDER / f"{NOTEBOOKS[0]}.ipynb").read_text("utf-8"))["cells"][1]
    match = re.search(r'%pip install --quiet "(.+) @ git\+.+"', "".join(first["source"]))
    if not match:
        raise SystemExit("the second cell of the notebook does not install anything")
    return f"{match[1]} @ {CHECKOUT.as_uri()}"


def installed(python: Path) -> dict[str, str]:
    """The names and versions of all packages in an environment."""
    # Isolated from the checkout, which looks like an installed package where it was built.
    listed = subprocess.check_output([python, "-I", "-m", "pip", "list", "--format", "json"])
    return {package["name"]: package["version"] for package in json.loads(listed)}


def main() -> None:
    """Makes the environment, installs, says what changed, and runs the notebooks."""
    parser = argparse.ArgumentParser(description="Installs and runs notebooks as on Colab.")
    parser.add_argument("--folder", type=Path, default=Path(".venv-colab"), help="environment")
    folder = parser.parse_args().folder.resolve()
    base = find_python()
    version = subprocess.check_output([base, "--version"], text=True).strip()
    print(f"{version}, in {folder}", flush=True)
    subprocess.run([base, "-m", "venv", "--clear", folder], check=True)
    python = folder / "bin" / "python"

    def pip(*arguments: str) -> None:
        subprocess.run([python, "-I", "-m", "pip", "install", "--quiet", *arguments], check=True)

    # Colab's packages do not all agree with each other: without their dependencies.
    pip("--no-deps", "--requirement", str(HERE / "colab.txt"))
    before = installed(python)
    pip(install_line())
    after = installed(python)
    added = {name: after[name] for name in sorted(after.keys() - before.keys())}
    print("added:", *(f"  {name} {version}" for name, version in added.items()), sep="\n")
    changed = [
        f"  {name} {version} -> {after.get(name, 'removed')}"
        for name, version in sorted(before.items())
        if after.get(name) != version
    ]
    print("changed:", *(changed or ["  nothing"]), sep="\n", flush=True)

    for name in NOTEBOOKS:
        with tempfile.TemporaryDirectory() as directory:
            environment = {**os.environ, "MPLBACKEND": "agg", "TMPDIR": directory}
            print(f"running {name}", flush=True)
            subprocess.run(
                [python, "-I", FOLDER / f"{name}.py"], cwd=directory, env=environment, check=True
            )


if __name__ == "__main__":
    main()
