"""Samples equal those of `rlds.transformations`, in the same order."""

import dataclasses

import feed_datasets
import numpy as np
import pytest

import rlds.feeds
import tfds_files
from rlds.statistics import compute_statistics
from rlds_ecosystem.model.nests import named_leaves

tf = pytest.importorskip("tensorflow")
transformations = pytest.importorskip("rlds.transformations")


@pytest.fixture(scope="module")
def dataset(tmp_path_factory):
    """A table that is read in place, a table that is cached, and their episodes."""
    episodes = feed_datasets.random_episodes(11, seed=3)
    tables = []
    for file_format in ("tfrecord", "array_record"):
        directory = tmp_path_factory.mktemp(file_format)
        feed_datasets.write(directory, episodes, file_format=file_format)
        tables.append(rlds.feeds.open(directory))
    assert [bool(table.storage.why_cached) for table in tables] == [False, True]
    return tables, episodes


def transform(episodes, function):
    """Joins the results of a transformation of all episodes."""
    columns = {}
    for episode in episodes:
        steps = tf.nest.map_structure(
            lambda leaf: tf.constant(leaf if leaf.dtype != object else leaf.astype(bytes)),
            episode["steps"],
        )
        result = function(steps, episode["final_observation_known"])
        for path, leaf in named_leaves(result):
            columns.setdefault(path, []).append(leaf.numpy())
    return {path: np.concatenate(chunks) for path, chunks in columns.items()}


def assert_same(all_samples, columns):
    for samples in all_samples:
        _assert_equal_columns(samples, columns)


def _assert_equal_columns(samples, columns):
    indices = np.random.default_rng(0).permutation(len(samples))
    got = dict(named_leaves(samples.batch(indices)))
    assert list(got) == list(columns)
    for path, column in columns.items():
        assert len(column) == len(samples), path
        assert got[path].dtype == column.dtype, path
        np.testing.assert_array_equal(got[path], column[indices], err_msg=path)


def test_steps_equal_stored_steps(dataset):
    tables, episodes = dataset
    assert_same(
        [table.steps() for table in tables], transform(episodes, lambda steps, is_known: steps)
    )


@pytest.mark.parametrize(("n", "gamma"), [(1, 1.0), (3, 0.9)])
def test_transitions_equal_transformations(dataset, n, gamma):
    tables, episodes = dataset
    columns = transform(
        episodes,
        lambda steps, is_known: transformations.transitions(
            steps, n=n, gamma=gamma, final_observation_known=is_known
        ),
    )
    assert_same([table.transitions(n, gamma) for table in tables], columns)


def test_transitions_of_selected_fields_equal_transformations(dataset):
    tables, episodes = dataset
    requested = ["observation/state", "reward"]

    def make_transitions(steps, is_known):
        steps = {
            "observation": {"state": steps["observation"]["state"]},
            "reward": steps["reward"],
            "discount": steps["discount"],
            "is_terminal": steps["is_terminal"],
        }
        result = transformations.transitions(steps, final_observation_known=is_known)
        return {
            "observation": result.pop("observation"),
            "reward": result.pop("reward"),
            **result,
        }

    samples = [table.select(requested).transitions() for table in tables]
    assert_same(samples, transform(episodes, make_transitions))


def _with_agents(episodes, nested, has_flag, nest):
    """Returns episodes of two agents; `nest` turns an array into the field of both."""
    agent_episodes = []
    for episode in episodes:
        steps = {name: episode["steps"][name] for name in ("observation", "action")}
        for name in ("reward", "discount"):
            column = episode["steps"][name]
            both = np.stack([column, column * np.float32(0.5)], 1)
            steps[name] = nest(both) if name in nested else column
        if has_flag:
            steps["is_terminal"] = episode["steps"]["is_terminal"]
        agent_episodes.append({**episode, "steps": dict(sorted(steps.items()))})
    return agent_episodes


def _as_dict(both):
    return dict(zip("ab", both.T.copy()))


def _write_agents(directory, episodes):
    step = {name: feed_datasets.STEP[name] for name in episodes[0]["steps"]}
    scalar = feed_datasets.STEP["reward"]
    for name in ("reward", "discount"):
        column = episodes[0]["steps"][name]
        if isinstance(column, dict):
            step[name] = tfds_files.Features(features=dict.fromkeys(column, scalar))
        else:
            step[name] = dataclasses.replace(scalar, shape=column.shape[1:])
    return rlds.feeds.open(feed_datasets.write(directory, episodes, step))


