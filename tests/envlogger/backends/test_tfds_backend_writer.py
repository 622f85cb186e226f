"""Recording to TFDS datasets: episodes are read back, also after a crash."""

import dataclasses
import pathlib
import shutil
import signal
import textwrap

import dm_env
import forked
import numpy as np
import pytest
import tensorflow_datasets as tfds

import envlogger
import rlds.sources
from envlogger import StepData
from envlogger.backends import rlds_utils, tfds_backend_testlib
from envlogger.backends.tfds_backend_writer import DatasetConfig, Episode, TFDSBackendWriter
from envlogger.errors import (
    InvalidStepError,
    StorageError,
    UnsupportedTypeError,
    UnsupportedValueError,
)
from envlogger.testing.catch_env import Catch
from rlds_ecosystem.model.columns import stack_values

FLOAT64 = tfds.features.Tensor(shape=(), dtype=np.float64, encoding="bytes")
CONFIG = DatasetConfig(
    name="counting",
    observation_info={"count": np.int64, "exact": FLOAT64},
    action_info=np.int32,
    reward_info=FLOAT64,
    discount_info=FLOAT64,
)
WITH_METADATA = dataclasses.replace(
    CONFIG, episode_metadata_info={"operator": tfds.features.Text(), "trial": np.int64}
)


def observation(count):
    return {"count": count, "exact": count / 3}


def first(count):
    return StepData(dm_env.restart(observation(count)), None)


def mid(count):
    return StepData(dm_env.transition(count / 7, observation(count)), count)


def last(count):
    return StepData(dm_env.termination(count / 7, observation(count)), count)


def record_episode(writer, begin, num_steps=3):
    writer.record_step(first(begin), is_new_episode=True)
    for count in range(begin + 1, begin + num_steps - 1):
        writer.record_step(mid(count), is_new_episode=False)
    writer.record_step(last(begin + num_steps - 1), is_new_episode=False)


def load(directory, split="train"):
    """Reads a dataset as columns: one dict for each episode."""
    dataset = tfds.builder_from_directory(directory).as_dataset(split=split)
    return [
        {
            **{name: value.numpy() for name, value in episode.items() if name != "steps"},
            "steps": stack_values(list(episode["steps"].as_numpy_iterator())),
        }
        for episode in dataset
    ]


def read_counts(directory, split="train"):
    return [e["steps"]["observation"]["count"].tolist() for e in load(directory, split)]


def shard_lengths(directory, split="train"):
    return tfds.builder_from_directory(directory).info.splits[split].shard_lengths


def list_files(directory):
    return sorted(path.name for path in directory.iterdir())


@pytest.mark.slow
def test_a_recorded_episode_has_the_fields_and_flags_of_rlds(tmp_path):
    with TFDSBackendWriter(tmp_path, CONFIG) as writer:
        record_episode(writer, 10)
    (episode,) = load(tmp_path)
    steps = episode["steps"]
    np.testing.assert_equal(
        {name: steps[name] for name in ("action", "reward", "discount")},
        {
            "action": np.array([11, 12, 0], np.int32),
            "reward": np.array([11 / 7, 12 / 7, 0]),
            "discount": np.array([1.0, 0.0, 0.0]),
        },
    )
    assert steps["is_first"].tolist() == [True, False, False]
    assert steps["is_last"].tolist() == steps["is_terminal"].tolist() == [False, False, True]
    # Without the rounding to 32 bits that TFDS does by default.
    np.testing.assert_array_equal(steps["observation"]["exact"], [10 / 3, 11 / 3, 4])


@pytest.mark.slow
def test_float64_is_rounded_on_request_or_with_a_warning(tmp_path):
    with TFDSBackendWriter(tmp_path, CONFIG, float64="float32") as writer:
        record_episode(writer, 10)
    decoders = {"steps": tfds.decode.SkipDecoding()}
    dataset = tfds.builder_from_directory(tmp_path).as_dataset("train", decoders=decoders)
    ((episode),) = dataset.as_numpy_iterator()
    reward = episode["steps"]["reward"]
    assert reward.dtype == np.float32
    assert reward.tolist() == np.float32([11 / 7, 12 / 7, 0]).tolist()
    plain = dataclasses.replace(CONFIG, name="plain", reward_info=np.float64)
    (tmp_path / "plain").mkdir()
    with pytest.warns(UserWarning, match="float64 of reward_info to float32") as warned:
        TFDSBackendWriter(tmp_path / "plain", plain).close()
    assert warned[0].filename == __file__


