"""Feeds of datasets in an object store."""

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
    monkeypatch.setattr(_copies, "_BLOCK_SIZE", 1 << 12)  # So that a file has several blocks.


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
    remote = store.directory()
    upload(local, remote)
    store.control.requests()
    return remote


def upload(local, remote):
    for file in Path(local).rglob("*"):
        if file.is_file():
            stores.copy_file(file, f"{remote}/{file.relative_to(local)}")


def collect_downloads(store):
    """Returns the names of the downloaded files, and the number of data bytes."""
    sent = [request for request in store.control.requests() if "/download/" in request[1]]
    names = [request[1].partition("?")[0].rpartition("%2F")[2] for request in sent]
    return names, sum(
        request[3]
        for name, request in zip(names, sent)
        if name.startswith("random-") and ".index" not in name
    )


def open_samples(path, **options):
    fields = ["observation/state", "observation/text", "action", "reward", "discount"]
    return rlds.feeds.open(path, format="tfds", fields=fields, **options).transitions()


def size_of(local):
    return sum(file.stat().st_size for file in Path(local).glob("*tfrecord*"))


def test_remote_batches_equal_local_ones_and_bytes_are_fetched_once(store, local, url):
    """Another feed and another process reuse the bytes."""
    samples = open_samples(url)
    feed = Feed(samples, 16, seed=1, epochs=3)
    assert "is in an object store" in feed.explain()
    expected = Feed(open_samples(local), 16, seed=1, epochs=3, shuffle=feed.plans[0].shuffle)
    state = expected.state_dict(5)
    for batch, local_batch in zip(feed.iterate(), expected, strict=True):
        assert_equal(batch, local_batch)
    names, size = collect_downloads(store)
    assert sum(name.endswith(".index") for name in names) == 12  # The indexes needed no shard.
    assert size == size_of(local)
    assert_equal(next(feed.iterate(state)), expected[5])
    again = Feed(open_samples(url), 16, seed=1, epochs=3)
    with multiprocessing.get_context("fork").Pool(1) as pool:
        assert_equal(pool.apply(again.__getitem__, (7,)), expected[7])
    assert_equal(again[4], expected[4])
    assert collect_downloads(store)[1] == 0


def rewards(feed):
    return [batch["reward"].tolist() for batch in feed]


def test_processes_share_fetched_bytes(store, local, url):
    """Even if all of them begin at the same time."""
    feed = Feed(open_samples(url), 16, seed=1, epochs=2)
    store.control.requests()
    with multiprocessing.get_context("fork").Pool(3) as pool:
        actual = pool.map(rewards, [feed] * 3, chunksize=1)
    expected = Feed(open_samples(local), 16, seed=1, epochs=2, shuffle=feed.plans[0].shuffle)
    assert actual == [rewards(expected)] * 3
    # After ten seconds without an answer, another process fetches the bytes, too.
    assert collect_downloads(store)[1] <= 1.1 * size_of(local)


@pytest.mark.parametrize("disk_bytes", [1 << 30, 1])
def test_without_an_index_each_shard_is_read_once(store, local, url, disk_bytes):
    for name in stores.list_directory(f"{url}/.feeds"):
        stores.as_path(f"{url}/.feeds/{name.name}").unlink()
    store.control.requests()
    expected = Feed(open_samples(local), 16, shuffle="global")
    for _ in range(2):
        samples = open_samples(url, disk_bytes=disk_bytes)
        assert_equal(Feed(samples, 16, shuffle="global")[3], expected[3])
    if disk_bytes > 1:
        assert collect_downloads(store)[1] == size_of(local)


def test_remote_fields_read_by_episode_equal_local_ones(store, local, url):
    names = ["observation/packed", "button", "observation/exact"]
    feed = Feed(rlds.feeds.open(url, format="tfds", fields=names).steps(), 16, epochs=1)
    expected = Feed(
        rlds.feeds.open(local, fields=names).steps(), 16, epochs=1, shuffle=feed.plans[0].shuffle
    )
    for batch, local_batch in zip(feed, expected, strict=True):
        assert_equal(batch, local_batch)


