"""The scripts that train on feeds learn without TensorFlow."""

import importlib.util
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import envlogger
from envlogger.gymnasium_adapter import GymnasiumAdapter

gymnasium = pytest.importorskip("gymnasium")

EXAMPLES = Path(__file__).parents[2] / "examples"
RUN = """
import runpy, sys
script, *sys.argv[1:] = sys.argv[1:]
runpy.run_path(script, run_name="__main__")
assert "tensorflow" not in sys.modules
"""


@pytest.fixture(scope="module")
def logs(tmp_path_factory):
    """Episodes of a pendulum with a controller that brakes it."""
    directory = tmp_path_factory.mktemp("logs")
    environment = GymnasiumAdapter(gymnasium.make("Pendulum-v1"), seed=0)
    with envlogger.EnvLogger(environment, data_directory=directory) as env:
        for _ in range(5):
            timestep = env.reset()
            while not timestep.last():
                _, sine, velocity = timestep.observation
                timestep = env.step(np.clip([-sine - velocity], -2, 2, dtype=np.float32))
    return directory


def run(name, *arguments):
    command = [sys.executable, "-c", RUN, EXAMPLES / f"behaviour_cloning_{name}.py", *arguments]
    return subprocess.run(list(map(str, command)), capture_output=True, text=True, check=False)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["jax", "torch"])
def test_script_clones_a_policy(name, logs):
    if importlib.util.find_spec(name) is None:
        pytest.skip(f"{name} is not installed; see CONTRIBUTING")
    process = run(name, logs, "--epochs", 30, "--play", "Pendulum-v1")
    assert process.returncode == 0, process.stderr
    losses = [float(loss) for loss in re.findall(r"batch .*: loss ([\d.]+)", process.stdout)]
    assert len(losses) == 10
    assert losses[-1] < losses[0] / 4
    assert re.search(r"return of an episode: -\d+\.\d\n$", process.stdout)
