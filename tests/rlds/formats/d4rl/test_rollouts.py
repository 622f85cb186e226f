"""Roll-outs of Gymnasium in the layouts of D4RL, compared with the steps of the environment.

The environments of MuJoCo are those of Gymnasium; Adroit, AntMaze, Kitchen and Maze2d are in other
packages.
"""

import h5py
import numpy as np
import pytest
import raw_d4rl
import rollouts

import rlds
import rlds.sources
from rlds.tfds import load
from tfds_builders import convert

D4rlPybulletSource = rlds.sources.formats()["d4rl_pybullet"].load()
D4rlSource = rlds.sources.formats()["d4rl"].load()

TIME_LIMIT = 18


@pytest.fixture(scope="module")
def hopper():
    """Episodes of Hopper: some fall, some reach the time limit."""
    import gymnasium

    env = gymnasium.make("Hopper-v5", max_episode_steps=TIME_LIMIT)
    episodes = rollouts.of_gymnasium(env, 12)
    env.close()
    assert {episode.terminated for episode in episodes} == {True, False}
    return episodes


def make_rows(episodes, *, dtype, state_dtype):
    """Returns the rows of a file, with the state of the simulator before each action."""

    def column(values, dtype):
        return np.concatenate([np.array(list(values(episode)), dtype) for episode in episodes])

    ends = np.cumsum([len(episode) for episode in episodes]) - 1
    terminated = np.array([episode.terminated for episode in episodes])
    return {
        "observations": column(lambda episode: episode.observations[:-1], dtype),
        "next_observations": column(lambda episode: episode.observations[1:], dtype),
        "actions": column(lambda episode: episode.actions, dtype),
        "rewards": column(lambda episode: episode.rewards, dtype),
        "terminals": raw_d4rl.flags(ends[-1] + 1, *ends[terminated]),
        "timeouts": raw_d4rl.flags(ends[-1] + 1, *ends[~terminated]),
        **{
            f"infos/{name}": column(
                lambda episode, name=name: [state[name] for state in episode.states[:-1]],
                state_dtype,
            )
            for name in ("qpos", "qvel")
        },
    }


def check_flags(episode, terminated):
    assert episode["truncated"] == (not terminated)
    assert episode["complete"]
    last = len(episode["steps"]["reward"]) - 1
    assert episode["steps"]["is_terminal"].tolist() == [False] * last + [terminated]


@pytest.mark.slow
def test_version_2_has_final_observations(tmp_path, hopper):
    """Observations are float32; the state of the simulator is float64."""
    rows = make_rows(hopper, dtype="f4", state_dtype="f8")
    path = raw_d4rl.write(tmp_path / "hopper_medium-v2.hdf5", rows)
    built = convert(D4rlSource(path), name="hopper", data_dir=tmp_path, shuffle=False)
    dataset = load(built)
    assert rlds.validation.validate(dataset).is_valid
    for episode, rollout in zip(dataset.as_numpy_iterator(), hopper, strict=True):
        steps, length = episode["steps"], len(rollout)
        assert episode["final_observation_known"]
        check_flags(episode, rollout.terminated)
        np.testing.assert_array_equal(
            steps["observation"], np.array(rollout.observations, np.float32), strict=True
        )
        np.testing.assert_array_equal(
            steps["action"][:length], np.array(rollout.actions, np.float32), strict=True
        )
        np.testing.assert_array_equal(
            steps["reward"][:length], np.array(rollout.rewards, np.float32), strict=True
        )
        assert steps["discount"][:length].tolist() == [1.0] * (length - 1) + [
            1.0 - rollout.terminated
        ]
        for name in ("qpos", "qvel"):
            states = np.array([state[name] for state in rollout.states[:-1]])
            np.testing.assert_array_equal(steps["infos"][name][:length], states, strict=True)
    assert built.info.metadata["d4rl"]["rows_with_other_next_observation"] == 0
    rlds.sources.export(built.data_path, "d4rl", tmp_path / "again.hdf5")
    with h5py.File(tmp_path / "again.hdf5") as copy, h5py.File(path) as original:
        for name in rows:
            np.testing.assert_array_equal(copy[name][()], original[name][()], strict=True)


@pytest.mark.slow
def test_version_1_replay_has_no_final_observations(tmp_path, hopper):
    """All values are float64, rewards are a column, and next observations are missing."""
    arrays = raw_d4rl.without(make_rows(hopper, dtype="f8", state_dtype="f8"), "next_observations")
    arrays["rewards"] = arrays["rewards"][:, np.newaxis]
    path = raw_d4rl.write(tmp_path / "hopper_medium_replay-v1.hdf5", arrays)
    built = convert(D4rlSource(path), name="hopper", data_dir=tmp_path, shuffle=False)
    for episode, rollout in zip(load(built).as_numpy_iterator(), hopper, strict=True):
        steps = episode["steps"]
        assert not episode["final_observation_known"]
        check_flags(episode, rollout.terminated)
        np.testing.assert_array_equal(
            steps["observation"], np.array(rollout.observations[:-1]), strict=True
        )
        np.testing.assert_array_equal(
            steps["action"], np.array(rollout.actions, np.float64), strict=True
        )
        assert steps["reward"].tolist() == [float(reward) for reward in rollout.rewards]


@pytest.mark.slow
def test_pybullet_rewards_are_moved_to_their_actions(tmp_path, hopper):
    """Rewards and terminals are a row later than actions; episodes have an additional row."""
    rows = {"observations": [], "actions": [], "rewards": [], "terminals": []}
    for rollout in hopper:
        rows["observations"] += rollout.observations
        rows["actions"] += [*rollout.actions, np.zeros(3)]
        rows["rewards"] += [0.0, *rollout.rewards]
        rows["terminals"] += [0.0] * len(rollout) + [1.0]
    arrays = {name: np.array(values, np.float32) for name, values in rows.items()}
    for name in ("rewards", "terminals"):
        arrays[name] = arrays[name][:, np.newaxis]
    path = raw_d4rl.write(tmp_path / "hopper-bullet-mixed-v0.hdf5", arrays, compression=None)
    source = D4rlPybulletSource(path, time_limit=TIME_LIMIT)
    built = convert(source, name="hopper", data_dir=tmp_path, shuffle=False)
    for episode, rollout in zip(load(built).as_numpy_iterator(), hopper, strict=True):
        steps, length = episode["steps"], len(rollout)
        assert episode["final_observation_known"]
        # The file does not tell a fall in the last step from the time limit.
        is_ambiguous = length == TIME_LIMIT
        assert episode["terminal_is_ambiguous"] == is_ambiguous
        check_flags(episode, not is_ambiguous)
        np.testing.assert_array_equal(
            steps["observation"], np.array(rollout.observations, np.float32), strict=True
        )
        np.testing.assert_array_equal(
            steps["action"][:length], np.array(rollout.actions, np.float32), strict=True
        )
        np.testing.assert_array_equal(
            steps["reward"][:length], np.array(rollout.rewards, np.float32), strict=True
        )
