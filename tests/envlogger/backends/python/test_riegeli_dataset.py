"""The bindings with the names of EnvLogger's compiled extensions."""

import pickle

import pytest

import envlogger
from envlogger import Datum
from envlogger.backends.python.riegeli_dataset_reader import RiegeliDatasetReader
from envlogger.backends.python.riegeli_dataset_writer import RiegeliDatasetWriter
from envlogger.converters import codec
from envlogger.errors import StorageError, UnsupportedValueError, UsageError


def open_reader(data_dir):
    reader = RiegeliDatasetReader()
    reader.init(data_dir)
    return reader


def write(data_dir, episodes, **options):
    """Writes episodes of values; the metadata of an episode is its length."""
    writer = RiegeliDatasetWriter()
    writer.init(data_dir, **options)
    for episode in episodes:
        for i, value in enumerate(episode):
            assert writer.add_step(codec.encode(value), is_new_episode=i == 0)
        writer.set_episode_metadata(codec.encode(len(episode)))
    writer.close()
    return writer


def read_values(reader):
    return [codec.decode(reader.step(i)) for i in range(reader.num_steps)]


@pytest.mark.parametrize("max_episodes_per_shard", [0, 1, 2])
def test_episodes_have_their_starts_lengths_and_metadata(tmp_path, max_episodes_per_shard):
    episodes = [[0, 1, 2], [3], [4, 5], [6]]
    writer = write(tmp_path, episodes, max_episodes_per_shard=max_episodes_per_shard)
    assert writer.episode_counter() == 4
    assert writer.max_episodes_per_shard() == max_episodes_per_shard
    reader = open_reader(tmp_path)
    assert read_values(reader) == [0, 1, 2, 3, 4, 5, 6]
    infos = [reader.episode(i, include_metadata=True) for i in range(reader.num_episodes)]
    assert [(info.start, info.num_steps) for info in infos] == [(0, 3), (3, 1), (4, 2), (6, 1)]
    assert [codec.decode(info.metadata) for info in infos] == [3, 1, 2, 1]
    assert reader.episode(0).metadata is None
    for index in (-1, 7):
        assert reader.step(index) is reader.serialized_step(index) is reader.episode(index) is None


def test_steps_before_the_first_episode_belong_to_no_episode(tmp_path):
    writer = RiegeliDatasetWriter()
    writer.init(tmp_path, max_episodes_per_shard=1)
    writer.add_step(codec.encode(0))
    writer.set_episode_metadata(codec.encode("there is no episode"))
    writer.add_step(codec.encode(1), is_new_episode=True)
    writer.flush()
    assert read_values(open_reader(tmp_path)) == [0]
    writer.close()
    reader = open_reader(tmp_path)
    assert read_values(reader) == [0, 1]
    assert (reader.num_episodes, reader.episode(0).start) == (1, 1)
    assert reader.episode(0, include_metadata=True).metadata is None


def test_steps_of_any_message_type_are_read_back(tmp_path):
    writer = RiegeliDatasetWriter()
    writer.init(tmp_path)
    writer.add_step(Datum.Shape.Dim(size=7), is_new_episode=True)
    writer.close()
    reader = open_reader(tmp_path)
    assert reader.step(0, Datum.Shape.Dim).size == 7
    assert reader.step(0, Datum.Shape.Dim()).size == 7
    assert reader.serialized_step(0) == Datum.Shape.Dim(size=7).SerializeToString()


def test_metadata_is_that_of_the_first_writer(tmp_path):
    for name in ("first", "second"):
        write(tmp_path, [[0]], metadata=codec.encode(name))
    reader = open_reader(tmp_path)
    reader.metadata().Clear()  # The caller has a copy.
    assert codec.decode(reader.metadata()) == "first"
    assert reader.num_episodes == 2


def test_recorder_and_bindings_read_the_same_recording(tmp_path):
    from envlogger.testing.catch_env import Catch

    with envlogger.EnvLogger(Catch(), data_directory=tmp_path) as env:
        env.reset()
        env.step(1)
    step = codec.decode(open_reader(tmp_path).step(1))
    assert step[1] == 1
    writer = RiegeliDatasetWriter()
    writer.init(tmp_path)
    writer.add_step(codec.encode(step), is_new_episode=True)
    writer.close()
    with envlogger.Reader(tmp_path) as reader:
        assert [len(episode) for episode in reader.episodes] == [2, 1]
        assert reader.steps[2].action == 1


def test_clones_outlive_the_reader(tmp_path):
    write(tmp_path, [[0, 1]], max_episodes_per_shard=1)
    reader = open_reader(tmp_path)
    clone = reader.clone()
    reader.close()
    reader.close()
    assert read_values(clone) == [0, 1]
    assert clone.data_dir() == str(tmp_path)
    with pytest.raises(UsageError, match="is closed; make a new one"):
        reader.step(0)


def test_readers_are_pickled_and_writers_are_not(tmp_path):
    writer = write(tmp_path, [[0, 1], [2]])
    reader = pickle.loads(pickle.dumps(open_reader(tmp_path)))
    assert (read_values(reader), reader.num_episodes) == ([0, 1, 2], 2)
    with pytest.raises(TypeError, match="cannot be copied or pickled"):
        pickle.dumps(writer)


def test_calls_before_init_or_after_close_raise_a_usage_error(tmp_path):
    writer, reader = RiegeliDatasetWriter(), RiegeliDatasetReader()
    with pytest.raises(UsageError, match="not initialized; call init"):
        writer.add_step(codec.encode(0))
    with pytest.raises(UsageError, match="not initialized; call init"):
        reader.step(0)
    assert (reader.num_steps, reader.num_episodes) == (0, 0)
    writer.init(tmp_path)
    with pytest.raises(UsageError, match="initialized already"):
        writer.init(tmp_path)
    writer.close()
    writer.close()
    with pytest.raises(UsageError, match="is closed"):
        writer.add_step(codec.encode(0))


def test_errors_name_the_directory(tmp_path):
    for binding, path in ((RiegeliDatasetWriter(), "file"), (RiegeliDatasetReader(), "missing")):
        (tmp_path / "file").touch()
        with pytest.raises(StorageError, match=str(tmp_path / path)):
            binding.init(tmp_path / path)
    with pytest.raises(UnsupportedValueError, match="writer_options 'zip'"):
        RiegeliDatasetWriter().init(tmp_path, writer_options="zip")
    (tmp_path / "full").mkdir()
    writer = RiegeliDatasetWriter()
    writer.init(tmp_path / "full", max_episodes_per_shard=1)
    for file in (tmp_path / "full").iterdir():
        file.unlink()
    (tmp_path / "full").rmdir()
    with pytest.raises(StorageError, match=r"cannot be written .*full"):
        writer.add_step(codec.encode(0), is_new_episode=True)
