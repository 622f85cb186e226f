"""The published loaders of dlimp, Octo, OpenVLA and openpi read datasets of this project.

Runs if the environment variable LOADERS_PYTHON names a Python with some of them.
"""

import json
import os
import subprocess
from pathlib import Path

import dm_env
import numpy as np
import policies
import pytest
from dm_env import specs

import envlogger
import rlds.tfds
from rlds.transformations import compute_statistics
from rlds.validation import validate
from tfds_builders import build_from_logs

PEER = os.environ.get("LOADERS_PYTHON", "")
SCRIPT = Path(__file__).parent / "read_with_loaders.py"
ROOT = Path(__file__).parents[2]

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not PEER, reason="LOADERS_PYTHON names no Python with dlimp"),
]


class Arm(dm_env.Environment):
    """An arm whose values except images are float64, and that stops after some steps."""

    def __init__(self, length):
        self.rng, self.length = np.random.default_rng(length), length

    def observation_spec(self):
        state, image = specs.Array((4,), np.float64), specs.Array((16, 16, 3), np.uint8)
        return {"image": image, "state": state}

    def action_spec(self):
        return specs.Array((7,), np.float64)

    def observation(self):
        image = self.rng.integers(0, 256, (16, 16, 3), np.uint8)
        return {"image": image, "state": self.rng.normal(5.0, size=4)}

    def reset(self):
        self.num_left = self.length
        return dm_env.restart(self.observation())

    def step(self, action):
        self.num_left -= 1
        make = dm_env.transition if self.num_left else dm_env.termination
        return make(0.0 if self.num_left else 1.0, self.observation())


def record(directory, lengths):
    def add_instruction(timestep, action, env):
        return {"language_instruction": "pick it up"}

    for length in lengths:
        env = Arm(length)
        path = directory / str(length)
        path.mkdir(parents=True)
        with envlogger.EnvLogger(env, data_directory=path, step_fn=add_instruction) as env_logger:
            timestep = env_logger.reset()
            while not timestep.last():
                timestep = env_logger.step(env.rng.normal(size=7))


def read_with_loaders(data_dir, *names):
    """Returns the results of each loader for each dataset."""
    process = subprocess.run(
        [PEER, str(SCRIPT), str(data_dir), *names],
        check=True,
        env={"HOME": str(data_dir), "PATH": os.environ["PATH"]},
        stdout=subprocess.PIPE,
        text=True,
    )
    results = [json.loads(line) for line in process.stdout.splitlines() if line.startswith("{")]
    return {(result["dataset"], result["loader"]): result for result in results}


def array(plain):
    return np.array(plain["values"], plain["dtype"])


def check_statistics(actual, expected):
    assert array(actual["num_transitions"]) == expected.num_transitions
    assert array(actual["num_trajectories"]) == expected.num_trajectories
    for role, field in (("action", "action"), ("proprio", "observation/state")):
        for name in ("mean", "std", "min", "max"):
            value = getattr(expected[field], name)
            np.testing.assert_allclose(array(actual[role][name]), value, rtol=1e-5, atol=1e-6)


def test_all_loaders_read_logs_of_float64_converted_to_float32(tmp_path):
    for split, lengths in (("train", range(5, 9)), ("val", range(3, 5))):
        record(tmp_path / "logs" / split, lengths)
    logs = {split: str(tmp_path / "logs" / split) for split in ("train", "val")}
    exact = build_from_logs(logs, name="exact", data_dir=tmp_path, float64="bytes")
    rounded = build_from_logs(logs, name="rounded", data_dir=tmp_path, float64="float32")
    assert not validate(exact.data_path, profile="octo").is_valid
    assert validate(rounded.data_path, profile="octo").is_valid
    actual = read_with_loaders(tmp_path, "exact", "rounded")
    expected = compute_statistics(
        rlds.tfds.load(rounded, "train+val"), quantiles=(), include_last_action=True
    )
    recorded = {
        len(episode["steps"]["action"]): episode["steps"]
        for episode in rlds.tfds.load(exact).as_numpy_iterator()
    }
    loaders = {loader for _, loader in actual}
    assert "dlimp" in loaders
    for loader in loaders:
        result = actual["rounded", loader]
        assert "error" not in result, result["error"]
        statistics = result["statistics"]
        assert len(result["episodes"]) == len(recorded)
        for episode in result["episodes"]:
            action = array(episode["action"])
            steps = recorded[len(action)]
            action = action.reshape(len(action), 7)  # A history of one step.
            state = episode["observation"]["state" if statistics is None else "proprio"]
            state = array(state).reshape(len(action), 4)
            assert action.dtype == state.dtype == np.float32
            if statistics is None:
                np.testing.assert_array_equal(action, steps["action"].astype(np.float32))
                np.testing.assert_array_equal(
                    state, steps["observation"]["state"].astype(np.float32)
                )
                continue
            check_statistics(statistics, expected)
            for name, normalized, stored in (
                ("action", action, steps["action"]),
                ("proprio", state, steps["observation"]["state"]),
            ):
                mean, std = (array(statistics[name][statistic]) for statistic in ("mean", "std"))
                np.testing.assert_allclose(normalized * std + mean, stored, rtol=1e-4, atol=1e-5)
        # The reason for the option `float64`.
        unrounded = actual["exact", loader]
        if statistics is None:
            assert unrounded["episodes"][0]["action"]["dtype"] == "bytes"
        else:
            assert "Cast string to float is not supported" in unrounded["error"]


def test_feeds_yield_the_samples_of_the_loaders(tmp_path):
    """The golden files, regenerated by the current loaders and with newly drawn goals."""
    subprocess.run(
        [PEER, str(ROOT / "tests" / "golden" / "make_policies.py"), str(tmp_path)],
        check=True,
        env={"HOME": str(tmp_path), "PATH": os.environ["PATH"], "PYTHONPATH": str(ROOT)},
        stdout=subprocess.PIPE,
    )
    names = {path.stem for path in tmp_path.glob("*.npz")}
    assert names
    assert set(policies.check_samples(tmp_path)) == names
    files = {path.stem for path in tmp_path.glob("*.json")} - {"openpi"}
    assert set(policies.check_files(tmp_path)) == files
