"""Properties of feeds of any shape, and of any size."""

import collections
import tracemalloc

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rlds.feeds import Feed, SegmentShuffle, Table
from rlds.feeds.samples import Steps
from rlds.feeds.storage import Lengths, Rows, Storage
from rlds_ecosystem.model.fields import Field


class IndexRows(Rows):
    """Rows of step indices: among all steps in `observation`, in the episode in `action`."""

    def __init__(self, begins, episodes, steps):
        self._begins, self._episodes, self._steps = begins, episodes, steps

    def take(self, path):
        return {
            "observation": lambda: self._begins[self._episodes] + self._steps,
            "action": lambda: self._steps,
            "is_terminal": lambda: np.zeros(len(self._steps), bool),
        }[path]()

    def with_steps(self, steps):
        return IndexRows(self._begins, self._episodes, steps)


class Synthetic(Storage):
    """Episodes of any number and lengths, without files."""

    def __init__(self, lengths):
        self.fields = {
            "observation": Field(np.int64),
            "action": Field(np.int64),
            "is_terminal": Field(np.bool_),
        }
        is_known = np.ones(len(lengths), bool)
        self.summaries = Lengths(lengths, np.maximum(lengths - 1, 0), is_known)
        self._begins = np.cumsum(lengths) - lengths

    def rows(self, episodes, steps, paths):
        del paths
        return IndexRows(self._begins, episodes, steps)

    def is_random(self, path):
        return True

    def fingerprint(self):
        return str(len(self.summaries.num_steps))

    def bytes_of_step(self, path):
        return 8.0


def make_table(lengths):
    storage = Synthetic(np.asarray(lengths, np.int64))
    options = type("Options", (), {"cache_bytes": 1 << 20, "jpeg": "accurate"})()
    return Table(None, storage, list(storage.fields), options)


def list_observations(batches):
    return [batch["observation"].tolist() for batch in batches]


SHUFFLES = st.one_of(
    st.sampled_from([None, "global"]),
    st.builds(
        SegmentShuffle,
        st.one_of(st.none(), st.integers(1, 9)),
        st.integers(1, 5),
        st.sampled_from([1, 1, 2, 4, 16]),
    ),
)


@given(
    lengths=st.lists(st.integers(0, 12), min_size=1, max_size=12),
    per_rank=st.integers(1, 9),
    world=st.integers(1, 4),
    epochs=st.integers(1, 3),
    remainder=st.sampled_from(["carry", "short", "drop"]),
    shuffle=SHUFFLES,
    seed=st.integers(0, 2**63),
    data=st.data(),
)
def test_every_sample_occurs_once_per_epoch(
    lengths, per_rank, world, epochs, remainder, shuffle, seed, data
):
    samples, size = make_table(lengths).steps(), sum(lengths)
    batch_size = per_rank * world
    options = {"seed": seed, "shuffle": shuffle, "epochs": epochs, "remainder": remainder}
    if not size or (remainder == "drop" and size < batch_size):
        with pytest.raises(ValueError, match="samples"):
            Feed(samples, batch_size, **options)
        return
    feed = Feed(samples, batch_size, **options)
    batches = list_observations(feed.iterate(prefetch=False))
    assert len(batches) == len(feed)
    counted = collections.Counter(row for batch in batches for row in batch)
    if remainder == "drop":
        assert all(len(batch) == batch_size for batch in batches)
        per_epoch = len(feed) // epochs
        for epoch in range(epochs):
            epoch_batches = batches[epoch * per_epoch : (epoch + 1) * per_epoch]
            assert len({row for batch in epoch_batches for row in batch}) == per_epoch * batch_size
    else:
        assert counted == dict.fromkeys(range(size), epochs)
        sizes = [len(batch) for batch in batches]
        assert sizes.count(batch_size) >= len(sizes) - (1 if remainder == "carry" else epochs)
        assert min(sizes) > 0

    # Ranks split each batch into equal numbers of rows.
    ranks = [Feed(samples, batch_size, rank=rank, world=world, **options) for rank in range(world)]
    for index, batch in enumerate(batches):
        dealt = [rank[index]["observation"].tolist() for rank in ranks]
        assert len({len(rows) for rows in dealt}) == 1
        rows = [row for deal in zip(*dealt) for row in deal]
        assert rows == (batch * world)[: len(rows)]
        assert len(rows) - len(batch) in range(world)

    # A resumed feed, also of another batch size, returns the remaining rows.
    index = data.draw(st.integers(0, len(feed) - 1))
    state = ranks[0].state_dict(index)
    assert list_observations(feed.iterate(state, prefetch=False)) == batches[index:]
    other_size = data.draw(st.integers(1, 12))
    other = Feed(samples, other_size, **options) if remainder == "carry" else None
    if other is not None and index * batch_size % other_size == 0:
        remaining_rows = [row for batch in batches[index:] for row in batch]
        actual = list_observations(other.iterate(state, prefetch=False))
        assert [row for batch in actual for row in batch] == remaining_rows


@pytest.mark.slow
@pytest.mark.parametrize(
    ("shuffle", "megabytes"), [("global", 90), (None, 90), (SegmentShuffle(16, 1000), 1200)]
)
def test_ten_million_episodes_fit_into_memory(shuffle, megabytes):
    """An episode takes 8 bytes for the location of its samples, a segment 32 for its order."""
    lengths = np.full(10_000_000, 30, np.int64)
    table = make_table(lengths)
    tracemalloc.start()
    try:
        feed = Feed(table.transitions(), 256, seed=1, shuffle=shuffle)
        late, first = feed[5_000_000], feed[0]
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.reset_peak()
        kept = tracemalloc.get_traced_memory()[0]
        for index in range(0, 1000, 50):
            assert len(feed[index]["action"]) == 256
        assert tracemalloc.get_traced_memory()[1] - kept < 1 << 20
    finally:
        tracemalloc.stop()
    assert peak < megabytes << 20
    assert (first["next_observation"] == first["observation"] + 1).all()
    assert late["observation"].max() < 300_000_000
    assert len(str(feed.state_dict(3))) < 200
    assert len(Steps(table, only_real=False)) == 300_000_000
