"""Weights, priorities, offsets, returns, goals with rewards, and tables of several datasets."""

import pickle

import feed_datasets
import numpy as np
import pytest

import rlds.editing
import rlds.feeds
import rlds.sources
from rlds.feeds.priorities import PrioritizedFeed, SumTree
from rlds.feeds.returns import lambda_returns


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    """Two datasets: the first is read in place, the second by whole episodes."""
    datasets = []
    for seed, file_format in ((3, "tfrecord"), (4, "array_record")):
        episodes = feed_datasets.random_episodes(9, seed=seed)
        directory = tmp_path_factory.mktemp(file_format)
        feed_datasets.write(directory, episodes, file_format=file_format)
        datasets.append((directory, episodes))
    return datasets


@pytest.fixture(scope="module")
def table(data):
    return rlds.feeds.open(data[0][0])


def test_samples_are_drawn_by_weights_of_episodes(table):
    counts = table.steps().counts()
    episode_weights = np.where(np.arange(len(counts)) % 2, 1.0, 0.0)
    samples = table.steps().weighted(episode_weights=episode_weights).with_goals(seed=1)
    feed = rlds.feeds.Feed(samples, 512, seed=2, number_fields=True)
    drawn = np.concatenate([feed[index]["episode_number"] for index in range(8)])
    assert set(drawn.tolist()) == set(np.flatnonzero(episode_weights * counts).tolist())
    shares = np.bincount(drawn, minlength=len(counts)) / len(drawn)
    expected = episode_weights * counts / (episode_weights * counts).sum()
    np.testing.assert_allclose(shares, expected, atol=0.03)
    unpickled = pickle.loads(pickle.dumps(feed))
    assert (unpickled[5]["sample_number"] == feed[5]["sample_number"]).all()
    state = feed.state_dict(3)
    other = rlds.feeds.Feed(
        table.steps().weighted(episode_weights=episode_weights + 1), 512, seed=2
    )
    with pytest.raises(ValueError, match="the samples were not steps"):
        other.start_of(state)
    for options in ({"weights": [1.0]}, {"episode_weights": -episode_weights}, {"balance": [1]}):
        with pytest.raises(ValueError, match=next(iter(options))):
            table.steps().weighted(**options)
    with pytest.raises(ValueError, match="all weights are zero"):
        table.steps().weighted(episode_weights=episode_weights * 0)
    with pytest.raises(ValueError, match="omit the argument"):
        rlds.feeds.Feed(samples, 4, shuffle="segments")


def test_balance_counts_values_and_not_episodes(table):
    values = np.array(["a", "b"] + ["c"] * (table.num_episodes - 2))
    samples = table.steps().weighted(balance=values)
    filtered = samples.filter(lambda batch: np.ones(len(batch["action"]), bool), fields=["action"])
    episodes, _ = samples.locate(np.arange(len(samples)))
    for subset in (samples, filtered):
        shares = [subset.weights[values[episodes] == value].sum() for value in "abc"]
        np.testing.assert_allclose(shares, 1.0)


def test_number_fields_identify_each_row(table, data):
    other = rlds.feeds.open(data[1][0])
    mixture = rlds.feeds.Mixture([table.transitions(), other.transitions()], [1, 3])
    batch = rlds.feeds.Feed(mixture, 256, number_fields=True)[1]
    assert 0.6 < batch["part_number"].mean() < 0.9
    for row in range(0, 256, 40):
        dataset = mixture.datasets[int(batch["part_number"][row])]
        sample = dataset[int(batch["sample_number"][row])]
        assert (sample["action"] == batch["action"][row]).all()
        episode, step = int(batch["episode_number"][row]), int(batch["step_number"][row])
        assert (dataset.table.read(episode, step, step + 1)["action"][0] == sample["action"]).all()


