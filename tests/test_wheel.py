"""The wheel, in an environment with its requirements, but without its sources."""

import os
import shutil
import subprocess
import sys
import sysconfig
import venv
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent


@pytest.mark.slow
def test_the_wheel_works_without_the_sources(tmp_path):
    """Follows `make wheel`, but without an installation of requirements."""
    process = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    for name in process.stdout.splitlines():
        if (ROOT / name).is_file() and not name.startswith(("docs/", "tests/")):
            (tmp_path / "sources" / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / name, tmp_path / "sources" / name)

    def run(*command):
        environment = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
        environment |= {"RIEGELI_IMPLEMENTATION": "cython", "CFLAGS": "-O0"}
        process = subprocess.run(
            command, cwd=tmp_path, env=environment, capture_output=True, text=True
        )
        assert process.returncode == 0, process.stdout + process.stderr
        return process.stdout

    pip = [sys.executable, "-m", "pip"]
    alone = ["--no-deps", "--no-index"]
    run(*pip, "wheel", *alone, "--no-build-isolation", "--wheel-dir", "dist", "./sources")
    (wheel,) = (tmp_path / "dist").iterdir()
    shutil.rmtree(tmp_path / "sources")

    venv.create(tmp_path / "venv", symlinks=True)
    python = tmp_path / "venv" / "bin" / "python"
    (packages,) = (tmp_path / "venv" / "lib").glob("python*/site-packages")
    # .pth files in that folder, which may lead to the sources, are not read.
    (packages / "others.pth").write_text(f"{sysconfig.get_path('purelib')}\n")
    run(*pip, "--python", python, "install", *alone, wheel)
    assert "with its pages" in run(python, "-I", ROOT / "tools" / "try_wheel.py")
