"""Paths and files of object stores, tested with a store in memory that counts requests."""

import io
import os
import pickle
from collections import Counter

import dm_env
import numpy as np
import pytest
from fast_share import one_in
from stores_of_tests import clients

import envlogger
import riegeli
from envlogger import StepData
from envlogger.errors import StorageError
from rlds_ecosystem.files import stores


class Memory:
    """A store in memory; notes its requests and fetched ranges; raises `failure` if it is set."""

    block_size = 1 << 20

    def __init__(self):
        self.objects = {}
        self.requests = Counter()
        self.fetched = []
        self.failure = None

    def _count_request(self, kind):
        self.requests[kind] += 1
        if self.failure is not None:
            raise self.failure

    def exists(self, url):
        self._count_request("exists")
        return url == "gs://bucket" or any(
            name == url or name.startswith(url + "/") for name in self.objects
        )

    def stat(self, url):
        self._count_request("stat")
        if url in self.objects:
            data, version = self.objects[url]
            return clients.ObjectInfo(False, len(data), 0.0, (version,))
        if any(name.startswith(url + "/") for name in self.objects):
            return clients.ObjectInfo(True, 0, 0.0, ())
        raise FileNotFoundError(url)

    def entries(self, url):
        self._count_request("list")
        names = [name[len(url) + 1 :] for name in self.objects if name.startswith(url + "/")]
        if not names:
            raise FileNotFoundError(url)
        return sorted({stores.Entry(name.partition("/")[0], "/" in name, None) for name in names})

    def read(self, url):
        self._count_request("read")
        if url not in self.objects:
            raise FileNotFoundError(url)
        return self.objects[url][0]

    def fetcher(self, url, version=()):
        def fetch(begin, end):
            self._count_request("fetch")
            self.fetched.append((begin, end))
            return self.objects[url][0][begin:end]

        return fetch

    def upload(self, file, url):
        self._count_request("upload")
        self.objects[url] = file.read(), sum(self.requests.values())

    def copy(self, source, target):
        self.upload(io.BytesIO(self.objects[source][0]), target)
        return True

    def remove(self, url):
        self._count_request("remove")
        if url not in self.objects:
            raise FileNotFoundError(url)
        del self.objects[url]


@pytest.fixture
def memory(monkeypatch):
    store = Memory()
    monkeypatch.setattr(clients, "client_of", lambda url: store)
    return store


def record(writer, *values):
    for value in values:
        writer.record_step(StepData(dm_env.restart(value), None), True)
        writer.record_step(StepData(dm_env.termination(1.0, value), 0), False)


def read_observations(url):
    with envlogger.Reader(url) as reader:
        return [episode[0].timestep.observation for episode in reader.episodes]


def test_paths_are_local_or_of_a_supported_store():
    assert not isinstance(stores.as_path("/a/b"), stores.StorePath)
    path = stores.as_path("gs://bucket/a")
    assert stores.as_path(path) is path
    assert os.fspath(path.parent / "c") == "gs://bucket/c"
    assert pickle.loads(pickle.dumps(path)) == path
    with pytest.raises(
        ValueError, match=r"'memory://a' is neither a path nor a supported URL.*gs://, hf://, s3://"
    ):
        stores.as_path("memory://a")


@pytest.mark.slow
@pytest.mark.parametrize("seed", one_in(3, range(5)))
def test_every_range_is_fetched_once(memory, seed):
    rng = np.random.default_rng(seed)
    content = rng.bytes(int(rng.integers(1, 12_000_000)))
    url = "gs://bucket/a"
    memory.objects[url] = content, seed + 1000
    with stores.open_binary(url) as file:
        for _ in range(300):
            begin = int(rng.integers(len(content)))
            size = int(rng.choice([1, 1000, 3_000_000]))
            assert file.seek(begin) == begin
            assert file.read(size) == content[begin : begin + size]
    with stores.open_binary(url) as file:  # Files of one object share fetched ranges.
        assert file.read() == content
    assert sum(end - begin for begin, end in memory.fetched) == len(content)
    memory.objects[url] = b"new", seed + 2000
    with stores.open_binary(url) as file:
        assert file.read() == b"new"