def test_finite_and_nested_mixtures_draw_their_shares(table, data):
    other = rlds.feeds.open(data[1][0])
    first, second, third = table.steps(), other.steps(), table.steps(only_real=True)
    inner = rlds.feeds.Mixture([first, second], [1, 1])
    mixture = rlds.feeds.Mixture([inner, third], [3, 1])
    assert mixture.counts.tolist() == [24576, 24576, 16384]
    for remainder in ("carry", "short", "drop"):
        feed = rlds.feeds.Feed(mixture, 7, epochs=2, remainder=remainder, number_fields=True)
        batches = list(feed)
        assert len(batches) == len(feed)
        rows = [
            tuple(row)
            for batch in batches
            for row in zip(batch["part_number"], batch["sample_number"])
        ]
        size = mixture.size(0)
        dropped = 0 if remainder == "carry" else size % 7 * (remainder == "drop")
        assert len(rows) == 2 * (size - dropped)
        if remainder != "drop":
            all_samples = {
                (p, n) for p, samples in enumerate(mixture.datasets) for n in range(len(samples))
            }
            assert all_samples <= {(int(p), int(n)) for p, n in rows[:size]}
            # The last sample completes the epoch of the last dataset.
            assert all_samples - {(int(p), int(n)) for p, n in rows[: size - 1]}


def test_offsets_are_padded_at_ends_of_episodes(table, data):
    _, episodes = data[0]
    offsets = {"observation/state": [-4, 0, 2], "action": range(0, 6, 2)}
    for padding in ("edge", "zeros"):
        samples = table.offsets(offsets, padding=padding)
        batch = samples.batch(np.arange(len(samples)))
        row = 0
        for episode in episodes:
            steps, length = episode["steps"], len(episode["steps"]["is_last"])
            ends = {"observation/state": length}
            ends["action"] = max(length - episode["final_observation_known"], 0)
            for step in range(length):
                for path, positions in offsets.items():
                    column = steps["observation"]["state"] if "/" in path else steps["action"]
                    stored = batch["observation"]["state"] if "/" in path else batch["action"]
                    pads = (
                        batch["observation"]["state_is_pad"]
                        if "/" in path
                        else batch["action_is_pad"]
                    )
                    for position, offset in enumerate(positions):
                        index = step + offset
                        is_pad = not 0 <= index < ends[path]
                        assert pads[row, position] == is_pad
                        value = column[min(max(index, 0), max(ends[path] - 1, 0))]
                        if is_pad and padding == "zeros":
                            value = value * 0
                        np.testing.assert_array_equal(stored[row, position], value)
                row += 1
    assert batch["reward"].ndim == 1
    with pytest.raises(KeyError, match="no field 'camera'"):
        table.offsets({"camera": [0]})
    with pytest.raises(TypeError, match="expected integers"):
        table.offsets({"action": [0.1]})


def _compute_returns(episode, values, gamma, lambda_):
    """Computes lambda returns by their definition, step by step."""
    steps, length = episode["steps"], len(episode["steps"]["is_last"])
    is_known = bool(episode["final_observation_known"])
    ends_here = length and bool(steps["is_terminal"][-1])
    num_transitions = max(length - 1 + (not is_known and ends_here), 0)
    actual = np.array(values, np.float64)
    for step in reversed(range(num_transitions)):
        discount = float(steps["discount"][step]) * gamma
        if step == num_transitions - 1 and ends_here:
            discount = 0.0
        after = min(step + 1, length - 1)
        ahead = actual[after] if step < num_transitions - 1 else values[after]
        mixed = (1 - lambda_) * values[after] + lambda_ * ahead
        actual[step] = float(steps["reward"][step]) + discount * mixed
    return actual


