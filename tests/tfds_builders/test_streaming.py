import pickle
from concurrent.futures import ThreadPoolExecutor

import dm_env
import hostile_sources
import ml_dtypes
import numpy as np
import pytest
import tensorflow as tf
import tensorflow_datasets as tfds
from dm_env import specs
from fast_share import one_in

import envlogger
from envlogger.backends.in_memory_backend import InMemoryBackendReader, InMemoryBackendWriter
from envlogger.converters import spec_codec
from rlds.sources import Episodes
from tfds_builders import (
    EnvLoggerSource,
    convert,
    episodes_from_logs,
    episodes_from_source,
    streaming,
)

tfds.disable_progress_bar()

LAYOUTS = pytest.mark.parametrize("layout", ["nested", "batched"])


# --- Helpers -------------------------------------------------------------------------------------


class Ticker(dm_env.Environment):
    """Its n-th episode takes n + 1 steps and observes n; every second one is truncated."""

    def __init__(self, first=0, rich=False):
        self.episode, self.rich = first - 1, rich

    def reset(self):
        self.episode, self.time = self.episode + 1, 0
        return dm_env.restart(self._observation())

    def step(self, action):
        self.time += 1
        if self.time <= self.episode:
            return dm_env.transition(self.time / 7, self._observation())
        end = dm_env.truncation if self.episode % 2 else dm_env.termination
        return end(self.time / 7, self._observation())

    def _observation(self):
        value = np.int64(self.episode)
        if not self.rich:
            return value
        rng = np.random.default_rng([self.episode + 1, self.time])
        return {
            "image": rng.integers(0, 256, (3, 4, 3), np.uint8),
            "pair": (rng.normal(size=2), np.uint64(2**64 - 1 - self.time)),
            "word": "ä" * self.time,
            "none": np.zeros((0, 2), np.float32),
            "small": rng.integers(-128, 128, (2, 1), np.int8),
            "on": rng.normal(size=3) > 0,
            "number": value,
        }

    def observation_spec(self):
        def spec_of(value):
            if isinstance(value, tuple):
                return tuple(map(spec_of, value))
            if isinstance(value, str):
                return specs.StringArray(())
            return specs.Array(np.shape(value), np.asarray(value).dtype)

        self.time = 0
        example = self._observation()
        if not self.rich:
            return spec_of(example)
        return {name: spec_of(value) for name, value in example.items()}

    def action_spec(self):
        return specs.Array((2,), np.float32)


def record(directory, episodes=4, first=0, rich=False, **kwargs):
    directory.mkdir(parents=True, exist_ok=True)
    with envlogger.EnvLogger(Ticker(first, rich), data_directory=directory, **kwargs) as env:
        for _ in range(episodes):
            timestep = env.reset()
            while not timestep.last():
                timestep = env.step(np.ones(2, np.float32))
    return directory


def record_rich(directory):
    return record(
        directory,
        rich=True,
        step_fn=lambda timestep, action, env: {"height": np.float32(env.time), "tag": b"a\0"},
        episode_fn=lambda timestep, action, env: {
            "episode_id": f"run-{env.episode}",
            "complete": 0.25,
            "nested": {"x": np.arange(2)},
        },
    )


def make_log(*episodes, metadata=(), **env_specs):
    recorded = {f"{field}_spec": spec_codec.encode(spec) for field, spec in env_specs.items()}
    writer = InMemoryBackendWriter(metadata={"environment_specs": recorded} if recorded else {})
    for index, steps in enumerate(episodes):
        for step in steps:
            writer.record_step(step, is_new_episode=step is steps[0])
        if index < len(metadata):
            writer.set_episode_metadata(metadata[index])
    return envlogger.Reader(backend=InMemoryBackendReader(writer))


def make_steps(*observations, end=dm_env.termination):
    steps = [envlogger.StepData(dm_env.restart(observations[0]), None)]
    for observation in observations[1:-1]:
        steps.append(envlogger.StepData(dm_env.transition(1.0, observation), 5))
    if len(observations) > 1:
        last = end(reward=1.0, observation=observations[-1])
        steps.append(envlogger.StepData(last, 5))
    return steps


