"""Conversion of RLDS datasets to recordings."""

import dm_env
import numpy as np
import pytest
import tensorflow as tf
import tensorflow_datasets as tfds
from absl import app, flags
from dm_env import specs

import envlogger
from envlogger import StepData
from envlogger.backends.tfds_backend_writer import DatasetConfig, TFDSBackendWriter
from envlogger.tools import convert_tfds_to_riegeli as tool

CONFIG = DatasetConfig(
    name="counting",
    observation_info={"count": np.int64, "text": tfds.features.Text()},
    action_info=np.int32,
    reward_info=np.float64,
    discount_info=np.float32,
    step_metadata_info={"stage": np.int64},
    episode_metadata_info={"operator": tfds.features.Text()},
)


def step(count, *, kind, discount=1.0):
    observation = {"count": count, "text": str(count)}
    timestep = dm_env.TimeStep(kind, count / 3, discount, observation)
    return StepData(timestep, count, {"stage": count})


def record(directory, episodes, **options):
    """Records episodes with a first count, a length and a last discount each."""
    with TFDSBackendWriter(directory, CONFIG, float64="bytes", **options) as writer:
        for begin, num_steps, discount in episodes:
            for i in range(num_steps):
                kind = dm_env.StepType.MID if i else dm_env.StepType.FIRST
                if i and i == num_steps - 1:
                    writer.record_step(
                        step(begin + i, kind=dm_env.StepType.LAST, discount=discount), False
                    )
                else:
                    writer.record_step(step(begin + i, kind=kind), is_new_episode=i == 0)
            writer.set_episode_metadata({"operator": f"number {begin}"})


def dataset(directory):
    return tfds.builder_from_directory(directory).as_dataset(split="train")


@pytest.fixture
def source(tmp_path):
    (tmp_path / "source").mkdir()
    return tmp_path / "source"


@pytest.mark.slow
def test_recorded_episodes_survive_the_conversion(source, tmp_path):
    record(source, [(0, 4, 0.0), (10, 3, 1.0), (20, 1, 1.0)])
    tool.convert_tf_dataset_to_riegeli(
        dataset(source), str(tmp_path / "new"), max_episode_steps=3, metadata={"robot": "arm"}
    )
    with envlogger.Reader(tmp_path / "new") as reader:
        assert reader.metadata()["robot"] == "arm"
        assert reader.observation_spec() == {
            "count": specs.Array((), np.int64),
            "text": specs.StringArray((), bytes),
        }
        assert reader.action_spec() == specs.Array((), np.int32)
        assert [metadata["operator"] for metadata in reader.episode_metadata()] == [
            b"number 0",
            b"number 10",
            b"number 20",
        ]
        terminated, truncated, single_step = reader.episodes
        assert [s.timestep.observation["count"] for s in terminated] == [0, 1, 2, 3]
        assert [s.timestep.observation["text"] for s in terminated] == [b"0", b"1", b"2", b"3"]
        assert [s.timestep.reward for s in terminated] == [None, 1 / 3, 2 / 3, 1.0]
        assert [s.timestep.discount for s in terminated] == [None, 1, 1, 0]
        assert [s.action for s in terminated] == [None, 1, 2, 3]
        assert [s.custom_data["stage"] for s in terminated] == [0, 1, 2, 3]
        assert type(terminated[-1].timestep.discount) is np.float32
        assert [s.timestep.discount for s in truncated] == [None, 1, 1]
        assert truncated[-1].timestep.last()
        assert [s.timestep.step_type for s in single_step] == [dm_env.StepType.FIRST]


def columns(**fields):
    steps = {
        "observation": np.arange(3),
        "action": np.arange(3),
        "reward": np.arange(3.0),
        "discount": np.ones(3),
        "is_terminal": np.zeros(3, bool),
    }
    return {name: value for name, value in {**steps, **fields}.items() if value is not None}


def test_an_episode_without_is_last_ends_in_a_mid_step():
    timesteps, _, _ = tool.convert_episode_to_dmenv(columns(is_last=np.zeros(3, bool)))
    assert timesteps[-1].mid()
    timesteps, _, _ = tool.convert_episode_to_dmenv(columns())
    assert timesteps[-1].last()


def test_discounts_of_several_agents_are_converted():
    discount = {"a": np.ones(3, np.float32), "b": np.full((3, 2), 0.5)}
    timesteps, _, _ = tool.convert_episode_to_dmenv(
        columns(discount=discount, is_terminal=np.arange(3) == 2)
    )
    np.testing.assert_equal(timesteps[1].discount, {"a": 1.0, "b": np.full(2, 0.5)})
    np.testing.assert_equal(timesteps[2].discount, {"a": np.float32(0), "b": np.zeros(2)})
    assert timesteps[2].discount["a"].dtype == np.float32


def test_steps_without_rewards_or_discounts_are_refused():
    with pytest.raises(ValueError, match=r"the steps lack \['reward', 'discount'\]"):
        tool.convert_episode_to_dmenv(columns(reward=None, discount=None))


def test_datasets_without_episodes_or_steps_are_refused(tmp_path):
    steps = tf.data.Dataset.from_tensor_slices(columns()).take(0)
    empty = tf.data.Dataset.from_tensors(0).map(lambda _: {"steps": steps})
    with pytest.raises(ValueError, match="episode 0 has no steps"):
        tool.convert_tf_dataset_to_riegeli(empty, str(tmp_path / "new"))
    with pytest.raises(ValueError, match="has no episodes"):
        tool.convert_tf_dataset_to_riegeli(empty.take(0), str(tmp_path / "new"))
    assert not (tmp_path / "new").exists()


def run(*arguments):
    flags.FLAGS.unparse_flags()
    tool.main(flags.FLAGS(["convert_tfds_to_riegeli", *arguments]))


def test_the_program_keeps_steps_and_metadata(source, tmp_path):
    record(source, [(0, 4, 0.0)], metadata={"robot": "arm"}, store_ds_metadata=True)
    run(f"--tfds_dir={source}", f"--output_dir={tmp_path / 'new'}", "--split=train")
    with envlogger.Reader(tmp_path / "new") as reader:
        assert len(reader.steps) == 4
        assert reader.metadata()["robot"] == "arm"


def test_invalid_arguments_are_refused(tmp_path):
    with pytest.raises(app.UsageError, match="unknown arguments"):
        run("--tfds_dir=x", "--output_dir=y", "z")
    with pytest.raises(app.UsageError, match="--output_dir is missing"):
        run("--tfds_dir=x", "--output_dir=")
    with pytest.raises(ValueError, match="which dataset to convert"):
        run("--tfds_dir=", f"--output_dir={tmp_path}")
