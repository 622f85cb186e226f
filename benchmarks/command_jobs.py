"""Contenders that are commands: from the start of a process to its end."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

from dataset_jobs import MINARI_ID, write_minari
from worker import Work


def write_datasets(folder: Path, size: int) -> None:
    """Writes a dataset of Minari, and one of TFDS, for commands to look at."""
    import rlds.sources
    import tfds_builders

    write_minari(folder, size, length=500)
    source = rlds.sources.open(folder / MINARI_ID, format="minari").source
    tfds_builders.convert(source, name="walk", data_dir=folder / "tfds", progress=False)


def run_command(data: Path, size: int, *, command: list[str]) -> Work:
    """Runs a command, in which `DATA` stands for the folder of the data."""
    program, *arguments = (word.replace("DATA", str(data)) for word in command)
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    executable = sys.executable if program == "python" else shutil.which(program, path=path)
    if executable is None:
        raise ImportError(f"the command {program} is not installed")
    environment = {**os.environ, "MINARI_DATASETS_PATH": str(data)}

    def work(_: Path) -> int:
        subprocess.run([executable, *arguments], env=environment, check=True, capture_output=True)
        return 1

    return work
