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
from rlds_ecosystem.files.replacing import replaced
from rlds_ecosystem.files.whole_files import try_to_lock
from rlds_ecosystem.model.errors import StorageError
from rlds_ecosystem.model.nests import named_leaves

pytest.importorskip("fcntl")

FORMATS = (
    *("aloha", "d3rlpy", "d4rl", "lerobot", "lerobot_2", "logs"),
    *("folder_tfrecord", "folder_array_record", "maniskill", "mcap", "minari_arrow"),
    *("minari_hdf5", "robomimic_all", "webdataset", "zarr"),
)


def written(name, folder):
    """Writes a dataset of several episodes; returns its path."""
    if name == "mcap":  # What is written for others has one episode.
        return folder / export(written("webdataset", folder / "raw"), "mcap", folder / "a").path
    return hostile_sources.written(name, folder)


class Reader:
    """Reads a dataset as it was when it was opened, and remembers it."""

    def __init__(self, path):
        self.episodes = rlds.sources.open(path, "all")
        self.numbers = range(len(self.episodes))
        table = rlds.feeds.open(self.episodes)
        names = [name for name, field in table.fields.items() if not field.is_text]
        table = rlds.feeds.open(self.episodes, fields=names)
        self.size = table.num_steps
        self.whole = table.steps()

    def episode(self, number):
        return digest_of(self.episodes[number].steps)

    def batch(self, numbers):
        return {path: np.array(v) for path, v in named_leaves(self.whole.batch(numbers))}


def outcome(read, *arguments):
    """The result of a read; None if the dataset was changed."""
    try:
        return read(*arguments)
    except rlds.sources.SourceChangedError:
        return None


def check_old(before, found):
    if found is None or isinstance(before, bytes):
        assert found in (None, before)
        return
    assert found.keys() == before.keys()
    for path, column in before.items():
        np.testing.assert_array_equal(found[path], column, path)


@pytest.mark.parametrize("name", FORMATS)
def test_old_data_or_an_error(name, tmp_path, monkeypatch):
    monkeypatch.setenv("MINARI_DATASETS_PATH", str(tmp_path))
    path = written(name, tmp_path)
    witness = Reader(path)
    target_options = options_for(witness.episodes.format, witness.episodes)
    episodes = [witness.episode(index) for index in witness.numbers]
    halves = np.array_split(np.arange(witness.size)[::-1], 2)
    batches = [witness.batch(half) for half in halves]
    untouched, begun = Reader(path), Reader(path)
    begun.episode(0)
    begun.batch(halves[0][:1])
    copy = pickle.dumps(untouched.episodes)
    for operation in (
        Delete(episodes=[0]),
        Trim(0, 2, where="steps > 2"),
        Describe("license", "MIT"),
    ):
        rlds.edit(path, operation, target_options=target_options)
        opened = outcome(lambda: rlds.feeds.open(pickle.loads(copy)).num_steps)
        assert opened in (None, witness.size)
        for reader in (untouched, begun, witness):
            for index in reader.numbers:
                check_old(episodes[index], outcome(reader.episode, index))
            for half, before in zip(halves, batches):
                check_old(before, outcome(reader.batch, half))
    assert len(rlds.sources.open(path, "all")) == len(episodes) - 1


def is_refused(path):
    """Whether an edit is refused because somebody writes to the dataset."""
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


def test_a_log_with_an_open_recorder(tmp_path):
    log = tmp_path / "log"
    with envlogger.EnvLogger(Catch(), data_directory=log) as env:
        record(env, 3)
        env.flush()
        assert is_refused(log)
        with envlogger.EnvLogger(Catch(), data_directory=log) as other:
            record(other, 1)
        assert is_refused(log)
        record(env, 3)
    assert not is_refused(log)
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


def test_a_recorder_of_another_process_that_is_killed(tmp_path):
    log = tmp_path / "log"
    command = [sys.executable, "-c", _RECORD, os.fspath(log)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout.readline() == b"\n"
        assert is_refused(log)
        process.kill()
    assert not is_refused(log)


def test_an_open_recorder_of_streams(tmp_path):
    bag = export(written("webdataset", tmp_path / "raw"), "mcap", tmp_path / "bag").path
    with envlogger.StreamRecorder(bag) as recorder:
        recorder.push("joints", 1, np.zeros(3))
        with pytest.raises(StorageError, match="is being written"), replaced(bag):
            pass
        recorder.push("joints", 2, np.zeros(3))
    with replaced(bag) as draft:
        shutil.copytree(bag, draft)


def test_an_open_writer_of_a_dataset(tmp_path):
    path = export(written("webdataset", tmp_path / "raw"), "tfds", tmp_path / "data").path
    from tfds_files import open_folder

    folder = open_folder(path)
    draft = tmp_path / "data" / f".{folder.name}-train.tfrecord-draft-1"
    draft.write_bytes(b"")
    descriptor = try_to_lock(draft)
    assert is_refused(path)
    os.close(descriptor)
    assert not is_refused(path)


def test_a_second_editor_is_refused(tmp_path):
    """The second one is told, whether the first one has begun or is done."""
    path = written("webdataset", tmp_path / "data")
    begun, go_on = threading.Event(), threading.Event()

    def slow(episode):
        if (tmp_path / ".data.draft").exists():  # It was called before, to know the field.
            begun.set()
            go_on.wait(60)
        return 1

    with ThreadPoolExecutor() as pool:
        first = pool.submit(rlds.edit, path, Add("slow", slow))
        assert begun.wait(60)
        with pytest.raises(FileExistsError, match=r"another process .* is writing it"):
            rlds.edit(path, Delete(episodes=[0]))
        go_on.set()
        first.result()

    def late(episode):
        if not done:
            done.append(rlds.edit(path, Describe("robot", "arm")))
        return 2

    done = []
    with pytest.raises(StorageError, match="has changed since it was opened; repeat the edit"):
        rlds.edit(path, Add("late", late))
    episodes = rlds.sources.open(path)
    assert "slow" in episodes.spec
    assert "late" not in episodes.spec


_LABEL = """
import sys
import rlds.labels
from rlds.sources import SourceChangedError
labels, number = rlds.labels.open(sys.argv[1]), 0
while number < int(sys.argv[2]):
    try:
        labels.add("quality", 0, float(number), by="ada")
        print(number, flush=True)
        number += 1
    except SourceChangedError:
        labels = rlds.labels.open(sys.argv[1])
"""


def test_labels_that_are_added_during_edits(tmp_path):
    path = written("webdataset", tmp_path)
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
