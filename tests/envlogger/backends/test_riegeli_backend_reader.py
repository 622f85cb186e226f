import gc
import os
import re
import threading

import dm_env
import numpy as np
import pytest

import riegeli
from envlogger import RiegeliBackendWriter, StepData
from envlogger.backends.riegeli_backend_reader import RiegeliBackendReader
from envlogger.converters import codec
from envlogger.errors import DamagedDataError, StorageError

ADVICE = "envlogger.recover repairs the recording if possible"
EPISODES = [[0, 1, 2], [10, 11], [20, 21, 22], [30]]


def observations(steps):
    return [int(step.timestep.observation[0]) for step in steps]


def damage_messages(reader):
    return [str(damage) for damage in reader.damage()]


def read_episodes(reader):
    return [observations(episode) for episode in reader.episodes]


@pytest.fixture
def dataset(tmp_path):
    """Two shards with two episodes each; a chunk for every step."""
    with RiegeliBackendWriter(
        tmp_path,
        max_episodes_per_file=2,
        writer_options="uncompressed,chunk_size:600",
        metadata={"a": 1},
    ) as writer:
        for index, episode in enumerate(EPISODES):
            for i, observation in enumerate(episode):
                step = StepData(dm_env.restart(np.full(50, float(observation))), None)
                writer.record_step(step, is_new_episode=i == 0)
            writer.set_episode_metadata({"number": index})
    return tmp_path


def shard_path(dataset, index):
    return sorted(path for path in dataset.iterdir() if path.is_dir())[index]


def flip_a_bit(path, position):
    data = bytearray(path.read_bytes())
    data[position] ^= 1
    path.write_bytes(data)


def write_array(path, array):
    with riegeli.RecordWriter(path, options="uncompressed") as writer:
        writer.write_message(codec.encode(array).datum)


# --- Reading.


def test_reading_in_order_does_not_seek(dataset, monkeypatch):
    positions = []
    seek = riegeli.RecordReader.seek_numeric

    def count_seeks(self, position):
        positions.append(position)
        seek(self, position)

    monkeypatch.setattr(riegeli.RecordReader, "seek_numeric", count_seeks)
    with RiegeliBackendReader(dataset) as reader:
        assert len(list(reader.steps)) == 9
        assert len(positions) == 2  # To the first step of each shard.
        assert read_episodes(reader) == EPISODES


