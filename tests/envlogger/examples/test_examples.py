"""The examples record episodes."""

import tensorflow_datasets as tfds

import envlogger
from envlogger.examples import random_agent_catch, tfds_random_agent_catch


def test_the_random_agent_records_all_its_episodes(tmp_path, capsys):
    directory = tmp_path / "new"
    random_agent_catch.main([f"--trajectories_dir={directory}", "--num_episodes=3"])
    with envlogger.Reader(directory) as reader:
        assert [len(episode) for episode in reader.episodes] == [10, 10, 10]
    assert capsys.readouterr().out.startswith(f"3 episodes in {directory}, ")


def test_the_random_agent_records_a_tfds_dataset(tmp_path, capsys):
    directory = tmp_path / "new"
    tfds_random_agent_catch.main([f"--trajectories_dir={directory}", "--num_episodes=3"])
    dataset = tfds.builder_from_directory(directory).as_dataset(split="train")
    assert [len(episode["steps"]) for episode in dataset] == [10, 10, 10]
    assert "catch_example" in capsys.readouterr().out
