"""Feeds of datasets that are in an object store."""

import inspect
import multiprocessing
import os
import shutil
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import feed_datasets
import pytest
import stores_of_tests
from numpy.testing import assert_equal

import rlds.feeds
import tfds_files
from rlds.feeds import Feed
from rlds.raw_files.untrusted import SourceChangedError
from rlds.sources.source import SourceError
from rlds_ecosystem.files import stores
from rlds_ecosystem.files.stores import _copies


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    with stores_of_tests.running("gcsfs", tmp_path_factory.mktemp("store")) as running:
        yield running


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("RLDS_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setattr(_copies, "_BLOCK_SIZE", 1 << 12)  # So that files have some.


@pytest.fixture(scope="module")
def local(tmp_path_factory):
    """A dataset of 60 episodes with fields of all kinds, and the indexes of its shards."""
    episodes = feed_datasets.random_episodes(60, seed=1, longest=60)
    directory = feed_datasets.write(tmp_path_factory.mktemp("data"), episodes)
    tfds_files.open_indexes(tfds_files.open_folder(directory)["train"])
    return directory


@pytest.fixture
def url(store, local):
    store.set()
    there = store.directory()
    upload(local, there)
    store.control.requests()
    return there


def upload(local, there):
    for file in Path(local).rglob("*"):
        if file.is_file():
            stores.copy_file(file, f"{there}/{file.relative_to(local)}")


def fetched(store):
    """The files whose content was requested, and the number of bytes."""
    sent = [each for each in store.control.requests() if "/download/" in each[1]]
    names = [each[1].partition("?")[0].rpartition("%2F")[2] for each in sent]
    return names, sum(
        each[3]
        for name, each in zip(names, sent)
        if name.startswith("random-") and ".index" not in name
    )


def samples_of(path, **options):
    fields = ["observation/state", "observation/text", "action", "reward", "discount"]
    return rlds.feeds.open(path, format="tfds", fields=fields, **options).transitions()


def size_of(local):
    return sum(file.stat().st_size for file in Path(local).glob("*tfrecord*"))


def test_batches_are_those_of_the_same_files_here_and_bytes_are_fetched_once(store, local, url):
    """Also by another feed, and in another process."""
    samples = samples_of(url)
    feed = Feed(samples, 16, seed=1, epochs=3)
    assert "is in an object store" in feed.explain()
    expected = Feed(samples_of(local), 16, seed=1, epochs=3, shuffle=feed.plans[0].shuffle)
    state = expected.state_dict(5)
    for batch, requested in zip(feed.iterate(), expected, strict=True):
        assert_equal(batch, requested)
    names, size = fetched(store)
    assert sum(name.endswith(".index") for name in names) == 12  # No shard was read for these.
    assert size == size_of(local)
    assert_equal(next(feed.iterate(state)), expected[5])
    again = Feed(samples_of(url), 16, seed=1, epochs=3)
    with multiprocessing.get_context("fork").Pool(1) as pool:
        assert_equal(pool.apply(again.__getitem__, (7,)), expected[7])
    assert_equal(again[4], expected[4])
    assert fetched(store)[1] == 0


def rewards(feed):
    return [batch["reward"].tolist() for batch in feed]


def test_processes_share_what_they_fetch(store, local, url):
    """Also if all of them begin at the same time."""
    feed = Feed(samples_of(url), 16, seed=1, epochs=2)
    store.control.requests()
    with multiprocessing.get_context("fork").Pool(3) as pool:
        actual = pool.map(rewards, [feed] * 3, chunksize=1)
    expected = Feed(samples_of(local), 16, seed=1, epochs=2, shuffle=feed.plans[0].shuffle)
    assert actual == [rewards(expected)] * 3
    # What a process does not get in ten seconds is fetched by another, too.
    assert fetched(store)[1] <= 1.1 * size_of(local)


@pytest.mark.parametrize("disk_bytes", [1 << 30, 1])
def test_without_an_index_each_shard_is_read_once(store, local, url, disk_bytes):
    for name in stores.list_directory(f"{url}/.feeds"):
        stores.as_path(f"{url}/.feeds/{name.name}").unlink()
    store.control.requests()
    expected = Feed(samples_of(local), 16, shuffle="global")
    for _ in range(2):
        samples = samples_of(url, disk_bytes=disk_bytes)
        assert_equal(Feed(samples, 16, shuffle="global")[3], expected[3])
    if disk_bytes > 1:
        assert fetched(store)[1] == size_of(local)


def test_fields_that_are_read_by_whole_episodes(store, local, url):
    names = ["observation/packed", "button", "observation/exact"]
    feed = Feed(rlds.feeds.open(url, format="tfds", fields=names).steps(), 16, epochs=1)
    expected = Feed(
        rlds.feeds.open(local, fields=names).steps(), 16, epochs=1, shuffle=feed.plans[0].shuffle
    )
    for batch, requested in zip(feed, expected, strict=True):
        assert_equal(batch, requested)


def test_no_more_of_the_disk_is_taken_than_allowed(store, local, url, tmp_path):
    options = {"format": "tfds", "fields": ["observation/state"]}
    samples = rlds.feeds.open(url, disk_bytes=4 * _copies._BLOCK_SIZE, **options).steps()
    feed = Feed(samples, 4, seed=1, epochs=2)
    expected = Feed(
        rlds.feeds.open(local, **options).steps(), 4, seed=1, shuffle=feed.plans[0].shuffle
    )
    for index in range(0, len(feed), 12):  # A batch needs more, which is dropped by the next one.
        assert_equal(feed[index], expected[index])
    copies = [*(tmp_path / "cache").rglob("*tfrecord-000[01][0-9]")]
    assert len(copies) == 12
    assert sum(copy.stat().st_blocks * 512 for copy in copies) < size_of(local) / 2


def test_what_comes_next_is_fetched_before_it_is_needed(store, local, url):
    samples = samples_of(url)
    feed = Feed(samples, 4, seed=1, epochs=1)
    batches = feed.iterate()
    made = [next(batches), next(batches)]
    copies = samples.table.storage.files.copies
    while not all(each.fetch_times.all() for each in copies.objects):
        time.sleep(0.01)
    store.set(down=True)
    made += batches
    expected = Feed(samples_of(local), 4, seed=1, epochs=1, shuffle=feed.plans[0].shuffle)
    assert len(made) == len(expected)
    assert_equal(made[-1], expected[-1])


def test_an_epoch_takes_few_requests_and_all_of_them_are_for_content(store, local, url):
    """The requests themselves say of which version it has to be."""
    gcsfs = pytest.importorskip("gcsfs")
    if "generation" not in inspect.signature(gcsfs.GCSFileSystem.url).parameters:
        pytest.skip("this gcsfs cannot request a version")
    samples = samples_of(url)
    store.control.requests()
    for _ in Feed(samples, 64, seed=1, epochs=1):
        pass
    requests = store.control.requests()
    assert all("/download/" in path and "generation=" in path for _, path, *_ in requests)
    assert len(requests) <= 2 * len(samples.table.storage.indexes)


@pytest.mark.slow  # It waits.
def test_a_request_that_fails_or_gets_no_answer_is_made_again(store, local, url, monkeypatch):
    monkeypatch.setattr(
        _copies, "_REQUEST_TIMEOUT_S", 2.0 - _copies._MAX_REQUEST_BYTES / _copies._MIN_BYTES_PER_S
    )
    samples = samples_of(url)
    store.set(fail=2, stall=1)
    expected = Feed(samples_of(local), 16, shuffle="global")
    assert_equal(Feed(samples, 16, shuffle="global")[0], expected[0])


def test_errors_name_the_object_and_nothing_is_left_out(store, local, url, monkeypatch):
    feed = Feed(samples_of(url), 16, seed=1, epochs=1)
    expected = Feed(samples_of(local), 16, seed=1, epochs=1, shuffle=feed.plans[0].shuffle)
    batches = feed.iterate(prefetch=False)
    store.set(down=True)
    with monkeypatch.context() as impatient:
        patience = 1.0 - _copies._MAX_REQUEST_BYTES / _copies._MIN_BYTES_PER_S
        impatient.setattr(_copies, "_REQUEST_TIMEOUT_S", patience)
        where = rf"{url}/random-train.tfrecord-000.*no answer for 1 sec"
        with pytest.raises(SourceError, match=where):
            next(batches)
    store.set()
    for requested in expected:
        assert_equal(next(batches), requested)


def test_what_a_full_disk_did_not_take_is_not_read(store, local, url, monkeypatch):
    feed = Feed(samples_of(url), 16, shuffle="global")
    expected = Feed(samples_of(local), 16, shuffle="global")
    with monkeypatch.context() as full:
        write = os.pwrite
        full.setattr(os, "pwrite", lambda file, data, at: write(file, data[: len(data) // 2], at))
        with pytest.raises(SourceError, match=r"copies.* cannot be written: the disk is full"):
            feed[0]
    assert_equal(feed[0], expected[0])


def test_an_object_that_is_gone_or_replaced_is_an_error(store, local, url, tmp_path):
    first = samples_of(url)
    name = f"{url}/random-train.tfrecord-00003"
    stores.copy_file(name, f"{url}/other")
    stores.as_path(name).unlink()
    with pytest.raises(SourceError, match=r"00003: no such object"):
        Feed(first, len(first))[0]
    stores.move_file(f"{url}/other", name)
    with pytest.raises(SourceChangedError, match=r"00003: the object was replaced"):
        Feed(first, len(first))[0]
    again = samples_of(url)
    expected = Feed(samples_of(local), 9, shuffle=None)
    assert_equal(Feed(again, 9, shuffle=None)[0], expected[0])
    shutil.rmtree(tmp_path / "cache" / "copies")
    with pytest.raises(SourceChangedError, match="its local copy was removed"):
        Feed(again, len(again))[0]


def test_other_formats_are_read_many_episodes_at_a_time(store, tmp_path):
    pytest.importorskip("array_record")
    episodes = feed_datasets.random_episodes(30, seed=1, longest=30)
    here = feed_datasets.write(tmp_path / "here", episodes, file_format="array_record")
    there = store.directory()
    upload(here, there)
    feed, expected = (
        Feed(rlds.feeds.open(path, fields=["action"], format="tfds").steps(), 16, epochs=2)
        for path in (there, here)
    )
    for batch, requested in zip(feed, expected, strict=True):
        assert_equal(batch, requested)


@pytest.mark.slow  # It takes a server of its own.
def test_batches_from_s3_are_those_of_local_files(local, tmp_path):
    with stores_of_tests.running("s3fs", tmp_path) as store:
        url = store.directory()
        upload(local, url)
        feed = Feed(samples_of(url), 16, seed=1, epochs=1)
        expected = Feed(samples_of(local), 16, seed=1, epochs=1, shuffle=feed.plans[0].shuffle)
        for batch, requested in zip(feed, expected, strict=True):
            assert_equal(batch, requested)


HUB = """
    import numpy as np
    import rlds.feeds, rlds.sources
    from rlds_ecosystem.files import stores

    local, url = {local!r}, "hf://datasets/owner/name"
    plan = rlds.feeds.open(url, format="tfds").transitions()
    feed = rlds.feeds.Feed(plan, 16, seed=1, epochs=1)
    here = rlds.feeds.open(local).transitions()
    expected = rlds.feeds.Feed(here, 16, seed=1, epochs=1, shuffle=feed.plans[0].shuffle)
    for batch, wanted in zip(feed, expected, strict=True):
        np.testing.assert_equal(batch, wanted)
    assert len(rlds.sources.open(url, format="tfds")) == 60
    names = sorted(path.name for path in stores.as_path(url).iterdir())
    assert names and not stores.as_path(url + "/nothing").exists()
    for wrong in (url + "/nothing", "hf://datasets/owner/another/file"):
        try:
            stores.open_binary(wrong)
        except FileNotFoundError as error:
            assert "or it is private: log in with `hf auth login`" in str(error), error
    for write in (stores.as_path(url + "/new").mkdir, lambda: stores.as_path(url).write_bytes(b"")):
        try:
            write()
        except OSError as error:
            assert "hf:// is read-only" in str(error), error
        else:
            raise AssertionError("written")
"""


def test_a_feed_reads_byte_ranges_from_the_hub(local, tmp_path):
    pytest.importorskip("huggingface_hub")
    folder = shutil.copytree(local, tmp_path / "data")
    server = Path(__file__).parents[2] / "support" / "hub_server.py"
    command = [sys.executable, "-u", server, folder]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as hub:
        try:
            address = hub.stdout.readline().strip()
            named = {"HF_ENDPOINT": address, "HF_HUB_OFFLINE": "0", "no_proxy": "127.0.0.1"}
            script = textwrap.dedent(HUB.format(local=str(folder)))
            subprocess.run([sys.executable, "-c", script], env=os.environ | named, check=True)
        finally:
            hub.kill()
            lines = hub.stdout.read().splitlines()
    asked = [line for line in lines if line.startswith("/api/datasets/owner/name")]
    assert len(asked) == 2  # Which commit there is, and which files that has.
    assert any("tfrecord" in line and "bytes=" in line for line in lines)
