"""Damaged or changed data raises an error, and never becomes a wrong batch."""

import gc
import json
import os
import pickle
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import feed_datasets
import numpy as np
import pytest

import rlds.feeds
import tfds_files
from rlds.feeds import Feed, Mixture
from rlds.raw_files.untrusted import SourceChangedError
from rlds.sources import SourceError
from rlds_ecosystem.model.nests import named_leaves
from tfds_files import Dataset, Features, Image, Tensor, record_files
from tfds_files.png import encode_png


def tensor(dtype, *shape, encoding="none"):
    return Tensor(dtype=np.dtype(dtype), shape=shape, encoding=encoding)


def write(directory, fields, episodes, **options):
    """Writes a dataset with `fields` in its steps and one file per episode."""
    features = Features(features={"steps": Dataset(feature=Features(features=fields))})
    options = {"max_examples_per_shard": 1, **options}
    with tfds_files.append_to(directory, features, "it", **options) as writer:
        for steps in episodes:
            writer.add({"steps": steps})
    return Path(directory)


def object_array(values):
    """Returns an object array of any values."""
    array = np.empty(len(values), object)
    array[:] = values
    return array


def assert_equal(one, other):
    one, other = dict(named_leaves(one)), dict(named_leaves(other))
    assert list(one) == list(other)
    for path, leaf in one.items():
        np.testing.assert_array_equal(leaf, other[path], err_msg=path)


@pytest.fixture(scope="module")
def episodes():
    return feed_datasets.random_episodes(12, seed=3, longest=9)


@pytest.fixture
def directory(tmp_path, episodes):
    return Path(feed_datasets.write(tmp_path / "data", episodes))


@pytest.fixture
def feed(directory):
    return Feed(rlds.feeds.open(directory).steps(), 8, seed=1, epochs=2)


# Files that change.

SHARD = "random-train.tfrecord-00001"


def truncate(file):
    os.truncate(file, 1)


def overwrite(file):
    with open(file, "r+b") as out:
        out.write(bytes(os.path.getsize(file)))


def overwrite_and_keep_times(file):
    stat = os.stat(file)
    overwrite(file)
    os.utime(file, ns=(stat.st_atime_ns, stat.st_mtime_ns))


def extend(file):
    with open(file, "ab") as out:
        out.write(b"more")


CHANGES = [truncate, overwrite, overwrite_and_keep_times, extend]


@pytest.mark.slow
@pytest.mark.parametrize("change", CHANGES)
def test_files_changed_in_place_raise_errors(directory, feed, change):
    assert feed[3]
    change(directory / SHARD)
    with pytest.raises(SourceChangedError, match=rf"{SHARD}: it was changed while it was open"):
        for _ in range(1000):  # On a slow disk, not each read checks the file.
            feed[3]
            time.sleep(0.01)
    with pytest.raises(SourceChangedError, match=SHARD):
        [feed.samples.table.read(episode) for episode in range(12)]
    if change is not truncate:  # Only a truncated file always fails to open.
        return
    with pytest.raises(SourceError, match=rf"{SHARD}: .*byte 0"):
        rlds.feeds.open(directory)


def test_changes_of_permissions_or_links_are_no_errors(directory, feed, tmp_path):
    expected = feed[3]
    os.link(directory / SHARD, tmp_path / "link")
    (directory / SHARD).chmod(0o600)
    assert_equal(feed[3], expected)
    overwrite_and_keep_times(tmp_path / "link")
    with pytest.raises(SourceChangedError, match=f"{SHARD}: .* overwritten"):
        feed[3]


CUT_SCRIPT = """
import faulthandler
import os
import sys
import numpy as np
import rlds.feeds
from rlds.sources import SourceError

faulthandler.enable()
table = rlds.feeds.open(sys.argv[1])
for field in ("numbers", "text"):
    rows = table.rows(np.array([0, 1]), np.array([0, 500]), [field])
    rows.take(field)
    file = sys.argv[1] + "/it-train.tfrecord-00001"
    content = open(file, "rb").read()
    os.truncate(file, 100)
    try:
        rows.take(field)
    except SourceError as error:
        print(error)
    os.rename(file, file + "_")  # The mapped file is still the cut one.
    open(file, "wb").write(content)
    try:
        rows.take(field)
    except SourceError as error:
        print(error)
    os.remove(file + "_")
    table = rlds.feeds.open(sys.argv[1])
os.kill(os.getpid(), 7)  # Such a signal from outside still ends the process.
"""