def test_threads_may_share_a_reader(dataset):
    results = []
    with RiegeliBackendReader(dataset) as reader:

        def read():
            results.extend(read_episodes(reader) for _ in range(10))

        threads = [threading.Thread(target=read) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert results == [EPISODES] * 40


@pytest.mark.skipif(not os.path.exists("/proc/self/fd"), reason="counts the open files of Linux")
def test_few_files_are_open_at_a_time(tmp_path):
    with RiegeliBackendWriter(tmp_path, max_episodes_per_file=1) as writer:
        for i in range(20):
            writer.record_step(StepData(dm_env.restart(np.array([i])), None), True)
            writer.set_episode_metadata(i)
    num_open = len(os.listdir("/proc/self/fd"))
    with RiegeliBackendReader(tmp_path) as reader:
        for _ in zip(reader.episodes, reader.episode_metadata(), reader.steps):
            assert len(os.listdir("/proc/self/fd")) <= num_open + 2


@pytest.mark.slow
def test_a_garbage_collected_reader_closes_its_files(dataset):
    # Open files would be a warning, which fails the test.
    assert len(RiegeliBackendReader(dataset).steps[:3]) == 3
    gc.collect()


# --- Cut recordings.


def test_a_shard_in_which_nothing_was_flushed_counts_as_empty(dataset):
    for name in ("2999", "0000"):
        (dataset / name).mkdir()
        (dataset / name / "step_offsets.riegeli").touch()
    (dataset / "notes").mkdir()
    (dataset / "notes" / "readme.txt").touch()
    with RiegeliBackendReader(dataset) as reader:
        assert read_episodes(reader) == EPISODES
        assert read_episodes(reader.copy()) == EPISODES


def test_steps_without_an_index_of_episodes_are_only_steps(dataset):
    (shard_path(dataset, 0) / "episode_index.riegeli").write_bytes(b"")
    with RiegeliBackendReader(dataset) as reader:
        assert read_episodes(reader) == EPISODES[2:]
        assert observations(reader.steps) == [0, 1, 2, 10, 11, 20, 21, 22, 30]


def test_indexed_episodes_without_steps_are_left_out(dataset):
    write_array(
        shard_path(dataset, 1) / "episode_index.riegeli", np.array([[0, -1], [3, -1], [4, -1]])
    )
    with RiegeliBackendReader(dataset) as reader:
        assert read_episodes(reader) == EPISODES


# --- Damaged files.


def test_a_flipped_bit_in_a_step_raises_an_error_with_its_position(dataset):
    path = shard_path(dataset, 1) / "steps.riegeli"
    with RiegeliBackendReader(dataset) as reader:
        flip_a_bit(path, path.stat().st_size // 2)
        with pytest.raises(DamagedDataError) as caught:
            list(reader.episodes[2])
        message = str(caught.value)
        assert "step 6 (step 1 of episode 2) is damaged, at position " in message
        assert f"of {path}: " in message
        assert isinstance(caught.value.__cause__.__cause__, riegeli.InvalidArgumentError)
        with pytest.raises(DamagedDataError) as caught:
            reader.columns(2)
        assert str(caught.value) == message
        # All other steps are readable.
        assert observations(reader.steps[:6]) == [0, 1, 2, 10, 11, 20]
        assert observations(reader.episodes[3]) == [30]
        assert reader.columns(1)["observation"][:, 0].tolist() == [10, 11]


def test_a_truncated_step_file_raises_an_error_for_the_lost_steps_only(dataset):
    path = shard_path(dataset, 1) / "steps.riegeli"
    os.truncate(path, path.stat().st_size - 10)
    with RiegeliBackendReader(dataset) as reader:
        assert len(reader.steps) == 9
        assert observations(reader.episodes[2]) == [20, 21, 22]
        with pytest.raises(DamagedDataError, match=r"step 8 \(step 0 of episode 3\) is damaged"):
            reader.episodes[3][0]


def test_a_missing_step_file_is_reported_and_hides_no_other_shard(dataset):
    path = shard_path(dataset, 1) / "steps.riegeli"
    path.unlink()
    with RiegeliBackendReader(dataset) as reader:
        assert read_episodes(reader) == EPISODES[:2]
        assert damage_messages(reader) == [f"{path} is missing (4 steps): {ADVICE}"]


def test_steps_behind_the_end_of_a_truncated_file_are_left_out(dataset):
    path = shard_path(dataset, 1) / "steps.riegeli"
    with RiegeliBackendReader(dataset) as reader:
        position = int(reader._shards[1].step_offsets[1])
    os.truncate(path, position + 10)
    with RiegeliBackendReader(dataset) as reader:
        # Step 21 is cut. Its episode is left out, but its other steps can be read.
        assert read_episodes(reader) == EPISODES[:2]
        assert observations(reader.steps[:6]) == [0, 1, 2, 10, 11, 20]
        cut_file, lost_steps, torn_bytes = reader.damage()
        assert str(cut_file) == f"{path} was cut off (2 steps): {ADVICE}"
        assert (lost_steps.path, lost_steps.num_steps) == (str(path), 2)
        assert (torn_bytes.path, torn_bytes.num_bytes) == (str(path), 10)


def test_a_truncation_between_episodes_costs_no_other_episode(dataset):
    path = shard_path(dataset, 0) / "steps.riegeli"
    with RiegeliBackendReader(dataset) as reader:
        position = int(reader._shards[0].step_offsets[3])
    os.truncate(path, position)
    with RiegeliBackendReader(dataset) as reader:
        assert read_episodes(reader) == [EPISODES[0], *EPISODES[2:]]
        assert damage_messages(reader) == [f"{path} was cut off (2 steps): {ADVICE}"]


def test_a_flipped_bit_in_episode_metadata_is_reported_for_that_episode_only(dataset):
    path = shard_path(dataset, 0) / "episode_metadata.riegeli"
    flip_a_bit(path, path.stat().st_size - 1)
    with RiegeliBackendReader(dataset) as reader:
        with pytest.raises(
            DamagedDataError,
            match=rf"the metadata of episode 0 is damaged, at position 64 of {path}",
        ):
            list(reader.episode_metadata())
        assert reader.episode_metadata()[2] == {"number": 2}


@pytest.mark.parametrize("name", ["step_offsets.riegeli", "episode_index.riegeli"])
def test_a_damaged_index_hides_no_other_shard(dataset, name):
    path = shard_path(dataset, 0) / name
    intact = path.read_bytes()
    for content, message in [
        (intact[:-1] + bytes([intact[-1] ^ 1]), "reading the chunk at byte 64 of it"),
        (intact[:-1], "ends in the middle of a chunk"),
        (b"not a Riegeli file" * 100, r"is it a Riegeli/records file\?"),
    ]:
        path.write_bytes(content)
        with RiegeliBackendReader(dataset) as reader:
            assert read_episodes(reader) == EPISODES[2:]
            assert re.search(f"{path} is damaged: .*{message}", damage_messages(reader)[0])
            assert damage_messages(reader)[0].endswith(ADVICE)


@pytest.mark.slow
def test_a_torn_index_is_used_up_to_the_tear(tmp_path):
    with RiegeliBackendWriter(tmp_path) as writer:
        for begin in range(0, 50, 10):
            for observation in range(begin, begin + 3):
                step = StepData(dm_env.restart(np.array([observation])), None)
                writer.record_step(step, is_new_episode=observation == begin)
            writer.flush()
    expected = [list(range(begin, begin + 3)) for begin in range(0, 50, 10)]
    for name in ("step_offsets.riegeli", "episode_index.riegeli"):
        path = shard_path(tmp_path, 0) / name
        intact = path.read_bytes()
        sizes = set()
        for size in range(len(intact), -1, -5):
            path.write_bytes(intact[:size])
            with RiegeliBackendReader(tmp_path) as reader:
                actual = read_episodes(reader)
                assert actual == expected[: len(actual)]
                assert bool(damage_messages(reader)) is (len(actual) < 5)
                sizes.add(len(actual))
        assert sizes == {0, 1, 2, 3, 4, 5}
        path.write_bytes(intact)


def test_a_shard_without_an_index_is_left_out_and_reported(dataset):
    for name in ("step_offsets.riegeli", "episode_index.riegeli"):
        path = shard_path(dataset, 0) / name
        content = path.read_bytes()
        path.unlink()
        with RiegeliBackendReader(dataset) as reader:
            assert read_episodes(reader) == EPISODES[2:]
            assert damage_messages(reader)[0] == f"{path} is missing: {ADVICE}"
            assert reader.damage()[1].num_steps == 5
        path.write_bytes(content)


@pytest.mark.parametrize(
    ("name", "array", "message"),
    [
        ("step_offsets.riegeli", np.array([65, 65, 66]), "the offsets do not increase"),
        ("step_offsets.riegeli", np.array([-1, 65, 66]), "the offsets do not increase"),
        ("step_offsets.riegeli", np.array([[64, 65]]), "not an array of positions"),
        ("step_offsets.riegeli", np.array([1.5]), "not an array of positions"),
        ("step_offsets.riegeli", np.array(7), "not an array of positions"),
        ("episode_index.riegeli", np.array([[3, -1], [0, -1]]), "the starts of episodes do not"),
        ("episode_index.riegeli", np.array([[-1, -1], [0, -1]]), "the starts of episodes do not"),
        ("episode_index.riegeli", np.array([[0, -1, 0]]), "not an array of positions"),
    ],
)
def test_a_malformed_index_is_reported_and_hides_no_other_shard(dataset, name, array, message):
    path = shard_path(dataset, 0) / name
    write_array(path, array)
    with RiegeliBackendReader(dataset) as reader:
        assert read_episodes(reader)[-2:] == EPISODES[2:]
        assert re.search(f"{path} is damaged: .*{message}", damage_messages(reader)[0])


def test_step_offsets_that_point_to_no_record_raise_an_error_for_each_step(dataset):
    path = shard_path(dataset, 0) / "step_offsets.riegeli"
    write_array(path, np.array([65, 66, 67, 68, 69]))
    with RiegeliBackendReader(dataset) as reader:
        for i in range(5):
            with pytest.raises(DamagedDataError, match=rf"step {i} \(.*\) is damaged, at position"):
                reader.steps[i]


# --- Indices of EnvLogger up to 1.3, which lack the last steps after a kill.


def make_shard(directory, types, starts):
    """Makes a shard whose index does not tell the end of its last episode."""
    directory.mkdir()
    positions = []
    with riegeli.RecordWriter(directory / "steps.riegeli") as writer:
        for i, kind in enumerate(types):
            step = StepData(dm_env.TimeStep(dm_env.StepType(kind), 0.0, 1.0, np.array([i])), i)
            writer.write_message(codec.encode(step))
            positions.append(writer.last_pos)
    write_array(directory / "step_offsets.riegeli", np.array([p.numeric for p in positions]))
    write_array(directory / "episode_index.riegeli", np.array([[i, -1] for i in starts]))
    (directory / "episode_metadata.riegeli").touch()


@pytest.mark.parametrize(
    ("types", "starts", "expected"),
    [
        ([0, 1, 2, 0, 1, 2, 0, 1], [0], [[0, 1, 2]]),  # Each episode begins with a first step.
        ([0, 1, 2, 0, 1, 2, 0, 1], [0, 3], [[0, 1, 2], [3, 4, 5]]),
        ([1, 2, 1, 1, 2], [0], [[0, 1]]),  # A scheduler dropped the first steps.
        ([0, 1, 1, 1], [0], [[0, 1, 2, 3]]),
        ([0, 1, 0, 1, 2], [0, 2], [[0, 1], [2, 3, 4]]),
        ([0, 0, 0], [0, 1, 2], [[0], [1], [2]]),
    ],
)
def test_the_last_indexed_episode_ends_where_the_next_one_begins(dataset, types, starts, expected):
    directory = dataset / "2999"
    make_shard(directory, types, starts)
    with RiegeliBackendReader(dataset) as reader:
        assert read_episodes(reader) == EPISODES + expected
        assert observations(reader.steps[9:]) == list(range(len(types)))
        num_behind = len(types) - sum(map(len, expected))
        problem = f"{directory}/steps.riegeli has steps after the last episode of the index"
        if num_behind:
            assert damage_messages(reader)[0].startswith(
                f"{problem} ({num_behind} steps): envlogger.recover"
            )
        else:
            assert damage_messages(reader) == []


def test_opening_a_recording_reads_no_steps_to_find_the_ends_of_episodes(dataset):
    for index in range(2):
        path = shard_path(dataset, index) / "steps.riegeli"
        flip_a_bit(path, path.stat().st_size - 1)
    with RiegeliBackendReader(dataset) as reader:
        assert [len(episode) for episode in reader.episodes] == [3, 2, 3, 1]


@pytest.mark.parametrize(
    "content",
    [
        b"\xff\xff",
        codec.encode("no step").SerializeToString(),
        codec.encode(((9, None, None, 0), None, None)).SerializeToString(),
        codec.encode(((0, None, None), None, None)).SerializeToString(),
    ],
)
def test_records_that_are_not_steps_are_reported_as_damaged(dataset, content):
    directory = shard_path(dataset, 0)
    with riegeli.RecordWriter(directory / "steps.riegeli", options="uncompressed") as writer:
        writer.write_record(content)
        position = writer.last_pos.numeric
    write_array(directory / "step_offsets.riegeli", np.array([position]))
    with RiegeliBackendReader(dataset) as reader:
        with pytest.raises(DamagedDataError, match=r"step 0 \(step 0 of episode 0\) is damaged"):
            reader.steps[0]


# --- Unreadable directories and metadata.


def test_damaged_metadata_hide_no_steps(dataset):
    path = dataset / "metadata.riegeli"

    def read_damage():
        with RiegeliBackendReader(dataset) as reader:
            assert read_episodes(reader) == EPISODES
            assert reader.metadata() == {}
            [damage] = reader.damage()
            return str(damage)

    path.write_bytes(b"")
    assert "metadata.riegeli is damaged: it has 0 records instead of 1" in read_damage()
    path.write_bytes(b"{}")
    assert f"{path} cannot be read: {path} is damaged: " in read_damage()
    with riegeli.RecordWriter(path) as writer:
        writer.write_record(b"\xff")
    assert re.search(r"metadata\.riegeli is damaged: .*envlogger\.Data", read_damage())
    path.unlink()
    assert "has no metadata.riegeli" in read_damage()


@pytest.mark.parametrize(
    ("name", "error", "message"),
    [
        ("nowhere", StorageError, "nowhere does not exist"),
        ("file", StorageError, "file is not a directory"),
        ("empty", StorageError, r"holds no recording.*no metadata\.riegeli"),
        ("damaged", DamagedDataError, r"metadata\.riegeli is damaged: it has 0 records"),
    ],
)
def test_directories_without_a_recording_are_refused(tmp_path, name, error, message):
    (tmp_path / "file").touch()
    (tmp_path / "empty").mkdir()
    (tmp_path / "damaged").mkdir()
    (tmp_path / "damaged" / "metadata.riegeli").touch()
    with pytest.raises(error, match=message):
        RiegeliBackendReader(tmp_path / name)
    gc.collect()  # An error in a destructor would be a warning, which fails the test.


def test_a_file_that_cannot_be_opened_is_no_damage(dataset):
    path = shard_path(dataset, 0) / "episode_index.riegeli"
    path.unlink()
    path.mkdir()
    with pytest.raises(StorageError, match=rf"cannot read {path}: .*Is a directory"):
        RiegeliBackendReader(dataset)


def test_metadata_that_is_not_a_dict_counts_as_none(dataset):
    with riegeli.RecordWriter(dataset / "metadata.riegeli") as writer:
        writer.write_message(codec.encode([1]))
    assert RiegeliBackendReader(dataset).metadata() == {}
