"""Operations on directories, with URLs: each client, on an emulator."""

import json
import os
import subprocess
import sys
import textwrap
import threading
import time
from pathlib import Path

import dm_env
import h5py
import numpy as np
import pytest
import raw_d4rl
import stores_of_tests
import tensorflow_datasets as tfds
from conversions import Interrupted
from dm_env import specs
from stores_of_tests import clients, environment, paths
from toy_source import ToySource

import envlogger
import rlds
import rlds.sources
import rlds.tfds
import tfds_builders
from envlogger import StepData
from envlogger.converters import spec_codec
from envlogger.errors import StorageError
from rlds.formats.tfds.source import FolderSource
from rlds_ecosystem.files import stores

pytestmark = [
    pytest.mark.slow,
    # The clients leave what they have opened to the garbage collector.
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
]


@pytest.fixture(scope="module", params=stores_of_tests.CLIENTS)
def store(request, tmp_path_factory):
    with stores_of_tests.running(request.param, tmp_path_factory.mktemp("store")) as store:
        yield store


def requests_of(store, action):
    """Returns the requests of an action, as [method, path, bytes sent, bytes received]."""
    store.control.requests()
    action()
    return store.control.requests()


def make_recorder(directory, **options):
    arrays = {"observation": specs.Array((50,), np.float64), "action": specs.Array((), np.int64)}
    arrays |= {"reward": specs.Array((), np.float64), "discount": specs.Array((), np.float64)}
    encoded = {f"{name}_spec": spec_codec.encode(spec) for name, spec in arrays.items()}
    return envlogger.RiegeliBackendWriter(
        directory, metadata={"environment_specs": encoded}, **options
    )


def record(writer, *indices, num_steps=8):
    """Records episodes with their index as the action."""
    for index in indices:
        observations = np.random.default_rng(index).random((num_steps, 50))
        action = np.int64(index)
        writer.record_step(StepData(dm_env.restart(observations[0]), action), True)
        for observation in observations[1:-1]:
            writer.record_step(StepData(dm_env.transition(1.0, observation), action), False)
        writer.record_step(StepData(dm_env.termination(1.0, observations[-1]), action), False)
        writer.set_episode_metadata({"number": index})


def read_columns(directory, order=None):
    """Returns the observations of all episodes, by the recorded index."""
    with envlogger.Reader(directory) as reader:
        order = range(len(reader.episodes)) if order is None else order(len(reader.episodes))
        episodes = [reader.columns(i) for i in order]
        return {int(episode["action"][0]): episode["observation"] for episode in episodes}


def assert_same(actual, expected):
    assert actual.keys() == expected.keys()
    for key, values in expected.items():
        np.testing.assert_array_equal(actual[key], values)


def test_paths_of_stores_work_like_local_paths(store):
    content = np.random.default_rng(0).bytes(5_000_000)
    root = stores.as_path(store.directory())
    assert not root.exists()
    assert not root.is_dir()
    (root / "a" / "b").mkdir(parents=True)
    for name in ("a/b/large", "a/b/small", "a/c", "d-1-of-2"):
        assert (root / name).write_bytes(content if name == "a/b/large" else b"12345") > 0
    empty = stores.as_path(store.directory()) / "empty"
    empty.write_bytes(b"")
    assert empty.stat().length == 0
    (root / "text").write_text("ä")
    assert (root / "text").read_text() == "ä"
    assert (root / "a").is_dir()
    assert not (root / "a").is_file()
    assert (root / "a/c").is_file()
    assert (root / "a/b/large").stat().length == len(content)
    assert [(e.name, e.is_dir) for e in stores.list_directory(root)] == [
        *(("a", True), ("d-1-of-2", False), ("text", False))
    ]
    assert [os.fspath(p) for p in root.glob("*/b/s*")] == [f"{root}/a/b/small"]
    assert {os.fspath(d): names for d, _, names in root.walk()} == {
        f"{root}": ["d-1-of-2", "text"],
        f"{root}/a": ["c"],
        f"{root}/a/b": ["large", "small"],
    }
    with (root / "a/b/large").open("rb") as file:
        assert file.read(10) == content[:10]
        assert file.seek(-10, os.SEEK_END) == len(content) - 10
        assert file.read() == content[-10:]
        for begin in np.random.default_rng(1).permutation(len(content) - 1000)[:100]:
            file.seek(begin)
            assert file.read(1000) == content[begin : begin + 1000]
    version = stores.version_of(root / "a/c")
    assert stores.version_of(root / "a/c") == version
    time.sleep(1.1)  # S3 stores times in seconds.
    (root / "a/c").write_bytes(b"54321")
    assert stores.version_of(root / "a/c") != version
    with pytest.raises(FileExistsError):
        (root / "a/c").rename(root / "text")
    (root / "a").rename(root / "e")
    assert (root / "e/b/large").read_bytes() == content
    assert not (root / "a/c").exists()
    with pytest.raises(FileNotFoundError, match="no such object"):
        (root / "a/c").open("rb")
    with pytest.raises(RuntimeError), (root / "torn").open("wb") as file:
        file.write(b"the beginning")
        raise RuntimeError
    assert not (root / "torn").exists()
    (root / "e").rmtree()
    assert [e.name for e in stores.list_directory(root)] == ["d-1-of-2", "text"]
    # Another process, with its own cache.
    code = (
        f"from rlds_ecosystem.files import stores; stores.as_path('{root}/f/g').write_bytes(b'1')"
    )
    subprocess.run([sys.executable, "-c", code], check=True, env=environment())
    assert [e.name for e in stores.list_directory(root)] == ["d-1-of-2", "f", "text"]
    assert (root / "f/g").read_bytes() == b"1"