@pytest.mark.skipif(sys.platform != "linux", reason="the number of the signal is another one")
@pytest.mark.skipif(
    feed_datasets.hot.IMPLEMENTATION == "python", reason="Python cannot catch the signal"
)
def test_file_cut_during_read_does_not_end_the_process(tmp_path):
    fields = {"numbers": tensor("f4", 30), "text": tensor(object), "is_last": tensor(bool)}
    values = np.zeros((600, 30), "f4")
    steps = {"numbers": values, "text": object_array([b"x"] * 600), "is_last": values[:, 0] > 0}
    write(tmp_path, fields, [steps, steps])
    run = subprocess.run(
        [sys.executable, "-u", "-c", CUT_SCRIPT, str(tmp_path)],
        capture_output=True,
        text=True,
        timeout=600,
    )
    changed, cut = "it was changed while it was open: cut", "cannot be read: the file was cut"
    lines = run.stdout.splitlines()
    assert all(changed in line for line in lines[::2])
    assert all(cut in line and "00001" in line for line in lines[1::2])
    assert len(lines) == 4
    assert run.returncode == -signal.SIGBUS
    assert "Fatal Python error: Bus error" in run.stderr


def test_replaced_or_deleted_files_stay_open(directory, feed, tmp_path):
    expected = list(feed)
    pickled = pickle.dumps(feed)
    other_episodes = feed_datasets.random_episodes(12, seed=4, longest=9)
    other = Path(feed_datasets.write(tmp_path / "other", other_episodes))
    for file in other.glob("random*"):
        os.replace(file, directory / file.name)
    for index, batch in enumerate(expected):
        assert_equal(feed[index], batch)
    with pytest.raises(SourceChangedError, match="the file was changed or replaced"):
        pickle.loads(pickled)
    with pytest.raises(ValueError, match="the data or the fields that are read differ"):
        Feed(rlds.feeds.open(directory).steps(), 8, seed=1, epochs=2).start_of(feed.state_dict(1))
    shutil.rmtree(directory)
    for index, batch in enumerate(expected):
        assert_equal(feed[index], batch)
    with pytest.raises(SourceChangedError, match="the file was removed"):
        pickle.loads(pickled)


def test_replaced_files_read_by_episode_raise_errors(tmp_path, episodes):
    """These files are opened again for each episode."""
    directory = feed_datasets.write(tmp_path / "data", episodes, file_format="array_record")
    table = rlds.feeds.open(directory)
    pickled = pickle.dumps(table)
    copy = pickle.loads(pickled)
    new_episodes = feed_datasets.random_episodes(12, seed=4, longest=9)
    other = Path(feed_datasets.write(tmp_path / "other", new_episodes, file_format="array_record"))
    for file in other.glob("random*"):
        shutil.copy(file, Path(directory, file.name))
    indices = np.arange(table.num_steps)
    with pytest.raises(SourceError, match=r"array_record-0000\d"):
        copy.steps().batch(indices)
    with pytest.raises(SourceChangedError):
        pickle.loads(pickled)


def test_dataset_may_have_more_files_than_a_process_may_open(tmp_path, monkeypatch):
    """Datasets have thousands of shards; the usual limit is 1024 open files."""
    resource = pytest.importorskip("resource")
    descriptors = Path("/proc/self/fd")
    if not descriptors.exists():
        pytest.skip("this system does not say which files are open")
    monkeypatch.setattr(record_files, "_MAX_OPEN_FILES", 10)
    episodes = feed_datasets.random_episodes(50, longest=2)
    directory = feed_datasets.write(tmp_path, episodes, max_examples_per_shard=1)
    before = len(list(descriptors.iterdir()))
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (before + 30, limits[1]))
    try:
        table = rlds.feeds.open(directory)
        assert len(list(descriptors.iterdir())) <= before + 1
        indices = np.arange(table.num_steps)
        for _ in range(2):
            actions = table.steps().batch(indices)["action"]  # Also reads text, which maps nothing.
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)
    np.testing.assert_array_equal(
        actions, np.concatenate([episode["steps"]["action"] for episode in episodes])
    )
    maps = Path("/proc/self/maps")
    assert str(directory) in maps.read_text()
    del table
    gc.collect()
    assert str(directory) not in maps.read_text()
    assert len(list(descriptors.iterdir())) <= before


