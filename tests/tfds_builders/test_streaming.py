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


# --- Small worlds --------------------------------------------------------------------------------


class Ticker(dm_env.Environment):
    """Its n-th episode takes n + 1 steps and says n; every second one is truncated."""

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
        number = np.int64(self.episode)
        if not self.rich:
            return number
        rng = np.random.default_rng([self.episode + 1, self.time])
        return {
            "image": rng.integers(0, 256, (3, 4, 3), np.uint8),
            "pair": (rng.normal(size=2), np.uint64(2**64 - 1 - self.time)),
            "word": "ä" * self.time,
            "none": np.zeros((0, 2), np.float32),
            "small": rng.integers(-128, 128, (2, 1), np.int8),
            "on": rng.normal(size=3) > 0,
            "number": number,
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


def reader(*episodes, metadata=(), **env_specs):
    recorded = {f"{field}_spec": spec_codec.encode(spec) for field, spec in env_specs.items()}
    writer = InMemoryBackendWriter(metadata={"environment_specs": recorded} if recorded else {})
    for index, steps in enumerate(episodes):
        for step in steps:
            writer.record_step(step, is_new_episode=step is steps[0])
        if index < len(metadata):
            writer.set_episode_metadata(metadata[index])
    return envlogger.Reader(backend=InMemoryBackendReader(writer))


def episode(*observations, end=dm_env.termination):
    steps = [envlogger.StepData(dm_env.restart(observations[0]), None)]
    for observation in observations[1:-1]:
        steps.append(envlogger.StepData(dm_env.transition(1.0, observation), 5))
    if len(observations) > 1:
        last = end(reward=1.0, observation=observations[-1])
        steps.append(envlogger.StepData(last, 5))
    return steps


def numbers(dataset):
    """The observations of the first steps, by which the tickers' episodes can be told apart."""
    return [int(next(iter(episode["steps"]))["observation"]) for episode in dataset]


def as_columns(dataset):
    """Nested steps as columns."""
    for example in dataset:
        columns = tf.nest.map_structure(lambda *rows: tf.stack(rows), *example["steps"])
        yield {**example, "steps": columns}


def assert_same(got, expected):
    """Both are the same to the last bit."""
    tf.nest.assert_same_structure(got, expected)
    for one, other in zip(tf.nest.flatten(got), tf.nest.flatten(expected)):
        assert (one.dtype, one.shape) == (other.dtype, other.shape)
        one, other = one.numpy(), other.numpy()
        if isinstance(one, bytes):
            assert one == other
        elif one.dtype == object:
            assert list(one.flat) == list(other.flat)
        else:
            assert one.tobytes() == other.tobytes()


# --- The same as after a conversion ---------------------------------------------------------------


@pytest.mark.slow
def test_streaming_gives_what_a_conversion_gives(tmp_path):
    log = record_rich(tmp_path / "log")
    streamed = episodes_from_logs(log)
    builder = convert(EnvLoggerSource(log), name="ticks", data_dir=tmp_path, shuffle=False)
    converted = builder.as_dataset(split="train")
    assert streamed.element_spec == converted.element_spec
    assert streamed.cardinality() == converted.cardinality() == 4
    for got, expected in zip(as_columns(streamed), as_columns(converted), strict=True):
        assert_same(got, expected)


def test_both_layouts_hold_the_same(tmp_path):
    log = record_rich(tmp_path / "log")
    batched = episodes_from_logs(log, layout="batched")
    step_spec = episodes_from_logs(log).element_spec["steps"].element_spec
    batched_spec = batched.element_spec["steps"]
    assert batched_spec["observation"]["image"].shape.as_list() == [None, 3, 4, 3]
    assert tf.nest.map_structure(lambda leaf: leaf.shape[1:], batched_spec) == (
        tf.nest.map_structure(lambda leaf: leaf.shape, step_spec)
    )
    for got, expected in zip(as_columns(episodes_from_logs(log)), batched, strict=True):
        assert_same(got, expected)


@pytest.mark.slow
@pytest.mark.parametrize("dtype", [np.float64, ml_dtypes.bfloat16])
def test_large_values_are_streamed(dtype):
    values = np.random.default_rng(0).integers(0, 256, (3, 64, 65)).astype(dtype)
    for layout in ("batched", "nested"):
        [one] = episodes_from_logs(reader(episode(*values)), layout=layout)
        steps = (
            one["steps"]
            if layout == "batched"
            else tf.nest.map_structure(lambda *rows: tf.stack(rows), *one["steps"])
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
    assert source.about.metadata == {"logs": [{"seed": 1}, {"seed": 2}]}
    assert [source.key("test", index) for index in range(4)] == ["4", "5", "6", "7"]
    assert EnvLoggerSource(logs["test"]).about.metadata == {"seed": 2}


def test_the_reader_of_a_source_goes_to_another_process(tmp_path):
    source = EnvLoggerSource(record_rich(tmp_path / "log"))
    expected = source.read("train", 2)
    got = pickle.loads(pickle.dumps(source)).read("train", 2)
    assert got.metadata["recorded_episode_id"] == expected.metadata["recorded_episode_id"]
    assert got.origin == expected.origin


# --- What is said of an episode -------------------------------------------------------------------


@pytest.mark.slow
def test_flags_tell_ended_truncated_and_cut_episodes(tmp_path):
    with envlogger.EnvLogger(Ticker(2), data_directory=tmp_path) as env:
        for num_steps in (3, 4, 2):  # The last one is cut: it would take five.
            env.reset()
            for _ in range(num_steps):
                env.step(np.ones(2, np.float32))
    ended, truncated, cut = episodes_from_logs(tmp_path, layout="batched")
    for got, is_truncated, is_complete, begin, end in [
        (ended, False, True, 0, 4),
        (truncated, True, True, 4, 9),
        (cut, True, False, 9, 12),
    ]:
        assert got["final_observation_known"]
        assert (got["truncated"], got["complete"]) == (is_truncated, is_complete)
        assert (got["source"]["begin"], got["source"]["end"]) == (begin, end)
        assert got["source"]["file"] == tmp_path.name.encode()
        assert got["steps"]["reward"].shape == end - begin


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
    first, second = numbers(shuffled), numbers(shuffled)
    assert sorted(first) == sorted(second) == list(range(8))
    assert first != second
    assert numbers(episodes_from_logs(tmp_path, shuffle=True, seed=3)) == first
    assert numbers(episodes_from_logs(tmp_path, shuffle=True, seed=4)) != first
    fixed = episodes_from_logs(tmp_path, shuffle=True, seed=3, reshuffle_each_iteration=False)
    assert numbers(fixed) == numbers(fixed)


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
        shares = [numbers(host) for host in hosts]
        assert [len(share) for share in shares] == [4, 3, 3]
        assert sorted(number for share in shares for number in share) == list(range(10))
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
def test_a_reader_that_is_closed_later(tmp_path):
    record(tmp_path, episodes=2)
    with envlogger.Reader(tmp_path) as opened:
        episodes = episodes_from_logs([opened, opened])
    assert numbers(episodes) == [0, 1, 0, 1]


@pytest.mark.slow
def test_threads_share_a_source(tmp_path):
    for name, first in (("a", 0), ("b", 6)):
        record(tmp_path / name, episodes=6, first=first)
    source = EnvLoggerSource(tmp_path)
    with ThreadPoolExecutor(8) as pool:
        read = list(pool.map(lambda index: source.read("train", index), [*range(12)] * 5))
    for index, got in enumerate(read):
        assert set(got.steps["observation"]) == {index % 12}


# --- What is wrong --------------------------------------------------------------------------------


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


def in_turn(episodes):
    """The numbers of episodes, and the messages of errors in the place of others."""
    found = []
    iterator = iter(episodes)
    while True:
        try:
            found.append(int(next(iterator)["episode_id"].numpy()))
        except StopIteration:
            return found
        except tf.errors.OpError as error:
            found.append(str(error))
        assert len(found) <= 100, "The iterator does not advance."


@pytest.mark.slow
@pytest.mark.parametrize("layout", one_in(2, ["batched", "nested"]))
def test_damaged_episodes_hide_no_others(tmp_path, layout):
    # Groups have eight episodes, and shards one.
    record(
        tmp_path,
        episodes=28,
        episode_fn=lambda timestep, action, env: {"number": env.episode},
        max_episodes_per_file=1,
    )
    episodes = episodes_from_logs(tmp_path, layout=layout)
    assert in_turn(episodes) == [*range(28)]
    shards = sorted(path for path in tmp_path.iterdir() if path.is_dir())
    damaged = {0: "steps", 3: "steps", 7: "steps", 12: "episode_metadata", 27: "steps"}
    for index, name in damaged.items():
        file = shards[index] / f"{name}.riegeli"
        file.write_bytes(bytes(file.stat().st_size))
    found = in_turn(episodes)
    assert len(found) == 28
    for index, one in enumerate(found):
        if index in damaged:
            assert f"{tmp_path}, episode {index}: " in one
            assert "damaged" in one
        else:
            assert one == index
    sound = [index for index in range(28) if index not in damaged]
    assert in_turn(episodes.ignore_errors()) == sound
    assert in_turn(episodes.prefetch(2).ignore_errors()) == sound
    interleaved = tf.data.Dataset.range(2).interleave(
        lambda _: episodes.ignore_errors(), num_parallel_calls=2
    )
    assert sorted(in_turn(interleaved)) == sorted(sound * 2)
    assert episodes.cardinality() == 28


def test_episodes_that_do_not_join_hide_no_others():
    log = reader(*(episode(index, index) for index in range(9)), episode(3, np.zeros(2), 5))
    episodes = episodes_from_logs(log, layout="batched")
    *others, error = in_turn(episodes)
    assert others == [*range(9)]
    assert "episode 9: observation: step 1 holds float64" in error
    assert in_turn(episodes.ignore_errors()) == others


@pytest.mark.slow
def test_how_much_is_read_at_once(tmp_path, monkeypatch):
    record(tmp_path, episodes=30)
    runs = []
    read_run = EnvLoggerSource._read_many

    def spy(source, split, begin, end):
        episodes = read_run(source, split, begin, end)
        runs.append([one.num_steps for one in episodes])
        return episodes

    monkeypatch.setattr(EnvLoggerSource, "_read_many", spy)
    assert in_turn(episodes_from_logs(tmp_path)) == [*range(30)]
    assert list(map(len, runs)) == [8, 8, 8, 6]
    runs.clear()
    record(tmp_path / "long", episodes=3, first=100)
    size_of_step = streaming._STEP_OVERHEAD_BYTES + 8 + 2 * 4 + 8 + 8 + 3
    monkeypatch.setattr(streaming, "_MAX_GROUP_BYTES", 250 * size_of_step)
    assert in_turn(episodes_from_logs(tmp_path)) == [*range(33)]
    assert 200 < max(map(sum, runs)) <= 250
    assert sum(map(len, runs)) < 33  # The rest was read by itself.


@pytest.mark.parametrize("shape", [(16,), (2, 8), (0, 16)])
def test_columns_that_could_share_memory(shape):
    values = np.random.default_rng(0).normal(size=(5, 3, *shape)).astype(np.float32)
    log = reader(*(episode(*one) for one in values))
    for got, expected in zip(episodes_from_logs(log, layout="batched"), values, strict=True):
        np.testing.assert_array_equal(got["steps"]["observation"].numpy(), expected)


# --- Other sources -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "name", one_in(2, ["d4rl", "dqn_replay", "folder_tfrecord", "minari_arrow"])
)
def test_any_source_streams_what_it_converts_to(tmp_path, name):
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
    for got, episode in zip(as_columns(streamed), expected, strict=True):
        assert_same(got, episode)
    second = episodes_from_source(Episodes(source), layout="batched", num_shards=2, shard_index=1)
    for got, episode in zip(second, expected[1::2], strict=True):
        assert_same(got, episode)


def test_a_split_of_a_source(tmp_path):
    source = EnvLoggerSource(
        {
            "train": record(tmp_path / "a", episodes=3),
            "test": record(tmp_path / "b", episodes=2),
        }
    )
    streamed = episodes_from_source(source, "test")
    assert in_turn(streamed) == [3, 4]
    part = episodes_from_source(source, "train[-2:]+test[:1]+train[:50%]+train[2:]")
    assert in_turn(part) == [1, 2, 3, 0, 1, 2]
    assert len(episodes_from_source(Episodes(source, "train"), "test")) == 2
    with pytest.raises(KeyError, match="pass one of the splits"):
        episodes_from_source(source)


@pytest.mark.slow
def test_more_logs_than_are_kept_open(tmp_path):
    for number in range(20):
        record(tmp_path / f"{number:02}", episodes=1, first=number)
    episodes = episodes_from_logs(tmp_path, shuffle=True, seed=1).repeat(2)
    assert sorted(numbers(episodes)) == sorted([*range(20)] * 2)
