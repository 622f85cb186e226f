"""Roll-outs in the layouts of RL Unplugged, compared with the values of the environment.

The product of DeepMind Lab is not covered: it is not available as a package.
"""

import numpy as np
import pytest
import raw_rlu
import rollouts
import tensorflow as tf

import rlds
import rlds.sources
from rlds.tfds import load
from tfds_builders import convert

RluAtariSource = rlds.sources.formats()["rlu_atari"].load()
RluControlSuiteSource = rlds.sources.formats()["rlu_control_suite"].load()
RluLocomotionSource = rlds.sources.formats()["rlu_locomotion"].load()
RluRwrlSource = rlds.sources.formats()["rlu_rwrl"].load()

NUM_STEPS = 20


def read_converted(source, directory):
    dataset = load(convert(source, name="episodes", data_dir=directory / "data", shuffle=False))
    assert rlds.validation.validate(dataset).is_valid
    return list(dataset.as_numpy_iterator())


def make_record(timesteps, actions, separator, *, is_rsa):
    """Returns an episode as a record in float32; the reward of the first row is zero."""
    missing = np.zeros_like(actions[0])
    actions = [missing, *actions] if is_rsa else [*actions, missing]
    fields = {
        f"observation{separator}{name}": [timestep.observation[name] for timestep in timesteps]
        for name in timesteps[0].observation
    }
    fields |= {
        "action": actions,
        "reward": [timestep.reward or 0.0 for timestep in timesteps],
        "discount": [0.0 if timestep.first() else timestep.discount for timestep in timesteps],
        "step_type": [timestep.step_type for timestep in timesteps],
    }
    return {name: np.array(values, np.float32) for name, values in fields.items()}


def check_steps(episode, timesteps, actions, observations):
    """Compares an episode with the values of a dm_env environment.

    Args:
      episode: The episode.
      timesteps: The timesteps that the environment returned.
      actions: The actions of the agent.
      observations: The expected observations by their names in the dataset.
    """
    steps, length = episode["steps"], len(actions)
    assert len(steps["reward"]) == length + 1
    rewards = np.array([timestep.reward for timestep in timesteps[1:]], np.float32)
    np.testing.assert_array_equal(steps["reward"][:length], rewards, strict=True)
    assert np.any(rewards)
    np.testing.assert_array_equal(
        steps["action"][:length], np.array(actions, np.float32), strict=True
    )
    assert steps["discount"][:length].tolist() == [t.discount for t in timesteps[1:]]
    assert steps["step_type"].tolist() == [t.step_type for t in timesteps]
    for name, values in observations.items():
        expected = np.array(values, np.float32).reshape(length + 1, -1)
        np.testing.assert_array_equal(steps["observation"][name], expected, strict=True)
    is_over, is_terminal = timesteps[-1].last(), timesteps[-1].discount == 0.0
    assert episode["complete"] == is_over
    assert episode["truncated"] == (not is_terminal)
    assert steps["is_terminal"].tolist() == [False] * length + [is_terminal]


@pytest.mark.slow
@pytest.mark.parametrize("max_steps", [NUM_STEPS, NUM_STEPS - 5], ids=["to the end", "cut"])
@pytest.mark.parametrize(
    ("source", "separator"), [(RluControlSuiteSource, "/"), (RluRwrlSource, ":")]
)
def test_rollouts_of_position_and_velocity_are_read(tmp_path, source, separator, max_steps):
    env = rollouts.simulator(NUM_STEPS, seed=1)
    timesteps, actions = rollouts.of_dm_env(env, max_steps)
    assert len(actions) == max_steps
    record = make_record(timesteps, actions, separator, is_rsa=source is RluRwrlSource)
    raw_rlu.write_files(
        tmp_path,
        "train",
        [record],
        num_files=1,
        compression="" if source is RluRwrlSource else "GZIP",
    )
    (episode,) = read_converted(source(tmp_path), tmp_path)
    observations = {
        name: [timestep.observation[name] for timestep in timesteps]
        for name in env.observation_spec()
    }
    check_steps(episode, timesteps, actions, observations)


@pytest.mark.slow
def test_rollouts_of_humanoid_are_read(tmp_path):
    """The task `humanoid_walls` without its camera, which needs OpenGL."""
    composer = pytest.importorskip("dm_control.composer")
    from dm_control.locomotion import arenas, tasks, walkers

    walker = walkers.CMUHumanoidPositionControlled()
    task = tasks.RunThroughCorridor(
        walker=walker,
        arena=arenas.WallsCorridor(),
        physics_timestep=0.005,
        control_timestep=0.03,
    )
    walker.observables.egocentric_camera.enabled = False
    env = composer.Environment(task, random_state=0)
    timesteps, actions = rollouts.of_dm_env(env, NUM_STEPS)
    record = make_record(timesteps, actions, "/", is_rsa=False)
    raw_rlu.write_files(tmp_path, "train", [record], num_files=1)
    (episode,) = read_converted(RluLocomotionSource(tmp_path), tmp_path)
    observations = {
        name.removeprefix("walker/"): [timestep.observation[name] for timestep in timesteps]
        for name in env.observation_spec()
    }
    episode["steps"]["observation"] = episode["steps"]["observation"]["walker"]
    assert episode["steps"]["observation"].keys() == observations.keys()
    check_steps(episode, timesteps, actions, observations)


@pytest.mark.slow
def test_rollouts_of_breakout_are_read_with_their_values(tmp_path):
    pytest.importorskip("ale_py")
    games = rollouts.of_atari("breakout", 2, max_steps=150)
    records = []
    for index, rollout in enumerate(games):
        rewards = np.stack(rollout.rewards)
        discounts = np.ones(len(rollout), np.float32)
        discounts[-1] = 1.0 - rollout.terminated
        records.append(
            {
                "checkpoint_idx": np.array([3], np.int64),
                "episode_idx": np.array([index], np.int64),
                "episode_return": np.array([rewards.sum()], np.float32),
                "clipped_episode_return": np.array([rewards.clip(-1, 1).sum()], np.float32),
                "observations": [
                    tf.io.encode_png(frame[..., np.newaxis]).numpy()
                    for frame in rollout.observations[:-1]
                ],
                "actions": np.stack(rollout.actions).astype(np.int64),
                "unclipped_rewards": rewards,
                "clipped_rewards": rewards.clip(-1, 1),
                "discounts": discounts,
            }
        )
    raw_rlu.write_files(tmp_path, "run_1", records)
    for episode, rollout in zip(
        read_converted(RluAtariSource(tmp_path), tmp_path), games, strict=True
    ):
        steps = episode["steps"]
        frames = np.stack(rollout.observations[:-1])
        np.testing.assert_array_equal(steps["observation"][..., 0], frames, strict=True)
        assert steps["action"].tolist() == np.stack(rollout.actions).tolist()
        np.testing.assert_array_equal(steps["reward"], np.stack(rollout.rewards), strict=True)
        assert steps["discount"].tolist() == [1.0] * (len(rollout) - 1) + [1.0 - rollout.terminated]
        assert episode["truncated"] == (not rollout.terminated)
        assert not episode["final_observation_known"]
    assert any(np.any(rollout.rewards) for rollout in games)
