"""Contenders that make batches for training: `rlds.feeds`, and what people use today.

Each yields batches without end: of `numbers` 256 transitions, of `cameras` 64 windows, in random
order unless it says something else. `feed_data.samples_at` has their names and values.
"""

import functools
import itertools
import os
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import feed_data
import numpy as np
from feed_data import GAMMA, HISTORY, HORIZON, IMAGES, Columns, Data
from worker import Work

SECONDS = 0.5  # Of a round, about.
FIELDS = ("observation", "action", "reward")

Batches = Iterator[Any]


def rounds(
    stream: Batches,
    check: Callable[[Any], None] | None = None,
    least: int = 0,
    name: str = "reward",
) -> Work:
    """Creates rounds of batches; a unit is a sample. The first batch belongs to the preparation.

    Args:
      stream: The batches.
      check: Checks the first batch, in the first round, which is not measured.
      least: The least number of samples of a round.
      name: The field whose length is the size of a batch.
    """
    unchecked = [next(stream)]

    def work(_: Path) -> int:
        if check and unchecked:
            check(unchecked.pop())
        count, end = 0, time.perf_counter() + SECONDS
        while count < least or time.perf_counter() < end:
            count += len(next(stream)[name])
        return count

    return work


def contender(
    *, is_checked: bool = True, by_epoch: bool = False
) -> Callable[[Callable[[Data], Batches]], Any]:
    """Creates a contender from a function that returns batches; a unit of work is a sample.

    The first batch belongs to the preparation: it ends the start of a feed.

    Args:
      is_checked: True to compare the first batch with the expected samples; False for episodes.
      by_epoch: True if a round is at least an epoch, because epochs are prepared at once.
    """

    def decorate(batches: Callable[[Data], Batches]) -> Any:
        @functools.wraps(batches)
        def prepare(data: Path, size: int, *, kind: str) -> Work:
            of_kind = Data(data, kind, size)
            check = functools.partial(feed_data.check, of_kind) if is_checked else None
            return rounds(batches(of_kind), check, len(of_kind.starts) if by_epoch else 0)

        return prepare

    return decorate


# --- rlds.feeds ----------------------------------------------------------------------------------


def _feed(data: Data, episodes: Any = None, **options: Any) -> Any:
    import rlds.feeds

    fields = FIELDS if data.has_images else (*FIELDS, "discount")
    table = rlds.feeds.open(episodes or data.folder, None if episodes else "train", fields=fields)
    if data.has_images:
        samples = table.windows(history=HISTORY, horizon=HORIZON, only_real=True)
    else:
        samples = table.transitions(gamma=GAMMA)
    return rlds.feeds.Feed(samples, data.batch_size, **options)


@contender()
def ours(data: Data) -> Batches:
    """A feed, iterated: a thread makes the next batches."""
    return iter(_feed(data, shuffle="global"))


@contender()
def ours_in_loader(data: Data) -> Batches:
    """A feed in a DataLoader, whose elements are batches."""
    return iter(_feed(data, shuffle="global").torch(num_workers=0))


@contender()
def ours_with_workers(data: Data) -> Batches:
    """The same with two workers."""
    return iter(_feed(data, shuffle="global").torch(num_workers=2))


def _from_store(data: Data, *, is_kept: bool) -> Batches:
    """A feed of a store on this machine, whose answers take 20 ms, epoch by epoch.

    Raises:
      AssertionError: More than 1.3 times the size of the data was fetched.
    """
    import stores_of_tests

    import rlds.sources
    from rlds_ecosystem.files import stores

    files = [file for file in data.folder.rglob("*") if file.is_file()]
    size = sum(file.stat().st_size for file in files)
    with tempfile.TemporaryDirectory() as here, stores_of_tests.running("gcsfs", here) as store:
        os.environ["RLDS_CACHE_DIR"], url = here, store.directory()
        for file in files:
            stores.copy_file(file, f"{url}/{file.relative_to(data.folder)}")
        store.control.set(latency=0.02)
        episodes = rlds.sources.open(url, "train")
        for epoch in itertools.count():
            if not is_kept:
                os.environ["RLDS_CACHE_DIR"] = f"{here}/{epoch}"
            store.control.requests()
            yield from _feed(data, episodes, epochs=1, remainder="drop")
            assert sum(sent for *_, sent in store.control.requests()) < 1.3 * size
            shutil.rmtree(f"{here}/{epoch}", ignore_errors=True)


@contender(by_epoch=True)
def ours_from_store(data: Data) -> Batches:
    """All of it is fetched in each epoch."""
    return _from_store(data, is_kept=False)