def test_copies_take_no_more_disk_than_allowed(store, local, url, tmp_path):
    options = {"format": "tfds", "fields": ["observation/state"]}
    samples = rlds.feeds.open(url, disk_bytes=4 * _copies._BLOCK_SIZE, **options).steps()
    feed = Feed(samples, 4, seed=1, epochs=2)
    expected = Feed(
        rlds.feeds.open(local, **options).steps(), 4, seed=1, shuffle=feed.plans[0].shuffle
    )
    for index in range(0, len(feed), 12):  # The next batch drops the blocks above the limit.
        assert_equal(feed[index], expected[index])
    copies = [*(tmp_path / "cache").rglob("*tfrecord-000[01][0-9]")]
    assert len(copies) == 12
    assert sum(copy.stat().st_blocks * 512 for copy in copies) < size_of(local) / 2


def test_next_blocks_are_fetched_ahead(store, local, url):
    samples = open_samples(url)
    feed = Feed(samples, 4, seed=1, epochs=1)
    batches = feed.iterate()
    actual = [next(batches), next(batches)]
    copies = samples.table.storage.files.copies
    while not all(copy.fetch_times.all() for copy in copies.objects):
        time.sleep(0.01)
    store.set(down=True)
    actual += batches
    expected = Feed(open_samples(local), 4, seed=1, epochs=1, shuffle=feed.plans[0].shuffle)
    assert len(actual) == len(expected)
    assert_equal(actual[-1], expected[-1])


def test_epoch_needs_few_requests_all_for_content(store, local, url):
    """Each request names the version of the object."""
    gcsfs = pytest.importorskip("gcsfs")
    if "generation" not in inspect.signature(gcsfs.GCSFileSystem.url).parameters:
        pytest.skip("this gcsfs cannot request a version")
    samples = open_samples(url)
    store.control.requests()
    for _ in Feed(samples, 64, seed=1, epochs=1):
        pass
    requests = store.control.requests()
    assert all("/download/" in path and "generation=" in path for _, path, *_ in requests)
    assert len(requests) <= 2 * len(samples.table.storage.indexes)


@pytest.mark.slow  # Waits for timeouts.
def test_failed_or_stalled_request_is_repeated(store, local, url, monkeypatch):
    monkeypatch.setattr(
        _copies, "_REQUEST_TIMEOUT_S", 2.0 - _copies._MAX_REQUEST_BYTES / _copies._MIN_BYTES_PER_S
    )
    samples = open_samples(url)
    store.set(fail=2, stall=1)
    expected = Feed(open_samples(local), 16, shuffle="global")
    assert_equal(Feed(samples, 16, shuffle="global")[0], expected[0])


def test_errors_name_object_and_lose_no_batch(store, local, url, monkeypatch):
    feed = Feed(open_samples(url), 16, seed=1, epochs=1)
    expected = Feed(open_samples(local), 16, seed=1, epochs=1, shuffle=feed.plans[0].shuffle)
    batches = feed.iterate(prefetch=False)
    store.set(down=True)
    with monkeypatch.context() as impatient:
        patience = 1.0 - _copies._MAX_REQUEST_BYTES / _copies._MIN_BYTES_PER_S
        impatient.setattr(_copies, "_REQUEST_TIMEOUT_S", patience)
        where = rf"{url}/random-train.tfrecord-000.*no answer for 1 sec"
        with pytest.raises(SourceError, match=where):
            next(batches)
    store.set()
    for local_batch in expected:
        assert_equal(next(batches), local_batch)


