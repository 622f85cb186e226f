"""The parts of the web tool know only those below them, and processes load what they need."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import rlds_creator

# The lowest first. Those of one layer do not know each other, but for the modules of the lowest.
LAYERS = [
    {"frames", "identifiers", "labelling", "model", "recorded", "type_errors"},
    {"environments"},
    {"worker"},
    {"exporting", "viewing"},
    {"store"},
    {"server"},
    {"command_line"},
]
ROOT = Path(rlds_creator.__file__).parent


def parts_imported_by(path):
    """The parts of the web tool that a file imports, wherever in the file."""
    for node in ast.walk(ast.parse(path.read_text())):
        names = []
        if isinstance(node, ast.Import):
            names = [name.name for name in node.names]
        elif isinstance(node, ast.ImportFrom):
            names = [node.module, *(f"{node.module}.{name.name}" for name in node.names)]
        parts = [name.split(".") for name in names]
        yield from (part[1] for part in parts if part[0] == "rlds_creator" and len(part) > 1)


@pytest.mark.slow
@pytest.mark.parametrize("number", range(len(LAYERS)))
def test_each_layer_imports_only_those_below_it(number) -> None:
    below = set().union(*LAYERS[: max(number, 1)])
    for part in LAYERS[number]:
        files = [*(ROOT / part).rglob("*.py"), *ROOT.glob(f"{part}.py")]
        assert files
        for file in files:
            assert set(parts_imported_by(file)) <= below | {part}, file


def test_all_parts_have_a_layer() -> None:
    found = {path.stem for path in ROOT.iterdir() if path.suffix == ".py" or path.is_dir()}
    assert found - {"__init__", "__pycache__", "static"} == set().union(*LAYERS)


def test_processes_load_no_more_than_they_need() -> None:
    code = """
import sys
def show():
    print(*{name.partition(".")[0] for name in sys.modules})
import rlds_creator.worker.describing, rlds_creator.worker.player; show()
import rlds_creator.server.view_app; show()
import rlds_creator.server.app; show()
"""
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    worker, view, create = (set(line.split()) for line in run.stdout.splitlines())
    assert "numpy" in worker
    assert "starlette" in view
    assert "sqlalchemy" in create
    # It may run in a Python that has only what an environment needs.
    assert not worker & {"msgspec", "starlette", "uvicorn", "sqlalchemy", "alembic"}
    assert not view & {"sqlalchemy", "alembic"}
    # Environments live in the processes of players, TensorFlow in those of exports.
    assert not create & {"gymnasium", "ale_py", "minigrid", "pygame", "mujoco", "tensorflow"}
