"""Roll-outs that EnvLogger recorded, compared with the environments and their specs."""

import numpy as np
import pytest
import rollouts
from fast_share import one_in

import envlogger
import rlds
from rlds.tfds import load
from tfds_builders import EnvLoggerSource, convert


def simulator():
    return rollouts.simulator(20, seed=1)


def hopper():
    import gymnasium

    from envlogger.gymnasium_adapter import GymnasiumAdapter

    return GymnasiumAdapter(gymnasium.make("Hopper-v5", max_episode_steps=18), seed=3)


def humanoid():
    """Some observations of its walker have no elements."""
    composer = pytest.importorskip("dm_control.composer")
    from dm_control.locomotion import arenas, tasks, walkers

    walker = walkers.CMUHumanoidPositionControlled()
    task = tasks.RunThroughCorridor(
        walker, arenas.WallsCorridor(), physics_timestep=0.005, control_timestep=0.03
    )
    walker.observables.egocentric_camera.enabled = False  # It needs OpenGL.
    return composer.Environment(task, time_limit=0.3, random_state=0)


@pytest.mark.slow
@pytest.mark.parametrize("make", one_in(3, [hopper, simulator, humanoid]))
def test_recorded_episodes_are_converted_unchanged(tmp_path, make):
    env = make()
    (tmp_path / "log").mkdir()
    with envlogger.EnvLogger(env, data_directory=tmp_path / "log") as recorder:
        episodes = [rollouts.of_dm_env(recorder, 100, seed=seed) for seed in range(6)]
    source = EnvLoggerSource(tmp_path / "log")
    builder = convert(source, name="episodes", data_dir=tmp_path / "data", shuffle=False)
    dataset = load(builder)
    assert rlds.validation.validate(dataset).is_valid
    for episode, (timesteps, actions) in zip(dataset.as_numpy_iterator(), episodes, strict=True):
        steps, length = episode["steps"], len(actions)
        np.testing.assert_array_equal(steps["action"][:length], np.array(actions), strict=True)
        for name in ("reward", "discount"):
            values = [getattr(timestep, name) for timestep in timesteps[1:]]
            np.testing.assert_array_equal(steps[name][:length], np.array(values), strict=True)
        observations = [timestep.observation for timestep in timesteps]
        if isinstance(observations[0], np.ndarray):
            np.testing.assert_array_equal(steps["observation"], np.array(observations), strict=True)
        else:
            assert steps["observation"].keys() == env.observation_spec().keys()
            for name, spec in env.observation_spec().items():
                column = steps["observation"][name]
                assert (column.dtype, column.shape[1:]) == (spec.dtype, spec.shape)
                np.testing.assert_array_equal(column, np.array([row[name] for row in observations]))
        terminated = timesteps[-1].discount == 0.0
        assert steps["is_terminal"].tolist() == [False] * length + [terminated]
        assert episode["truncated"] == (not terminated)
        assert episode["complete"]
