"""Feeds of every format of `rlds.sources.open`, in threads and processes, without TensorFlow."""

import hashlib
import inspect
import json
import subprocess
import sys
import threading

import numpy as np
import pytest
from fast_share import one_in
from hostile_sources import NAMES, OPENED, OPTIONS, write_all

import rlds.feeds
import rlds.sources
from rlds.feeds import Feed
from rlds_ecosystem.model.nests import named_leaves


@pytest.fixture(scope="module")
def raw_data(tmp_path_factory):
    root = tmp_path_factory.mktemp("raw")
    write_all(root)
    return {name: root / name / OPENED[name][0] for name in NAMES}


def hash_batches(batches):
    """Hashes the names, dtypes, shapes and values of batches."""
    digest = hashlib.sha256()
    for batch in batches:
        for path, leaf in sorted(named_leaves(batch), key=lambda path_and_leaf: path_and_leaf[0]):
            digest.update(f"{path} {leaf.dtype} {leaf.shape}".encode())
            digest.update(repr(leaf.tolist()).encode() if leaf.dtype.hasobject else leaf.tobytes())
    return digest.hexdigest()


def join_columns(episodes):
    """Returns the steps of all episodes, by the paths of their fields."""
    columns = [dict(named_leaves(episodes.columns(index))) for index in range(len(episodes))]
    return {path: [value for column in columns for value in column[path]] for path in columns[0]}


@pytest.mark.slow
@pytest.mark.parametrize("name", one_in(2, NAMES))
def test_batches_equal_what_the_source_reads(raw_data, name):
    options = OPTIONS.get(name, {})
    episodes = rlds.sources.open(raw_data[name], **options)
    table = rlds.feeds.open(raw_data[name], cache_bytes=1, **options)
    assert [tuple(o) for o in zip(*table.summaries)] == [tuple(o) for o in episodes.summaries()]
    expected = join_columns(episodes)
    batch = dict(named_leaves(table.steps().batch(np.arange(table.num_steps))))
    assert batch.keys() == expected.keys()
    for path, column in batch.items():
        assert len(column) == len(expected[path])
        for value, stored in zip(column, expected[path]):
            np.testing.assert_array_equal(value, stored, err_msg=path)
            assert np.asarray(value).dtype == np.asarray(stored).dtype

    feed = Feed(table.transitions(), 3, epochs=1, shuffle="global", remainder="short")
    hashes = [hash_batches([batch]) for batch in feed]
    actual = [{} for _ in range(2)]

    def collect(seed, hashes_by_index):
        for index in np.random.default_rng(seed).permutation(len(feed)).tolist():
            hashes_by_index[index] = hash_batches([feed[index]])

    threads = [threading.Thread(target=collect, args=arguments) for arguments in enumerate(actual)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert actual == [dict(enumerate(hashes))] * 2


FORK_SCRIPT = """
import json, os, sys
import rlds.feeds
from rlds.feeds import feed
from test_sources import hash_batches
feed._MAX_BLOCK_ROWS = 8
hashes = {}
for name, (path, options) in json.load(sys.stdin).items():
    table = rlds.feeds.open(path, cache_bytes=1, **options)
    hashes[name] = hash_batches(rlds.feeds.Feed(table.transitions(), 3, epochs=1))
    ahead = iter(rlds.feeds.Feed(table.steps(), 2, shuffle="global"))
    for fork in range(2):
        for _ in range(4):  # After the last, a thread begins to read.
            next(ahead)
        child = os.fork()
        if not child:
            actual = hash_batches(rlds.feeds.Feed(table.transitions(), 3, epochs=1))
            os._exit(actual != hashes[name] or not next(ahead))
        assert hash_batches(rlds.feeds.Feed(table.transitions(), 3, epochs=1)) == hashes[name], name
        assert not os.waitpid(child, 0)[1], name
loaded = {name.partition(".")[0] for name in sys.modules}
assert not loaded & {"tensorflow", "tensorflow_datasets", "torch", "jax", "grain"}, loaded
print(json.dumps(hashes))
"""


@pytest.mark.parametrize("names", one_in(2, [NAMES[::6], NAMES]), ids=["some", "all"])
def test_forked_processes_read_all_formats_without_tensorflow(raw_data, tmp_path, names):
    """The fork happens while a thread of the parent reads."""
    support = tmp_path / "test_sources.py"  # This module needs writers of raw data.
    imports = "import hashlib\nfrom rlds_ecosystem.model.nests import named_leaves\n"
    support.write_text(imports + inspect.getsource(hash_batches))
    arguments_by_name = {name: (str(raw_data[name]), OPTIONS.get(name, {})) for name in names}
    run = subprocess.run(
        [sys.executable, "-W", "error", "-W", "ignore::DeprecationWarning", "-c", FORK_SCRIPT],
        input=json.dumps(arguments_by_name),
        capture_output=True,
        text=True,
        check=False,
        timeout=600,
        cwd=tmp_path,
    )
    assert not run.returncode, run.stderr
    hashes = json.loads(run.stdout)
    assert list(hashes) == names
    for name in names:
        table = rlds.feeds.open(raw_data[name], cache_bytes=1, **OPTIONS.get(name, {}))
        assert hashes[name] == hash_batches(Feed(table.transitions(), 3, epochs=1)), name


@pytest.mark.parametrize("name", ["folder_tfrecord", "npz"])
def test_condition_selects_shuffled_episodes(raw_data, name):
    episodes = rlds.sources.open(raw_data[name], "all")
    lengths = [summary.num_steps for summary in episodes.summaries()]
    condition = f"steps = {lengths[-1]} or index = 0"
    chosen = [i for i, steps in enumerate(lengths) if steps == lengths[-1] or i == 0]
    assert 0 < len(chosen) < len(lengths)
    table = rlds.feeds.open(raw_data[name], "all", where=condition)
    assert table.num_steps == sum(lengths[index] for index in chosen)
    from_episodes = rlds.feeds.open(episodes, where=condition)
    expected = [dict(named_leaves(episodes.columns(index))) for index in chosen]
    for selected in (table, from_episodes):
        batch = dict(named_leaves(selected.steps().batch(np.arange(selected.num_steps))))
        for path, column in batch.items():
            rows = [row for columns in expected for row in columns[path]]
            for actual, expected_row in zip(column, rows, strict=True):
                np.testing.assert_array_equal(actual, expected_row, err_msg=path)
    feed = Feed(table.steps(), 2, epochs=1, shuffle="global", remainder="short")
    assert sum(len(batch["is_first"]) for batch in feed) == table.num_steps


class Halves(rlds.sources.View):
    """The episodes of a source twice, as two splits."""

    splits = ("train", "test")

    def num_episodes(self, split):
        return super().num_episodes("train")

    def base_episodes(self, split, episodes):
        return super().base_episodes("train", episodes)


@pytest.mark.parametrize("split", ["test+train", "train[1:]+test[:1]+train[:1]"])
def test_selected_episodes_of_several_splits_are_read(raw_data, split, tmp_path, monkeypatch):
    monkeypatch.setenv("RLDS_CACHE_DIR", str(tmp_path))
    source = Halves(rlds.sources.open(raw_data["npz"]).source)
    episodes = rlds.sources.Episodes(source, split)
    chosen = [i for i in range(len(episodes)) if i % 3 or i > 3]
    table = rlds.feeds.open(episodes.select(chosen))
    rewards = [episodes.columns(index, ["reward"])["reward"] for index in chosen]
    for index, expected in enumerate(rewards):
        np.testing.assert_array_equal(table.read(index, 0, len(expected))["reward"], expected)
    assert table.num_steps == sum(map(len, rewards))
