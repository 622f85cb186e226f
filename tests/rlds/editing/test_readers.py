"""A reader opened before an edit reads the old dataset, or raises an error."""

import contextlib
import os
import pickle
import shutil
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor

import hostile_sources
import numpy as np
import pytest
from export_options import options_for

import envlogger
import rlds
import rlds.feeds
import rlds.labels
from envlogger.testing.catch_env import Catch
from rlds.editing import Add, Delete, Describe, Trim
from rlds.sources import export
from rlds.sources.digests import digest_of
from rlds_ecosystem.files.replacing import replace_dataset
from rlds_ecosystem.files.whole_files import try_to_lock
from rlds_ecosystem.model.errors import StorageError
from rlds_ecosystem.model.nests import named_leaves

pytest.importorskip("fcntl")

FORMATS = (
    *("aloha", "d3rlpy", "d4rl", "lerobot", "lerobot_2", "logs"),
    *("folder_tfrecord", "folder_array_record", "maniskill", "mcap", "minari_arrow"),
    *("minari_hdf5", "robomimic_all", "webdataset", "zarr"),
)


def write(name, folder):
    """Writes a dataset of several episodes; returns its path."""
    if name == "mcap":  # The hostile source has only one episode.
        return folder / export(write("webdataset", folder / "raw"), "mcap", folder / "a").path
    return hostile_sources.write_raw(name, folder)


class Reader:
    """Reader of the episodes and batches of an opened dataset."""

    def __init__(self, path):
        self.episodes = rlds.sources.open(path, "all")
        self.indices = range(len(self.episodes))
        table = rlds.feeds.open(self.episodes)
        names = [name for name, field in table.fields.items() if not field.is_text]
        table = rlds.feeds.open(self.episodes, fields=names)
        self.num_steps = table.num_steps
        self.steps = table.steps()

    def read_episode(self, index):
        return digest_of(self.episodes[index].steps)

    def read_batch(self, indices):
        return {path: np.array(v) for path, v in named_leaves(self.steps.batch(indices))}


def read_unless_changed(read, *arguments):
    """Returns the result of a read, or None if the dataset has changed."""
    try:
        return read(*arguments)
    except rlds.sources.SourceChangedError:
        return None


def check_unchanged(before, actual):
    if actual is None or isinstance(before, bytes):
        assert actual in (None, before)
        return
    assert actual.keys() == before.keys()
    for path, column in before.items():
        np.testing.assert_array_equal(actual[path], column, path)


@pytest.mark.parametrize("name", FORMATS)
def test_reader_opened_before_an_edit_reads_old_data_or_fails(name, tmp_path, monkeypatch):
    monkeypatch.setenv("MINARI_DATASETS_PATH", str(tmp_path))
    path = write(name, tmp_path)
    witness = Reader(path)
    target_options = options_for(witness.episodes.format, witness.episodes)
    episodes = [witness.read_episode(index) for index in witness.indices]
    halves = np.array_split(np.arange(witness.num_steps)[::-1], 2)
    batches = [witness.read_batch(half) for half in halves]
    unused_reader, started_reader = Reader(path), Reader(path)
    started_reader.read_episode(0)
    started_reader.read_batch(halves[0][:1])
    pickled = pickle.dumps(unused_reader.episodes)
    for operation in (
        Delete(episodes=[0]),
        Trim(0, 2, where="steps > 2"),
        Describe("license", "MIT"),
    ):
        rlds.edit(path, operation, target_options=target_options)
        num_steps = read_unless_changed(lambda: rlds.feeds.open(pickle.loads(pickled)).num_steps)
        assert num_steps in (None, witness.num_steps)
        for reader in (unused_reader, started_reader, witness):
            for index in reader.indices:
                check_unchanged(episodes[index], read_unless_changed(reader.read_episode, index))
            for half, before in zip(halves, batches):
                check_unchanged(before, read_unless_changed(reader.read_batch, half))
    assert len(rlds.sources.open(path, "all")) == len(episodes) - 1


def is_edit_refused(path):
    """Returns whether an edit is refused because the dataset is being written."""
    try:
        rlds.edit(path, Describe("license", "MIT"))
    except StorageError as error:
        return "is being written" in str(error)
    return False


def record(env, episodes):
    for index in range(episodes):
        timestep = env.reset()
        while not timestep.last():
            timestep = env.step(index % 3)


