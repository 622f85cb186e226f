"""Descriptions of the environments of an interpreter."""

import asyncio
import subprocess
import sys

import pytest

from rlds_creator import Family
from rlds_creator.environments import families
from rlds_creator.server.errors import ServiceUnavailableError
from rlds_creator.server.workers import Interpreters
from rlds_creator.worker import describing


def test_describe_lists_families_with_their_options(monkeypatch):
    classes = {"drawn": families()["drawn"], "broken": "no.such:Family"}
    monkeypatch.setattr(describing, "families", lambda: classes)
    descriptions = describing.describe()
    assert list(descriptions) == list(classes)
    assert descriptions["broken"]["identifiers"] is None
    assert descriptions["broken"]["error"]
    drawn = descriptions["drawn"]
    assert (drawn["title"], drawn["requires"], drawn["error"]) == ("Drawn steps", "", "")
    assert drawn["identifiers"] == ["discrete", "box"]
    options = {option.pop("name"): option for option in drawn["options"]}
    kinds = {"num_steps": "integer", "seconds_per_step": "number", "repeats": "flag"}
    assert {name: options[name]["kind"] for name in kinds} == kinds
    assert options["num_steps"]["default"] == 1_000_000
    assert options["reward"]["choices"][:2] == ["action", "none"]


class Hills(Family):
    def identifiers(self):
        raise ImportError("no hills: pip install 'hills>=2'")

    def make(self, *, id: str, keys: dict, height: float | None = None, is_wet: bool = False):
        """Makes a hill.

        Args:
          id: Which.
          keys: Not an option.
          height: How high it is,
            in metres.

        Raises:
          ValueError: is_wet: no.
        """


def test_docstrings_describe_options(monkeypatch):
    monkeypatch.setattr(describing, "families", lambda: ["hills"])
    monkeypatch.setattr(describing, "family", lambda name: Hills())
    hills = describing.describe()["hills"]
    helps = {option["name"]: option["help"] for option in hills["options"]}
    assert helps == {"height": "How high it is, in metres.", "is_wet": ""}
    # Options are described even if the package is not installed.
    assert hills["identifiers"] is None
    assert "pip install 'hills>=2'" in hills["error"]


def describe_interpreter(python):
    async def run():
        return await Interpreters({"other": python}).describe("other")

    return asyncio.run(run())


@pytest.mark.slow
def test_a_worker_describes_an_interpreter():
    descriptions = describe_interpreter(sys.executable)
    assert descriptions["drawn"]["identifiers"] == ["discrete", "box"]
    assert "CartPole-v1" in descriptions["gymnasium"]["identifiers"]
    for python in ("/bin/false", "/no/such/python"):
        with pytest.raises(ServiceUnavailableError, match="'other' cannot list"):
            describe_interpreter(python)


@pytest.mark.slow
def test_a_worker_needs_a_socket():
    for arguments in ([], ["--help"], ["3", "4"]):
        command = [sys.executable, "-m", "rlds_creator.worker", *arguments]
        result = subprocess.run(command, capture_output=True, text=True)
        assert result.returncode == 2
        assert "usage" in result.stderr
