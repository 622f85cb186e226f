"""Exports on Apache Beam have the same bytes, also if one or all workers are killed.

Tests of Dask need the environment variable DASK_PYTHON: a Python with this package, Apache Beam,
dask and distributed.
"""

import os
import signal
import subprocess
import sys
from pathlib import Path

import beam_exports
import many_episodes
import pytest

from rlds.sources import export

DASK = os.environ.get("DASK_PYTHON", "")
NEEDS_DASK = pytest.mark.skipif(not DASK, reason="DASK_PYTHON is not set")
pytestmark = pytest.mark.slow


def contents(path):
    files = [file for file in path.parent.rglob("*") if file.is_file()]
    return {file.relative_to(path.parent).as_posix(): file.read_bytes() for file in files}


@pytest.mark.parametrize(
    ("runner", "format", "kill"),
    [
        pytest.param("DaskRunner", "robomimic", "", marks=NEEDS_DASK),
        pytest.param("DaskRunner", "lerobot", "worker", marks=NEEDS_DASK),
        # The DirectRunner hangs if one of its workers is killed.
        ("DirectRunner", "robomimic", "all"),
    ],
)
def test_beam_gives_the_same_bytes(runner, format, kill, tmp_path):
    pytest.importorskip("apache_beam")
    raw = many_episodes.write(tmp_path / "raw")
    targets = [tmp_path / name / "made.h5" for name in ("beam", "whole")]
    if format != "robomimic":
        targets = [target.with_suffix("") for target in targets]
    notes = tmp_path / "notes"
    notes.mkdir()
    python = DASK if runner == "DaskRunner" else sys.executable
    call = [python, beam_exports.__file__, runner, format, raw, targets[0], notes, kill]
    paths = [str(Path(beam_exports.__file__).parents[2]), *filter(None, sys.path)]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(paths)}
    for code in [-signal.SIGKILL, 0] if kill == "all" else [0]:
        run = subprocess.run(call, env=environment, start_new_session=True)
        assert run.returncode == code
    workers = [path for path in notes.iterdir() if path.name != "killed"]
    assert len(workers) >= 2
    assert (notes / "killed").exists() == bool(kill)
    source = beam_exports.Watched(raw, notes=notes, kill="")
    export(source, format, targets[1], jobs=1, **beam_exports.OPTIONS.get(format, {}))
    assert contents(targets[0]) == contents(targets[1])