@contender(by_epoch=True)
def ours_kept(data: Data) -> Batches:
    """Batches from a store, with a cache on disk: later epochs fetch nothing."""
    return _from_store(data, is_kept=True)


@contender(is_checked=False)
def ours_in_order(data: Data) -> Batches:
    """Whole episodes in their order, all fields."""
    import rlds.feeds

    steps = rlds.feeds.open(data.folder, "train").steps()
    return iter(rlds.feeds.Feed(steps, data.length, shuffle=None))


# --- Arrays in memory, and in mapped files -------------------------------------------------------


def _columns(data: Data, mmap_mode: Any = None) -> Columns:
    files = {path.stem: np.load(path, mmap_mode) for path in data.folder.glob("*.npy")}
    return feed_data.discounted(files)


@contender()
def numpy_in_memory(data: Data) -> Batches:
    """All steps in memory, images as pixels, and NumPy's `take`: the limit."""
    columns, rng = _columns(data), np.random.default_rng(0)
    size = data.batch_size
    while True:
        order = rng.permutation(data.starts)
        for first in range(0, len(order) - size + 1, size):
            yield feed_data.samples_at(data, columns, order[first : first + size])


def _window(columns: Columns, names: Sequence[str], row: int, length: int) -> Columns:
    """Returns the window at a step."""
    begin = row - row % length
    past, future = np.arange(row - HISTORY + 1, row + 1), np.arange(row, row + HORIZON)
    last = begin + length - 2
    return {
        **{name: columns[name][np.maximum(past, begin)] for name in names},
        "action": columns["action"][np.minimum(future, last)],
        "reward": columns["reward"][row],
        "timestep_pad_mask": past >= begin,
        "action_pad_mask": future <= last,
    }


class _Samples:
    """Samples of mapped arrays by index, as usual for PyTorch and Grain."""

    def __init__(self, data: Data) -> None:
        self._data, self._columns = data, _columns(data, "r")
        self._starts = data.starts

    def __len__(self) -> int:
        return len(self._starts)

    def __getitem__(self, index: int) -> Columns:
        row, columns = int(self._starts[index]), self._columns
        if self._data.has_images:
            return _window(columns, (*IMAGES, "state"), row, self._data.length)
        return {
            "observation": np.array(columns["observation"][row]),
            "action": np.array(columns["action"][row]),
            "reward": columns["reward"][row],
            "discount": columns["discount"][row],
            "next_observation": np.array(columns["observation"][row + 1]),
        }


def _loader(dataset: Any, data: Data) -> Batches:
    import torch
    from torch.utils.data import DataLoader

    torch.manual_seed(0)
    loader = DataLoader(
        dataset, data.batch_size, shuffle=hasattr(dataset, "__len__"), drop_last=True
    )
    while True:
        yield from loader


@contender()
def mapped_in_loader(data: Data) -> Batches:
    """Mapped `.npy` files in a DataLoader."""
    return _loader(_Samples(data), data)


@contender()
def mapped_in_grain(data: Data) -> Batches:
    """The same in Grain."""
    import grain.python as grain

    samples = grain.MapDataset.source(_Samples(data)).shuffle(seed=0).repeat()
    batches = samples.batch(data.batch_size, drop_remainder=True)
    options = grain.ReadOptions(num_threads=0, prefetch_buffer_size=0)
    return iter(batches.to_iter_dataset(options))


# --- Hugging Face --------------------------------------------------------------------------------


class _Rows:
    """Rows of a table of Hugging Face, as LeRobot reads them: other steps by column."""

    def __init__(self, data: Data) -> None:
        import datasets
        import torch

        def to_torch(rows: dict[str, list[Any]]) -> dict[str, Any]:
            arrays = {name: map(np.asarray, v) for name, v in rows.items() if name in IMAGES}
            return {
                name: [torch.as_tensor(value) for value in arrays.get(name, values)]
                for name, values in rows.items()
            }

        table = datasets.load_from_disk(str(data.folder / "saved"))
        table.set_transform(to_torch)
        self._without_images = table.select_columns(
            [n for n in table.column_names if n not in IMAGES]
        )
        self._table, self._data = table, data
        self._starts = data.starts

    def __len__(self) -> int:
        return len(self._starts)

    def __getitem__(self, index: int) -> Columns:
        row = int(self._starts[index])
        return self._window(row) if self._data.has_images else self._transition(row)

    def _transition(self, row: int) -> Columns:
        import torch

        now, following = self._table[row], self._table[row + 1]
        discount = 0.0 if following["is_terminal"] else now["discount"] * GAMMA
        return {
            "observation": now["observation"],
            "action": now["action"],
            "reward": now["reward"],
            "discount": torch.as_tensor(discount, dtype=torch.float32),
            "next_observation": following["observation"],
        }

    def _window(self, row: int) -> Columns:
        import torch

        length = self._data.length
        begin = row - row % length
        last = begin + length - 2
        past, future = range(row - HISTORY + 1, row + 1), range(row, row + HORIZON)
        frames = self._table[[max(step, begin) for step in past]]
        actions = self._without_images[[min(step, last) for step in future]]
        return {
            **{name: torch.stack(frames[name]) for name in (*IMAGES, "state")},
            "action": torch.stack(actions["action"]),
            "reward": frames["reward"][-1],
            "timestep_pad_mask": torch.tensor([step >= begin for step in past]),
            "action_pad_mask": torch.tensor([step <= last for step in future]),
        }


