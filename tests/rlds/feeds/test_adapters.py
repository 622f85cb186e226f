"""Feeds in PyTorch and Grain, which `make test` need not have; see CONTRIBUTING."""

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
    with pytest.raises(TypeError, match="an endless feed has no length"):
        len(endless)
    assert [rows(batch) for _, batch in zip(range(3), endless)] == expected[:3]


def content(batch):
    """The content of a batch in a comparable form."""
    if isinstance(batch, dict):
        return {name: content(value) for name, value in batch.items()}
    array = np.asarray(batch)
    return array.tolist() if array.dtype == object else (array.shape, array.tobytes())


def shared_memory():
    return set(Path("/dev/shm").glob("torch_*"))


def noisy(batch, rng):
    """A transform that returns other arrays than it gets."""
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
def test_memory_is_not_used_again_before_batches_are_dropped(directory, context, persistent):
    """Whatever is kept, in however many iterators at a time, and whenever they stop."""
    torch = pytest.importorskip("torch")
    table = rlds.feeds.open(directory)
    feed = Feed(table.transitions(), 8, seed=1, epochs=12, transform=noisy)
    expected = [content(batch) for batch in feed]
    options = {"multiprocessing_context": context, "persistent_workers": persistent}
    before = shared_memory()
    loader = feed.torch(num_workers=2, prefetch_factor=3, **options)
    kept = list(loader)
    assert isinstance(kept[0]["noise"], torch.Tensor)
    assert loader.state_dict() == feed.state_dict(len(feed))
    for _ in range(2):  # Stops while workers make more; what is dropped is used again.
        for index, batch in enumerate(loader):
            assert content(batch) == expected[index]
            if index == len(feed) // 2:
                break
        assert loader.state_dict() == feed.state_dict(index + 1)
    if not persistent:  # Otherwise PyTorch has one iterator.
        for index, pair in enumerate(zip(loader, loader, strict=True)):
            assert content(pair[0]) == content(pair[1]) == expected[index]
    assert [content(batch) for batch in kept] == expected
    del loader, batch
    assert shared_memory() <= before


def test_pinned_batches_are_parts_of_one_tensor(feed, monkeypatch):
    """So that PyTorch knows when the device has read them; and the worker may go on at once."""
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
    """Flags of many batches are one array, and need more room when each is copied by itself."""
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


class Keeping:
    """Keeps arrays of all batches, and adds one of them to each."""

    def __init__(self):
        self.kept = []

    def __call__(self, batch):
        self.kept.append(batch["reward"])
        return {**batch, "old": self.kept[len(self.kept) // 2].copy()}


def test_a_transform_may_keep_what_it_gets(directory):
    pytest.importorskip("torch")
    samples = rlds.feeds.open(directory).transitions()
    expected, feed = (Feed(samples, 8, seed=1, epochs=40, transform=Keeping()) for _ in range(2))
    for batch, requested in zip(feed.torch(num_workers=1), expected, strict=True):
        assert batch["old"].tolist() == requested["old"].tolist()


def collate(batch):
    """As users write them: NumPy, tensors of all kinds, and other objects."""
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


def test_all_that_a_collate_function_returns_comes_through(feed):
    torch = pytest.importorskip("torch")
    expected = [collate(batch) for batch in feed]
    loader = feed.torch(num_workers=1, collate_fn=collate)
    for batch, requested in zip(loader, expected, strict=True):
        for name, value in requested.items():
            assert type(batch[name]) is type(value), name
            if isinstance(value, torch.Tensor):
                assert batch[name].dtype == value.dtype
                assert torch.equal(batch[name].to_dense(), value.to_dense()), name
            else:
                np.testing.assert_array_equal(batch[name], value)


class Failing:
    """Fails at a batch, where others come before it in the same block."""

    def __init__(self, number):
        self.number = number

    def __call__(self, batch):
        if batch["reward"].tolist() == self.number:
            raise OverflowError("this batch is too much")
        return batch


@pytest.mark.parametrize("number", [4, 310])  # The first of a block, and one inside of another.
def test_batches_before_an_error_come_and_those_after_it_too(directory, number):
    pytest.importorskip("torch")
    samples = rlds.feeds.open(directory).transitions()
    rewards = [batch["reward"].tolist() for batch in Feed(samples, 8, seed=1, epochs=30)]
    failing = Feed(samples, 8, seed=1, epochs=30, transform=Failing(rewards[number]))
    batches = iter(failing.torch(num_workers=1))
    assert [next(batches)["reward"].tolist() for _ in range(number)] == rewards[:number]
    with pytest.raises(OverflowError, match=f"batch {number}(?s:.*)this batch is too much"):
        next(batches)


@pytest.mark.parametrize("workers", [0, 1, 2])
def test_an_edit_is_an_error_of_its_own_in_workers(tmp_path, workers):
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
def test_a_killed_worker_is_an_error_and_leaves_nothing(directory):
    pytest.importorskip("torch")
    before = shared_memory()
    feed = Feed(rlds.feeds.open(directory).transitions(), 8, seed=1, transform=noisy)
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
    assert shared_memory() <= before
    assert loader.state_dict()["batch"] >= 40


def test_pytorch_loader_takes_its_own_arguments_only(feed):
    pytest.importorskip("torch")
    with pytest.raises(TypeError, match="shuffle: the feed decides this"):
        feed.torch(shuffle=True)


def test_grain_gets_the_same_batches(feed):
    grain = pytest.importorskip("grain")
    expected = [rows(batch) for batch in feed]
    dataset = feed.grain()
    assert isinstance(dataset, grain.MapDataset)
    assert [rows(dataset[index]) for index in range(len(dataset))] == expected
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
