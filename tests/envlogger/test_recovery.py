import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import dm_env
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import envlogger
import riegeli
from envlogger import Data, RiegeliBackendWriter, StepData
from envlogger.converters import codec
from envlogger.errors import StorageError

INDEX = ["step_offsets.riegeli", "episode_index.riegeli", "episode_metadata.riegeli"]


def record(writer, observations, types=None):
    """Records an episode with these observations."""
    for i, observation in enumerate(observations):
        kind = dm_env.StepType(types[i]) if types else min(i, 1)
        timestep = dm_env.TimeStep(dm_env.StepType(kind), 0.0, 1.0, observation)
        writer.record_step(StepData(timestep, None), is_new_episode=i == 0)


def shard_path(directory, index=0):
    return sorted(path for path in directory.iterdir() if path.is_dir())[index]


def read_files(directory):
    return {path: path.read_bytes() for path in sorted(directory.rglob("*")) if path.is_file()}


def read_episodes(directory):
    with envlogger.Reader(directory) as reader:
        assert reader.damage() == []
        return [[step.timestep.observation for step in episode] for episode in reader.episodes]


def read_metadata(directory):
    with envlogger.Reader(directory) as reader:
        return list(reader.episode_metadata())


def flip_a_bit(path, position):
    data = bytearray(path.read_bytes())
    data[position] ^= 1
    path.write_bytes(data)


def read_positions(path):
    with riegeli.RecordReader(path) as reader:
        return [reader.last_pos.numeric for _ in reader.read_records()]


@pytest.fixture
def recording(tmp_path):
    """Two shards with three and one episodes, and a discarded one; a chunk for each step."""
    directory = tmp_path / "recording"
    directory.mkdir()
    with RiegeliBackendWriter(
        directory,
        max_episodes_per_file=3,
        metadata={"a": 1},
        writer_options="uncompressed,chunk_size:1",
    ) as writer:
        for index, steps in enumerate(([0, 1, 2], [10, 11], [20, 21], [30])):
            record(writer, [99, 98])
            writer.discard_episode()
            record(writer, steps)
            writer.set_episode_metadata({"number": index})
    return directory


EPISODES = [[0, 1, 2], [10, 11], [20, 21], [30]]
METADATA = [{"number": index} for index in range(4)]


# --- Destinations.


def test_an_intact_recording_is_copied_unchanged(recording, tmp_path):
    contents = read_files(recording)
    report = envlogger.recover(recording, tmp_path / "new")
    assert read_files(recording) == contents
    new = tmp_path / "new"
    copies = {path.relative_to(new): data for path, data in read_files(new).items()}
    assert copies == {path.relative_to(recording): data for path, data in contents.items()}
    assert not report.is_changed
    assert str(report).splitlines() == [
        f"{tmp_path}/new: 4 -> 4 episodes, 8 -> 8 steps, 2 shards",
        "there is nothing to recover",
    ]


def test_recovery_in_place_loses_no_byte(recording):
    flip_a_bit(shard_path(recording) / "step_offsets.riegeli", 100)
    old_files = read_files(recording)
    report = envlogger.recover(recording, in_place=True)
    assert read_episodes(recording) == EPISODES
    new_files = read_files(recording)
    for path, content in old_files.items():
        assert content in (new_files[path], new_files.get(path.with_name(path.name + ".damaged")))
    assert [shard.is_changed for shard in report.shards] == [True, False]
    assert not any(path.name.startswith(".") for path in new_files)
    assert not envlogger.recover(recording, in_place=True).is_changed
    assert read_files(recording) == new_files


def test_damaged_files_are_set_aside_with_free_names(recording):
    path = recording / "metadata.riegeli"
    for content in (b"first", b"second", b"third"):
        path.write_bytes(content)
        envlogger.recover(recording, in_place=True)
    damaged_paths = [
        path.with_name(path.name + end) for end in (".damaged", ".damaged-2", ".damaged-3")
    ]
    assert [path.read_bytes() for path in damaged_paths] == [b"first", b"second", b"third"]


def test_a_destination_must_be_empty(recording, tmp_path):
    (tmp_path / "new").mkdir()
    (tmp_path / "new" / "file").touch()
    with pytest.raises(ValueError, match=r"destination .*new exists and is not empty"):
        envlogger.recover(recording, tmp_path / "new")
    with pytest.raises(ValueError, match="a destination, or in_place=True, or dry_run"):
        envlogger.recover(recording)
    with pytest.raises(ValueError, match="pass either"):
        envlogger.recover(recording, tmp_path / "other", in_place=True)


