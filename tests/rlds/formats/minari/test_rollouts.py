"""Roll-outs that Minari recorded, compared with the values of the environment."""

import gc
import warnings

import minari
import numpy as np
import pytest
import raw_minari
import rollouts
from fast_share import one_in

import rlds
import rlds.sources
from rlds.tfds import load
from tfds_builders import convert

MinariSource = rlds.sources.formats()["minari"].load()

TIME_LIMIT = 18


@pytest.mark.slow
@pytest.mark.parametrize("data_format", one_in(3, ["hdf5", "arrow", "parquet"]))
def test_recorded_episodes_of_hopper_match_the_environment(tmp_path, monkeypatch, data_format):
    import gymnasium

    monkeypatch.setenv("MINARI_DATASETS_PATH", str(tmp_path / "raw"))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # Minari warns of missing metadata.
        env = gymnasium.make("Hopper-v5", max_episode_steps=TIME_LIMIT)
        collector = minari.DataCollector(env, data_format=data_format)
        episodes = rollouts.of_gymnasium(collector, 12, seed=5)
        collector.create_dataset("mujoco/hopper/random-v0", algorithm_name="random")
        collector.close()
        # Its temporary directories warn when they go away.
        del collector, env
        gc.collect()
    assert {episode.terminated for episode in episodes} == {True, False}

    source = MinariSource(raw_minari.directory_of("mujoco/hopper/random-v0"))
    dataset = load(convert(source, name="hopper", data_dir=tmp_path, shuffle=False))
    assert rlds.validation.validate(dataset).is_valid
    for index, (episode, rollout) in enumerate(
        zip(dataset.as_numpy_iterator(), episodes, strict=True)
    ):
        steps, length = episode["steps"], len(rollout)
        for name, values in (
            ("observation", rollout.observations),
            ("action", rollout.actions),
            ("reward", rollout.rewards),
        ):
            actual = steps[name][: len(values)]
            np.testing.assert_array_equal(actual, np.array(values), strict=True)
        last = [rollout.terminated]
        assert steps["discount"][:length].tolist() == [1.0] * (length - 1) + [1.0 - last[0]]
        assert steps["terminations"][:length].tolist() == [False] * (length - 1) + last
        assert steps["truncations"][:length].tolist() == [False] * (length - 1) + [
            length == TIME_LIMIT
        ]
        assert steps["is_terminal"].tolist() == [False] * length + last
        assert episode["truncated"] == (not rollout.terminated)
        assert episode["final_observation_known"]
        assert episode["complete"]
        assert (episode["seed"], episode["seed_known"]) == (5 + index, True)
