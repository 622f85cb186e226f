"""Feeds in PyTorch and Grain, which `make test` need not have; see CONTRIBUTING."""

import importlib.util
import json
import subprocess
import sys

import feed_datasets
import numpy as np
import pytest

import rlds.feeds
from rlds.feeds import Feed


@pytest.fixture(scope="module")
def directory(tmp_path_factory):
    episodes = feed_datasets.random_episodes(20, seed=1, longest=20)
    return feed_datasets.write(tmp_path_factory.mktemp("data"), episodes)


@pytest.fixture(scope="module")
def feed(directory):
    return Feed(rlds.feeds.open(directory).transitions(), 8, seed=1, epochs=2)


def rows(batch):
    return np.asarray(batch["action"]).tolist()


@pytest.mark.parametrize("workers", [0, 1, 2])
def test_pytorch_gets_the_same_batches_for_any_number_of_workers(feed, workers):
    torch = pytest.importorskip("torch")
    expected = [rows(batch) for batch in feed]
    loader = feed.torch(num_workers=workers)
    batches = list(loader)
    assert len(loader) == len(expected)
    assert [rows(batch) for batch in batches] == expected
    assert isinstance(batches[0]["observation"]["state"], torch.Tensor)
    assert batches[0]["is_first"].dtype == torch.bool
    assert batches[0]["observation"]["text"].dtype == object
    state = feed.state_dict(5)
    resumed = feed.torch(start=state, num_workers=workers)
    assert [rows(batch) for batch in resumed] == expected[5:]
    assert len(resumed) == len(expected) - 5
    endless = Feed(feed.samples, 8, seed=1).torch(num_workers=workers)
    with pytest.raises(TypeError, match="without end"):
        len(endless)
    assert [rows(batch) for _, batch in zip(range(3), endless)] == expected[:3]


def test_pytorch_loader_takes_its_own_arguments_only(feed):
    pytest.importorskip("torch")
    with pytest.raises(TypeError, match="shuffle: the feed has decided"):
        feed.torch(shuffle=True)


def test_grain_gets_the_same_batches(feed):
    grain = pytest.importorskip("grain")
    expected = [rows(batch) for batch in feed]
    dataset = feed.grain()
    assert isinstance(dataset, grain.MapDataset)
    assert [rows(dataset[number]) for number in range(len(dataset))] == expected
    iterator = iter(dataset.to_iter_dataset(grain.ReadOptions(num_threads=2)))
    assert [rows(next(iterator)) for _ in range(4)] == expected[:4]
    state = iterator.get_state()
    rest = [rows(batch) for batch in iterator]
    iterator.set_state(json.loads(json.dumps(state)))
    assert [rows(batch) for batch in iterator] == rest == expected[4:]
    endless = Feed(feed.samples, 8, seed=1).grain()
    assert rows(endless[1]) == expected[1]


@pytest.mark.slow  # examples/behaviour_cloning_jax.py trains in the fast tests.
@pytest.mark.skipif(importlib.util.find_spec("jax") is None, reason="JAX is not installed")
def test_jax_takes_batches_over(directory):
    """In a process of its own: JAX warns of processes that are forked later."""
    code = """
import jax, sys, numpy as np, rlds.feeds
feed = rlds.feeds.Feed(rlds.feeds.open(sys.argv[1]).transitions(), 8, seed=1, epochs=2)
kept = [jax.device_put(batch["action"]) for batch in feed]
for number, batch in enumerate(kept):
    np.testing.assert_array_equal(batch, feed[number]["action"])
assert "tensorflow" not in sys.modules
assert len(kept) == len(feed)
"""
    subprocess.run([sys.executable, "-c", code, directory], check=True, timeout=60)
