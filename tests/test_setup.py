"""Installing where there is no C compiler."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parent.parent


def build_without_compiler(tmp_path: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    for name in ("setup.py", "pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, tmp_path)
    (tmp_path / "riegeli").mkdir()
    shutil.copy(ROOT / "riegeli" / "_compiled.pyx", tmp_path / "riegeli")
    return subprocess.run(
        [sys.executable, "setup.py", "build_ext", "--build-lib", "out"],
        cwd=tmp_path,
        env={**os.environ, "RIEGELI_IMPLEMENTATION": "", "CC": "/bin/false", **environment},
        capture_output=True,
        text=True,
    )


def test_the_compiled_core_is_left_out(tmp_path: Path) -> None:
    done = build_without_compiler(tmp_path)

    assert done.returncode == 0, done.stderr
    assert not list((tmp_path / "out").rglob("*.so"))


def test_the_environment_insists_on_the_compiled_core(tmp_path: Path) -> None:
    done = build_without_compiler(tmp_path, RIEGELI_IMPLEMENTATION="cython")

    assert done.returncode != 0
    assert "/bin/false" in done.stderr
