"""Replay buffers of Stable-Baselines3, compared with the added transitions."""

import pickle
import warnings

import foreign_readers
import numpy as np
import pytest
import raw_sb3
from gymnasium import spaces

import rlds.sources
from rlds.sources import SourceError

Sb3Source = rlds.sources.formats()["sb3"].load()


def split_stored(transitions, size):
    """Returns the episodes of an environment that the ring still stores, as lists."""
    stored = transitions[-size:]
    episodes, current = [], []
    for transition in stored:
        current.append(transition)
        if transition["dones"]:
            episodes.append(current)
            current = []
    return [*episodes, current] if current else episodes


@pytest.mark.parametrize("dicts", [False, True])
@pytest.mark.parametrize(
    ("steps", "done", "timeout"), [(9, (3, 7), (7,)), (5, (1,), ()), (6, (), ())]
)
def test_episodes_have_the_added_transitions(tmp_path, steps, done, timeout, dicts):
    state, transitions = raw_sb3.buffer(steps, done=done, timeout=timeout, dicts=dicts)
    name = "DictReplayBuffer" if dicts else "ReplayBuffer"
    episodes = rlds.sources.open(raw_sb3.write(tmp_path / "buffer.pkl", state, name=name))
    assert episodes.format == "sb3"
    expected = [(env, rows) for env in (0, 1) for rows in split_stored(transitions[env], 6)]
    for episode, (env, rows) in zip(pickle.loads(pickle.dumps(episodes)), expected, strict=True):
        columns = episode.steps
        assert episode.metadata["env"] == env
        assert episode.num_steps == len(rows) + 1
        observation = columns["observation"]
        if dicts:
            observation = np.concatenate([observation["x"], observation["y"]], axis=1)
        for index, row in enumerate(rows):
            np.testing.assert_array_equal(observation[index], row["observations"])
            np.testing.assert_array_equal(observation[index + 1], row["next_observations"])
            np.testing.assert_array_equal(columns["action"][index], row["actions"])
            assert columns["reward"][index] == row["rewards"]
        last = rows[-1]
        terminal = bool(last["dones"] and not last["timeouts"])
        assert (columns["is_terminal"][-1], episode.truncated) == (terminal, not terminal)
        is_oldest = rows[0] is transitions[env][-6:][0]
        assert episode.complete == (bool(last["dones"]) and not (is_oldest and state["full"]))


def test_buffers_without_next_observations_are_read(tmp_path):
    state, rows = raw_sb3.buffer(9, done=(5,), optimize=True)
    episodes = rlds.sources.open(raw_sb3.write(tmp_path / "a.pkl", state))
    first, second, third = episodes
    # The oldest row has the observation of the newest transition's end.
    assert [first.num_steps, second.num_steps, third.num_steps] == [2, 4, 6]
    assert [first.final_observation_known, second.final_observation_known] == [False, True]
    np.testing.assert_array_equal(first.steps["observation"][0], rows[0][4]["observations"])
    np.testing.assert_array_equal(second.steps["observation"][-1], rows[0][8]["next_observations"])
    np.testing.assert_array_equal(third.steps["observation"][-1], rows[1][8]["next_observations"])


def test_an_observation_that_does_not_follow_begins_an_episode(tmp_path):
    state, _ = raw_sb3.buffer(5, size=10, envs=1, done=())
    state["observations"][2] += 1
    lengths = [e.num_steps for e in rlds.sources.open(raw_sb3.write(tmp_path / "a.pkl", state))]
    assert lengths == [3, 4]


def test_scaled_actions_are_restored_on_request(tmp_path):
    """SAC, TD3 and DDPG store `2 (a - low) / (high - low) - 1` for the action `a`."""
    low, high = np.float32([-2, 0]), np.float32([2, 10])
    actions = np.float32([[0.5, 2.5], [-1, 10], [-1.75, 7.5]])
    state, _ = raw_sb3.buffer(3, envs=1, done=())
    state |= {"actions": np.zeros((6, 1, 2), np.float32), "action_space": spaces.Box(low, high)}
    state["actions"][:3, 0] = 2 * (actions - low) / (high - low) - 1
    path = raw_sb3.write(tmp_path / "a.pkl", state)
    restored = Sb3Source(path, actions="scaled").read("train", 0).steps["action"]
    np.testing.assert_allclose(restored[:3], actions, atol=1e-6)
    assert restored.dtype == np.float32
    with pytest.warns(
        UserWarning, match=r"a\.pkl: all actions are in \[-1, 1\].*actions=\"scaled\""
    ):
        episodes = rlds.sources.open(path)
    assert episodes.source.source_info.metadata["sb3"]["action_high"] == [2, 10]
    with warnings.catch_warnings(), pytest.raises(UserWarning):  # No damage.
        warnings.simplefilter("error")
        rlds.sources.open(path)
    for stored in (episodes, rlds.sources.open(path, actions="as_stored")):
        np.testing.assert_array_equal(stored[0].steps["action"][:3], state["actions"][:3, 0])
    state["actions"][:3, 0] = actions  # As CleanRL stores them.
    path = raw_sb3.write(tmp_path / "b.pkl", state)
    np.testing.assert_array_equal(rlds.sources.open(path)[0].steps["action"][:3], actions)
    with pytest.raises(
        ValueError, match=r"b\.pkl has no scaled actions: some are beyond \[-1, 1\]"
    ):
        Sb3Source(path, actions="scaled")