@pytest.mark.parametrize("has_flag", [True, False])
@pytest.mark.parametrize("nested", [("reward",), ("reward", "discount")])
def test_nested_rewards_equal_arrays_per_leaf(tmp_path, nested, has_flag):
    episodes = feed_datasets.random_episodes(9, seed=1)
    as_dicts = _with_agents(episodes, nested, has_flag, _as_dict)
    as_arrays = _with_agents(episodes, nested, has_flag, lambda both: both)
    dicts = _write_agents(tmp_path / "dicts", as_dicts)
    arrays = _write_agents(tmp_path / "arrays", as_arrays)

    def assert_equal(got, expected):
        for index, agent in enumerate("ab"):
            np.testing.assert_array_equal(got[agent], expected[..., index])

    for n, gamma in ((1, 0.9), (3, 0.9)):
        samples = dicts.transitions(n, gamma)
        indices = np.arange(len(samples))
        got, expected_batch = samples.batch(indices), arrays.transitions(n, gamma).batch(indices)
        for name in nested:
            assert_equal(got[name], expected_batch[name])
        np.testing.assert_array_equal(got["next_is_terminal"], expected_batch["next_is_terminal"])

        def make_transitions(steps, is_known, n=n, gamma=gamma):
            return transformations.transitions(
                steps, n=n, gamma=gamma, final_observation_known=is_known
            )

        assert_same([samples], transform(as_dicts, make_transitions))

    values = np.random.default_rng(0).normal(size=(dicts.num_steps, 2))
    for array in (None, values):
        nested_values = None if array is None else dict(zip("ab", array.T))
        got = rlds.feeds.lambda_returns(dicts, gamma=0.9, lambda_=0.8, values=nested_values)
        assert_equal(got, rlds.feeds.lambda_returns(arrays, gamma=0.9, lambda_=0.8, values=array))
    with pytest.raises(ValueError, match="values: got the shape"):
        rlds.feeds.lambda_returns(dicts, values=values)

    options = {
        "seed": 2,
        "fraction": 0.5,
        "goal_field": "observation/state",
        "fields": "observation/state",
    }
    goals = dicts.steps().with_goals(
        reward_fn=lambda batch: dict.fromkeys("ab", batch["goal_distance"] + 0.5), **options
    )
    got = goals.batch(np.arange(len(goals)))
    stored = dicts.steps().batch(np.arange(len(goals)))["reward"]
    for agent in "ab":
        is_own = got["goal_distance"] == -1
        expected_reward = np.where(is_own, stored[agent], got["goal_distance"] + 0.5)
        np.testing.assert_array_equal(got["reward"][agent], expected_reward)
    with pytest.raises(ValueError, match="reward_fn returned arrays of shape"):
        dicts.steps().with_goals(reward_fn=lambda batch: np.zeros(2), **options).batch([0, 1])


def test_sums_refuse_rewards_without_discounts(tmp_path):
    episodes = feed_datasets.random_episodes(3, seed=1)
    episodes = _with_agents(episodes, ("discount",), True, _as_dict)
    table = _write_agents(tmp_path, episodes)
    batch = table.transitions().batch([0, 1])
    for agent in "ab":  # As stored: no sum needs discounts.
        np.testing.assert_array_equal(
            batch["discount"][agent], episodes[0]["steps"]["discount"][agent][:2]
        )
    message = r"no discount fits the field 'reward' of shape \(\), only 'discount/a'"
    with pytest.raises(ValueError, match=message):
        table.transitions(2)
    with pytest.raises(ValueError, match=message):
        rlds.feeds.lambda_returns(table)
    steps = _tensors(episodes[0]["steps"])
    transformations.transitions(steps)
    with pytest.raises(ValueError, match=message):
        transformations.transitions(steps, n=2)
    with pytest.raises(ValueError, match=message):
        transformations.episode_return(steps, stored_discounts=True)


@pytest.mark.parametrize("padding", ["edge", "zeros"])
def test_windows_equal_transformations(dataset, padding):
    tables, episodes = dataset
    options = {
        "history": 3,
        "horizon": 2,
        "history_fields": ["observation", "discount"],
        "horizon_fields": ["action"],
        "padding": padding,
    }
    columns = transform(
        episodes,
        lambda steps, is_known: transformations.windows(
            steps, final_observation_known=is_known, **options
        ),
    )
    assert_same([table.windows(**options) for table in tables], columns)
    real = columns["action_pad_mask"][:, 0]
    only_real = {path: column[real] for path, column in columns.items()}
    assert_same([table.windows(only_real=True, **options) for table in tables], only_real)


