"""Feeds in PyTorch and Grain, which are optional for `make test`; see CONTRIBUTING."""

import importlib.util
import itertools
import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import feed_datasets
import numpy as np
import pytest

import envlogger
import rlds
import rlds.feeds
from envlogger.testing.catch_env import Catch
from rlds.editing import Delete
from rlds.feeds import Feed
from rlds.sources import SourceChangedError


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
def test_pytorch_batches_do_not_depend_on_number_of_workers(feed, workers):
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
    with pytest.raises(TypeError, match="an endless feed has no length"):
        len(endless)
    assert [rows(batch) for _, batch in zip(range(3), endless)] == expected[:3]


def content(batch):
    """The content of a batch in a comparable form."""
    if isinstance(batch, dict):
        return {name: content(value) for name, value in batch.items()}
    array = np.asarray(batch)
    return array.tolist() if array.dtype == object else (array.shape, array.tobytes())


def list_shared_memory():
    return set(Path("/dev/shm").glob("torch_*"))


def add_noise(batch, rng):
    """Adds new arrays to a batch."""
    batch["noise"] = rng.normal(0, 1, (len(batch["action"]), 1000))
    batch["number"] = np.float64(batch["action"].sum())
    return batch


@pytest.mark.parametrize(
    ("context", "persistent"),
    [
        ("fork", False),
        pytest.param("fork", True, marks=pytest.mark.slow),
        pytest.param("spawn", True, marks=pytest.mark.slow),
    ],
)
def test_memory_is_reused_only_after_batches_are_dropped(directory, context, persistent):
    """For kept batches, parallel iterators and iterators that stop early."""
    torch = pytest.importorskip("torch")
    table = rlds.feeds.open(directory)
    feed = Feed(table.transitions(), 8, seed=1, epochs=12, transform=add_noise)
    expected = [content(batch) for batch in feed]
    options = {"multiprocessing_context": context, "persistent_workers": persistent}
    before = list_shared_memory()
    loader = feed.torch(num_workers=2, prefetch_factor=3, **options)
    kept = list(loader)
    assert isinstance(kept[0]["noise"], torch.Tensor)
    assert loader.state_dict() == feed.state_dict(len(feed))
    for _ in range(2):  # Stops while workers make more batches.
        for index, batch in enumerate(loader):
            assert content(batch) == expected[index]
            if index == len(feed) // 2:
                break
        assert loader.state_dict() == feed.state_dict(index + 1)
    if not persistent:  # Persistent workers serve one iterator.
        for index, pair in enumerate(zip(loader, loader, strict=True)):
            assert content(pair[0]) == content(pair[1]) == expected[index]
    assert [content(batch) for batch in kept] == expected
    del loader, batch
    assert list_shared_memory() <= before


def test_pinned_batches_share_one_tensor(feed, monkeypatch):
    """PyTorch then knows when the device has read them, and the worker continues at once."""
    torch = pytest.importorskip("torch")
    from rlds.feeds import workers

    if not torch.cuda.is_available():
        monkeypatch.setattr(torch.Tensor, "pin_memory", torch.Tensor.clone)
    sent = workers.BlockDataset(feed, torch.utils.data.default_convert)[(0, 3)]
    received = workers._ReceivedBlock(*sent._arguments)
    assert received.tensor[0] == 1
    assert received.pin_memory() is received
    assert received.tensor[0] == 0
    batches = received.batches()
    assert [content(batch) for batch in batches] == [content(feed[index]) for index in range(3)]
    actions = [batch["action"].untyped_storage().data_ptr() for batch in batches]
    assert actions == [received._memory.untyped_storage().data_ptr()] * 3


@pytest.mark.parametrize("size", [1, 2, 3, 5])
def test_small_batches_fit_into_memory(directory, size):
    """Flags of many batches are one array, and need more room if each is copied alone."""
    torch = pytest.importorskip("torch")
    from rlds.feeds import workers

    table = rlds.feeds.open(directory, fields=["is_first", "is_last", "reward"])
    feed = Feed(table.steps(), size, seed=1)
    blocks, first = workers.BlockDataset(feed, torch.utils.data.default_convert), 0
    for count in range(1, 20):
        received = workers._ReceivedBlock(*blocks[(first, count)]._arguments)
        expected = [content(feed[index]) for index in range(first, first + count)]
        assert [content(batch) for batch in received.batches()] == expected
        first += count