@pytest.mark.slow
def test_sequential_reads_need_few_requests(memory):
    memory.objects["gs://bucket/b"] = bytes(50_000_000), 3000
    with stores.open_binary("gs://bucket/b") as file:
        while file.read(10_000):
            pass
    assert len(memory.fetched) < 12


def test_an_object_that_is_replaced_while_it_is_read_is_an_error(memory):
    memory.objects["gs://bucket/c"] = bytes(3_000_000), 4000
    with stores.open_binary("gs://bucket/c") as file:
        file.read(1)
        memory.objects["gs://bucket/c"] = b"", 4001
        with pytest.raises(
            OSError, match=r"gs://bucket/c: got 0 .* was replaced while it was read"
        ):
            file.seek(2_500_000)
            file.read(1)


def test_an_object_exists_once_its_file_is_closed(memory):
    with riegeli.RecordWriter("gs://bucket/a") as writer:
        writer.write_record(b"record")
        writer.flush(riegeli.FlushType.FROM_MACHINE)
        assert not memory.objects
    with riegeli.RecordReader("gs://bucket/a") as reader:
        assert list(reader.read_records()) == [b"record"]
    file = stores.open_binary("gs://bucket/b", "wb")
    file.write(b"torn")
    del file  # Collected without having been closed.
    assert memory.objects.keys() == {"gs://bucket/a"}


def test_a_recorder_sends_requests_only_for_shards_and_flushes(memory):
    url = "gs://bucket/log"
    with envlogger.RiegeliBackendWriter(url) as writer:
        record(writer, *range(100))
        assert memory.requests == {"exists": 2, "upload": 1}  # The metadata.
        writer.flush()
        assert read_observations(url) == list(range(99))
        record(writer, 100)  # The first episode after a flush begins another shard.
        writer.flush()
        assert read_observations(url) == list(range(100))
        memory.requests.clear()
    assert read_observations(url) == list(range(101))
    assert memory.requests["upload"] == 3  # The index of the last shard.


def test_a_shard_is_readable_once_it_has_its_last_object(memory):
    url = "gs://bucket/log"
    with envlogger.RiegeliBackendWriter(url) as writer:
        record(writer, 0, 1)
    objects = dict(memory.objects)
    names = sorted(objects, key=lambda name: objects[name][1])
    for count in range(1, len(names)):
        memory.objects = {name: objects[name] for name in names[:count]}
        assert read_observations(url) == []
        if count > 1:  # The steps are uploaded.
            assert envlogger.recover(url, f"gs://bucket/recovered-{count}").num_episodes == 2


def test_a_lost_store_is_an_error_and_keeps_flushed_steps(memory):
    url = "gs://bucket/log"
    writer = envlogger.RiegeliBackendWriter(url)
    record(writer, 0, 1)
    writer.flush()
    record(writer, 2)
    memory.failure = ConnectionError("gone")
    with pytest.raises(StorageError, match=r"stops here: gone; the last 4 steps are lost"):
        writer.close()
    with pytest.raises(StorageError, match="cannot be used: gone"):
        envlogger.Reader(url)
    memory.failure = None
    assert read_observations(url) == [0]
    assert envlogger.recover(url, in_place=True).num_episodes == 2


def test_errors_of_clients_become_os_errors(monkeypatch):
    class PermissionDeniedError(Exception):
        """Has the name of TensorFlow's error."""

    class HttpError(Exception):
        """Has the name of gcsfs's error."""

        code = 404

    expected = {
        PermissionDeniedError("403"): (PermissionError, "access was refused; log in with"),
        HttpError("The specified bucket does not exist."): (FileNotFoundError, "no such bucket"),
        TimeoutError("late"): (ConnectionError, "the store cannot be reached"),
        RuntimeError("odd"): (OSError, "gs://b/o: RuntimeError: odd"),
    }
    for client_error, (error, message) in expected.items():
        with pytest.raises(error, match=message), clients._convert_errors("gs://b/o"):
            raise client_error