def test_folders_without_a_recording_are_refused(tmp_path):
    with pytest.raises(StorageError, match="holds no recording of EnvLogger"):
        envlogger.recover(tmp_path, in_place=True)
    with pytest.raises(StorageError, match="nowhere does not exist"):
        envlogger.recover(tmp_path / "nowhere", in_place=True)


def test_a_recording_that_goes_on_gives_a_warning(tmp_path):
    with RiegeliBackendWriter(tmp_path) as writer:
        record(writer, [0, 1])
        writer.flush()

        def go_on(path, position, size):
            if position == size:
                record(writer, [10])
                writer.flush()

        with pytest.warns(UserWarning, match=r"steps\.riegeli grows: it is being recorded to"):
            envlogger.recover(tmp_path, f"{tmp_path}-new", on_progress=go_on)
    with envlogger.Reader(f"{tmp_path}-new") as reader:
        assert len(reader.episodes[0]) == 2


# --- Recovered steps and metadata.


@pytest.mark.parametrize("lost_files", [[name] for name in INDEX[:2]] + [INDEX[:2], INDEX])
@pytest.mark.parametrize("fault", ["missing", "empty", "torn", "foreign"])
def test_a_lost_index_is_rebuilt(recording, tmp_path, lost_files, fault):
    for name in lost_files:
        path = shard_path(recording) / name
        content = path.read_bytes()
        path.write_bytes({"torn": content[:-1], "foreign": b"x" * 500}.get(fault, b""))
        if fault == "missing":
            path.unlink()
    envlogger.recover(recording, tmp_path / "new")
    assert read_episodes(tmp_path / "new") == EPISODES
    # Steps have marks of their episodes; metadata have none.
    has_metadata = lost_files == INDEX[:1]
    expected = METADATA if has_metadata else [None] * 3 + METADATA[3:]
    assert read_metadata(tmp_path / "new") == expected


def test_lost_metadata_of_episodes_are_reported(recording, tmp_path):
    path = shard_path(recording) / "episode_metadata.riegeli"
    flip_a_bit(path, read_positions(path)[0] + 50)
    report = envlogger.recover(recording, tmp_path / "new")
    assert read_metadata(tmp_path / "new")[0] is None
    assert read_metadata(tmp_path / "new")[3] == METADATA[3]
    num_lost = sum(one is None for one in read_metadata(tmp_path / "new"))
    assert f"the metadata of {num_lost} episodes cannot be read" in str(report)


def test_damaged_metadata_are_replaced(recording):
    path = recording / "metadata.riegeli"
    path.write_bytes(b"")
    report = envlogger.recover(recording, in_place=True)
    assert "the metadata and specs are lost: " in str(report)
    with envlogger.Reader(recording) as reader:
        assert reader.metadata() == {}
        assert reader.observation_spec() is None
    assert path.with_name("metadata.riegeli.damaged").read_bytes() == b""


def test_a_shard_in_which_no_step_is_left_is_reported(recording, tmp_path):
    (shard_path(recording) / "steps.riegeli").unlink()
    report = envlogger.recover(recording, tmp_path / "new")
    assert "7 indexed steps cannot be read" in str(report)
    assert "no step is left," in str(report)
    envlogger.recover(recording, in_place=True)
    for directory in (recording, tmp_path / "new"):
        assert read_episodes(directory) == EPISODES[3:]


def test_lost_steps_split_their_episode(recording, tmp_path):
    steps = shard_path(recording) / "steps.riegeli"
    with envlogger.Reader(recording) as reader:
        offsets = reader._backend._shards[0].step_offsets
    flip_a_bit(steps, int(offsets[1]) + 50)  # In the middle of the first episode.
    flip_a_bit(steps, int(offsets[3]) + 50)  # At the beginning of the second.
    report = envlogger.recover(recording, tmp_path / "new")
    assert read_episodes(tmp_path / "new") == [[0], [2], [11], *EPISODES[2:]]
    assert read_metadata(tmp_path / "new")[:3] == [METADATA[0], None, METADATA[1]]
    assert "2 indexed steps cannot be read" in str(report)
    assert len(re.findall(r"lost in steps\.riegeli: \[\d+\.\.\d+\): ", str(report))) == 2


def test_steps_behind_a_damaged_region_are_recovered_without_an_index(recording, tmp_path):
    steps = shard_path(recording) / "steps.riegeli"
    with envlogger.Reader(recording) as reader:
        offsets = reader._backend._shards[0].step_offsets
    flip_a_bit(steps, int(offsets[1]) + 50)
    for name in INDEX:
        (shard_path(recording) / name).unlink()
    envlogger.recover(recording, tmp_path / "new")
    assert read_episodes(tmp_path / "new") == [[0], [2], *EPISODES[1:]]