def first_observations(dataset):
    """Returns the observations of the first steps, which differ by episode."""
    return [int(next(iter(episode["steps"]))["observation"]) for episode in dataset]


def as_columns(dataset):
    """Yields examples with nested steps as columns."""
    for example in dataset:
        columns = tf.nest.map_structure(lambda *rows: tf.stack(rows), *example["steps"])
        yield {**example, "steps": columns}


def assert_same(actual, expected):
    """Checks that both are equal to the last bit."""
    tf.nest.assert_same_structure(actual, expected)
    for value, expected_value in zip(tf.nest.flatten(actual), tf.nest.flatten(expected)):
        assert (value.dtype, value.shape) == (expected_value.dtype, expected_value.shape)
        value, expected_value = value.numpy(), expected_value.numpy()
        if isinstance(value, bytes):
            assert value == expected_value
        elif value.dtype == object:
            assert list(value.flat) == list(expected_value.flat)
        else:
            assert value.tobytes() == expected_value.tobytes()


# --- Streaming and conversion ---------------------------------------------------------------------


@pytest.mark.slow
def test_streamed_episodes_equal_converted_episodes(tmp_path):
    log = record_rich(tmp_path / "log")
    streamed = episodes_from_logs(log)
    builder = convert(EnvLoggerSource(log), name="ticks", data_dir=tmp_path, shuffle=False)
    converted = builder.as_dataset(split="train")
    assert streamed.element_spec == converted.element_spec
    assert streamed.cardinality() == converted.cardinality() == 4
    for actual, expected in zip(as_columns(streamed), as_columns(converted), strict=True):
        assert_same(actual, expected)


def test_both_layouts_have_the_same_values(tmp_path):
    log = record_rich(tmp_path / "log")
    batched = episodes_from_logs(log, layout="batched")
    step_spec = episodes_from_logs(log).element_spec["steps"].element_spec
    batched_spec = batched.element_spec["steps"]
    assert batched_spec["observation"]["image"].shape.as_list() == [None, 3, 4, 3]
    assert tf.nest.map_structure(lambda leaf: leaf.shape[1:], batched_spec) == (
        tf.nest.map_structure(lambda leaf: leaf.shape, step_spec)
    )
    for actual, expected in zip(as_columns(episodes_from_logs(log)), batched, strict=True):
        assert_same(actual, expected)


@pytest.mark.slow
@pytest.mark.parametrize("dtype", [np.float64, ml_dtypes.bfloat16])
def test_large_values_are_streamed(dtype):
    values = np.random.default_rng(0).integers(0, 256, (3, 64, 65)).astype(dtype)
    for layout in ("batched", "nested"):
        [example] = episodes_from_logs(make_log(make_steps(*values)), layout=layout)
        steps = (
            example["steps"]
            if layout == "batched"
            else tf.nest.map_structure(lambda *rows: tf.stack(rows), *example["steps"])
        )
        observation = steps["observation"].numpy()
        assert observation.dtype == dtype
        np.testing.assert_array_equal(observation, values)
        assert steps["is_last"].numpy().tolist() == [False, False, True]


def test_logs_become_splits_and_metadata(tmp_path):
    logs = {
        "train": record(tmp_path / "a", metadata={"seed": 1}),
        "test": record(tmp_path / "b", metadata={"seed": 2}),
    }
    source = EnvLoggerSource(logs)
    assert source.splits == ["train", "test"]
    assert source.source_info.metadata == {"logs": [{"seed": 1}, {"seed": 2}]}
    assert [source.key("test", index) for index in range(4)] == ["4", "5", "6", "7"]
    assert EnvLoggerSource(logs["test"]).source_info.metadata == {"seed": 2}


