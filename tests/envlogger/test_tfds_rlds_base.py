"""`tensorflow_datasets.rlds.rlds_base`, which reads recordings through `import envlogger`."""

import dm_env
import numpy as np
import pytest
import tensorflow_datasets as tfds
from etils import epath
from tensorflow_datasets.rlds import envlogger_reader, rlds_base

import envlogger
from envlogger import StepData
from envlogger.callbacks import EpisodeStatistics
from envlogger.testing.catch_env import Catch

CONFIG = rlds_base.DatasetConfig(
    name="catch",
    observation_info=tfds.features.Tensor(shape=(10, 5), dtype=np.float32),
    action_info=np.int64,
    reward_info=np.float64,
    discount_info=np.float64,
    step_metadata_info={"column": np.int64},
    episode_metadata_info={"return": np.float64, "length": np.int64, "seconds": np.float64},
)


class CatchLogs(tfds.core.GeneratorBasedBuilder, skip_registration=True):
    """A builder as in the documentation of TFDS."""

    VERSION = tfds.core.Version("1.0.0")
    BUILDER_CONFIGS = (CONFIG,)
    url_infos = None
    logs = None

    def _info(self):
        return rlds_base.build_info(self.builder_config, self)

    def _split_generators(self, dl_manager):
        return {"train": self._generate_examples(epath.Path(self.logs))}

    def _generate_examples(self, path):
        return rlds_base.generate_examples(path)


@pytest.fixture
def logs(tmp_path):
    root = tmp_path / "logs"
    for name in ("agent_0", "agent_1"):
        (root / name).mkdir(parents=True)
        with envlogger.EnvLogger(
            Catch(seed=len(name)),
            data_directory=root / name,
            step_fn=lambda timestep, *_: {"column": int(timestep.observation.argmax()) % 5},
            episode_fn=EpisodeStatistics(),
            max_episodes_per_file=2,
        ) as env:
            for _ in range(3):
                timestep = env.reset()
                while not timestep.last():
                    timestep = env.step(2)
    return root


def test_examples_have_the_steps_of_the_logs(logs):
    examples = dict(rlds_base.generate_examples(epath.Path(logs)))
    assert sorted(examples) == [f"agent_{i}/{j}" for i in range(2) for j in range(3)]
    episode = examples["agent_0/0"]
    assert episode["length"] == 9
    assert len(episode["steps"]["observation"]) == len(episode["steps"]["column"]) == 10
    assert episode["steps"]["action"] == [2] * 9 + [0]
    assert episode["steps"]["is_terminal"] == [False] * 9 + [True]


@pytest.mark.slow
def test_a_builder_builds_a_dataset_from_logs(logs, tmp_path, monkeypatch):
    monkeypatch.setattr(CatchLogs, "logs", logs)
    builder = CatchLogs(data_dir=tmp_path / "data", config="catch")
    builder.download_and_prepare()
    episodes = list(builder.as_dataset(split="train"))
    assert len(episodes) == 6
    for episode in episodes:
        steps = list(episode["steps"].as_numpy_iterator())
        assert [step["is_first"] for step in steps] == [True] + [False] * 9
        assert sum(step["reward"] for step in steps) == episode["return"].numpy()


def test_an_episode_of_one_step_is_converted(tmp_path):
    with envlogger.RiegeliBackendWriter(tmp_path) as writer:
        step = StepData(dm_env.restart(np.zeros(2)), None, {"episode_metadata": {"id": 1}})
        writer.record_step(step, is_new_episode=True)
    with envlogger.Reader(tmp_path) as reader:
        (episode,) = envlogger_reader.generate_episodes(reader)
    assert episode["id"] == 1
    assert episode["steps"]["is_last"] == [True]