def test_a_torn_step_file_keeps_the_steps_before_the_tear(recording, tmp_path):
    steps = shard_path(recording) / "steps.riegeli"
    with envlogger.Reader(recording) as reader:
        offsets = reader._backend._shards[0].step_offsets
    os.truncate(steps, int(offsets[4]) + 5)
    report = envlogger.recover(recording, in_place=True)
    with envlogger.Reader(recording) as reader:
        actual = [[step.timestep.observation for step in episode] for episode in reader.episodes]
        assert actual == [[0, 1, 2], [10], [30]]
        [damage] = reader.damage()  # The torn end stays, without an index.
        assert (damage.path, damage.num_bytes) == (str(steps), 5)
    assert "3 indexed steps cannot be read" in str(report)


# --- Killed recordings, whose last steps have no index.


def run_killed(directory, code):
    """Runs a recorder that ends without closing its files."""
    prelude = """
import os, sys
sys.path.insert(0, sys.argv[2])
from test_recovery import *
def recorder(**arguments):
    return RiegeliBackendWriter(sys.argv[1], flush_interval=None, **arguments)
"""
    process = subprocess.run(
        [
            sys.executable,
            "-c",
            f"{prelude}{code}\nos._exit(0)",
            str(directory),
            Path(__file__).parent,
        ],
        capture_output=True,
        text=True,
    )
    assert process.returncode == 0, process.stderr


def test_the_running_episode_is_recovered_with_its_metadata(tmp_path):
    code = """
writer = recorder()
record(writer, [0, 1])
writer.set_episode_metadata("first")
record(writer, [10, 11])
writer.set_episode_metadata("draft")
writer.flush()
writer.set_episode_metadata("second")
writer.flush()
record(writer, [20])  # Not flushed.
"""
    run_killed(tmp_path, code)
    with envlogger.Reader(tmp_path) as reader:
        assert len(reader.episodes) == 1
        [damage] = reader.damage()
        assert "steps.riegeli has steps without index (2 steps, " in str(damage)
    report = envlogger.recover(tmp_path, in_place=True)
    assert read_episodes(tmp_path) == [[0, 1], [10, 11]]
    assert read_metadata(tmp_path) == ["first", "second"]
    assert "1 -> 2 episodes, 2 -> 4 steps" in str(report)


def test_recovery_leaves_out_discarded_episodes(tmp_path):
    code = """
writer = recorder()
record(writer, [0, 1])
record(writer, [10, 11])
writer.flush()
writer.discard_episode()
record(writer, [20])
record(writer, [30, 31])
writer.discard_episode()
record(writer, [40], types=[1])
writer.set_episode_metadata("fourth")
writer.flush()
"""
    run_killed(tmp_path, code)
    envlogger.recover(tmp_path, in_place=True)
    assert read_episodes(tmp_path) == [[0, 1], [20], [40]]
    assert read_metadata(tmp_path) == [None, None, "fourth"]


def test_marks_override_step_types(tmp_path):
    code = """
writer = recorder()
record(writer, [0, 1, 2, 3], types=[1, 0, 2, 1])
record(writer, [10, 11], types=[1, 2])
record(writer, [20, 21], types=[1, 2])
record(writer, [30, 31], types=[0, 1])
writer.flush()
"""
    run_killed(tmp_path, code)
    envlogger.recover(tmp_path, in_place=True)
    assert read_episodes(tmp_path) == [[0, 1, 2, 3], [10, 11], [20, 21], [30, 31]]


def test_an_episode_index_that_is_ahead_of_the_steps_is_recovered(tmp_path):
    code = """
writer = recorder()
record(writer, [0, 1])
writer.set_episode_metadata("first")
record(writer, [90, 91, 92, 93])
writer.discard_episode()
record(writer, [10, 11])
record(writer, [20])
from envlogger.backends.riegeli_files import layout
make_array = layout.encode_positions
layout.encode_positions = lambda rows: make_array(rows) if len(rows) == 2 else os._exit(0)
writer.flush()
"""
    run_killed(tmp_path, code)
    index = shard_path(tmp_path) / "episode_index.riegeli"
    assert index.stat().st_size > 0
    assert (shard_path(tmp_path) / "step_offsets.riegeli").stat().st_size <= 64  # No record.
    envlogger.recover(tmp_path, in_place=True)
    assert read_episodes(tmp_path) == [[0, 1], [10, 11], [20]]
    assert read_metadata(tmp_path)[0] == "first"


