import collections
import json
import pickle

import feed_datasets
import numpy as np
import pytest

import rlds.feeds
from rlds.feeds import Feed, Mixture, RowRandom, SegmentShuffle
from rlds.feeds.order import Segmented
from rlds_ecosystem.model.nests import named_leaves


@pytest.fixture(scope="module")
def tables(tmp_path_factory):
    tables = []
    for index in range(2):
        episodes = feed_datasets.random_episodes(40, seed=100 * index, longest=20)
        directory = feed_datasets.write(tmp_path_factory.mktemp("data"), episodes)
        tables.append(rlds.feeds.open(directory))
    return tables


@pytest.fixture(scope="module")
def table(tables):
    return tables[0]


def keys(batch):
    """Returns the texts of a batch, which are unique per step."""
    return batch["observation"]["text"].tolist()


def assert_equal(one, other):
    one, other = dict(named_leaves(one)), dict(named_leaves(other))
    assert list(one) == list(other)
    for path, leaf in one.items():
        np.testing.assert_array_equal(leaf, other[path], err_msg=path)


@pytest.mark.slow
@pytest.mark.parametrize("shuffle", ["global", SegmentShuffle(3, 4), SegmentShuffle(None, 7)])
def test_orders_of_seeds_and_epochs_differ(table, shuffle):
    orders = set()
    for seed in range(4):
        feed = Feed(table.steps(), 8, shuffle=shuffle, epochs=4, seed=seed, remainder="short")
        for epoch in range(4):
            orders.add(tuple(keys(feed[epoch * (len(feed) // 4)])))
    assert len(orders) == 16


def test_windows_require_keyword_of_length(table):
    with pytest.raises(TypeError, match=r"history=5 .* horizon=5 .* segments\(5\)"):
        table.windows(5)
    assert len(table.windows()) == len(table.steps())


def test_segment_shuffle_mixes_few_episodes(table):
    feed = Feed(table.steps(), 4, shuffle=SegmentShuffle(None, 2), epochs=1)
    episodes = [{key.rpartition(b" of ")[2] for key in keys(batch)} for batch in feed]
    assert max(map(len, episodes)) <= 4  # Two windows of two episodes.
    everywhere = Feed(table.steps(), 20, shuffle="global", epochs=1)[0]
    assert len({key.rpartition(b" of ")[2] for key in keys(everywhere)}) > 4


@pytest.mark.parametrize("rank", range(2))
def test_runs_cover_samples_of_rank_within_their_windows(rank):
    counts = np.random.default_rng(1).integers(0, 90, 200)
    order = Segmented(counts, seed=1, length=20, window=64, lanes=8)
    positions = np.arange(200 + rank, 400, 2)
    firsts, lasts = order.runs(3, positions)
    runs = [index for run in zip(firsts, lasts + 1, strict=True) for index in range(*run)]
    assert {*order.indices_at(3, positions).tolist()} <= {*runs}
    assert len(firsts) <= 2 * 8 * 4  # Two windows of the eight segments of each of four lanes.


def test_ranks_read_disjoint_episodes(tmp_path):
    """In every epoch, all ranks together read each episode about once."""
    episodes = [
        {
            "steps": feed_datasets.steps_of(20, is_final_known=True, terminal=True, seed=seed),
            **flags,
        }
        for seed, flags in enumerate([{"final_observation_known": True, "index": 0}] * 160)
    ]
    directory = feed_datasets.write(tmp_path, episodes, max_examples_per_shard=160)
    samples = rlds.feeds.open(directory, fields="observation/packed", cache_bytes=20_000).steps()
    unsharded = Feed(samples, 16, epochs=2)
    read = collections.Counter()
    for rank in range(4):
        local = rlds.feeds.open(directory, fields="observation/packed", cache_bytes=20_000).steps()
        feed = Feed(local, 16, epochs=2, rank=rank, world=4)
        cache = local.table.storage.cached_storage.cache
        read_columns = cache.episodes.columns

        def count_read(episode, *arguments, read_columns=read_columns, **options):
            read[episode] += 1
            return read_columns(episode, *arguments, **options)

        cache.episodes.columns = count_read
        for index, batch in enumerate(feed):
            packed = batch["observation"]["packed"]
            assert (packed == unsharded[index]["observation"]["packed"][rank::4]).all()
    assert len(read) == 160
    assert sum(read.values()) <= 1.1 * 2 * 160
    with pytest.raises(ValueError, match="power of two, got 3"):
        Feed(samples, 16, shuffle=SegmentShuffle(5, 12, lanes=3))


def test_feed_resumes_after_last_batch(table):
    feed = Feed(table.windows(history=2), 12, seed=3)
    unbroken = [keys(batch) for _, batch in zip(range(30), feed)]
    iterator = iter(feed)
    for _ in range(11):
        next(iterator)
    state = json.loads(json.dumps(iterator.state_dict()))
    assert len(json.dumps(state)) <= 200
    resumed = pickle.loads(pickle.dumps(feed)).iterate(state)
    assert [keys(batch) for _, batch in zip(range(19), resumed)] == unbroken[11:]
    twice = Feed(table.windows(history=2), 6, seed=3).iterate(state)
    assert keys(next(twice)) + keys(next(twice)) == unbroken[11]
    with pytest.raises(ValueError, match="are not a multiple of batches"):
        Feed(table.windows(history=2), 8, seed=3).start_of(state)


@pytest.mark.parametrize(
    ("change", "match"),
    [
        (lambda table, other: Feed(table.steps(), 8, seed=1), "seed"),
        (lambda table, other: Feed(table.steps(), 8, epochs=3), "epochs"),
        (lambda table, other: Feed(table.windows(), 8), "the samples were not windows"),
        (
            lambda table, other: Feed(table.select(["observation"]).steps(), 8),
            "fields that are read differ",
        ),
        (lambda table, other: Feed(other.steps(), 8), "differ; the number of samples was"),
        (
            lambda table, other: Feed(table.filter_episodes([1, 2]).steps(), 8),
            "fields that are read differ",
        ),
    ],
)
def test_state_of_another_feed_is_refused(tables, change, match):
    state = Feed(tables[0].steps(), 8).state_dict(5)
    with pytest.raises(ValueError, match=match):
        change(*tables).start_of(state)


def test_mixtures_keep_exact_shares(tables):
    both = [table.select(["observation", "reward"]).steps() for table in tables]
    mixture = Mixture(both, [3, 1])
    feed = Feed(mixture, 64, seed=2)
    seen = collections.Counter(key for batch in feed.block(0, 1024) for key in keys(batch))
    keys_of_first = set(keys(both[0].batch(np.arange(len(both[0])))))
    drawn = sum(count for key, count in seen.items() if key in keys_of_first)
    assert drawn == 3 * 65536 // 4
    # No sample repeats before all samples of its dataset were drawn.
    beginning = [key for batch in feed.block(0, 10) for key in keys(batch)]
    for dataset in both:
        own = keys(dataset.batch(np.arange(len(dataset))))
        assert max(seen[key] for key in own) - min(seen[key] for key in own) <= 1
        drawn = [key for key in beginning if key in own][: len(own)]
        assert len(set(drawn)) == len(drawn)
    assert mixture.epochs(65536) == pytest.approx([49152 / len(both[0]), 16384 / len(both[1])])
    state = feed.state_dict(17)
    assert keys(next(feed.iterate(state))) == keys(feed[17])
    with pytest.raises(TypeError, match="field 'reward': dataset 1 has nothing, but dataset 0 has"):
        Mixture([both[0], tables[1].select(["observation"]).steps()])
    with pytest.raises(ValueError, match="less than one sample"):
        Mixture(both, [1, 1e-7])


def augment(batch, rng):
    shape = batch["action"].shape
    drawn = [rng.normal(size=shape), rng.integers(5, size=shape), rng.uniform(0, [1, 2, 9], shape)]
    own = [rng.of_row(row).permutation(9) for row in range(shape[0])]
    return {"x": np.concatenate([batch["action"], *drawn, own], axis=1)}


@pytest.mark.parametrize("remainder", ["carry", "short"])
def test_transforms_do_not_depend_on_ranks_or_batch_size(table, remainder):
    samples = table.filter_episodes(range(5)).steps()
    options = {"seed": 4, "epochs": 3, "remainder": remainder, "transform": augment}
    feed = Feed(samples, 12, **options)
    batches = list(feed)
    for index, batch in enumerate(batches):
        np.testing.assert_array_equal(feed[index]["x"], batch["x"])
        for rank in range(3):
            dealt = Feed(samples, 12, rank=rank, world=3, **options)[index]["x"]
            size = len(dealt)
            np.testing.assert_array_equal(dealt, np.resize(batch["x"], (size * 3, 21))[rank::3])
    if remainder == "carry":  # The batch size does not matter, either.
        small = np.concatenate([batch["x"] for batch in Feed(samples, 7, **options)])
        np.testing.assert_array_equal(small, np.concatenate([batch["x"] for batch in batches]))
    drawn = np.concatenate([batch["x"][:, 3:6] for batch in batches])
    assert len(np.unique(drawn)) == drawn.size  # Different in each row and epoch.


def test_random_numbers_of_rows_follow_their_distributions():
    rng = RowRandom(np.arange(50), 3)
    normal = rng.normal(2, [1, 3], (50, 2000, 2))
    assert abs(normal.mean() - 2) < 0.02
    np.testing.assert_allclose(normal.std(axis=(0, 1)), [1, 3], rtol=0.01)
    assert abs(np.corrcoef(rng.random((50, 2000)))[~np.eye(50, dtype=bool)]).max() < 0.12
    counts = np.bincount(rng.integers(3, 7, (50, 2000)).reshape(-1))
    assert counts[:3].sum() == 0
    assert abs(counts[3:] - 25_000).max() < 1000
    for size in (None, 3, (3, 50)):
        with pytest.raises(ValueError, match="begin with the number of rows, 50"):
            rng.normal(size=size)


@pytest.mark.slow
def test_batches_do_not_share_reused_memory(table):
    feed = Feed(table.steps(), 8, seed=9)
    kept = [batch for _, batch in zip(range(60), feed)]
    for index, batch in enumerate(kept):
        assert_equal(batch, feed[index])
        assert batch["action"].flags.c_contiguous
        assert batch["action"].flags.writeable


def test_explanation_counts_too_short_episodes(table):
    samples = table.segments(15)
    short = int((table.summaries.num_steps < 15).sum())
    assert f"{short} of 40 episodes are too short" in Feed(samples, 2).explain()
    with pytest.raises(ValueError, match="there are no samples"):
        Feed(table.segments(100), 2)
    with pytest.raises(IndexError):
        samples.batch([len(samples)])


def test_explanation_lists_costs_of_a_batch(table, tmp_path):
    text = Feed(table.steps(), 8).explain()
    assert "observation/state: 8 bytes a step, copied" in text
    assert "whole episodes are read for button, observation/packed" in text
    assert "shuffle: all samples" in text
    assert "cheaper" not in text  # All of it stays in memory.
    plain = Feed(table.select("observation/state").steps(), 8).explain()
    assert "shuffle: all samples; single steps are read at no extra cost" in plain

    directory = feed_datasets.write(tmp_path, feed_datasets.random_episodes(40, longest=20))
    tight = rlds.feeds.open(directory, cache_bytes=500, fields="observation/packed")
    text = Feed(tight.steps(), 8, shuffle="global").explain()
    mean = tight.num_steps / 40
    assert f"read by whole episodes, {mean:.1f} bytes for each byte used" in text
    assert "cheaper: rlds.feeds.materialise" in text


def test_typical_errors_of_beginners_name_the_remedy(table):
    for samples in (table, "data", None):
        for make in (lambda data: Feed(data, 8), lambda data: Mixture([data])):
            with pytest.raises(TypeError, match=r"expected samples: call \.transitions\(\)"):
                make(samples)
    with pytest.raises(TypeError, match="the transform returned None"):
        Feed(table.steps(), 8, transform=lambda batch: None)[0]
    for options, message in (({"rank": 1}, "got 1; world=1"), ({"world": 3}, "of world=3")):
        with pytest.raises(ValueError, match=message):
            Feed(table.steps(), 8, **options)


def test_samples_are_indexable(table):
    samples = table.windows(history=2, only_real=True)
    batch = samples.batch([7])
    assert_equal({"x": samples[7]}, {"x": {name: _first(leaf) for name, leaf in batch.items()}})
    assert_equal(samples[-1], samples[len(samples) - 1])
    with pytest.raises(IndexError, match="no sample 406: there are 406"):
        samples[len(samples)]
    real = table.steps(only_real=True)
    assert len(real) == len(samples) < len(table.steps())


def _first(leaf):
    return (
        {name: _first(inner) for name, inner in leaf.items()} if isinstance(leaf, dict) else leaf[0]
    )


def test_statistics_cover_chosen_episodes(table):
    chosen = table.filter_episodes(range(5))
    statistics = chosen.compute_statistics()
    assert set(statistics) == {"action", "observation/exact", "observation/packed"} | {
        *("observation/state", "reward")
    }
    real = chosen.steps(only_real=True)
    actions = real.batch(np.arange(len(real)))["action"].astype(np.float64)
    np.testing.assert_allclose(statistics["action"].mean, actions.mean(axis=0), rtol=1e-12)
    assert statistics["action"].max.tolist() == actions.max(axis=0).tolist()
    only = chosen.compute_statistics("reward", include_last_action=True)
    assert set(only) == {"reward"}
    assert int(only["reward"].count) == chosen.num_steps


def test_state_fits_machines_with_less_memory_and_other_ranks(table, monkeypatch):
    samples = table.select("action").steps()
    feed = Feed(samples, 8)
    assert "too much" not in feed.explain()
    monkeypatch.setattr("rlds.feeds.planning._measure_memory", lambda: 1000)
    for options in ({}, {"rank": 1, "world": 2}):
        with pytest.warns(UserWarning, match="shuffle='segments' reads from the disk in order"):
            other = Feed(samples, 8, **options)
        assert other.start_of(feed.state_dict(3)) == 3
        assert "do not fit into it: shuffle='segments'" in other.explain()


def test_errors_of_wrong_access_name_the_right_call(table):
    samples = table.steps()
    feed = Feed(samples, 8)
    for call, message in (
        (lambda: feed[0:2], r"feed\.block\(first_batch, count\)"),
        (lambda: samples[0:3], r"samples\.batch\(indices\)"),
        (lambda: samples[[0, 1]], r"samples\.batch\(indices\)"),
        (lambda: feed.iterate(None), "start: got None, expected the index of a batch"),
        (lambda: feed.start_of("x"), "start: got 'x', expected the index of a batch"),
    ):
        with pytest.raises(TypeError, match=message):
            call()
    with pytest.raises(ValueError, match="got True: 'auto' shuffles"):
        Feed(samples, 8, shuffle=True)