def test_a_pickled_source_reads_the_same_episodes(tmp_path):
    source = EnvLoggerSource(record_rich(tmp_path / "log"))
    expected = source.read("train", 2)
    actual = pickle.loads(pickle.dumps(source)).read("train", 2)
    assert actual.metadata["recorded_episode_id"] == expected.metadata["recorded_episode_id"]
    assert actual.origin == expected.origin


# --- Flags and origins ----------------------------------------------------------------------------


@pytest.mark.slow
def test_flags_distinguish_ended_truncated_and_cut_episodes(tmp_path):
    with envlogger.EnvLogger(Ticker(2), data_directory=tmp_path) as env:
        for num_steps in (3, 4, 2):  # The last one is cut: it would take five.
            env.reset()
            for _ in range(num_steps):
                env.step(np.ones(2, np.float32))
    ended, truncated, cut = episodes_from_logs(tmp_path, layout="batched")
    for actual, is_truncated, is_complete, begin, end in [
        (ended, False, True, 0, 4),
        (truncated, True, True, 4, 9),
        (cut, True, False, 9, 12),
    ]:
        assert actual["final_observation_known"]
        assert (actual["truncated"], actual["complete"]) == (is_truncated, is_complete)
        assert (actual["source"]["begin"], actual["source"]["end"]) == (begin, end)
        assert actual["source"]["file"] == tmp_path.name.encode()
        assert actual["steps"]["reward"].shape == end - begin


@pytest.mark.slow
def test_names_of_logs_do_not_depend_on_the_machine(tmp_path):
    for name in ("b", "a/c"):
        record(tmp_path / "logs" / name, episodes=1)
    files = [one["source"]["file"].numpy() for one in episodes_from_logs(tmp_path / "logs")]
    assert files == [b"logs/a/c", b"logs/b"]


# --- Order and hosts ------------------------------------------------------------------------------


@pytest.mark.slow
@LAYOUTS
def test_episodes_are_streamed_in_order_of_recording(tmp_path, layout):
    logs = [record(tmp_path / name, first=first) for name, first in (("b", 0), ("a", 4))]
    episodes = episodes_from_logs(logs, layout=layout)
    ids = [int(one["episode_id"].numpy()) for one in episodes]
    assert ids == list(range(8)) == ids


@pytest.mark.slow
def test_shuffling_is_by_episode_and_seeded(tmp_path):
    record(tmp_path, episodes=8)
    shuffled = episodes_from_logs(tmp_path, shuffle=True, seed=3)
    first, second = first_observations(shuffled), first_observations(shuffled)
    assert sorted(first) == sorted(second) == list(range(8))
    assert first != second
    assert first_observations(episodes_from_logs(tmp_path, shuffle=True, seed=3)) == first
    assert first_observations(episodes_from_logs(tmp_path, shuffle=True, seed=4)) != first
    fixed = episodes_from_logs(tmp_path, shuffle=True, seed=3, reshuffle_each_iteration=False)
    assert first_observations(fixed) == first_observations(fixed)


@pytest.mark.slow
@pytest.mark.parametrize("shuffle", [False, True])
def test_hosts_share_the_episodes_of_each_pass(tmp_path, shuffle):
    record(tmp_path, episodes=10)
    hosts = [
        episodes_from_logs(tmp_path, shuffle=shuffle, seed=1, num_shards=3, shard_index=index)
        for index in range(3)
    ]
    assert [int(host.cardinality()) for host in hosts] == [4, 3, 3]
    passes = []
    for _ in range(2):
        shares = [first_observations(host) for host in hosts]
        assert [len(share) for share in shares] == [4, 3, 3]
        assert sorted(value for share in shares for value in share) == list(range(10))
        passes.append(shares)
    assert (passes[0] != passes[1]) == shuffle