# Indexes.


@pytest.mark.slow
def test_index_of_other_data_is_not_used(directory, feed, tmp_path):
    expected = feed[0]
    other_episodes = feed_datasets.random_episodes(12, seed=4, longest=9)
    other = Path(feed_datasets.write(tmp_path / "other", other_episodes))
    rlds.feeds.open(other)
    for index in (other / ".feeds").iterdir():
        own_index = directory / ".feeds" / index.name
        content = own_index.read_bytes()
        for damaged in (index.read_bytes(), content[:-1], content[:50], b"", content[::-1]):
            own_index.write_bytes(damaged)
            reopened = Feed(rlds.feeds.open(directory).steps(), 8, seed=1, epochs=2)
            assert_equal(reopened[0], expected)
            assert own_index.read_bytes() == content
            assert reopened.start_of(feed.state_dict(1)) == 1


# Shards with different fields.

FIELDS = {"action": tensor("f4", 2), "is_last": tensor(bool), "x": tensor("f4", 3)}


def steps_of(length, **replaced):
    rng = np.random.default_rng(length)
    return {
        "action": rng.normal(size=(length, 2)).astype("f4"),
        "is_last": np.arange(length) == length - 1,
        "x": rng.normal(size=(length, 3)).astype("f4"),
        **replaced,
    }


OTHER_SHARDS = {
    "missing": ({}, {}),
    "text": ({"x": tensor(object)}, {"x": object_array([b"a", b"b", b"c", b"d"])}),
    "larger": ({"x": tensor("f4", 4)}, {"x": np.zeros((4, 4), "f4")}),
    "one_byte_more": ({"x": tensor("i8")}, {"x": np.zeros(4, int)}),
}


@pytest.mark.slow
@pytest.mark.parametrize("file_format", ["tfrecord", "array_record"])
@pytest.mark.parametrize("kind", OTHER_SHARDS)
def test_shard_with_other_fields_raises_an_error_when_it_is_read(tmp_path, kind, file_format):
    fields, values = OTHER_SHARDS[kind]
    episodes = [steps_of(3), steps_of(4), steps_of(5)]
    directory = write(tmp_path / "data", FIELDS, episodes, file_format=file_format)
    other_fields = {name: FIELDS[name] for name in ("action", "is_last")} | fields
    steps = {name: (steps_of(4) | values)[name] for name in other_fields}
    other = write(tmp_path / "other", other_fields, [steps] * 3, file_format=file_format)
    shard = f"it-train.{file_format}-00001"
    shutil.copy(other / shard, directory / shard)
    where = rf"{shard}.*(field 'x'|steps/x): "
    table = rlds.feeds.open(directory)
    samples = table.steps()
    for episode, first in ((0, 0), (2, 7)):
        rows = samples.batch(np.arange(first, first + len(episodes[episode]["x"])))
        assert_equal(rows, episodes[episode])
    for index in range(3, 7):
        with pytest.raises(SourceError, match=where):
            samples.batch([0, index])
    with pytest.raises(SourceError, match=where):
        table.read(1, fields=["x"])
    if file_format == "tfrecord":  # Other formats still read all earlier fields.
        assert_equal(table.read(1, fields=["action"]), {"action": steps["action"]})
    with pytest.raises(SourceError, match=where):
        list(Feed(samples, 4, epochs=1))


def test_checksums_of_records_are_verified_on_request(tmp_path):
    directory = write(tmp_path, FIELDS, [steps_of(3), steps_of(4)])
    rlds.feeds.open(directory)
    shard = directory / "it-train.tfrecord-00001"
    stat, content = shard.stat(), bytearray(shard.read_bytes())
    position = content.index(steps_of(4)["x"][2].tobytes())
    content[position] ^= 1
    shard.write_bytes(content)
    os.utime(shard, ns=(stat.st_atime_ns, stat.st_mtime_ns))
    assert rlds.feeds.open(directory).read(1)["x"][2, 0] != steps_of(4)["x"][2, 0]
    for _ in range(2):
        with pytest.raises(
            SourceError, match=r"00001: the record at byte 0 does not match its chec"
        ):
            rlds.feeds.open(directory, verify=True)


