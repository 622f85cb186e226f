import errno
import itertools
import json
import os
import threading

import pytest
from etils import epath
from hypothesis import given, settings
from hypothesis import strategies as st

from envlogger.errors import StorageError
from rlds.sources.source import SourceError
from rlds_ecosystem.files import whole_files
from tfds_builders.conversion import staging
from tfds_builders.conversion.staging import (
    PartWriter,
    read_part,
    remove_leftovers,
    remove_staged,
    staging_area,
    staging_directory,
)

CONVERSION = {"of": "this"}
# The second one cannot be read.
EPISODES = [("a", b"first"), ("\u2028\n*%'\"", None), ("c", b""), ("d", b"\n" * 30), ("é", b"last")]


@pytest.fixture
def directory(tmp_path):
    return epath.Path(tmp_path) / "staging"


def fill(directory, stop=None):
    """Does what is missing of a part, or the beginning of that; two episodes go together."""
    with PartWriter(directory, "train", 0) as writer:
        keys = [key for key, _ in EPISODES]
        last = writer.staged.last_key
        missing = EPISODES[0 if last is None else keys.index(last) + 1 : stop]
        for is_damaged, group in itertools.groupby(missing, lambda episode: episode[1] is None):
            if is_damaged:
                for key, _ in group:
                    writer.leave_out(key, SourceError("scratched", file="raw"), ends_part=False)
                continue
            group = list(group)
            for begin in range(0, len(group), 2):
                keys, examples = zip(*group[begin : begin + 2])
                writer.add(keys, examples, {"steps": sum(map(len, examples))})
        if stop is None:
            writer.finish()
        writer.publish()


def examples(part):
    with part.records.open("rb") as file:
        return [(example.key, part.read(example, file)) for example in part.examples]


def check_whole(directory):
    part = read_part(directory, "train", 0)
    assert part.is_complete
    assert examples(part) == [episode for episode in EPISODES if episode[1] is not None]
    assert [episode.key for episode in part.left_out] == [EPISODES[1][0]]
    assert part.counts == {"steps": 39}
    assert part.records_size == 39
    assert part.last_key == "é"


def test_a_part_in_two_goes(directory):
    directory.mkdir()
    fill(directory, 3)
    part = read_part(directory, "train", 0)
    assert (part.last_key, part.is_complete, len(part.examples)) == ("c", False, 2)
    fill(directory)
    check_whole(directory)


@given(st.integers(0, 40), st.integers(0, 400), st.integers(0, 5), st.binary(max_size=9))
@settings(max_examples=60, deadline=None)
def test_ends_of_files_are_lost(tmp_path_factory, records_size, journal_size, stop, junk):
    """Whatever the machine kept of the files when it went down, they can be completed."""
    directory = epath.Path(tmp_path_factory.mktemp("staging"))
    fill(directory, stop or None)
    for suffix, size, end in (("records", records_size, b""), ("journal", journal_size, junk)):
        path = directory / f"train-00000.{suffix}"
        path.write_bytes(path.read_bytes()[:size] + end)
    if read_part(directory, "train", 0).is_complete:
        return
    fill(directory)
    check_whole(directory)


def test_damage_that_ends_a_part_is_the_end(directory):
    directory.mkdir()
    with PartWriter(directory, "train", 0) as writer:
        writer.leave_out("a", SourceError("torn", file="raw"), ends_part=True)
    part = read_part(directory, "train", 0)
    assert part.is_complete
    assert [episode.why for episode in part.left_out] == ["raw: torn"]


def test_a_part_has_one_writer(directory):
    """Another one, which lives longer than the process that started it, is waited for."""
    directory.mkdir()
    waiting = threading.Event()
    seen = []

    def wait():
        waiting.set()
        with PartWriter(directory, "train", 0) as writer:
            seen.append(writer.staged.is_complete)

    thread = threading.Thread(target=wait)
    with PartWriter(directory, "train", 0) as writer:
        thread.start()
        waiting.wait()
        for key, example in EPISODES:
            writer.add([key], [example or b""], {})
        writer.finish()
    thread.join()
    assert seen == [True]
    assert len(read_part(directory, "train", 0).examples) == len(EPISODES)


def test_the_same_conversion_goes_on(directory):
    with staging_area(directory, CONVERSION):
        (directory / "shards" / "one").write_text("x")
    with staging_area(directory, CONVERSION):
        assert (directory / "shards" / "one").exists()
    with staging_area(directory, {"of": "that"}):
        assert not list((directory / "shards").iterdir())
        remove_staged(directory)
    assert not directory.exists()


def test_another_process_is_at_it(directory):
    with staging_area(directory, CONVERSION):
        with pytest.raises(StorageError, match="is locked: another process"):
            staging_area(directory, CONVERSION).__enter__()
        with pytest.raises(StorageError, match="is locked"):
            remove_leftovers(directory, CONVERSION)
    with staging_area(directory, CONVERSION):
        pass


