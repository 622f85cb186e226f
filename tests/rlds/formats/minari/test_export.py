"""Exports of other formats to Minari datasets, without TensorFlow."""

import json
import shutil

import minari
import numpy as np
import pytest
import raw_npz

import rlds.sources
from rlds.sources import reading
from rlds.sources.testing import differences


@pytest.mark.slow
@pytest.mark.parametrize("data_format", ["hdf5", "parquet"])
def test_npz_survives_an_export_to_minari(tmp_path, data_format):
    files = raw_npz.sample()
    for arrays in files.values():
        arrays["when"] = np.arange(len(arrays["action"]) + 1)
    raw = raw_npz.write_folder(tmp_path / "raw", files)
    exported = rlds.sources.export(raw, "minari", tmp_path / "npz-v0", data_format=data_format)
    placements = {placement.field: placement.how for placement in exported.placements}
    assert placements["steps/observation/camera"] == placements["steps/reward"] == "exact"
    assert placements["seed"] == "sidecar"
    dataset = minari.MinariDataset(tmp_path / "npz-v0" / "data")
    assert (dataset.total_episodes, dataset.total_steps) == (3, 12)
    episodes = rlds.sources.open(tmp_path / "npz-v0")
    assert episodes.format == "minari"
    for original, copy, actual in zip(rlds.sources.open(raw), episodes, dataset, strict=True):
        assert list(differences(original, copy)) == []
        np.testing.assert_array_equal(actual.rewards, original.steps["reward"][:-1])
        np.testing.assert_array_equal(
            actual.observations["joints"], original.steps["observation"]["joints"]
        )
    assert [*episodes.summaries()] == [episode.summary for episode in rlds.sources.open(raw)]
    # Conversions continue after the key of an episode.
    after = reading.episodes(episodes.source, "train", "0-3", after=episodes[0].key)
    assert [episode.key for episode in after] == ["episode_2.npz", "episode_10.npz"]
    window = episodes.columns(1, ["observation/joints", "action"], 2, 4)
    np.testing.assert_array_equal(window["action"], files["episode_2.npz"]["action"][2:4])


@pytest.mark.slow
def test_episodes_that_minari_added_are_read(tmp_path):
    """The sidecar is ignored, as it lacks the added episodes."""
    raw = raw_npz.write_folder(tmp_path / "raw", raw_npz.sample())
    rlds.sources.export(raw, "minari", tmp_path / "npz-v0")
    rlds.sources.export(raw, "minari", tmp_path / "more-v0")
    metadata = json.loads((tmp_path / "npz-v0/data/metadata.json").read_text())
    file = tmp_path / "npz-v0/.rlds/about.json"
    file.write_text(file.read_text().replace('"episodes": 3', '"episodes": 2'))
    assert metadata["total_episodes"] == 3
    with pytest.warns(UserWarning, match="it has 2 episodes, and the data 3"):
        assert "terminations" in rlds.sources.open(tmp_path / "npz-v0").spec["steps"]
    assert "terminations" not in rlds.sources.open(tmp_path / "more-v0").spec["steps"]


def test_episodes_without_rewards_get_zeros(tmp_path):
    files = raw_npz.sample()
    for arrays in files.values():
        del arrays["reward"]
    raw = raw_npz.write_folder(tmp_path / "raw", files)
    exported = rlds.sources.export(raw, "minari", tmp_path / "npz-v0")
    assert any("Minari gets zeros" in placement.why for placement in exported.placements)
    assert "reward" not in rlds.sources.open(exported.path)[0].steps
    assert not minari.MinariDataset(tmp_path / "npz-v0" / "data")[0].rewards.any()
    with pytest.raises(ValueError, match="does not end with <name>-v<number>"):
        rlds.sources.export(raw, "minari", tmp_path / "npz")


def test_chosen_episodes_keep_their_order(tmp_path):
    raw = raw_npz.write_folder(tmp_path / "raw", raw_npz.sample())
    rlds.sources.export(raw, "minari", tmp_path / "npz-v0")
    # Without the sidecar, the episodes are those of Minari, with its ids.
    shutil.rmtree(tmp_path / "npz-v0/.rlds")
    with pytest.warns(UserWarning, match="it is missing. The data has a sidecar"):
        chosen = rlds.sources.open(tmp_path / "npz-v0").select([2, 0])
    exported = rlds.sources.export(chosen, "minari", tmp_path / "some-v0")
    rewards = [episode.steps["reward"].tolist() for episode in rlds.sources.open(exported.path)]
    assert rewards == [episode.steps["reward"].tolist() for episode in chosen]