# Values.


def test_error_names_damaged_image(tmp_path):
    fields = {"image": Image(shape=(2, 3, 3), dtype=np.dtype(np.uint8)), "is_last": tensor(bool)}
    good = np.arange(18, dtype=np.uint8).reshape(2, 3, 3)
    bad = encode_png(good)[:-30]
    for file_format in ("tfrecord", "array_record"):
        images = [object_array([encode_png(good)] * length) for length in (3, 4)]
        images[1][2] = bad
        episodes = [{"image": i, "is_last": np.arange(len(i)) == len(i) - 1} for i in images]
        directory = write(tmp_path / file_format, fields, episodes, file_format=file_format)
        samples = rlds.feeds.open(directory).steps()
        assert_equal(samples.batch([4, 0])["image"], np.stack([good, good]))
        with pytest.raises(
            SourceError, match=rf"{file_format}-00001, episode 1, field 'image': step 2: .*image"
        ):
            samples.batch([4, 0, 5, 1])
        feed = Feed(samples, 2, shuffle=None, epochs=1)
        batches = iter(feed)
        assert_equal(next(batches)["image"], np.stack([good, good]))
        assert_equal(next(batches)["image"], np.stack([good, good]))
        for _ in range(2):
            with pytest.raises(SourceError, match="episode 1, field 'image': step 2"):
                next(batches)
        assert batches.batch == 2
        as_files = rlds.feeds.open(directory, decode_images=False).read(1)["image"]
        assert as_files.tolist() == [encode_png(good)] * 2 + [bad, encode_png(good)]


@pytest.mark.parametrize("file_format", ["tfrecord", "array_record"])
def test_values_of_all_kinds_are_unchanged(tmp_path, file_format):
    fields = {
        "action": tensor("f4", 2),
        "été/名": tensor("f4"),
        "image": Image(shape=(None, None, 3), dtype=np.dtype(np.uint8)),
        "nothing": tensor("f4", 0, encoding="zlib"),
        "points": tensor("f4", None, 2, encoding="zlib"),
        "text": tensor(object),
        "is_terminal": tensor(bool),
        "observation": Features(features={"points": tensor("f4", None, 2, encoding="zlib")}),
    }
    fields["été"] = Features(features={"名": fields.pop("été/名")})
    nan = np.array([0x7FC01234, 0xFFC00001, 0x7F800000], np.uint32).view("f4")
    episodes = []
    for length in (4, 0, 1, 2):
        rng = np.random.default_rng(length)
        sizes = [1 + (i + length) % 3 for i in range(length)] if length > 2 else [2] * length
        points = object_array([rng.normal(size=(size, 2)).astype("f4") for size in sizes])
        image = [rng.integers(0, 255, (size, 2, 3), np.uint8) for size in sizes]
        episodes.append(
            {
                "action": np.resize(nan, (length, 2)),
                "image": object_array(image),
                "nothing": np.zeros((length, 0), "f4"),
                "points": points,
                "text": object_array([b"", b"\xff\0", "ü".encode(), b"x" * 300][:length]),
                "is_terminal": np.arange(length) == length - 1,
                "observation": {"points": points},
                "été": {"名": np.resize(nan, length)},
            }
        )
    directory = write(tmp_path, fields, episodes, file_format=file_format)
    table = rlds.feeds.open(directory, cache_bytes=0)
    leaves = [dict(named_leaves(episode)) for episode in episodes]
    rows = [(e, t) for e, episode in enumerate(leaves) for t in range(len(episode["action"]))]

    def check(batch, indices):
        for path, values in named_leaves(batch):
            expected = [leaves[e][path][t] for e, t in (rows[index] for index in indices)]
            if path == "text":
                assert values.tolist() == expected
                continue
            if len({value.shape for value in expected}) == 1:
                expected = np.stack(expected)
                assert values.shape == expected.shape, path
                assert values.tobytes() == expected.tobytes(), path
            else:
                assert values.shape == (len(indices),)
                for value, expected_value in zip(values, expected):
                    np.testing.assert_array_equal(value, expected_value)

    samples = table.steps()
    for indices in (np.arange(7), [6, 5], [0], [4, 0, 4]):
        check(samples.batch(indices), indices)
    batch = Feed(Mixture([samples, samples]), 8, shuffle=None)[0]
    for _, values in named_leaves(batch):  # Batches may be changed.
        for value in values if values.dtype == object else [values]:
            if isinstance(value, np.ndarray):
                value.fill(1)
    check(samples.batch(np.arange(7)), np.arange(7))
    zeros = table.windows(
        history=2, history_fields=["points", "text"], horizon_fields=["action"], padding="zeros"
    )
    first = zeros.batch([0])
    assert not first["points"][0, 0].any()
    assert first["points"][0, 0].shape == episodes[0]["points"][0].shape
    assert first["text"].tolist() == [[b"", b""]]


