"""Tries the installed packages: runs the README, records, reads, opens, plays.

Run it with `python -I`; without it, Python may import the checkout. With the extra `creator`, it
also tries the pages of `rlds create` and `rlds view`.
"""

import contextlib
import importlib.util
import platform
import re
import signal
import subprocess
import sys
import sysconfig
import tempfile
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path

import envlogger
import riegeli
import rlds
from envlogger.testing.catch_env import Catch
from rlds.feeds import _core as feeds_core

ROOT = Path(__file__).resolve().parents[1]
COMMAND = Path(sysconfig.get_path("scripts"), "rlds")


@contextlib.contextmanager
def serving(*arguments: str) -> Iterator[str]:
    """Runs a command that serves pages; yields their address."""
    command = [str(COMMAND), *arguments, "--no-open", "--port", "0", "--quiet"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            yield process.stdout.readline().strip().rstrip("/")
        finally:
            process.send_signal(signal.SIGINT)
    assert process.returncode == 0, process.returncode


def try_pages(directory: str) -> None:
    """Plays a step in a sample study, views a log, and checks each file of the pages."""
    sys.path.append(str(ROOT / "tests" / "support"))
    from creator_server import Player, call, fetch

    def check_pages(address: str, mode: str) -> None:
        status, _, index = fetch(address, "GET", "/")
        assert (status, b'<div id="app">' in index) == (200, True), index
        assert call(address, "GET", "/api/me")[1]["mode"] == mode
        folder = index.decode().partition('src="')[2].partition("/theme.js")[0]
        static = ROOT / "rlds_creator" / "static"
        files = [file for file in static.rglob("*") if file.suffix in (".js", ".css", ".svg")]
        assert len(files) > 30, files
        for file in files:
            path = f"{folder}/{file.relative_to(static).as_posix()}"
            status, _, content = fetch(address, "GET", path)
            assert (status, content) == (200, file.read_bytes()), path

    with tempfile.TemporaryDirectory() as data, serving("create", data) as address:
        check_pages(address, "create")
        studies = call(address, "GET", "/api/studies")[1]["studies"]
        (study,) = (each for each in studies if each["name"] == "CartPole")
        play = call(address, "POST", "/api/plays", {"study": study["id"]})[1]["play"]
        with Player(f"{address.replace('http', 'ws')}/api/plays/{play}") as player:
            player.until("state", state="ready")
            player.say("control", do="resume")
            player.press("ArrowLeft")
            while player.receive_frame().step < 2:  # Frames may be skipped.
                player.until_frame()
    with serving("view", directory) as address:
        check_pages(address, "view")
        dataset = call(address, "GET", "/api/datasets")[1]["datasets"][0]["id"]
        view = f"/api/datasets/{dataset}/train/0/view"
        num_steps = call(address, "GET", view)[1]["num_steps"]
        values = call(address, "GET", f"{view}/steps/{num_steps - 1}")[1]["values"]
        assert values["is_last"] is True, values


def run_readme() -> None:
    """Runs the Python code of the README as a script, in an empty directory."""
    code, output = re.findall(
        r"^```(?:python|output)\n(.*?)^```$",
        (ROOT / "README.md").read_text(),
        re.DOTALL | re.MULTILINE,
    )
    with tempfile.TemporaryDirectory() as directory:
        process = subprocess.run(
            [sys.executable, "-I", "-c", code],
            cwd=directory,
            capture_output=True,
            text=True,
            check=True,
        )
    assert (process.stdout, process.stderr) == (output, ""), process


def main() -> None:
    """Raises an exception if something does not work."""
    for package in (envlogger, riegeli, rlds):
        path = Path(str(package.__file__))
        assert path.is_relative_to(sys.prefix), f"{path} is not the installed package"
    for core in (riegeli, feeds_core):
        assert core.IMPLEMENTATION == "cython", core
    version = metadata.version(metadata.packages_distributions()["rlds"][0])
    assert rlds.__version__ == version, rlds.__version__
    run_readme()

    with tempfile.TemporaryDirectory() as directory:
        with envlogger.EnvLogger(Catch(), data_directory=directory) as env:
            expected_timesteps = [env.reset()]
            while not expected_timesteps[-1].last():
                expected_timesteps.append(env.step(action=1))
        with envlogger.Reader(directory) as reader:
            timesteps = [step.timestep for step in reader.episodes[0]]
        assert [step.reward for step in timesteps] == [step.reward for step in expected_timesteps]
        assert len(rlds.sources.open(directory)) == 1

        for arguments, expected in (
            (["--version"], version),
            (["inspect", directory], "EnvLogger"),
        ):
            output = subprocess.check_output([COMMAND, *arguments], text=True)
            assert expected in output, output
        has_creator = importlib.util.find_spec("uvicorn") is not None
        if has_creator:
            try_pages(directory)
    pages_text = ", with its pages," if has_creator else ""
    print(f"{version}{pages_text} works on Python {platform.python_version()}")


if __name__ == "__main__":
    main()