@contender()
def rows_in_loader(data: Data) -> Batches:
    """Rows of a table of Hugging Face in a DataLoader."""
    return _loader(_Rows(data), data)


# --- TFDS and tf.data ----------------------------------------------------------------------------


class _Episodes:
    """`tfds.as_data_source`: a step of an episode is decoded when it is asked for."""

    def __init__(self, data: Data) -> None:
        import tensorflow_datasets as tfds

        self._data = data
        builder = tfds.builder_from_directory(str(data.folder))
        self._source = builder.as_data_source(split="train")

    def __len__(self) -> int:
        return len(self._data.starts)

    def __getitem__(self, index: int) -> Columns:
        episode, row = divmod(index, self._data.length - 1)
        steps = self._source[episode]["steps"]
        return self._window(steps, row) if self._data.has_images else self._transition(steps, row)

    def _transition(self, steps: Any, row: int) -> Columns:
        now, following = steps[row], steps[row + 1]
        discount = 0 if following["is_terminal"] else now["discount"] * np.float32(GAMMA)
        return {
            "observation": now["observation"],
            "action": now["action"],
            "reward": now["reward"],
            "discount": np.float32(discount),
            "next_observation": following["observation"],
        }

    def _window(self, steps: Any, row: int) -> Columns:
        past, future = range(row - HISTORY + 1, row + 1), range(row, row + HORIZON)
        last = self._data.length - 2
        steps_read = {step: steps[step] for step in {*past, *future} if 0 <= step <= last}
        frames = [steps_read[max(step, 0)]["observation"] for step in past]
        return {
            **{name: np.stack([frame[name] for frame in frames]) for name in (*IMAGES, "state")},
            "action": np.stack([steps_read[min(step, last)]["action"] for step in future]),
            "reward": steps_read[row]["reward"],
            "timestep_pad_mask": np.array([step >= 0 for step in past]),
            "action_pad_mask": np.array([step <= last for step in future]),
        }


@contender()
def data_source_in_loader(data: Data) -> Batches:
    """`tfds.as_data_source` in a DataLoader."""
    return _loader(_Episodes(data), data)


@contender(by_epoch=True)
def tf_data(data: Data) -> Batches:
    """This project on TensorFlow: `rlds.tfds.load` and `rlds.transformations`."""
    from rlds.tfds import load
    from rlds.transformations.sampling import shuffle_steps
    from rlds.transformations.transition_ops import transitions
    from rlds.transformations.window_ops import windows

    episodes = load(str(data.folder))
    if data.has_images:
        # The last step of an episode has no action: no other window starts there.
        samples = windows(episodes, history=HISTORY, horizon=HORIZON).map(_without_last)
    else:
        samples = transitions(episodes, gamma=GAMMA)
    batches = shuffle_steps(samples, batch_size=data.batch_size, seed=0, drop_remainder=True)
    return itertools.chain.from_iterable(batches.as_numpy_iterator() for _ in itertools.count())


def _without_last(episode: Any) -> Any:
    import tensorflow as tf

    steps = tf.nest.map_structure(lambda column: column[:-1], episode["steps"])
    return {**episode, "steps": steps}


@contender(is_checked=False)
def load_in_order(data: Data) -> Batches:
    """`rlds.tfds.load`, whole episodes in their order."""
    from rlds.tfds import load

    while True:
        for episode in load(str(data.folder)).as_numpy_iterator():
            yield episode["steps"]


@contender(is_checked=False)
def nested_in_order(data: Data) -> Batches:
    """Nested steps of TFDS, one by one."""
    import tensorflow_datasets as tfds

    builder = tfds.builder_from_directory(str(data.folder))
    config = tfds.ReadConfig(try_autocache=False)
    episodes = builder.as_dataset(split="train", read_config=config)
    while True:
        for episode in tfds.as_numpy(episodes):
            yield {"reward": [step["reward"] for step in episode["steps"]]}