def test_edit_is_refused_while_a_recorder_is_open(tmp_path):
    log = tmp_path / "log"
    with envlogger.EnvLogger(Catch(), data_directory=log) as env:
        record(env, 3)
        env.flush()
        assert is_edit_refused(log)
        with envlogger.EnvLogger(Catch(), data_directory=log) as other:
            record(other, 1)
        assert is_edit_refused(log)
        record(env, 3)
    assert not is_edit_refused(log)
    rlds.edit(log, Delete(episodes=[0]))
    assert len(rlds.sources.open(log)) == 6


_RECORD = """
import sys
import envlogger
from envlogger.testing.catch_env import Catch
env = envlogger.EnvLogger(Catch(), data_directory=sys.argv[1])
for _ in range(2):
    timestep = env.reset()
    while not timestep.last():
        timestep = env.step(0)
env.flush()
print(flush=True)
sys.stdin.read()
"""


def test_edit_is_refused_until_recording_process_ends(tmp_path):
    log = tmp_path / "log"
    command = [sys.executable, "-c", _RECORD, os.fspath(log)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout.readline() == b"\n"
        assert is_edit_refused(log)
        process.kill()
    assert not is_edit_refused(log)


def test_replacement_is_refused_while_a_stream_recorder_is_open(tmp_path):
    bag = export(write("webdataset", tmp_path / "raw"), "mcap", tmp_path / "bag").path
    with envlogger.StreamRecorder(bag) as recorder:
        recorder.push("joints", 1, np.zeros(3))
        with pytest.raises(StorageError, match="is being written"), replace_dataset(bag):
            pass
        recorder.push("joints", 2, np.zeros(3))
    with replace_dataset(bag) as draft:
        shutil.copytree(bag, draft)


def test_edit_is_refused_while_a_writer_is_open(tmp_path):
    path = export(write("webdataset", tmp_path / "raw"), "tfds", tmp_path / "data").path
    from tfds_files import open_folder

    folder = open_folder(path)
    draft = tmp_path / "data" / f".{folder.name}-train.tfrecord-draft-1"
    draft.write_bytes(b"")
    descriptor = try_to_lock(draft)
    assert is_edit_refused(path)
    os.close(descriptor)
    assert not is_edit_refused(path)


def test_a_second_editor_is_refused(tmp_path):
    """The second edit is refused if the first one is running or done."""
    path = write("webdataset", tmp_path / "data")
    started, go_on = threading.Event(), threading.Event()

    def slow(episode):
        if (tmp_path / ".data.draft").exists():  # The first call only determines the field.
            started.set()
            go_on.wait(600)
        return 1

    with ThreadPoolExecutor() as pool:
        first = pool.submit(rlds.edit, path, Add("slow", slow))
        assert started.wait(600)
        with pytest.raises(FileExistsError, match=r"another process .* is writing it"):
            rlds.edit(path, Delete(episodes=[0]))
        go_on.set()
        first.result()

    def late(episode):
        if not edits:
            edits.append(rlds.edit(path, Describe("robot", "arm")))
        return 2

    edits = []
    with pytest.raises(StorageError, match="has changed since it was opened; repeat the edit"):
        rlds.edit(path, Add("late", late))
    episodes = rlds.sources.open(path)
    assert "slow" in episodes.spec
    assert "late" not in episodes.spec


_LABEL = """
import sys
import rlds.labels
from rlds.sources import SourceChangedError
labels, index = rlds.labels.open(sys.argv[1]), 0
while index < int(sys.argv[2]):
    try:
        labels.add("quality", 0, float(index), by="ada")
        print(index, flush=True)
        index += 1
    except SourceChangedError:
        labels = rlds.labels.open(sys.argv[1])
"""


def test_labels_added_during_edits_are_kept(tmp_path):
    path = write("webdataset", tmp_path)
    rlds.labels.open(path).digest(0)  # Makes the table.
    command = [sys.executable, "-c", _LABEL, os.fspath(path), "80"]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
        process.stdout.readline()
        edits = 0
        while process.poll() is None or not edits:
            with contextlib.suppress(StorageError):
                rlds.edit(path, Describe("robot", f"arm {edits}"), verify=False)
                edits += 1
        assert process.stdout.read()
    assert not process.returncode
    values = [row.value for row in rlds.labels.open(path).history(0)]
    assert values == list(map(float, range(80)))
