"""Peers in environments of their own, as their requirements conflict with this project."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
FOLDER = ROOT / "build" / "peers"

ENVLOGGER, RLDS, LEROBOT = "EnvLogger 1.2", "rlds 0.1.8", "LeRobot 0.6.1"
OPENVLA, OCTO, OPENPI = "OpenVLA", "Octo", "openpi"
# lerobot's writer as any4lerobot calls it, which is no package.
ANY4LEROBOT = "LeRobot 0.6.1, as in any4lerobot"
# Which environment variable names a Python that has them.
PYTHONS = {
    **dict.fromkeys((LEROBOT, ANY4LEROBOT), "ROBOTICS_PYTHON"),
    **dict.fromkeys((OPENVLA, OCTO, OPENPI), "LOADERS_PYTHON"),
}
# The last Python that EnvLogger has wheels for, and a protobuf that is fast.
ENVLOGGER_PYTHON = "python3.11"
ENVLOGGER_PACKAGES = ["envlogger==1.2", "protobuf==4.25.8", "numpy==1.26.4", "dm-env", "absl-py"]
RLDS_PACKAGE = "rlds==0.1.8"


def envlogger_python() -> str:
    """Returns a Python that has EnvLogger 1.2, which is installed if need be.

    Raises:
      RuntimeError: It cannot be installed, or not imported.
    """
    python_path = os.environ.get("ENVLOGGER_PYTHON", "")
    if python_path:
        return python_path
    python = FOLDER / "envlogger" / "bin" / "python"
    if not python.exists():
        base = shutil.which(ENVLOGGER_PYTHON) or sys.executable
        subprocess.run([base, "-m", "venv", "--clear", python.parents[1]], check=True)
        install = [python, "-m", "pip", "install", "--quiet", *ENVLOGGER_PACKAGES]
        if subprocess.run(install).returncode:
            shutil.rmtree(python.parents[1])
            raise RuntimeError("cannot be installed with this Python")
    # Isolated: PYTHONPATH may name another one. Debian has its library in libgmpxx4ldbl.
    process = subprocess.run([python, "-I", "-c", "import envlogger"], capture_output=True)
    if process.returncode:
        raise RuntimeError(process.stderr.decode().splitlines()[-1])
    return str(python)


def rlds_folder() -> Path:
    """Returns a folder with the package rlds 0.1.8 and nothing else; it runs on our TensorFlow."""
    folder, draft = FOLDER / "rlds", FOLDER / "rlds.part"
    if folder.exists():
        return folder
    shutil.rmtree(draft, ignore_errors=True)
    python_path = os.environ.get("RLDS_PEER_PYTHON", "")
    if python_path:
        find = "from importlib.util import find_spec; print(find_spec('rlds').origin)"
        command = [python_path, "-I", "-c", find]  # As above.
        process = subprocess.run(command, capture_output=True, text=True, check=True)
        shutil.copytree(Path(process.stdout.strip()).parent, draft / "rlds")
    else:
        install = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps"]
        subprocess.run([*install, "--target", draft, RLDS_PACKAGE], check=True)
    draft.rename(folder)
    return folder


def surroundings(peer: str) -> tuple[str, list[Path]]:
    """Returns the Python of a peer, and the folders of its further packages.

    Raises:
      OSError: The peer cannot be installed.
      RuntimeError: Likewise.
      subprocess.CalledProcessError: Likewise.
    """
    if peer == ENVLOGGER:
        return envlogger_python(), []
    if peer in PYTHONS:
        python = os.environ.get(PYTHONS[peer], "")
        if not python:
            raise RuntimeError(f"{PYTHONS[peer]} names no Python with {peer}")
        return python, []
    if peer == RLDS:
        return sys.executable, [rlds_folder()]
    return sys.executable, [ROOT, ROOT / "tests" / "support"]
