"""Scripts of CleanRL record while they train.

Runs if CLEANRL names a folder with its repository, and CLEANRL_PYTHON a Python with its
requirements.
"""

import os
import subprocess
from pathlib import Path

import pytest

HERE = Path(__file__).parent
PYTHON, CLEANRL = (os.environ.get(name, "") for name in ("CLEANRL_PYTHON", "CLEANRL"))

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not (PYTHON and CLEANRL), reason="CLEANRL, CLEANRL_PYTHON are not set"),
]


@pytest.mark.parametrize(
    ("script", "options"),
    [
        ("ppo", ["--total-timesteps", "1024"]),
        ("dqn", ["--total-timesteps", "600", "--learning-starts", "500"]),
        (
            "sac_continuous_action",
            ["--total-timesteps", "320", "--learning-starts", "300", "--env-id", "Hopper-v4"],
        ),
    ],
)
def test_logs_hold_the_values_of_the_environments(tmp_path, script, options):
    command = [HERE / "train_with_cleanrl.py", Path(CLEANRL) / "cleanrl" / f"{script}.py", tmp_path]
    result = subprocess.run(
        [PYTHON, *command, *options, "--no-cuda"],
        cwd=tmp_path,  # The script makes a folder there.
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(HERE.parents[1]), CLEANRL])},
        capture_output=True,
        text=True,
        check=False,
    )
    assert result.returncode == 0, result.stderr[-3000:]
    assert "episodes: " in result.stdout