@pytest.mark.slow
def test_numbers_of_python_have_the_dtype_of_their_feature(tmp_path):
    config = DatasetConfig(
        name="plain",
        observation_info=tfds.features.Tensor(shape=(2,), dtype=np.float32),
        action_info=tfds.features.Tensor(shape=(2,), dtype=np.float32),
        reward_info=np.float32,
        discount_info=np.float32,
        step_metadata_info={"timestamp": np.float32},
        episode_metadata_info={"gain": np.float32},
    )

    def steps(action=(0.1, 0.2), stamp=0.3):
        custom = {"timestamp": stamp}
        yield StepData(dm_env.restart([0.5, 1.7]), None, custom)
        yield StepData(dm_env.termination(0.7, [0.5, 1.7]), list(action), custom)

    with TFDSBackendWriter(tmp_path, config) as writer:
        for index, step in enumerate(steps()):
            writer.record_step(step, is_new_episode=index == 0)
        writer.set_episode_metadata({"gain": 0.1})
        for name in ("_write_and_reset_episode", "_sequential_writer"):
            assert not hasattr(writer, name)
    [episode] = load(tmp_path)
    assert episode["gain"] == np.float32(0.1)
    columns = episode["steps"]
    assert columns["action"].tolist() == np.float32([[0.1, 0.2], [0, 0]]).tolist()
    assert columns["reward"].tolist() == np.float32([0.7, 0]).tolist()
    assert columns["timestamp"].tolist() == np.float32([0.3, 0.3]).tolist()
    assert columns["observation"].tolist() == np.float32([[0.5, 1.7]] * 2).tolist()
    defaults = {"gain": 0.1}
    with TFDSBackendWriter(
        tmp_path / "refused", config, episode_metadata_defaults=defaults
    ) as writer:
        for changes in ({"stamp": np.float64(0.3)}, {"stamp": 1e300}, {"action": [0.1]}):
            with pytest.raises(InvalidStepError, match="expected float32"):
                for index, step in enumerate(steps(**changes)):
                    writer.record_step(step, is_new_episode=index == 0)


def test_an_episode_cut_by_a_reset_ends_without_a_terminal_step(tmp_path):
    with TFDSBackendWriter(tmp_path, CONFIG) as writer:
        writer.record_step(first(0), is_new_episode=True)
        writer.record_step(first(1), is_new_episode=True)
        writer.record_step(mid(2), is_new_episode=False)
    single_step, cut_steps = (episode["steps"] for episode in load(tmp_path))
    assert single_step["is_first"].tolist() == single_step["is_last"].tolist() == [True]
    assert (single_step["action"].tolist(), single_step["reward"].tolist()) == ([0], [0.0])
    assert cut_steps["is_last"].tolist() == [False, True]
    assert not cut_steps["is_terminal"].any()


def test_observations_can_be_recorded_without_actions_and_rewards(tmp_path):
    config = DatasetConfig(name="video", observation_info=np.int64)
    with TFDSBackendWriter(tmp_path, config) as writer:
        for index in range(3):
            timestep = dm_env.TimeStep(dm_env.StepType(min(index, 1)), None, None, index)
            writer.record_step(StepData(timestep, None), is_new_episode=index != 1)
    episodes = [episode["steps"] for episode in load(tmp_path)]
    assert [steps["observation"].tolist() for steps in episodes] == [[0, 1], [2]]
    assert set(episodes[0]) == {"observation", "is_first", "is_last", "is_terminal"}


@pytest.mark.slow
@pytest.mark.parametrize(("max_episodes", "lengths"), [(2, [2, 2, 1]), (5, [5]), (1, [1] * 5)])
def test_a_file_has_at_most_max_episodes_per_file_episodes(tmp_path, max_episodes, lengths):
    with TFDSBackendWriter(tmp_path, CONFIG, max_episodes_per_file=max_episodes) as writer:
        for begin in range(0, 50, 10):
            record_episode(writer, begin)
    assert shard_lengths(tmp_path) == lengths
    assert read_counts(tmp_path) == [[n, n + 1, n + 2] for n in range(0, 50, 10)]
    shards = [f"counting-train.tfrecord-{i:05}" for i in range(len(lengths))]
    assert list_files(tmp_path) == [*shards, "dataset_info.json", "features.json"]