def test_returns_equal_definition_and_become_columns(data):
    for directory, episodes in data:
        table = rlds.feeds.open(directory)
        values = np.random.default_rng(0).normal(size=table.num_steps)
        ends = np.cumsum(table.summaries.num_steps)[:-1]
        for gamma, lambda_, baseline in ((1.0, 1.0, None), (0.9, 0.7, values), (0.9, 0.0, values)):
            expected = [
                _compute_returns(episode, value, gamma, lambda_)
                for episode, value in zip(episodes, np.split(values * (baseline is not None), ends))
            ]
            got = lambda_returns(table, gamma=gamma, lambda_=lambda_, values=baseline)
            np.testing.assert_allclose(got, np.concatenate(expected), rtol=1e-6, atol=1e-6)
        even = table.filter_episodes(np.arange(table.num_episodes) % 2 == 0)
        returns = lambda_returns(even).astype(np.float32)
        extended = even.with_column("return", returns)
        samples = pickle.loads(pickle.dumps(extended.transitions(2)))
        indices = np.arange(len(samples))[::-1]
        locations = samples.locate(indices)
        begins = np.cumsum(even.summaries.num_steps) - even.summaries.num_steps
        np.testing.assert_array_equal(
            samples.batch(indices)["return"], returns[begins[locations[0]] + locations[1]]
        )
        windows = extended.windows(horizon=3, horizon_fields=["action", "return"])
        assert windows.batch([0])["return"].shape == (1, 3)
        assert extended.fingerprint() != even.fingerprint()
    with pytest.raises(ValueError, match="values: got the shape"):
        table.with_column("return", [1.0])
    with pytest.raises(ValueError, match="already"):
        table.with_column("observation", values)
    with pytest.raises(ValueError, match="lambda_"):
        lambda_returns(table, lambda_=2)


def test_several_datasets_open_as_one_table(data, tmp_path):
    paths = [directory for directory, _ in data]
    table = rlds.feeds.open(paths)
    tables = [rlds.feeds.open(path) for path in paths]
    assert table.num_episodes == sum(dataset.num_episodes for dataset in tables)
    samples = pickle.loads(pickle.dumps(table.transitions(n=2)))
    expected = [dataset.transitions(n=2) for dataset in tables]
    indices = np.random.default_rng(0).permutation(len(samples))
    got = samples.batch(indices)
    assert len(samples) == sum(map(len, expected))
    first = len(expected[0])
    for row, index in enumerate(indices.tolist()):
        dataset, sample_index = (0, index) if index < first else (1, index - first)
        sample = expected[dataset][sample_index]
        for path in ("action", "reward", "discount", "next_observation"):
            if path == "next_observation":
                for name, value in sample[path].items():
                    np.testing.assert_array_equal(got[path][name][row], value)
            else:
                np.testing.assert_array_equal(got[path][row], sample[path])
    feed = rlds.feeds.Feed(table.windows(history=2), 32, seed=1)
    assert pickle.loads(pickle.dumps(feed)).state_dict(2) == feed.state_dict(2)
    kept = table.filter_episodes(lambda episode: len(episode) > 3)
    assert 0 < kept.num_episodes < table.num_episodes
    assert (kept.summaries.num_steps > 3).all()
    assert kept.compute_statistics(["action"])["action"].mean.shape == (3,)
    (tmp_path / "a").symlink_to(paths[0])
    (tmp_path / "b").symlink_to(paths[1])
    assert len(rlds.feeds.open(tmp_path / "*").steps()) == len(table.steps())
    with pytest.raises(FileNotFoundError, match="no file or folder matches"):
        rlds.feeds.open(tmp_path / "none*")
    with pytest.raises(TypeError, match="field 'reward': dataset 1 has nothing"):
        edited = rlds.editing.prepare_edit(paths[1], [rlds.editing.Drop("steps/reward")]).view
        rlds.feeds.open([paths[0], rlds.sources.Episodes(edited, edited.splits[0])])


def test_sum_tree_finds_same_index_as_searchsorted():
    rng = np.random.default_rng(0)
    for size in (1, 63, 64, 65, 5000):
        values = rng.random(size) * (rng.random(size) > 0.3)
        values[rng.integers(size)] = 1.0
        tree = SumTree(values)
        for _ in range(4):
            indices = rng.integers(size, size=40)
            new = rng.random(40)
            tree.update(indices, new)
            for index, value in zip(indices, new):
                values[index] = value
        np.testing.assert_array_equal(tree.values, values)
        fresh = SumTree(values)
        sums = rng.random(200) * fresh.total
        ends = np.cumsum(values)
        np.testing.assert_array_equal(tree.find(sums), np.searchsorted(ends, sums, side="right"))
        assert values[tree.find(np.array([tree.total * 2]))[0]] > 0