def test_an_iterator_can_be_checkpointed(tmp_path):
    record(tmp_path / "log", episodes=6)
    episodes = episodes_from_logs(tmp_path / "log", layout="batched", shuffle=True, seed=1)
    iterator = iter(episodes)
    before = [int(next(iterator)["episode_id"].numpy()) for _ in range(2)]
    path = tf.train.Checkpoint(iterator).save(str(tmp_path / "checkpoint"))
    expected = [int(one["episode_id"].numpy()) for one in iterator]
    restored = iter(episodes)
    tf.train.Checkpoint(restored).restore(path)
    assert [int(one["episode_id"].numpy()) for one in restored] == expected
    assert sorted(before + expected) == list(range(6))


@pytest.mark.slow
def test_episodes_of_a_reader_are_streamed_after_it_is_closed(tmp_path):
    record(tmp_path, episodes=2)
    with envlogger.Reader(tmp_path) as opened:
        episodes = episodes_from_logs([opened, opened])
    assert first_observations(episodes) == [0, 1, 0, 1]


@pytest.mark.slow
def test_threads_share_a_source(tmp_path):
    for name, first in (("a", 0), ("b", 6)):
        record(tmp_path / name, episodes=6, first=first)
    source = EnvLoggerSource(tmp_path)
    with ThreadPoolExecutor(8) as pool:
        episodes = list(pool.map(lambda index: source.read("train", index), [*range(12)] * 5))
    for index, actual in enumerate(episodes):
        assert set(actual.steps["observation"]) == {index % 12}


# --- Errors ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"layout": "flat"}, r"layout must be one of \('nested', 'batched'\), got 'flat'"),
        ({"num_shards": 0}, "num_shards must be positive, got 0"),
        ({"num_shards": 2, "shard_index": 2}, "shard_index must be from 0 to 1, got 2"),
        ({"num_shards": 2, "shuffle": True}, "need the same seed"),
    ],
)
def test_wrong_streaming_arguments_are_rejected(tmp_path, arguments, message):
    with pytest.raises(ValueError, match=f"episodes_from_logs: .*{message}"):
        episodes_from_logs(tmp_path, **arguments)


def collect(episodes):
    """Returns the numbers of episodes, or the messages of their errors."""
    results = []
    iterator = iter(episodes)
    while True:
        try:
            results.append(int(next(iterator)["episode_id"].numpy()))
        except StopIteration:
            return results
        except tf.errors.OpError as error:
            results.append(str(error))
        assert len(results) <= 100, "The iterator does not advance."


@pytest.mark.slow
@pytest.mark.parametrize("layout", one_in(2, ["batched", "nested"]))
def test_intact_episodes_are_read_between_damaged_episodes(tmp_path, layout):
    # Groups have eight episodes, and shards one.
    record(
        tmp_path,
        episodes=28,
        episode_fn=lambda timestep, action, env: {"number": env.episode},
        max_episodes_per_file=1,
    )
    episodes = episodes_from_logs(tmp_path, layout=layout)
    assert collect(episodes) == [*range(28)]
    shards = sorted(path for path in tmp_path.iterdir() if path.is_dir())
    damaged = {0: "steps", 3: "steps", 7: "steps", 12: "episode_metadata", 27: "steps"}
    for index, name in damaged.items():
        file = shards[index] / f"{name}.riegeli"
        file.write_bytes(bytes(file.stat().st_size))
    results = collect(episodes)
    assert len(results) == 28
    for index, result in enumerate(results):
        if index in damaged:
            assert f"{tmp_path}, episode {index}: " in result
            assert "damaged" in result
        else:
            assert result == index
    intact = [index for index in range(28) if index not in damaged]
    assert collect(episodes.ignore_errors()) == intact
    assert collect(episodes.prefetch(2).ignore_errors()) == intact
    interleaved = tf.data.Dataset.range(2).interleave(
        lambda _: episodes.ignore_errors(), num_parallel_calls=2
    )
    assert sorted(collect(interleaved)) == sorted(intact * 2)
    assert episodes.cardinality() == 28


def test_intact_episodes_are_read_before_one_of_several_types():
    log = make_log(*(make_steps(index, index) for index in range(9)), make_steps(3, np.zeros(2), 5))
    episodes = episodes_from_logs(log, layout="batched")
    *ids, error = collect(episodes)
    assert ids == [*range(9)]
    assert "episode 9: observation: step 1 holds float64" in error
    assert collect(episodes.ignore_errors()) == ids