@pytest.mark.slow
def test_ended_episodes_are_visible_after_the_flush_interval(tmp_path):
    with TFDSBackendWriter(tmp_path, CONFIG, flush_interval=1e-9) as writer:
        for begin in (0, 10, 20):
            record_episode(writer, begin)
        assert read_counts(tmp_path) == [[0, 1, 2], [10, 11, 12]]


@pytest.mark.slow
def test_strings_images_and_labels_are_read_back(tmp_path):
    config = DatasetConfig(
        name="arm",
        observation_info={"image": tfds.features.Image(shape=(2, 3, 3)), "place": np.str_},
        action_info=tfds.features.Text(),
        reward_info=np.float32,
        discount_info=np.float32,
        step_metadata_info={"phase": tfds.features.ClassLabel(names=["reach", "grasp"])},
    )
    image = np.arange(18, dtype=np.uint8).reshape(2, 3, 3)
    value = {"image": image, "place": "b\u00fcro"}
    with TFDSBackendWriter(tmp_path, config) as writer:
        writer.record_step(StepData(dm_env.restart(value), None, {"phase": "reach"}), True)
        step = dm_env.termination(np.float32(1), value)
        writer.record_step(StepData(step, "pick up", {"phase": "grasp"}), False)
    (episode,) = tfds.builder_from_directory(tmp_path).as_dataset(split="train")
    begin, end = episode["steps"].as_numpy_iterator()
    np.testing.assert_array_equal(end["observation"]["image"], image)
    assert begin["observation"]["place"].decode() == "b\u00fcro"
    assert (begin["action"], end["action"]) == (b"pick up", b"")
    assert (begin["phase"], end["phase"]) == (0, 1)


@pytest.mark.slow
def test_episode_metadata_is_stored_and_missing_fields_take_their_defaults(tmp_path):
    defaults = {"operator": "nobody"}
    with TFDSBackendWriter(tmp_path, WITH_METADATA, episode_metadata_defaults=defaults) as writer:
        for trial in (0, 1):
            record_episode(writer, 10 * trial)
            writer.set_episode_metadata({"trial": trial})
        writer.set_episode_metadata({"trial": 7, "operator": "Ada"})
    metadata = [(episode["operator"], episode["trial"]) for episode in load(tmp_path)]
    assert metadata == [(b"nobody", 0), (b"Ada", 7)]


@pytest.mark.slow
def test_missing_metadata_is_marked_where_the_config_has_a_mark(tmp_path):
    info = {"seed": np.int64, "seed_known": np.bool_}
    config = dataclasses.replace(WITH_METADATA, episode_metadata_info=info)
    with TFDSBackendWriter(tmp_path, config) as writer:
        record_episode(writer, 0)
        writer.set_episode_metadata({"seed": 7})
        record_episode(writer, 10)
    metadata = [(int(episode["seed"]), bool(episode["seed_known"])) for episode in load(tmp_path)]
    assert metadata == [(7, True), (0, False)]


def test_episodes_that_are_cut_short_are_marked_where_the_config_has_a_mark(tmp_path):
    config = dataclasses.replace(CONFIG, episode_metadata_info={"complete": np.bool_})
    with TFDSBackendWriter(tmp_path / "marked", config) as writer:
        record_episode(writer, 0)
        writer.record_step(first(10), is_new_episode=True)
        writer.record_step(mid(11), is_new_episode=False)
        record_episode(writer, 20)
        record_episode(writer, 30)
        writer.set_episode_metadata({"complete": False})
    episodes = rlds.sources.open(tmp_path / "marked")
    assert [episode.complete for episode in episodes] == [True, False, True, False]
    text = dataclasses.replace(CONFIG, episode_metadata_info={"complete": tfds.features.Text()})
    with TFDSBackendWriter(tmp_path / "text", text) as writer:
        record_episode(writer, 0)
        writer.set_episode_metadata({"complete": "hardly"})
    assert [episode["complete"] for episode in load(tmp_path / "text")] == [b"hardly"]


