"""Conversion of logs of the published envlogger 1.2.

Runs if the environment variable ENVLOGGER_PYTHON names a Python with `envlogger==1.2`.
"""

import os
import subprocess
from pathlib import Path

import numpy as np
import pytest

import envlogger
import rlds.tfds
from envlogger.converters.rlds_episode import to_rlds_episode
from tfds_builders import build_from_logs, episodes_from_logs

PEER = os.environ.get("ENVLOGGER_PYTHON", "")

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not PEER, reason="ENVLOGGER_PYTHON names no Python with envlogger 1.2"),
]


def test_logs_of_envlogger_1_2_become_datasets(tmp_path):
    logs = tmp_path / "logs"
    logs.mkdir()
    script = Path(__file__).parent / "record_with_envlogger.py"
    subprocess.run([PEER, str(script), str(logs)], check=True, env={})
    builder = build_from_logs(logs, name="counting", data_dir=tmp_path)
    assert builder.info.metadata["who"] == "the original"
    converted = list(rlds.tfds.load(builder, "train").as_numpy_iterator())
    streamed = list(episodes_from_logs(logs, layout="batched").as_numpy_iterator())
    with envlogger.Reader(str(logs)) as reader:
        assert len(converted) == len(streamed) == len(reader.episodes) == 4
        for index, episode in enumerate(reader.episodes):
            expected = to_rlds_episode(episode)
            for dataset_episode in (converted[index], streamed[index]):
                for name in ("action", "reward", "discount", "is_terminal", "last"):
                    np.testing.assert_array_equal(dataset_episode["steps"][name], expected[name])
                    assert dataset_episode["steps"][name].dtype == expected[name].dtype
                for name, column in expected["observation"].items():
                    np.testing.assert_array_equal(
                        dataset_episode["steps"]["observation"][name], column
                    )
                assert dataset_episode["reward"] == reader.episode_metadata()[index]["reward"]
                assert dataset_episode["complete"]
                assert dataset_episode["truncated"] == (index % 2 == 0)
    counts = [episode["steps"]["observation"]["count"][:, 0].tolist() for episode in converted]
    assert counts == [[4 * index + step + 1 for step in range(4)] for index in range(4)]
