"""Installs the project in an environment with Colab's packages, and runs notebooks there.

    python tools/colab.py [--folder .venv-colab]

`colab.txt` lists the packages in the versions of Colab. At the end, the tool prints the packages
that the installation of the notebooks changed or added.
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
    """Returns the interpreter with the version closest to that of Colab."""
    for version in PYTHONS:
        path = shutil.which(f"python{version}")
        is_working = path and not subprocess.run([path, "-c", "0"], capture_output=True).returncode
        if path and is_working:
            return path
        # A version of pyenv that is not selected.
        for python in Path.home().glob(f".pyenv/versions/{version}.*/bin/python"):
            return str(python)
    return sys.executable


def find_requirement() -> str:
    """Returns the requirement that the notebooks install, from the checkout."""
    install_cell = json.loads((FOLDER / f"{NOTEBOOKS[0]}.ipynb").read_text("utf-8"))["cells"][1]
    match = re.search(r'%pip install --quiet "(.+) @ git\+.+"', "".join(install_cell["source"]))
    if not match:
        raise SystemExit("the second cell of the notebook does not install anything")
    return f"{match[1]} @ {CHECKOUT.as_uri()}"


def installed_versions(python: Path) -> dict[str, str]:
    """Returns the versions of all packages in an environment, by name."""
    # Isolated from the checkout, which looks like an installed package after a build.
    output = subprocess.check_output([python, "-I", "-m", "pip", "list", "--format", "json"])
    return {package["name"]: package["version"] for package in json.loads(output)}


def main() -> None:
    """Creates the environment, installs, prints changes, and runs the notebooks."""
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

    # Without dependencies, because some of Colab's packages conflict.
    pip("--no-deps", "--requirement", str(HERE / "colab.txt"))
    before = installed_versions(python)
    pip(find_requirement())
    after = installed_versions(python)
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