def test_an_episode_without_its_metadata_is_refused(tmp_path):
    writer = TFDSBackendWriter(tmp_path, WITH_METADATA)
    record_episode(writer, 0)
    writer.set_episode_metadata({"trial": 1, "operator": "Ada"})
    record_episode(writer, 10)
    with pytest.raises(
        UnsupportedValueError, match=r"metadata lacks \['operator', 'trial'\]; call"
    ):
        writer.close()
    writer.close()
    assert read_counts(tmp_path) == [[0, 1, 2]]


def test_metadata_that_does_not_fit_is_refused_at_once(tmp_path):
    with TFDSBackendWriter(tmp_path, WITH_METADATA) as writer:
        record_episode(writer, 0)
        with pytest.raises(UnsupportedValueError, match="episode 0, trial: got str"):
            writer.set_episode_metadata({"trial": "one"})
        with pytest.raises(UnsupportedValueError, match="episode 0, seed: got a field"):
            writer.set_episode_metadata({"seed": 1})
        with pytest.raises(UnsupportedTypeError, match="must be a dict"):
            writer.set_episode_metadata(7)
        writer.set_episode_metadata({"trial": 1, "operator": "Ada"})
    assert len(read_counts(tmp_path)) == 1


@pytest.mark.parametrize(
    ("step", "message"),
    [
        (mid(1)._replace(action=1.5), "episode 1, step 1, action: got float64.*expected int32"),
        (mid(1)._replace(action=2**40), "episode 1, step 1, action: got int64"),
        (mid(1)._replace(action=2**70), "episode 1, step 1, action: .* does not fit int64"),
        (mid(1)._replace(action={1}), "episode 1, step 1, action: "),
        (mid(1)._replace(action=None), "episode 1, step 1, action: got nothing"),
        (mid(1)._replace(custom_data={"extra": 1}), "episode 1, step 1, extra: got a field"),
        (
            mid(1)._replace(custom_data={"reward": 1}),
            r"has \['reward'\], the names of other fields",
        ),
        (mid(1)._replace(custom_data=[1]), "custom data of a step must be a dict"),
        (StepData(dm_env.transition(1.0, {"count": 1}), 1), "step 1, observation/exact: got noth"),
        (StepData(dm_env.transition("1", observation(1)), 1), "step 1, reward: got str"),
    ],
)
def test_a_step_that_does_not_fit_is_refused_at_once(tmp_path, step, message):
    with TFDSBackendWriter(tmp_path, CONFIG) as writer:
        record_episode(writer, 0)
        writer.record_step(first(10), is_new_episode=True)
        with pytest.raises((InvalidStepError, UnsupportedTypeError), match=message):
            writer.record_step(step, is_new_episode=False)
        writer.record_step(last(11), is_new_episode=False)
    assert read_counts(tmp_path) == [[0, 1, 2], [10, 11]]


def test_a_dataset_without_episodes_has_its_metadata(tmp_path):
    with TFDSBackendWriter(tmp_path, CONFIG):
        pass
    assert list_files(tmp_path) == ["dataset_info.json", "features.json"]
    assert shard_lengths(tmp_path) == []


def test_dataset_metadata_is_stored_and_kept_when_a_writer_appends(tmp_path):
    metadata = {"agent": "random", "gains": np.array([1, 2]), "robot": {"arm": np.float32(0.5)}}
    with TFDSBackendWriter(tmp_path, CONFIG, metadata=metadata, store_ds_metadata=True) as writer:
        record_episode(writer, 0)
    stored = tfds.builder_from_directory(tmp_path).info.metadata
    assert stored == {"agent": "random", "gains": [1, 2], "robot": {"arm": 0.5}}
    with TFDSBackendWriter(tmp_path, CONFIG, metadata=metadata, store_ds_metadata=True) as writer:
        record_episode(writer, 10)
    with pytest.warns(UserWarning, match="keeps its metadata"):
        TFDSBackendWriter(tmp_path, CONFIG, metadata={}, store_ds_metadata=True).close()
    assert tfds.builder_from_directory(tmp_path).info.metadata["agent"] == "random"
    assert len(read_counts(tmp_path)) == 2