class KeepArrays:
    """Keeps an array of each batch, and adds an older one to the next batch."""

    def __init__(self):
        self.kept = []

    def __call__(self, batch):
        self.kept.append(batch["reward"])
        return {**batch, "old": self.kept[len(self.kept) // 2].copy()}


def test_transform_may_keep_arrays(directory):
    pytest.importorskip("torch")
    samples = rlds.feeds.open(directory).transitions()
    expected, feed = (Feed(samples, 8, seed=1, epochs=40, transform=KeepArrays()) for _ in range(2))
    for batch, expected_batch in zip(feed.torch(num_workers=1), expected, strict=True):
        assert batch["old"].tolist() == expected_batch["old"].tolist()


def collate(batch):
    """Returns NumPy arrays, tensors of all kinds, and other objects."""
    import torch

    action = torch.from_numpy(batch["action"])
    return {
        "array": batch["reward"],
        "turned": action.T,
        "half": action.to(torch.bfloat16),
        "complex": torch.complex(action, action).conj(),
        "sparse": action.to_sparse(),
        "empty": action[:0],
        "single": action.sum(),
        "grad": torch.nn.Parameter(action),
        "text": batch["observation"]["text"],
        "fortran": np.asfortranarray(batch["observation"]["state"]),
    }


def test_results_of_collate_function_survive_transfer(feed):
    torch = pytest.importorskip("torch")
    expected = [collate(batch) for batch in feed]
    loader = feed.torch(num_workers=1, collate_fn=collate)
    for batch, expected_batch in zip(loader, expected, strict=True):
        for name, value in expected_batch.items():
            assert type(batch[name]) is type(value), name
            if isinstance(value, torch.Tensor):
                assert batch[name].dtype == value.dtype
                assert torch.equal(batch[name].to_dense(), value.to_dense()), name
            else:
                np.testing.assert_array_equal(batch[name], value)


class FailAt:
    """Fails at the batch with these rewards."""

    def __init__(self, rewards):
        self.rewards = rewards

    def __call__(self, batch):
        if batch["reward"].tolist() == self.rewards:
            raise OverflowError("this batch is too much")
        return batch


@pytest.mark.parametrize("index", [4, 310])  # The first batch of a block, and an inner one.
def test_batches_before_a_failing_batch_are_returned(directory, index):
    pytest.importorskip("torch")
    samples = rlds.feeds.open(directory).transitions()
    rewards = [batch["reward"].tolist() for batch in Feed(samples, 8, seed=1, epochs=30)]
    failing = Feed(samples, 8, seed=1, epochs=30, transform=FailAt(rewards[index]))
    batches = iter(failing.torch(num_workers=1))
    assert [next(batches)["reward"].tolist() for _ in range(index)] == rewards[:index]
    with pytest.raises(OverflowError, match=f"batch {index}(?s:.*)this batch is too much"):
        next(batches)


@pytest.mark.parametrize("workers", [0, 1, 2])
def test_edit_of_open_data_raises_source_changed_error_in_workers(tmp_path, workers):
    pytest.importorskip("torch")
    with envlogger.EnvLogger(Catch(), data_directory=tmp_path / "log") as env:
        for _ in range(3):
            timestep = env.reset()
            while not timestep.last():
                timestep = env.step(0)
    feed = Feed(rlds.feeds.open(tmp_path / "log").steps(), 4, seed=1, epochs=1)
    rlds.edit(tmp_path / "log", Delete(episodes=[0]))
    with pytest.raises(SourceChangedError, match=r"log: the file was (changed|removed)"):
        list(feed.torch(num_workers=workers))


@pytest.mark.slow
def test_killed_worker_is_an_error_and_leaves_no_memory(directory):
    pytest.importorskip("torch")
    before = list_shared_memory()
    feed = Feed(rlds.feeds.open(directory).transitions(), 8, seed=1, transform=add_noise)
    loader = feed.torch(num_workers=2)
    batches = iter(loader)
    kept = list(itertools.islice(batches, 40))
    workers = Path(f"/proc/self/task/{os.getpid()}/children").read_text().split()
    os.kill(int(workers[-1]), signal.SIGKILL)
    with pytest.raises(RuntimeError, match=r"killed by signal|exited unexpectedly"):
        for _ in batches:
            pass
    del batches
    assert [content(batch) for batch in kept] == [content(feed[index]) for index in range(40)]
    assert list_shared_memory() <= before
    assert loader.state_dict()["batch"] >= 40


def test_pytorch_loader_refuses_arguments_of_feed(feed):
    pytest.importorskip("torch")
    with pytest.raises(TypeError, match="shuffle: the feed decides this"):
        feed.torch(shuffle=True)


def test_grain_batches_equal_those_of_feed(feed):
    grain = pytest.importorskip("grain")
    expected = [rows(batch) for batch in feed]
    dataset = feed.grain()
    assert isinstance(dataset, grain.MapDataset)
    assert [rows(dataset[index]) for index in range(len(dataset))] == expected
    iterator = iter(dataset.to_iter_dataset(grain.ReadOptions(num_threads=2)))
    assert [rows(next(iterator)) for _ in range(4)] == expected[:4]
    state = iterator.get_state()
    remaining = [rows(batch) for batch in iterator]
    iterator.set_state(json.loads(json.dumps(state)))
    assert [rows(batch) for batch in iterator] == remaining == expected[4:]
    endless = Feed(feed.samples, 8, seed=1).grain()
    assert rows(endless[1]) == expected[1]


@pytest.mark.slow  # examples/behaviour_cloning_jax.py trains in the fast tests.
@pytest.mark.skipif(importlib.util.find_spec("jax") is None, reason="JAX is not installed")
def test_jax_keeps_batches_intact(directory):
    """In a separate process, because JAX warns about later forks."""
    code = """
import jax, sys, numpy as np, rlds.feeds
feed = rlds.feeds.Feed(rlds.feeds.open(sys.argv[1]).transitions(), 8, seed=1, epochs=2)
kept = [jax.device_put(batch["action"]) for batch in feed]
for index, batch in enumerate(kept):
    np.testing.assert_array_equal(batch, feed[index]["action"])
assert "tensorflow" not in sys.modules
assert len(kept) == len(feed)
"""
    subprocess.run([sys.executable, "-c", code, directory], check=True, timeout=600)