# Arguments.


def test_wrong_indices_of_batches_and_samples_are_refused(feed):
    samples, table = feed.samples, feed.samples.table
    endless = Feed(samples, 8)
    for index in (-1, 2**61, np.int64(2**61)):
        with pytest.raises(IndexError, match=f"no batch {index}: indices begin at 0"):
            endless[index]
    for index in (-1, len(feed), 10**30):
        with pytest.raises(IndexError, match=f"no batch {index}: there are 14"):
            feed.block(index, 1)
    for indices in ([0.5], [True, False], ["a"], np.array([None])):
        with pytest.raises(TypeError, match="expected integers"):
            samples.batch(indices)
    for damage in ({"batch": -1}, {"batch": 1.5}, {"batch": None}, {"batch_size": 0}):
        with pytest.raises(ValueError, match="the state is damaged: batch"):
            feed.start_of({**feed.state_dict(3), **damage})
    positive = samples.filter(lambda batch: batch["reward"] > 0)
    for subset in (samples, positive, positive.with_goals(seed=1)):
        for index in (-1, len(subset), 2**62):
            with pytest.raises(IndexError, match="not all of the samples"):
                subset.batch(np.array([0, index]))
    empty = samples.filter(lambda batch: batch["reward"] > 1000)
    assert len(empty) == len(empty.batch([])["action"]) == 0
    with pytest.raises(ValueError, match="there are no samples"):
        Feed(empty, 8)
    with pytest.raises(IndexError, match="no episode 12: there are 12"):
        table.read(12)
    assert len(table.read(0, 7, 100)["action"]) == 2
    copy = Feed(samples, np.int32(8), seed=np.uint8(1), epochs=np.int64(2), world=np.int8(1))
    assert json.loads(json.dumps(copy.iterate(np.int64(3)).state_dict())) == feed.state_dict(3)


@pytest.mark.parametrize("encoding", ["none", "zlib"])
def test_ends_of_episodes_do_not_depend_on_encoding_of_flags(tmp_path, encoding):
    flag = tensor(bool, encoding=encoding)
    steps = Features(features={"action": tensor("f4"), "is_terminal": flag})
    features = Features(features={"steps": Dataset(feature=steps), "final_observation_known": flag})
    with tfds_files.append_to(tmp_path, features, "it") as writer:
        for is_known, terminal, length in np.ndindex(2, 2, 3):
            is_terminal = np.arange(length) == (length - 1 if terminal else -1)
            steps = {"action": np.zeros(length, "f4"), "is_terminal": is_terminal}
            writer.add({"steps": steps, "final_observation_known": bool(is_known)})
    table = rlds.feeds.open(tmp_path)
    summaries = list(zip(*(array.tolist() for array in table.summaries)))
    assert summaries == [tuple(summary) for summary in table.episodes.summaries()]
    assert bool(table.storage.why_cached) == (encoding == "zlib")


# Amount of reads.