def test_ends_without_timeouts_warn_of_time_limits(tmp_path):
    state, _ = raw_sb3.buffer(6, size=9, envs=1, done=(1, 5))
    path = raw_sb3.write(tmp_path / "a.pkl", {**state, "handle_timeout_termination": False})
    with pytest.warns(UserWarning, match=r"no timeouts are stored .*time_limit="):
        default = rlds.sources.open(path)
    for episodes, terminal, ambiguous in (
        (default, [True, True], [True, True]),
        (rlds.sources.open(path, time_limit=4), [True, False], [False, True]),
        (rlds.sources.open(path, time_limit=0), [True, True], [False, False]),
    ):
        assert [bool(e.steps["is_terminal"][-1]) for e in episodes] == terminal
        assert [not e.truncated for e in episodes] == terminal
        assert [bool(e.metadata["terminal_is_ambiguous"]) for e in episodes] == ambiguous


@pytest.mark.parametrize(
    ("package", "name"),
    [
        ("stable_baselines3.common.buffers", "NStepReplayBuffer"),
        ("stable_baselines3.her.her_replay_buffer", "HerReplayBuffer"),
    ],
)
def test_buffers_of_other_classes_are_read_or_refused(tmp_path, package, name):
    """They store single transitions, as their base classes do."""
    state, transitions = raw_sb3.buffer(5, done=(1,), dicts=name[0] == "H")
    state["infos"] = np.array([[{} for _ in range(2)] for _ in range(6)])
    path = raw_sb3.write(tmp_path / "a.pkl", state, name=name, package=package)
    episodes = rlds.sources.open(path)
    assert [episode.num_steps for episode in episodes] == [3, 4, 6]
    for row, expected in zip(episodes[1].steps["reward"], transitions[0][2:]):
        assert row == expected["rewards"]
    path = raw_sb3.write(tmp_path / "b.pkl", state, name="RolloutBuffer")
    with pytest.raises(SourceError, match="RolloutBuffer, expected a replay buffer"):
        rlds.sources.open(path)


def test_the_random_generator_of_a_space_is_ignored(tmp_path):
    """Spaces have a generator after samples were drawn, as before training."""
    state, _ = raw_sb3.buffer()
    path = raw_sb3.write(tmp_path / "a.pkl", {**state, "random": np.random.default_rng(0)})
    assert len(rlds.sources.open(path)) == 3


def test_damaged_and_hostile_buffers_are_refused(tmp_path):
    state, _ = raw_sb3.buffer()
    (tmp_path / "b.pkl").write_bytes(b"cos\nsystem\n(S'true'\ntR.")
    with pytest.raises(SourceError, match=r"names os\.system, which is not plain data"):
        Sb3Source(tmp_path / "b.pkl")
    for change, message in (
        ({"pos": 7}, "'pos': 7, expected at most 6"),
        ({"actions": np.zeros((5, 2, 1))}, r"\(5, 2, 1\), expected 6 rows for 2 environments"),
        ({"n_envs": "2"}, "n_envs '2'"),
        ({"pos": 0, "full": False}, "no transitions"),
    ):
        with pytest.raises(SourceError, match=message):
            Sb3Source(raw_sb3.write(tmp_path / "a.pkl", {**state, **change}))


@pytest.mark.slow
def test_buffers_of_stable_baselines3_are_read(tmp_path):
    script = """
import json, sys
import gymnasium as gym
import numpy as np
from stable_baselines3.common.buffers import ReplayBuffer
from stable_baselines3.common.save_util import save_to_pkl
box = gym.spaces.Box(-1, 1, (3,))
buffer = ReplayBuffer(12, box, gym.spaces.Discrete(4), device="cpu", n_envs=2)
observations = np.arange(60, dtype=np.float32).reshape(10, 2, 3)
for time in range(9):
    done = np.array([time == 4, False])
    infos = [{"TimeLimit.truncated": bool(done[0])}, {}]
    now, following = observations[time : time + 2]
    buffer.add(now, following, np.array([1, 2]), np.ones(2), done, infos)
save_to_pkl(sys.argv[1], buffer)
print(json.dumps(int(buffer.pos)))
"""
    path = tmp_path / "buffer.pkl"
    assert foreign_readers.run("stable_baselines3.common.buffers", script, path) == 3
    episodes = rlds.sources.open(path)
    assert [(e.metadata["env"], e.num_steps, e.complete) for e in episodes] == [
        (0, 3, False),
        (0, 5, False),
        (1, 7, False),
    ]
    assert episodes[0].truncated
    assert episodes[2].steps["observation"][:, 0].tolist() == [21, 27, 33, 39, 45, 51, 57]