@pytest.mark.slow
def test_episodes_are_read_in_groups_of_limited_size(tmp_path, monkeypatch):
    record(tmp_path, episodes=30)
    runs = []
    read_many = EnvLoggerSource._read_many

    def record_run(source, split, begin, end):
        episodes = read_many(source, split, begin, end)
        runs.append([one.num_steps for one in episodes])
        return episodes

    monkeypatch.setattr(EnvLoggerSource, "_read_many", record_run)
    assert collect(episodes_from_logs(tmp_path)) == [*range(30)]
    assert list(map(len, runs)) == [8, 8, 8, 6]
    runs.clear()
    record(tmp_path / "long", episodes=3, first=100)
    size_of_step = streaming._STEP_OVERHEAD_BYTES + 8 + 2 * 4 + 8 + 8 + 3
    monkeypatch.setattr(streaming, "_MAX_GROUP_BYTES", 250 * size_of_step)
    assert collect(episodes_from_logs(tmp_path)) == [*range(33)]
    assert 200 < max(map(sum, runs)) <= 250
    assert sum(map(len, runs)) < 33  # Other episodes were read alone.


@pytest.mark.parametrize("shape", [(16,), (2, 8), (0, 16)])
def test_steps_that_share_memory_are_streamed(shape):
    values = np.random.default_rng(0).normal(size=(5, 3, *shape)).astype(np.float32)
    log = make_log(*(make_steps(*one) for one in values))
    for actual, expected in zip(episodes_from_logs(log, layout="batched"), values, strict=True):
        np.testing.assert_array_equal(actual["steps"]["observation"].numpy(), expected)


# --- Other sources -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "name", one_in(2, ["d4rl", "dqn_replay", "folder_tfrecord", "minari_arrow"])
)
def test_any_source_streams_the_same_episodes_as_a_conversion(tmp_path, name):
    """With and without random access, with images as files, text, and examples that are copied."""
    for path, data in hostile_sources.files_of(name).items():
        (tmp_path / "raw" / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "raw" / path).write_bytes(data)
    source = hostile_sources.FORMATS[name].source(tmp_path / "raw")
    builder = convert(source, name="converted", data_dir=tmp_path, shuffle=False)
    converted = builder.as_dataset(split="train")
    streamed = episodes_from_source(source)
    assert streamed.element_spec == converted.element_spec
    assert streamed.cardinality() == converted.cardinality()
    expected = list(as_columns(converted))
    for actual, episode in zip(as_columns(streamed), expected, strict=True):
        assert_same(actual, episode)
    second = episodes_from_source(Episodes(source), layout="batched", num_shards=2, shard_index=1)
    for actual, episode in zip(second, expected[1::2], strict=True):
        assert_same(actual, episode)


def test_splits_and_slices_of_a_source_are_streamed(tmp_path):
    source = EnvLoggerSource(
        {
            "train": record(tmp_path / "a", episodes=3),
            "test": record(tmp_path / "b", episodes=2),
        }
    )
    streamed = episodes_from_source(source, "test")
    assert collect(streamed) == [3, 4]
    slices = episodes_from_source(source, "train[-2:]+test[:1]+train[:50%]+train[2:]")
    assert collect(slices) == [1, 2, 3, 0, 1, 2]
    assert len(episodes_from_source(Episodes(source, "train"), "test")) == 2
    with pytest.raises(KeyError, match="pass one of the splits"):
        episodes_from_source(source)


@pytest.mark.slow
def test_more_logs_than_open_readers_are_streamed(tmp_path):
    for index in range(20):
        record(tmp_path / f"{index:02}", episodes=1, first=index)
    episodes = episodes_from_logs(tmp_path, shuffle=True, seed=1).repeat(2)
    assert sorted(first_observations(episodes)) == sorted([*range(20)] * 2)