def test_samples_are_drawn_by_priorities(table):
    samples = table.transitions()
    feed = PrioritizedFeed(samples, 64, seed=3, alpha=0.5, beta=1.0, epsilon=0.0)
    first = next(feed)
    np.testing.assert_allclose(first["importance_weight"], 1.0)
    priorities = np.zeros(len(samples))
    priorities[[2, 5]] = 4.0, 1.0
    feed.update(np.arange(len(samples)), priorities)
    state, draws = feed.state_dict(), np.zeros(len(samples))
    for _ in range(50):
        batch = next(feed)
        np.add.at(draws, batch["sample_number"], 1)
    assert np.flatnonzero(draws).tolist() == [2, 5]
    assert draws[2] / draws.sum() == pytest.approx(2 / 3, abs=0.02)  # 4 ** 0.5 to 1.
    rare = batch["importance_weight"][batch["sample_number"] == 5]
    common = batch["importance_weight"][batch["sample_number"] == 2]
    assert (rare == 1.0).all()
    np.testing.assert_allclose(common, 0.5)
    assert (batch["action"] == samples.batch(batch["sample_number"])["action"]).all()
    ranks = [
        PrioritizedFeed(samples, 64, seed=3, alpha=0.5, beta=1.0, epsilon=0.0, rank=rank, world=2)
        for rank in range(2)
    ]
    for rank in ranks:
        rank.load_state_dict(pickle.loads(pickle.dumps(state)))
    feed.load_state_dict(state)
    indices = np.stack([next(rank)["sample_number"] for rank in ranks], axis=1).reshape(-1)
    np.testing.assert_array_equal(indices, next(feed)["sample_number"])
    with pytest.raises(ValueError, match="does not fit"):
        PrioritizedFeed(samples, 64, seed=4).load_state_dict(state)
    with pytest.raises(ValueError, match="finite"):
        feed.update([0], [np.nan])
    feed.update(np.arange(len(samples)), np.zeros(len(samples)))
    with pytest.raises(ValueError, match=r"all priorities .* are 0.*pass epsilon > 0"):
        next(feed)
    feed.update([7], [1.0])
    assert set(next(feed)["sample_number"]) == {7}
    with pytest.raises(IndexError, match="samples"):
        feed.update([len(samples)], [1.0])


def test_reward_fn_sets_rewards_of_relabelled_goals(table):
    def compute_reward(batch):
        return (batch["goal_distance"] == 1).astype(np.float32) + 100

    samples = table.transitions().with_goals(
        seed=1,
        fields="observation/state",
        fraction=0.8,
        goal_field="observation/state",
        reward_fn=compute_reward,
    )
    batch, plain = (
        samples.batch(np.arange(len(samples))),
        table.transitions().batch(np.arange(len(samples))),
    )
    is_own = batch["goal_distance"] == -1
    assert 0.1 < is_own.mean() < 0.3
    np.testing.assert_array_equal(batch["reward"][is_own], plain["reward"][is_own])
    np.testing.assert_array_equal(batch["reward"][~is_own], compute_reward(batch)[~is_own])
    own_state = plain["observation"]["state"]
    np.testing.assert_array_equal(batch["goal"]["state"][is_own], own_state[is_own])
    all_relabelled = table.transitions().with_goals(seed=1, fields="observation/state")
    goals = all_relabelled.batch(np.arange(len(samples)))["goal"]["state"]
    np.testing.assert_array_equal(batch["goal"]["state"][~is_own], goals[~is_own])
    with pytest.raises(ValueError, match="goal_field"):
        table.steps().with_goals(seed=1, fraction=0.5)
    with pytest.raises(ValueError, match="another dtype or shape than"):
        table.steps().with_goals(seed=1, fields="observation/state", goal_field="observation/exact")


def test_columns_hold_one_value_per_episode(data):
    for directory, episodes in data:
        table = rlds.feeds.open(directory)
        firsts = np.array(
            [
                episode["steps"]["button"][0]
                for episode in episodes
                if len(episode["steps"]["button"])
            ]
        )
        filled = table.filter_episodes(table.summaries.num_steps > 0)
        np.testing.assert_array_equal(filled.column("button"), firsts)
        is_known = [bool(episode["final_observation_known"]) for episode in episodes]
        np.testing.assert_array_equal(table.summaries.final_observation_known, is_known)
        with pytest.raises(KeyError):
            table.column("nonsense")
