"""The readers of other projects for exported datasets, in an environment of their own.

`ROBOTICS_PYTHON` names a Python that has some of lerobot, robomimic, zarr 2, d3rlpy, imitation,
stable_baselines3, mani_skill, minari, webdataset and mcap. Tests of a missing library are skipped,
with a message. CONTRIBUTING.md lists the versions.
"""

import functools
import json
import os
import subprocess
from typing import Any

import pytest

PYTHON = os.environ.get("ROBOTICS_PYTHON", "")


def run(library: str, script: str, *arguments: Any, seconds: float = 300) -> Any:
    """Runs a script where a library is installed.

    Args:
      library: The library; the test is skipped if it cannot be imported.
      script: Python that prints JSON in its last line.
      *arguments: `sys.argv[1:]` of it.
      seconds: The time limit.

    Returns:
      The content of its last line.
    """
    if not PYTHON:
        pytest.skip(f"ROBOTICS_PYTHON names no Python with {library}")
    if reason := _reason_missing(library):
        pytest.skip(f"ROBOTICS_PYTHON, {PYTHON}, has no {library}: {reason}")
    return json.loads(_run(script, *map(os.fspath, map(str, arguments)), seconds=seconds))


@functools.cache
def _reason_missing(library: str) -> str:
    try:
        _run(f"import {library}; print()", seconds=120)
    except AssertionError as error:
        return str(error).strip().splitlines()[-1]
    return ""


def _run(script: str, *arguments: str, seconds: float) -> str:
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    environment |= {"HF_HUB_OFFLINE": "1", "PYTHONDONTWRITEBYTECODE": "1"}
    process = subprocess.run(
        [PYTHON, "-c", script, *arguments],
        env=environment,
        capture_output=True,
        text=True,
        timeout=seconds,
        cwd="/",
    )
    assert not process.returncode, process.stderr[-4000:]
    return process.stdout.rstrip().rpartition("\n")[2]
