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


class Numbers(Rows):
    """Rows with the number of their episode, and that of the step in all steps."""

    def __init__(self, begins, episodes, steps):
        self._begins, self._episodes, self._steps = begins, episodes, steps

    def take(self, path):
        return {
            "observation": lambda: self._begins[self._episodes] + self._steps,
            "action": lambda: self._steps,
            "is_terminal": lambda: np.zeros(len(self._steps), bool),
        }[path]()

    def with_steps(self, steps):
        return Numbers(self._begins, self._episodes, steps)


class Synthetic(Storage):
    """Episodes of any number and lengths, without files."""

    def __init__(self, lengths):
        self.fields = {
            "observation": Field(np.int64),
            "action": Field(np.int64),
            "is_terminal": Field(np.bool_),
        }
        is_known = np.ones(len(lengths), bool)
        self.outlines = Lengths(lengths, np.maximum(lengths - 1, 0), is_known)
        self._begins = np.cumsum(lengths) - lengths

    def rows(self, episodes, steps, paths):
        del paths
        return Numbers(self._begins, episodes, steps)

    def is_random(self, path):
        return True

    def fingerprint(self):
        return str(len(self.outlines.num_steps))

    def bytes_of_step(self, path):
        return 8.0


def table_of(lengths):
    storage = Synthetic(np.asarray(lengths, np.int64))
    given_options = type("Options", (), {"cache_bytes": 1 << 20, "jpeg": "accurate"})()
    return Table(None, storage, list(storage.fields), given_options)


def observations(batches):
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
def test_every_sample_comes_once_in_every_epoch(
    lengths, per_rank, world, epochs, remainder, shuffle, seed, data
):
    samples, size = table_of(lengths).steps(), sum(lengths)
    batch_size = per_rank * world
    options = {"seed": seed, "shuffle": shuffle, "epochs": epochs, "remainder": remainder}
    if not size or (remainder == "drop" and size < batch_size):
        with pytest.raises(ValueError, match="samples"):
            Feed(samples, batch_size, **options)
        return
    feed = Feed(samples, batch_size, **options)
    whole = observations(feed.iterate(prefetch=False))
    assert len(whole) == len(feed)
    counted = collections.Counter(row for batch in whole for row in batch)
    if remainder == "drop":
        assert all(len(batch) == batch_size for batch in whole)
        per_epoch = len(feed) // epochs
        for epoch in range(epochs):
            part = whole[epoch * per_epoch : (epoch + 1) * per_epoch]
            assert len({row for batch in part for row in batch}) == per_epoch * batch_size
    else:
        assert counted == dict.fromkeys(range(size), epochs)
        sizes = [len(batch) for batch in whole]
        assert sizes.count(batch_size) >= len(sizes) - (1 if remainder == "carry" else epochs)
        assert min(sizes) > 0

    # Ranks deal each batch among them; all get as many rows.
    ranks = [Feed(samples, batch_size, rank=rank, world=world, **options) for rank in range(world)]
    for index, batch in enumerate(whole):
        dealt = [rank[index]["observation"].tolist() for rank in ranks]
        assert len({len(rows) for rows in dealt}) == 1
        rows = [row for of_ranks in zip(*dealt) for row in of_ranks]
        assert rows == (batch * world)[: len(rows)]
        assert len(rows) - len(batch) in range(world)

    # Whoever goes on, with batches of another size too, gets what is left.
    index = data.draw(st.integers(0, len(feed) - 1))
    state = ranks[0].state_dict(index)
    assert observations(feed.iterate(state, prefetch=False)) == whole[index:]
    other_size = data.draw(st.integers(1, 12))
    other = Feed(samples, other_size, **options) if remainder == "carry" else None
    if other is not None and index * batch_size % other_size == 0:
        rest = [row for batch in whole[index:] for row in batch]
        actual = observations(other.iterate(state, prefetch=False))
        assert [row for batch in actual for row in batch] == rest


@pytest.mark.slow
@pytest.mark.parametrize(
    ("shuffle", "megabytes"), [("global", 90), (None, 90), (SegmentShuffle(16, 1000), 1200)]
)
def test_ten_million_episodes_fit_into_memory(shuffle, megabytes):
    """8 bytes for each say where its samples are; 32 for each segment, in what order they come."""
    lengths = np.full(10_000_000, 30, np.int64)
    table = table_of(lengths)
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