_RECORDER = """
    import sys, time
    sys.path += {folders!r}
    from test_clients import make_recorder, record
    writer = make_recorder({url!r}, max_episodes_per_file=3)
    record(writer, *range(8))
    writer.flush()
    record(writer, *range(8, 11))
    print("recorded", flush=True)
    time.sleep(60)
"""


def run(*arguments):
    """Runs Python with some arguments; returns its output."""
    command = [sys.executable, *arguments]
    process = subprocess.run(command, capture_output=True, text=True, env=environment())
    assert process.returncode == 0, process.stderr
    return process.stdout


def test_a_killed_recording_is_recovered_and_becomes_datasets(store, tmp_path):
    log, data = store.directory(), store.directory()
    folder = Path(__file__).parent
    code = _RECORDER.format(url=log, folders=[str(folder), str(folder.parents[1] / "support")])
    arguments = [sys.executable, "-c", textwrap.dedent(code)]
    with subprocess.Popen(arguments, stdout=subprocess.PIPE, env=environment()) as recorder:
        assert recorder.stdout.readline() == b"recorded\n"
        # Two shards are complete, and the third one is flushed; the last one is not.
        assert read_columns(log).keys() == set(range(7))
        recorder.kill()
    with make_recorder(tmp_path) as writer:
        record(writer, *range(8))
    expected = read_columns(tmp_path)

    target = store.directory()
    report = envlogger.recover(log, target)
    assert (report.num_episodes_before, report.num_episodes) == (7, 8)
    assert_same(read_columns(target), expected)
    assert "7 -> 8 episodes" in run("-m", "rlds_tools", "recover", log)
    if store.client == "tensorflow":
        time.sleep(6)  # TensorFlow caches objects for five seconds.
    assert_same(read_columns(log, np.random.default_rng(0).permutation), expected)
    with envlogger.Reader(log) as reader:
        assert [metadata["number"] for metadata in reader.episode_metadata()] == list(range(8))
    episodes = tfds_builders.episodes_from_logs(log, layout="batched").as_numpy_iterator()
    assert_same({int(e["number"]): e["steps"]["observation"] for e in episodes}, expected)

    builder = tfds_builders.build_from_logs(log, name="walk", data_dir=data)
    local = tfds_builders.build_from_logs(tmp_path, name="walk", data_dir=tmp_path / "data")
    data_path = stores.as_path(os.fspath(builder.data_path))
    files = [entry.name for entry in stores.list_directory(data_path)]
    assert files == sorted(path.name for path in local.data_path.iterdir())
    reports = [
        json.loads(run("-m", "rlds_tools", "inspect", os.fspath(path), "--json"))
        for path in (data_path, local.data_path)
    ]
    for name in ("version", "file_format", "step_fields", "episode_fields"):
        assert reports[0][name] == reports[1][name], name
    with pytest.raises(FileExistsError, match="exists and is not overwritten"):
        tfds_builders.build_from_logs(log, name="walk", data_dir=data)
    copy = tfds_builders.convert(FolderSource(data_path), name="copied", data_dir=data)
    assert copy.info.splits["train"].num_examples == 8

    rows = {"terminals": raw_d4rl.flags(50, 19, 49), "timeouts": raw_d4rl.flags(50)}
    raw_d4rl.write(tmp_path / "a.hdf5", {**raw_d4rl.transitions([20, 30], 3, 2), **rows})
    stores.copy_file(tmp_path / "a.hdf5", f"{data}/a.hdf5")
    output = run("-m", "rlds_tools", "convert", "--dataset", "rlds_d4rl", f"{data}/a.hdf5", data)
    assert "2 episodes" in output

    if store.client == "s3fs":  # TensorFlow reads no s3://.
        with pytest.raises(ValueError, match="TensorFlow cannot read s3://"):
            rlds.tfds.load(data_path)
        return
    loaded = rlds.tfds.load(data_path, "train").as_numpy_iterator()
    assert_same({int(e["number"]): e["steps"]["observation"] for e in loaded}, expected)
    rlds.sources.export(output.splitlines()[0], "d4rl", f"{data}/b.hdf5")
    with stores.open_binary(f"{data}/b.hdf5") as file, h5py.File(file) as hdf5_file:
        assert hdf5_file["observations"].shape == (50, 3)


