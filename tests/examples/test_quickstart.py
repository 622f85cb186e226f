"""The quickstart runs, and what it says is so."""

import re
import subprocess
import sys
from pathlib import Path

import forked
import pytest
from fast_share import one_in

import envlogger

SCRIPT = Path(__file__).parents[2] / "examples" / "quickstart.py"


def run(*arguments):
    return subprocess.run(
        [sys.executable, SCRIPT, *map(str, arguments)], capture_output=True, text=True, check=False
    )


def run_in_copy(*arguments):
    """In a process that has TensorFlow already."""
    code = f"import runpy; runpy.run_path({str(SCRIPT)!r}, run_name='__main__')"
    return forked.run(code, *arguments)


@pytest.mark.parametrize("run", one_in(2, [run_in_copy, run]))
def test_the_quickstart_records_converts_and_reports(tmp_path, run):
    output = tmp_path / "output"
    ended = run("--episodes", 5, "--epochs", 2, "--output", output)
    assert ended.returncode == 0, ended.stderr
    # In a copy, TensorFlow was loaded before it could be told to be quiet.
    assert run is run_in_copy or ended.stderr == ""
    with envlogger.Reader(output / "logs") as reader:
        assert len(reader.episodes) == 5
        num_steps = len(reader.steps)
        assert 300 <= len(reader.episodes[4]) < 700  # The fifth is given up.
    assert f"{num_steps} of {num_steps}" in ended.stdout
    assert re.search(rf"transitions +│ {num_steps - 5} ", ended.stdout)
    picture = output / "distributions.png"
    assert picture.read_bytes().startswith(b"\x89PNG")
    report = output / "report.html"
    assert "<title>inverted_double_pendulum" in report.read_text()
    *_, shown, told, following = ended.stdout.splitlines()
    assert shown == f"Figure: {picture}"
    assert told == f"The report, for your browser: {report}"
    assert following.startswith("Next: ")


@pytest.mark.slow
def test_wrong_arguments_are_errors_of_usage(tmp_path):
    (tmp_path / "logs").mkdir()
    for arguments, message in [
        (["--episodes", 0], "--episodes must be at least 1"),
        (["--output", tmp_path], "exists. Give a new directory."),
    ]:
        ended = run(*arguments)
        assert ended.returncode == 2
        assert message in ended.stderr