def test_slice_of_a_split_reads_only_its_episodes(tmp_path, episodes, monkeypatch):
    directory = feed_datasets.write(tmp_path, episodes, file_format="array_record")
    read_indices, example = [], tfds_files.Split.example
    monkeypatch.setattr(
        tfds_files.Split,
        "example",
        lambda split, index, *fields: read_indices.append(index) or example(split, index, *fields),
    )
    table = rlds.feeds.open(directory, "train[8:10]")
    assert read_indices == [8, 9]
    actions = table.read(1)["action"]
    np.testing.assert_array_equal(actions, episodes[9]["steps"]["action"])


@pytest.mark.parametrize("file_format", ["tfrecord", "array_record"])
def test_filters_read_metadata_of_episodes(tmp_path, monkeypatch, file_format):
    plain = {
        "success": tensor(bool),
        "score": tensor("f4"),
        "pose": tensor("f4", 2),
        "task": tensor(object),
        "exact": tensor("f8", encoding="bytes"),
    }
    complex = {
        "seed": tensor("i8"),  # The number of bytes varies.
        "packed": tensor("i8", 3, encoding="zlib"),
        "scene": Features(features={"light": tensor("f4")}),
    }
    steps = Dataset(feature=Features(features=FIELDS))
    features = Features(features={"steps": steps, **plain, **complex})
    options = {"max_examples_per_shard": 3, "file_format": file_format}
    with tfds_files.append_to(tmp_path, features, "it", **options) as writer:
        for row in range(8):
            writer.add(
                {
                    "steps": steps_of(row % 3),
                    "success": row % 2 == 0,
                    "score": row / 2,
                    "pose": np.array([row, 1], "f4"),
                    "task": b"x" * row,
                    "exact": row / 3,
                    "seed": 50 * row,
                    "packed": np.full(3, row),
                    "scene": {"light": row / 4},
                }
            )
    table = rlds.feeds.open(tmp_path, "train[1:]")
    read_indices, example = [], tfds_files.Split.example
    monkeypatch.setattr(
        tfds_files.Split,
        "example",
        lambda split, index, *fields: read_indices.append(index) or example(split, index, *fields),
    )

    def metadata_of(episode, names):
        return {name: episode.metadata[name] for name in names}

    for names in ([*plain], [*plain, *complex]):
        actual = []
        kept = table.filter_episodes(
            lambda e, names=names, actual=actual: (
                actual.append(metadata_of(e, names)) or e.metadata["success"]
            )
        )
        if names == [*plain]:
            assert (read_indices == []) == (file_format == "tfrecord")
        expected = [metadata_of(episode, names) for episode in table.episodes]
        assert (kept.num_episodes, len(actual), len(expected)) == (3, 7, 7)
        for one, other in zip(actual, expected):
            assert_equal(one, other)
            assert [type(one[name]) for name in names] == [type(other[name]) for name in names]
    seen = []
    kept.filter_episodes(lambda e: seen.append((len(e), e["action"].shape, {*e.metadata})))
    names = {*plain, *complex}
    assert seen == [(2, (2, 2), names), (1, (1, 2), names), (0, (0, 2), names)]
    for get in (lambda e: e.metadata["nothing"], lambda e: e["nothing"]):
        with pytest.raises(KeyError, match="nothing"):
            table.filter_episodes(get)


def test_batch_reads_each_episode_once_even_without_cache(tmp_path, episodes, monkeypatch):
    observation = {
        "exact": tensor("f8", 3, encoding="zlib"),
        "packed": tensor("i8", 2, encoding="zlib"),
    }
    fields = {"observation": Features(features=observation), "is_terminal": tensor(bool)}
    kept = [
        {
            "observation": {name: e["steps"]["observation"][name] for name in observation},
            "is_terminal": e["steps"]["is_terminal"],
        }
        for e in episodes
    ]
    table = rlds.feeds.open(write(tmp_path, fields, kept), cache_bytes=0)
    calls, columns = [], table.episodes.columns
    monkeypatch.setattr(
        table.episodes,
        "columns",
        lambda index, *fields, **options: calls.append(index) or columns(index, *fields, **options),
    )
    for samples in (table.steps(), table.transitions()):
        indices = np.arange(len(samples))[::-1]
        batch = samples.batch(indices)
        assert sorted(calls) == np.unique(samples.locate(indices)[0]).tolist()
        assert len(batch["observation"]["exact"]) == len(samples)
        calls.clear()