@pytest.mark.parametrize("metadata", [{"agent": object()}, {"agent": b"\xff"}])
def test_metadata_that_json_cannot_hold_is_refused(tmp_path, metadata):
    with pytest.raises(
        ValueError if metadata["agent"] == b"\xff" else TypeError, match="metadata/"
    ):
        TFDSBackendWriter(tmp_path, CONFIG, metadata=metadata, store_ds_metadata=True)
    TFDSBackendWriter(tmp_path, CONFIG, metadata=metadata).close()  # It is not stored.


def test_invalid_arguments_are_refused(tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(StorageError, match="file is not a directory"):
        TFDSBackendWriter(tmp_path / "file", CONFIG)
    with pytest.raises(ValueError, match="max_episodes_per_file must be positive"):
        TFDSBackendWriter(tmp_path, CONFIG, max_episodes_per_file=0)
    with pytest.raises(ValueError, match="flush_interval must be positive"):
        TFDSBackendWriter(tmp_path, CONFIG, flush_interval=0)


def test_a_deleted_directory_raises_a_storage_error(tmp_path):
    directory = tmp_path / "gone"
    directory.mkdir()
    writer = TFDSBackendWriter(directory, CONFIG, max_episodes_per_file=1)
    record_episode(writer, 0)
    for path in directory.iterdir():
        path.unlink()
    directory.rmdir()
    with pytest.raises(StorageError, match=r"cannot write .*gone"):
        record_episode(writer, 10)
    writer._steps = []
    writer.close()


RECORDER = f"""
    import os, sys
    sys.path.insert(0, {str(pathlib.Path(__file__).parent)!r})
    from test_tfds_backend_writer import *

    writer = TFDSBackendWriter(sys.argv[1], CONFIG, max_episodes_per_file=2)

    def record(begin, **kwargs):
        record_episode(writer, begin, **kwargs)
"""


def run_recorder(directory, script):
    return forked.run(textwrap.dedent(RECORDER) + textwrap.dedent(script), directory)


KILLED_RECORDER = """
    for begin in range(0, 50, 10):
        record(begin)
    record(50, num_steps=2)
    os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.fixture(scope="module")
def killed_dataset(tmp_path_factory):
    directory = tmp_path_factory.mktemp("killed")
    assert run_recorder(directory, KILLED_RECORDER).returncode == -signal.SIGKILL
    return directory


def test_a_kill_loses_the_running_episode_only(killed_dataset, tmp_path):
    shutil.copytree(killed_dataset, tmp_path, dirs_exist_ok=True)
    assert read_counts(tmp_path) == [[0, 1, 2], [10, 11, 12], [20, 21, 22], [30, 31, 32]]
    builder = tfds.builder_from_directory(tmp_path)
    assert rlds_utils.maybe_recover_last_shard(builder) is builder
    assert builder.info.splits["train"].shard_lengths == [2, 2, 1]
    assert read_counts(tmp_path)[4] == [40, 41, 42]
    rlds_utils.maybe_recover_last_shard(builder)
    assert shard_lengths(tmp_path) == [2, 2, 1]


@pytest.mark.slow
def test_the_next_writer_recovers_a_killed_dataset(killed_dataset, tmp_path):
    shutil.copytree(killed_dataset, tmp_path, dirs_exist_ok=True)
    with pytest.warns(UserWarning, match="added 1 episodes to the split 'train'"):
        writer = TFDSBackendWriter(tmp_path, CONFIG)
    record_episode(writer, 60)
    writer.close()
    assert [episode[0] for episode in read_counts(tmp_path)] == [0, 10, 20, 30, 40, 60]


@pytest.mark.slow
def test_the_exit_of_a_process_stores_all_episodes(tmp_path):
    result = run_recorder(tmp_path, "record(0)\nrecord(10)\nrecord(20, num_steps=2)")
    assert result.returncode == 0
    assert "Traceback" not in result.stderr
    assert "Exception" not in result.stderr
    assert read_counts(tmp_path) == [[0, 1, 2], [10, 11, 12], [20, 21]]


@pytest.mark.slow
def test_a_forked_process_does_not_write_for_its_parent(tmp_path):
    result = run_recorder(
        tmp_path,
        """
        record(0)
        record(10)
        child = os.fork()
        if not child:
            sys.exit()
        os.waitpid(child, 0)
        record(20)
        writer.close()
        """,
    )
    assert result.returncode == 0, result.stderr
    assert read_counts(tmp_path) == [[0, 1, 2], [10, 11, 12], [20, 21, 22]]


@pytest.mark.slow
def test_recording_goes_on_after_a_full_disk(tmp_path):
    result = run_recorder(
        tmp_path,
        """
        import resource

        writer.close()
        writer = TFDSBackendWriter(sys.argv[1], CONFIG)
        record(0)
        record(10)
        record(20)
        limits = resource.getrlimit(resource.RLIMIT_FSIZE)
        resource.setrlimit(resource.RLIMIT_FSIZE, (900, limits[1]))
        try:
            for begin in range(30, 100, 10):
                record(begin)
        except StorageError as e:
            print(begin, e)
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
        record(200)
        writer.close()
        """,
    )
    assert result.returncode == 0, result.stderr
    begin = int(result.stdout.split()[0])
    assert f"episode {begin // 10 - 1} is not stored, but all before it are: " in result.stdout
    # The call that begins an episode stores the one before it.
    assert [episode[0] for episode in read_counts(tmp_path)] == [*range(0, begin - 10, 10), 200]
    assert not list(tmp_path.glob(".*"))


@pytest.mark.parametrize("num_bytes", [1, 20])
def test_a_torn_shard_is_recovered(tmp_path, num_bytes):
    with TFDSBackendWriter(tmp_path, CONFIG) as writer:
        for begin in (0, 10, 20):
            record_episode(writer, begin)
    shard = tmp_path / "counting-train.tfrecord-00000"
    content = shard.read_bytes()
    for path in tmp_path.iterdir():
        path.unlink()
    TFDSBackendWriter(tmp_path, CONFIG).close()
    # Other writers name a shard before it is complete.
    shard.write_bytes(content[:-num_bytes])
    rlds_utils.maybe_recover_last_shard(tfds.builder_from_directory(tmp_path))
    assert read_counts(tmp_path) == [[0, 1, 2], [10, 11, 12]]
    (torn_bytes,) = tmp_path.glob(".*.torn")
    assert shard.read_bytes() + torn_bytes.read_bytes() == content[:-num_bytes]


@pytest.mark.parametrize("as_instance", [False, True])
def test_envlogger_records_an_environment_to_a_tfds_dataset(tmp_path, as_instance):
    config = tfds_backend_testlib.catch_env_tfds_config()
    options = {"data_directory": tmp_path, "ds_config": config, "float64": "bytes"}
    writer = {"backend": TFDSBackendWriter, **options}
    if as_instance:
        writer = {"backend": TFDSBackendWriter(**options)}
    with envlogger.EnvLogger(
        Catch(),
        step_fn=lambda *_: {"timestamp": 1},
        episode_fn=lambda *_: {"episode_id": 5},
        **writer,
    ) as env:
        for _ in range(2):
            timestep = env.reset()
            while not timestep.last():
                timestep = env.step(1)
    episodes = load(tmp_path)
    assert [episode["episode_id"] for episode in episodes] == [5, 5]
    assert episodes[0]["steps"]["observation"].shape == (10, 10, 5)
    assert episodes[0]["steps"]["timestamp"].tolist() == [1] * 10


def test_episodes_of_random_play_are_read_back(tmp_path):
    episodes = tfds_backend_testlib.generate_episode_data(
        tfds_backend_testlib.tfds_backend_catch_env(tmp_path, max_episodes_per_file=2), 3
    )
    for steps, episode in zip(episodes, load(tmp_path), strict=True):
        boards = [step.timestep.observation for step in steps]
        np.testing.assert_array_equal(episode["steps"]["observation"], boards)
        actions = [step.action for step in steps[1:]]
        assert episode["steps"]["action"].tolist() == [*actions, 0]


def test_an_episode_built_step_by_step_has_the_fields_of_rlds():
    episode = Episode(first(0))
    episode.add_step(mid(1))
    episode.add_step(last(2))
    steps = episode.get_rlds_episode()["steps"]
    assert [step["action"] for step in steps] == [1, 2, 0]
    assert [step["is_last"] for step in steps] == [False, False, True]
    assert [step["is_terminal"] for step in steps] == [False, False, True]
    assert Episode(last(0), metadata={"id": 3}).get_rlds_episode()["id"] == 3