def test_incomplete_writes_on_full_disk_are_not_read(store, local, url, monkeypatch):
    feed = Feed(open_samples(url), 16, shuffle="global")
    expected = Feed(open_samples(local), 16, shuffle="global")
    with monkeypatch.context() as full:
        write = os.pwrite
        full.setattr(os, "pwrite", lambda fd, data, pos: write(fd, data[: len(data) // 2], pos))
        with pytest.raises(SourceError, match=r"copies.* cannot be written: the disk is full"):
            feed[0]
    assert_equal(feed[0], expected[0])


def test_missing_or_replaced_object_is_an_error(store, local, url, tmp_path):
    first = open_samples(url)
    name = f"{url}/random-train.tfrecord-00003"
    stores.copy_file(name, f"{url}/other")
    stores.as_path(name).unlink()
    with pytest.raises(SourceError, match=r"00003: no such object"):
        Feed(first, len(first))[0]
    stores.move_file(f"{url}/other", name)
    with pytest.raises(SourceChangedError, match=r"00003: the object was replaced"):
        Feed(first, len(first))[0]
    again = open_samples(url)
    expected = Feed(open_samples(local), 9, shuffle=None)
    assert_equal(Feed(again, 9, shuffle=None)[0], expected[0])
    shutil.rmtree(tmp_path / "cache" / "copies")
    with pytest.raises(SourceChangedError, match="its local copy was removed"):
        Feed(again, len(again))[0]


def test_remote_array_record_equals_local_files(store, tmp_path):
    pytest.importorskip("array_record")
    episodes = feed_datasets.random_episodes(30, seed=1, longest=30)
    local = feed_datasets.write(tmp_path / "here", episodes, file_format="array_record")
    remote = store.directory()
    upload(local, remote)
    feed, expected = (
        Feed(rlds.feeds.open(path, fields=["action"], format="tfds").steps(), 16, epochs=2)
        for path in (remote, local)
    )
    for batch, local_batch in zip(feed, expected, strict=True):
        assert_equal(batch, local_batch)


@pytest.mark.slow  # Starts a server of its own.
def test_batches_from_s3_equal_local_ones(local, tmp_path):
    with stores_of_tests.running("s3fs", tmp_path) as store:
        url = store.directory()
        upload(local, url)
        feed = Feed(open_samples(url), 16, seed=1, epochs=1)
        expected = Feed(open_samples(local), 16, seed=1, epochs=1, shuffle=feed.plans[0].shuffle)
        for batch, local_batch in zip(feed, expected, strict=True):
            assert_equal(batch, local_batch)


HUB_SCRIPT = """
    import numpy as np
    import rlds.feeds, rlds.sources
    from rlds_ecosystem.files import stores

    local, url = {local!r}, "hf://datasets/owner/name"
    samples = rlds.feeds.open(url, format="tfds").transitions()
    feed = rlds.feeds.Feed(samples, 16, seed=1, epochs=1)
    local_samples = rlds.feeds.open(local).transitions()
    expected = rlds.feeds.Feed(local_samples, 16, seed=1, epochs=1, shuffle=feed.plans[0].shuffle)
    for batch, local_batch in zip(feed, expected, strict=True):
        np.testing.assert_equal(batch, local_batch)
    assert len(rlds.sources.open(url, format="tfds")) == 60
    names = sorted(path.name for path in stores.as_path(url).iterdir())
    assert names and not stores.as_path(url + "/nothing").exists()
    for missing in (url + "/nothing", "hf://datasets/owner/another/file"):
        try:
            stores.open_binary(missing)
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
            variables = {"HF_ENDPOINT": address, "HF_HUB_OFFLINE": "0", "no_proxy": "127.0.0.1"}
            script = textwrap.dedent(HUB_SCRIPT.format(local=str(folder)))
            subprocess.run([sys.executable, "-c", script], env=os.environ | variables, check=True)
        finally:
            hub.kill()
            lines = hub.stdout.read().splitlines()
    listings = [line for line in lines if line.startswith("/api/datasets/owner/name")]
    assert len(listings) == 2  # The commit, and its files.
    assert any("tfrecord" in line and "bytes=" in line for line in lines)
