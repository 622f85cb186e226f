"""Real roll-outs that Minari recorded: the steps are what the environment returned."""

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
def test_hopper_episodes_are_those_that_minari_recorded(tmp_path, monkeypatch, data_format):
    import gymnasium

    monkeypatch.setenv("MINARI_DATASETS_PATH", str(tmp_path / "raw"))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # Of Minari, about metadata that is not given.
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
    for index, (episode, played) in enumerate(
        zip(dataset.as_numpy_iterator(), episodes, strict=True)
    ):
        steps, length = episode["steps"], len(played)
        for name, values in (
            ("observation", played.observations),
            ("action", played.actions),
            ("reward", played.rewards),
        ):
            actual = steps[name][: len(values)]
            np.testing.assert_array_equal(actual, np.array(values), strict=True)
        last = [played.terminated]
        assert steps["discount"][:length].tolist() == [1.0] * (length - 1) + [1.0 - last[0]]
        assert steps["terminations"][:length].tolist() == [False] * (length - 1) + last
        assert steps["truncations"][:length].tolist() == [False] * (length - 1) + [
            length == TIME_LIMIT
        ]
        assert steps["is_terminal"].tolist() == [False] * length + last
        assert episode["truncated"] == (not played.terminated)
        assert episode["final_observation_known"]
        assert episode["complete"]
        assert (episode["seed"], episode["seed_known"]) == (5 + index, True)
