"""The quickstart runs, and prints correct results."""

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


def run_in_fork(*arguments):
    """Runs the script in a fork of a process with TensorFlow."""
    code = f"import runpy; runpy.run_path({str(SCRIPT)!r}, run_name='__main__')"
    return forked.run(code, *arguments)


@pytest.mark.parametrize("run", one_in(2, [run_in_fork, run]))
def test_the_quickstart_records_converts_and_reports(tmp_path, run):
    output = tmp_path / "output"
    process = run("--episodes", 5, "--epochs", 2, "--output", output)
    assert process.returncode == 0, process.stderr
    # In a fork, TensorFlow was loaded before its messages could be disabled.
    assert run is run_in_fork or process.stderr == ""
    with envlogger.Reader(output / "logs") as reader:
        assert len(reader.episodes) == 5
        num_steps = len(reader.steps)
        assert 300 <= len(reader.episodes[4]) < 700  # The fifth is abandoned.
    assert f"{num_steps} of {num_steps}" in process.stdout
    assert re.search(rf"transitions +│ {num_steps - 5} ", process.stdout)
    picture = output / "distributions.png"
    assert picture.read_bytes().startswith(b"\x89PNG")
    report = output / "report.html"
    assert "<title>inverted_double_pendulum" in report.read_text()
    *_, figure_line, report_line, next_line = process.stdout.splitlines()
    assert figure_line == f"Figure: {picture}"
    assert report_line == f"The report, for your browser: {report}"
    assert next_line.startswith("Next: ")


@pytest.mark.slow
def test_invalid_arguments_are_usage_errors(tmp_path):
    (tmp_path / "logs").mkdir()
    for arguments, message in [
        (["--episodes", 0], "--episodes must be at least 1"),
        (["--output", tmp_path], "exists. Give a new directory."),
    ]:
        process = run(*arguments)
        assert process.returncode == 2
        assert message in process.stderr
