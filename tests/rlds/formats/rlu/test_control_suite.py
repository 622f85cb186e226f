import numpy as np
import pytest
import raw_rlu
import rollouts
from hypothesis import given, settings
from hypothesis import strategies as st

import rlds.sources
from rlds.sources import DamagedEpisode

RluControlSuiteSource = rlds.sources.formats()["rlu_control_suite"].load()


def read(directory, raw, **kwargs):
    raw_rlu.write_files(directory, "train", raw)
    source = RluControlSuiteSource(directory, **kwargs)
    return [e for file in source.parts("train") for e in source.episodes("train", file)]


@pytest.mark.parametrize("order", ["rsa", "sar"])
def test_rows_in_either_order_become_the_same_transitions(tmp_path, order):
    raw = raw_rlu.control_suite_episodes(order=order)
    shift = 1 if order == "rsa" else 0
    for episode, expected in zip(read(tmp_path, raw, alignment=order), raw, strict=True):
        steps, rows = episode.steps, len(expected["reward"])
        assert episode.final_observation_known
        assert episode.num_steps == rows
        for t in range(rows):
            position = steps["observation"]["position"][t]
            assert position.tolist() == expected["observation/position"][t].tolist()
            assert steps["observation"]["height"][t] == expected["observation/height"][t]
            assert steps["step_type"][t] == expected["step_type"][t]
        for t in range(rows - 1):
            assert steps["action"][t].tolist() == expected["action"][t].tolist()
            assert steps["reward"][t] == expected["reward"][t + shift]
            assert steps["discount"][t] == expected["discount"][t + shift]
        is_terminal = expected["discount"][-1 if order == "rsa" else -2] == 0
        assert steps["is_terminal"][-1] == is_terminal
        assert episode.truncated == (not is_terminal)
        assert episode.metadata["recorded_episode_id"] == expected["episode_id"][0]
        assert episode.metadata["timestamp"] == expected["timestamp"][0]
        assert episode.metadata["episodic_reward"] == expected["episodic_reward"][0]
        placeholders = episode.metadata["placeholders"]
        assert placeholders["action"].tolist() == expected["action"][-1].tolist()
        assert placeholders["discount"] == expected["discount"][0 if order == "rsa" else -1]


@pytest.mark.slow
@given(
    st.lists(st.integers(2, 7), min_size=1, max_size=3).map(tuple),
    st.sampled_from(["rsa", "sar"]),
    st.integers(0, 99),
)
@settings(max_examples=15, deadline=None)
def test_raw_rows_can_be_restored(tmp_path_factory, lengths, order, seed):
    raw = raw_rlu.control_suite_episodes((9, *lengths), order=order, seed=seed)
    episodes = read(tmp_path_factory.mktemp("raw"), raw, alignment=order)
    for episode, expected in zip(episodes, raw, strict=True):
        for name in ("action", "reward", "discount"):
            column = list(episode.steps[name][:-1])
            is_first = order == "rsa" and name != "action"
            column.insert(0 if is_first else len(column), episode.metadata["placeholders"][name])
            np.testing.assert_array_equal(column, expected[name])
        for name in ("position", "height"):
            observation = episode.steps["observation"][name]
            assert observation.ravel().tolist() == expected[f"observation/{name}"].ravel().tolist()


def test_a_nan_reward_outside_of_transitions_is_a_placeholder(tmp_path):
    raw = raw_rlu.control_suite_episodes((4,))
    raw[0]["reward"][0] = np.nan
    (episode,) = read(tmp_path, raw)
    assert np.isfinite(episode.steps["reward"]).all()
    assert np.isnan(episode.metadata["placeholders"]["reward"])


@pytest.mark.parametrize("order", ["rsa", "sar"])
def test_a_wrong_alignment_is_an_error(tmp_path, order):
    other = "sar" if order == "rsa" else "rsa"
    raw = raw_rlu.control_suite_episodes((4,), order=order)
    (damaged,) = read(tmp_path, raw * 1, alignment=other)
    assert isinstance(damaged, DamagedEpisode)
    row = 3 if order == "rsa" else 0
    assert f"row {row}, field 'reward'" in str(damaged.error)
    assert f"with alignment='{other}' this reward belongs to no transition" in str(damaged.error)