def test_another_process_has_just_finished(directory, monkeypatch):
    """It removes the directory between opening it and locking it here."""

    def lock_too_late(descriptor, *, wait):
        directory.rmtree()
        return whole_files.lock(descriptor, wait=wait)

    monkeypatch.setattr(staging, "lock", lock_too_late)
    with pytest.raises(StorageError, match="another process"):
        staging_area(directory, CONVERSION).__enter__()


def test_an_area_that_could_not_be_made_is_not_held(directory, monkeypatch):
    def fail(path):
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(staging, "_empty", fail)
        with pytest.raises(StorageError, match=r"/staging' cannot be written.*No space.*free disk"):
            staging_area(directory, CONVERSION).__enter__()
    with staging_area(directory, CONVERSION):
        pass


@pytest.mark.parametrize(
    ("left", "is_same"),
    [(CONVERSION, True), ({"of": "that"}, False), (None, True)],
    ids=["this conversion", "another", "nothing but the directory"],
)
def test_leftovers(directory, left, is_same):
    directory.mkdir()
    if left is not None:
        (directory / "conversion.json").write_text(json.dumps(left))
        (directory / "train-00000.records").write_text("x")
    assert remove_leftovers(directory, CONVERSION) == is_same
    assert not directory.exists()


def test_where_a_dataset_is_staged():
    here, there = epath.Path("/data/toy/1.0.0"), epath.Path("gs://data/toy/1.0.0")
    for is_shared in (False, True):
        assert str(staging_directory(here, is_shared=is_shared)) == "/data/toy/.staging-1.0.0"
    assert str(staging_directory(there, is_shared=True)) == "gs://data/toy/.staging-1.0.0"
    local = staging_directory(there, is_shared=False)
    assert local.name.startswith("rlds-staging-")
    assert local == staging_directory(there, is_shared=False)
    assert local != staging_directory(there / "other", is_shared=False)


# --- What somebody else put there ----------------------------------------------------------------


@pytest.fixture
def secret(tmp_path):
    """A directory of somebody, with a file."""
    (tmp_path / "home").mkdir()
    (tmp_path / "home" / "letter").write_text("dear")
    return epath.Path(tmp_path) / "home"


def unchanged(secret):
    return [path.name for path in secret.iterdir()] == ["letter"] and (
        secret / "letter"
    ).read_text() == "dear"


def test_a_staging_directory_that_is_a_link(directory, secret):
    os.symlink(secret, directory)
    for enter in (
        lambda: staging_area(directory, CONVERSION).__enter__(),
        lambda: remove_leftovers(directory, CONVERSION),
    ):
        with pytest.raises(StorageError, match="staging' is a link or a special file, which no"):
            enter()
    assert unchanged(secret)


@pytest.mark.parametrize(
    ("name", "target"),
    [
        ("shards", "home"),
        ("shards/toy-train.tfrecord-00000-of-00001", "home/letter"),
        ("conversion.json", "home/letter"),
        ("train-00000.journal", "home/letter"),
    ],
)
def test_links_in_a_staging_directory(directory, secret, tmp_path, name, target):
    path = directory / name
    path.parent.mkdir(parents=True)
    os.symlink(tmp_path / target, path)
    for enter in (
        lambda: staging_area(directory, CONVERSION).__enter__(),
        lambda: remove_leftovers(directory, CONVERSION),
    ):
        with pytest.raises(StorageError, match=f"{name}' is a link or a special file"):
            enter()
    assert unchanged(secret)


@pytest.mark.parametrize(
    ("suffix", "link"),
    [
        ("records", os.symlink),
        ("journal", os.link),
        ("records", lambda target, path: os.mkfifo(path)),
    ],
)
def test_workers_write_through_no_link(directory, secret, suffix, link):
    """They do not look at the directory as a whole."""
    directory.mkdir()
    link(secret / "letter", directory / f"train-00000.{suffix}")
    with pytest.raises(StorageError, match=rf"train-00000\.{suffix}|/staging' cannot be written"):
        fill(directory)
    assert unchanged(secret)


@pytest.mark.parametrize("line", ["[" * 100_000, "\udcff", "last"])
def test_a_line_of_a_journal_that_nobody_wrote(directory, line):
    """It counts as the end of what is staged, as a line that was cut does."""
    directory.mkdir()
    fill(directory, 2)
    journal = directory / "train-00000.journal"
    before = journal.read_bytes()
    if line == "last":  # What was written, with another word.
        line = before.splitlines()[-1].decode().replace("scratched", "sound")
    journal.write_bytes(before + line.encode(errors="surrogateescape") + b"\n")
    (directory / "train-00000.records").write_bytes(b"first, and more")
    assert read_part(directory, "train", 0).journal_size == len(before)
    fill(directory)
    check_whole(directory)


def test_a_conversion_that_cannot_be_read_is_another(directory):
    with staging_area(directory, CONVERSION):
        (directory / "shards" / "one").write_text("x")
    (directory / "conversion.json").write_bytes(b"\xff\xfe")
    with staging_area(directory, CONVERSION):
        assert not list((directory / "shards").iterdir())
