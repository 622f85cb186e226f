"""Packages of the web tool import only lower layers, and processes load only what they need."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import rlds_creator

# The lowest layer first. Only in the lowest layer, modules import each other.
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


def imported_modules(path):
    """Yields the packages of the web tool that a file imports, at any level."""
    for node in ast.walk(ast.parse(path.read_text())):
        names = []
        if isinstance(node, ast.Import):
            names = [name.name for name in node.names]
        elif isinstance(node, ast.ImportFrom):
            names = [node.module, *(f"{node.module}.{name.name}" for name in node.names)]
        names = [name.split(".") for name in names]
        yield from (
            module[1] for module in names if module[0] == "rlds_creator" and len(module) > 1
        )


@pytest.mark.slow
@pytest.mark.parametrize("layer", range(len(LAYERS)))
def test_each_layer_imports_only_those_below_it(layer) -> None:
    below = set().union(*LAYERS[: max(layer, 1)])
    for module in LAYERS[layer]:
        files = [*(ROOT / module).rglob("*.py"), *ROOT.glob(f"{module}.py")]
        assert files
        for file in files:
            assert set(imported_modules(file)) <= below | {module}, file


def test_all_packages_have_a_layer() -> None:
    modules = {path.stem for path in ROOT.iterdir() if path.suffix == ".py" or path.is_dir()}
    assert modules - {"__init__", "__pycache__", "static"} == set().union(*LAYERS)


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
    # A worker may run in a Python with only the packages of its environment.
    assert not worker & {"msgspec", "starlette", "uvicorn", "sqlalchemy", "alembic"}
    assert not view & {"sqlalchemy", "alembic"}
    # Environments live in the processes of players, TensorFlow in those of exports.
    assert not create & {"gymnasium", "ale_py", "minigrid", "pygame", "mujoco", "tensorflow"}