def test_segments_equal_transformations(dataset):
    tables, episodes = dataset
    length, shift = 3, 2
    lengths = [len(episode["steps"]["action"]) for episode in episodes]
    # Tracing is slow, so one episode of each kind is enough.
    chosen = [lengths.index(index) for index in (0, 1, max(lengths))]
    table = tables[0].filter_episodes(chosen)
    episodes = [episodes[index] for index in chosen]

    segments = []
    for episode in episodes:
        nested = tf.data.Dataset.from_tensor_slices(_tensors(episode["steps"]))
        runs = transformations.batch(nested, length, shift=shift)
        segments += [tf.nest.map_structure(lambda leaf: leaf.numpy(), run) for run in runs]
    segments = [dict(named_leaves(run)) for run in segments]
    full_segments = [run for run in segments if len(run["action"]) == length]

    samples = table.segments(length, shift=shift)
    assert len(samples) == len(full_segments) < len(segments)
    got = samples.batch(np.arange(len(samples)))
    for path, column in named_leaves(got):
        stacked = np.stack([run[path] for run in full_segments])
        np.testing.assert_array_equal(column, stacked, err_msg=path)

    padded = table.segments(length, shift=shift, drop_remainder=False)
    assert len(padded) == len(segments)
    got = dict(named_leaves(padded.batch(np.arange(len(padded)))))
    for row, run in enumerate(segments):
        assert got["pad_mask"][row].sum() == len(run["action"])
        for path, column in run.items():
            np.testing.assert_array_equal(got[path][row][: len(column)], column, err_msg=path)
            assert not got[path][row][len(column) :].any()


def _tensors(steps):
    return tf.nest.map_structure(
        lambda leaf: tf.constant(leaf if leaf.dtype != object else leaf.astype(bytes)), steps
    )


def test_goals_are_later_steps_within_the_distance(dataset):
    tables, episodes = dataset
    table = tables[0]
    observations = [episode["steps"]["observation"] for episode in episodes]
    for strategy in ("uniform", "last", "geometric"):
        samples = table.steps().with_goals(seed=5, strategy=strategy, max_distance=4)
        indices = np.arange(len(samples))
        batch = samples.batch(indices)
        positions = samples.locate(indices)
        drawn = batch["goal_distance"]
        for row, (episode, step) in enumerate(zip(*positions)):
            farthest = min(len(observations[episode]["state"]) - 1 - step, 4)
            assert drawn[row] == farthest if strategy == "last" else drawn[row] <= farthest
            assert drawn[row] >= min(1, farthest)
            for name, leaf in batch["goal"].items():
                goal = observations[episode][name][step + drawn[row]]
                np.testing.assert_array_equal(leaf[row], goal)
        again, other = samples.batch(indices[::-1]), samples.batch(indices, epoch=1)
        np.testing.assert_array_equal(again["goal_distance"][::-1], drawn)
        assert strategy == "last" or (other["goal_distance"] != drawn).any()


def test_normalized_samples_equal_transformations(dataset):
    tables, episodes = dataset
    table = tables[0]
    statistics = compute_statistics(episodes, fields=["observation/state", "action"])
    for kind in ("normal", "bounds_q99"):
        samples = table.transitions().normalize(statistics, kind=kind)
        indices = np.arange(len(samples))
        plain = table.transitions().batch(indices)
        for name in ("observation", "next_observation"):
            plain[name]["state"] = transformations.normalize(
                plain[name]["state"], statistics["observation/state"], kind=kind
            )
        plain["action"] = transformations.normalize(
            plain["action"], statistics["action"], kind=kind
        )
        got = dict(named_leaves(samples.batch(indices)))
        for path, leaf in named_leaves(plain):
            np.testing.assert_array_equal(got[path], np.asarray(leaf), err_msg=path)


def test_filters_keep_the_chosen_steps_and_episodes(dataset):
    tables, episodes = dataset
    table = tables[0]
    samples = table.steps().filter(lambda batch: batch["reward"] > 0, fields=["reward"])
    rewards = np.concatenate([episode["steps"]["reward"] for episode in episodes])
    batch = samples.batch(np.arange(len(samples)))
    np.testing.assert_array_equal(batch["reward"], rewards[rewards > 0])

    odd = table.filter_episodes(lambda episode: episode.metadata["index"] % 2 == 1)
    same = table.filter_episodes(np.arange(table.num_episodes) % 2 == 1)
    assert odd.fingerprint() == same.fingerprint() != table.fingerprint()
    columns = transform(episodes[1::2], lambda steps, is_known: steps)
    assert_same([odd.steps()], columns)
    chosen = same.filter_episodes([2]).steps()
    assert_same([chosen], transform(episodes[5:6], lambda steps, is_known: steps))


def test_reads_any_range_of_steps(dataset):
    tables, episodes = dataset
    for index, episode in enumerate(episodes):
        got = dict(named_leaves(tables[0].read(index, 1, -1)))
        for path, column in named_leaves(episode["steps"]):
            np.testing.assert_array_equal(got[path], column[1:-1], err_msg=path)