def test_datasets_are_written_to_stores(store, tmp_path):
    directory = store.directory()
    config = rlds.tfds.DatasetConfig(
        name="numbers", observation_info=np.int64, action_info=np.int64, reward_info=np.float32
    )

    def episode(value):
        flags = {
            name: np.array([name == "is_first", name == "is_last"]) for name in rlds.STEP_FLAGS
        }
        values = np.full(2, value)
        steps = {"observation": values, "action": values, "reward": values.astype(np.float32)}
        return {"steps": {**steps, **flags}}

    for begin in (0, 5):
        with rlds.tfds.EpisodeWriter(
            directory, config, max_episodes_per_file=2, overwrite=False
        ) as writer:
            for value in range(begin, begin + 5):
                writer.add_episode(episode(value))
    if store.client == "s3fs":  # TensorFlow reads no s3://.
        for path in stores.as_path(directory).iterdir():
            stores.copy_file(path, tmp_path / path.name)
        directory = tmp_path
    loaded = rlds.tfds.load(directory, "train").as_numpy_iterator()
    assert sorted(int(e["steps"]["observation"][0]) for e in loaded) == list(range(10))


def test_logs_need_few_and_large_requests(store, tmp_path):
    """No request for a single step, and no byte twice."""
    if store.control is None:
        pytest.skip("moto does not count")
    log = store.directory()

    def record_all():
        with make_recorder(log) as writer:
            record(writer, *range(30), num_steps=100)

    uploads = requests_of(store, record_all)
    size = sum(path.stat().length for path in stores.as_path(log).glob("*/*"))
    assert size < sum(sent for _, _, sent, _ in uploads) < size + 1000
    assert len(uploads) < 20
    for order in (None, np.random.default_rng(0).permutation):
        downloads = requests_of(store, lambda order=order: read_columns(log, order))
        assert sum(received for *_, received in downloads) < size + 10_000
        assert len(downloads) < 20


def read_files(folder):
    """Returns the bytes of all files below a folder, by their names."""
    files = {}
    for path in folder.iterdir():
        if path.is_dir():
            files |= {f"{path.name}/{name}": data for name, data in read_files(path).items()}
        else:
            files[path.name] = path.read_bytes()
    return files