def test_an_episode_without_its_end_is_incomplete(tmp_path):
    episodes = read(tmp_path, raw_rlu.control_suite_episodes())
    assert [episode.complete for episode in episodes] == [True, True, True, False]
    assert episodes[-1].truncated


def test_episodic_rewards_of_each_row_become_a_step_field(tmp_path):
    raw = raw_rlu.control_suite_episodes((5, 4))
    for episode in raw:
        episode["episodic_reward"] = np.cumsum(episode["reward"])
    (first, _) = read(tmp_path, raw)
    assert first.steps["episodic_reward"].tolist() == raw[0]["episodic_reward"].tolist()
    assert "episodic_reward" not in first.metadata


@pytest.mark.slow
def test_episodes_equal_those_of_the_tfds_builder(tmp_path):
    from tensorflow_datasets.rl_unplugged.rlu_control_suite import rlu_control_suite

    raw = raw_rlu.control_suite_episodes()
    rng = np.random.default_rng(1)
    for episode in raw:  # As the config cartpole_swingup has it.
        rows = len(episode["reward"])
        del episode["observation/height"]
        episode["observation/velocity"] = rng.normal(size=(rows, 2)).astype(np.float32)
        episode["action"] = rng.normal(size=(rows, 1)).astype(np.float32)
    episodes = read(tmp_path, raw)
    builder = rlu_control_suite.RluControlSuite(config="cartpole_swingup", data_dir=tmp_path)
    actual = [
        episode
        for file in sorted(tmp_path.glob("train-*"))
        for _, episode in builder.generate_examples_one_file(file)
    ]
    for ours, theirs in zip(episodes, actual, strict=True):
        steps = theirs["steps"]
        for name in ("position", "velocity"):
            np.testing.assert_array_equal(
                ours.steps["observation"][name], steps["observation"][name]
            )
        for name in ("action", "reward", "discount"):  # The last ones are placeholders.
            np.testing.assert_array_equal(ours.steps[name][:-1], steps[name][:-1])
        for name in ("is_first", "is_last", "is_terminal"):
            np.testing.assert_array_equal(ours.steps[name], steps[name])
        assert ours.metadata["recorded_episode_id"] == theirs["episode_id"]


@pytest.mark.slow
def test_a_played_episode_is_read_as_its_transitions(tmp_path):
    timesteps, actions = rollouts.of_dm_env(rollouts.simulator(5, seed=0), 5)
    names = list(timesteps[0].observation)
    raw = {
        f"observation/{name}": np.array([t.observation[name] for t in timesteps], np.float32)
        for name in names
    }
    raw |= {
        "action": np.array([*actions, actions[-1]], np.float32),
        "reward": np.array([t.reward or 0.0 for t in timesteps], np.float32),
        "discount": np.array([1.0 if t.first() else t.discount for t in timesteps], np.float32),
        "step_type": np.array([t.step_type for t in timesteps], np.float32),
        "episode_id": np.array([1], np.int64),
    }
    (episode,) = read(tmp_path, [raw])
    assert (episode.truncated, episode.complete) == (True, True)
    assert episode.num_steps == len(actions) + 1 > 3
    for t, action in enumerate(actions):
        before, after = timesteps[t], timesteps[t + 1]
        assert episode.steps["action"][t].tolist() == action.astype(np.float32).tolist()
        assert episode.steps["reward"][t] == np.float32(after.reward)
        assert episode.steps["discount"][t] == after.discount
        for name in names:
            values = episode.steps["observation"][name]
            assert values[t].tolist() == before.observation[name].astype(np.float32).tolist()
            assert values[t + 1].tolist() == after.observation[name].astype(np.float32).tolist()


def test_shapes_follow_from_the_raw_values(tmp_path):
    raw_rlu.write_files(tmp_path, "train", raw_rlu.control_suite_episodes())
    features = RluControlSuiteSource(tmp_path).fields.steps
    assert {name: (f.shape, f.dtype) for name, f in features["observation"].items()} == {
        "position": ((3,), np.float32),
        "height": ((1,), np.float32),  # Records have no scalars.
    }
    assert features["reward"].shape == features["step_type"].shape == ()
