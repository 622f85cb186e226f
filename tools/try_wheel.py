"""Tries the installed packages: records, reads, opens. Run it with `python -I`.

Otherwise Python may find the checkout.
"""

import platform
import subprocess
import sys
import sysconfig
import tempfile
from importlib import metadata
from pathlib import Path

import envlogger
import riegeli
import rlds
from envlogger.testing.catch_env import Catch
from rlds.feeds import _core as feeds_core


def main() -> None:
    """Raises an exception if something does not work."""
    for package in (envlogger, riegeli, rlds):
        place = Path(str(package.__file__))
        assert place.is_relative_to(sys.prefix), f"{place} is not what was installed"
    for core in (riegeli, feeds_core):
        assert core.IMPLEMENTATION == "cython", core
    version = metadata.version("rlds-ecosystem")
    assert rlds.__version__ == version, rlds.__version__

    with tempfile.TemporaryDirectory() as directory:
        with envlogger.EnvLogger(Catch(), data_directory=directory) as env:
            recorded = [env.reset()]
            while not recorded[-1].last():
                recorded.append(env.step(action=1))
        with envlogger.Reader(directory) as reader:
            read = [step.timestep for step in reader.episodes[0]]
        assert [step.reward for step in read] == [step.reward for step in recorded]
        assert len(rlds.sources.open(directory)) == 1

        command = Path(sysconfig.get_path("scripts"), "rlds")
        for arguments, expected in (
            (["--version"], version),
            (["inspect", directory], "log of EnvLogger"),
        ):
            done = subprocess.run([command, *arguments], capture_output=True, text=True, check=True)
            assert expected in done.stdout, done.stdout
    print(f"{version} works on Python {platform.python_version()}")


if __name__ == "__main__":
    main()