def test_an_interrupted_publication_can_be_completed(store, tmp_path, monkeypatch):
    """A dataset exists only when all of its objects do."""
    (tmp_path / "log").mkdir()
    with make_recorder(tmp_path / "log") as writer:
        record(writer, *range(4))
    options = {"name": "walk", "progress": False}
    config = tfds.download.DownloadConfig(num_shards=2)
    source = tfds_builders.EnvLoggerSource(tmp_path / "log")
    local = tfds_builders.convert(
        source, data_dir=tmp_path / "data", download_config=config, **options
    )
    expected = read_files(local.data_path)
    original = stores.copy_file

    data, num_copies, is_interrupted = store.directory(), 0, True
    for failing_copy in range(1, 20):

        def copy_file(source, target, failing_copy=failing_copy):
            nonlocal num_copies
            num_copies += 1
            if num_copies == failing_copy:
                raise Interrupted
            original(source, target)

        data, num_copies = store.directory(), 0
        for module in (stores, paths):
            monkeypatch.setattr(module, "copy_file", copy_file)
        try:
            tfds_builders.convert(source, data_dir=data, download_config=config, **options)
            is_interrupted = False
        except Interrupted:
            path = stores.as_path(data) / "walk" / "1.0.0" / "dataset_info.json"
            assert not path.exists()
        monkeypatch.undo()
        if not is_interrupted:
            break
        converted = tfds_builders.convert(source, data_dir=data, download_config=config, **options)
        published = stores.as_path(os.fspath(converted.data_path))
        assert read_files(published) == expected
    assert failing_copy == len(expected) + 1
    # A dataset that lacks a shard is not overwritten, and cannot be read.
    [_, shard] = published.glob("*-of-*")
    shard.unlink()
    with pytest.raises(FileExistsError, match="is not overwritten; choose another name"):
        tfds_builders.convert(source, data_dir=data, download_config=config, **options)
    with pytest.raises(rlds.sources.SourceError, match=shard.name):
        [*rlds.sources.open(published)]


def make_users(url):
    """Returns functions that use a URL, which all raise the same error."""
    config = rlds.tfds.DatasetConfig(
        name="numbers", observation_info=np.int64, action_info=np.int64, reward_info=np.float32
    )
    return [
        lambda: make_recorder(url),
        lambda: envlogger.Reader(url),
        lambda: envlogger.recover(url, in_place=True),
        lambda: rlds.tfds.EpisodeWriter(url, config),
        lambda: tfds_builders.convert(ToySource(__file__), name="toy", data_dir=url),
    ]


def test_a_missing_bucket_is_an_error(store):
    for use in make_users(f"{store.scheme}://nowhere/data"):
        with pytest.raises(StorageError, match=r"no bucket 'nowhere' .*create it first"):
            use()


def test_refused_access_is_an_error_with_a_login_hint(store):
    log = store.directory()
    log_in = "set AWS_ACCESS_KEY_ID" if store.client == "s3fs" else "log in with `gcloud"
    with make_recorder(log) as writer:
        record(writer, 0, 1)
        writer.flush()
        record(writer, 2)
        store.set(refuse=True)
        try:
            for use in make_users(store.directory()):
                with pytest.raises(StorageError, match=f"access was refused; {log_in}"):
                    use()
            with pytest.raises(
                StorageError, match=r"refused.*the last 16 steps are lost"
            ) as caught:
                writer.flush()
            assert "space" not in str(caught.value)
        finally:
            store.set()
    assert read_columns(log).keys() == {0}


def test_recording_survives_an_outage_of_the_store(store):
    log = store.directory()
    with make_recorder(log) as writer:
        record(writer, 0)
        store.set(down=True)
        end = threading.Timer(2, store.set)
        end.start()
        record(writer, 1)
        writer.flush()
        record(writer, 2)
        end.join()
    assert read_columns(log).keys() == {0, 1, 2}


def test_an_unreachable_store_is_an_error(store, monkeypatch):
    if store.client == "gcsfs":
        pytest.skip("gcsfs gives up after some minutes, which cannot be changed")
    monkeypatch.setattr(clients, "_TIMEOUT_S", 1.0)
    log = store.directory()
    writer = make_recorder(log)
    record(writer, 0, 1)
    writer.flush()
    record(writer, 2)
    store.set(down=True)
    try:
        with pytest.raises(StorageError, match=r"cannot be reached .*the last 16 steps are lost"):
            writer.close()
        if store.client == "s3fs":  # TensorFlow waits for minutes before it reads.
            with pytest.raises(StorageError, match=r"cannot be used: .* cannot be reached"):
                envlogger.Reader(log)
    finally:
        store.set()
    assert read_columns(log).keys() == {0}
    assert envlogger.recover(log, in_place=True).num_episodes == 2
    assert read_columns(log).keys() == {0, 1}