@pytest.mark.slow
@given(
    given_episodes=st.lists(
        st.tuples(
            st.lists(st.integers(0, 2), min_size=1, max_size=4), st.booleans(), st.booleans()
        ),
        min_size=1,
        max_size=6,
    ),
    max_episodes=st.integers(0, 4),
    chunk_size=st.sampled_from([1, 300, 1 << 20]),
)
def test_recovery_keeps_all_flushed_episodes(
    given_episodes, max_episodes, chunk_size, tmp_path_factory
):
    directory = tmp_path_factory.mktemp("recording")
    recorded = []
    next_value = 0
    options = f"uncompressed,chunk_size:{chunk_size}"
    writer = RiegeliBackendWriter(directory, max_episodes, options, flush_interval=None, sync=False)
    for types, is_discarded, is_flushed in given_episodes:
        observations = list(range(next_value, next_value + len(types)))
        next_value += len(types)
        record(writer, observations, types)
        if is_flushed:
            writer.flush()
        if is_discarded:
            writer.discard_episode()
        else:
            recorded.append(observations)
    writer.flush()
    shutil.copytree(directory, directory / "killed", ignore=lambda *_: {"killed"})
    writer.close()
    assert read_episodes(directory) == recorded
    envlogger.recover(directory / "killed", directory / "recovered")
    assert read_episodes(directory / "recovered") == recorded


# --- EnvLogger up to 1.3.


def make_shard(directory, types, *, num_indexed, starts):
    directory.mkdir(parents=True)
    positions = []
    with riegeli.RecordWriter(directory / "steps.riegeli", options="transpose") as writer:
        for i, kind in enumerate(types):
            step = StepData(dm_env.TimeStep(dm_env.StepType(kind), 0.0, 1.0, i), None)
            writer.write_message(codec.encode(step))
            positions.append(writer.last_pos)
    offsets = [position.numeric for position in positions][:num_indexed]
    for name, values in (("step_offsets", offsets), ("episode_index", [(i, -1) for i in starts])):
        with riegeli.RecordWriter(directory / f"{name}.riegeli") as writer:
            if values:
                writer.write_message(codec.encode(np.array(values)).datum)
    with riegeli.RecordWriter(directory / "episode_metadata.riegeli"):
        pass
    with riegeli.RecordWriter(directory.parent / "metadata.riegeli") as writer:
        writer.write_message(Data())


@pytest.mark.slow
@pytest.mark.parametrize(
    ("types", "num_indexed", "starts", "expected"),
    [
        ([0, 1, 2, 0, 1, 2, 0, 1], 8, [0], [[0, 1, 2], [3, 4, 5], [6, 7]]),
        ([0, 1, 2, 0, 1, 2, 0, 1], 4, [0], [[0, 1, 2], [3, 4, 5], [6, 7]]),
        ([0, 1, 2, 0, 1, 2, 0, 1], 5, [], [[0, 1, 2], [3, 4, 5], [6, 7]]),
        ([0, 1, 2, 0, 1, 2, 0, 1], 0, [], [[0, 1, 2], [3, 4, 5], [6, 7]]),
        ([0, 1, 1, 1, 1], 2, [0], [[0, 1, 2, 3, 4]]),
        # The index is kept, also if all steps are first steps.
        ([0, 0, 0, 0, 0, 1], 4, [0, 2, 3], [[0, 1], [2], [3], [4, 5]]),
        # A scheduler dropped the first steps of the episodes.
        ([1, 2, 1, 2, 1], 5, [0], [[0, 1], [2, 3], [4]]),
    ],
)
def test_recordings_of_the_published_envlogger_are_recovered(
    tmp_path, types, num_indexed, starts, expected
):
    make_shard(tmp_path / "old" / "2024", types, num_indexed=num_indexed, starts=starts)
    envlogger.recover(tmp_path / "old", tmp_path / "new")
    assert read_episodes(tmp_path / "new") == expected


def test_messages_of_other_types_are_one_episode(tmp_path):
    directory = tmp_path / "old" / "2024"
    make_shard(directory, [], num_indexed=0, starts=[])
    with riegeli.RecordWriter(directory / "steps.riegeli") as writer:
        writer.write_records([b"\xff", b"", b"anything"])
    report = envlogger.recover(tmp_path / "old", tmp_path / "new")
    assert (report.num_episodes, report.num_steps) == (1, 3)


# --- Destinations in the recording.


@pytest.mark.parametrize("subfolder", ["", "inside", "inside/deep", "../link/inside"])
def test_a_destination_in_the_recording_is_refused(recording, subfolder):
    (recording.parent / "link").symlink_to(recording)
    contents = read_files(recording)
    with pytest.raises(ValueError, match=r"is in the recording .*count twice"):
        envlogger.recover(recording, recording / subfolder)
    assert read_files(recording) == contents
    envlogger.recover(recording, f"{recording}-beside")
