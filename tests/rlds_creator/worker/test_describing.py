"""What can be made in an interpreter."""

import json
import subprocess
import sys

import pytest

from rlds_creator.environments import families
from rlds_creator.worker import describing


def test_families_and_their_options(monkeypatch):
    known = {"drawn": families()["drawn"], "broken": "no.such:Family"}
    monkeypatch.setattr(describing, "families", lambda: known)
    described = describing.describe()
    assert list(described) == ["broken", "drawn"]
    assert described["broken"]["identifiers"] is None
    assert described["broken"]["error"]
    drawn = described["drawn"]
    assert (drawn["title"], drawn["requires"], drawn["error"]) == ("Drawn steps", "", "")
    assert drawn["identifiers"] == ["discrete", "box"]
    options = {option.pop("name"): option for option in drawn["options"]}
    assert options["num_steps"] == {"kind": "integer", "default": 1_000_000, "choices": None}
    assert options["seconds_per_step"] == {"kind": "number", "default": 0.0, "choices": None}
    assert options["repeats"] == {"kind": "flag", "default": False, "choices": None}
    assert options["reward"]["kind"] == "choice"
    assert options["reward"]["choices"][:2] == ["action", "none"]


@pytest.mark.slow
def test_the_output_is_the_description():
    command = [sys.executable, "-m", "rlds_creator.worker", "--describe"]
    described = json.loads(subprocess.run(command, capture_output=True, check=True).stdout)
    assert described["drawn"]["identifiers"] == ["discrete", "box"]
    assert "CartPole-v1" in described["gymnasium"]["identifiers"]
    for wrong in ([], ["--help"], ["3", "4"]):
        ended = subprocess.run([*command[:3], *wrong], capture_output=True, text=True)
        assert ended.returncode == 2
        assert "usage" in ended.stderr


@pytest.mark.slow
def test_a_worker_needs_little():
    code = "import sys, rlds_creator.worker.player; print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, check=True).stdout
    packages = {name.split(".")[0] for name in loaded.decode().split()}
    assert "numpy" in packages
    assert not packages & {"msgspec", "sqlalchemy", "starlette", "uvicorn", "gymnasium"}
