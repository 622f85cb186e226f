import json
import re

import numpy as np
import pytest

import rlds_tools
import tfds_files
from rlds_tools.command_line.commands import run


def test_statistics_ignore_placeholders_and_are_saved(dataset, tmp_path, capsys):
    result = rlds_tools.stats(dataset)
    steps = [tfds_files.open_folder(dataset)["train"][i]["steps"] for i in range(3)]
    returns = [episode["reward"][:-1].sum() for episode in steps]
    assert (result.episodes, result.steps, result.lengths.median) == (3, 43, 8)
    assert result.returns.mean == pytest.approx(np.mean(returns))
    assert set(result.fields) == {"observation/position", "action", "reward", "discount"}
    positions = np.concatenate([episode["observation"]["position"] for episode in steps])
    np.testing.assert_allclose(result.fields["observation/position"].mean, positions.mean(0), 1e-6)
    actions = np.concatenate([episode["action"][:-1] for episode in steps])
    assert result.fields["action"].count == len(actions)
    assert result.to_dict()["fields"]["action"]["quantiles"]["0.5"] == np.median(actions)
    assert "observation/position[2]" in str(result)

    assert run(["stats", dataset, "--fields", "action", "--out", str(tmp_path / "s.npz")]) == 0
    assert np.load(tmp_path / "s.npz")["action/mean"] == pytest.approx(actions.mean())
    assert run(["stats", dataset, "--by", "episode_id", "--out", str(tmp_path / "s.json")]) == 0
    assert "episode 30" in capsys.readouterr().out
    assert json.loads((tmp_path / "s.json").read_text())["action"]["mean"]
    assert run(["stats", dataset, "--out", "s.txt"]) == 2
    assert run(["stats", dataset, "--by", "task"]) == 1
    assert "no field 'task' of episodes; there are: episode_id" in capsys.readouterr().err


def test_statistics_count_episodes_by_the_values_of_a_field(dataset):
    groups = rlds_tools.stats(dataset, by="episode_id").groups
    assert [(group.value, group.episodes, group.steps) for group in groups] == [
        ("episode 30", 1, 30),
        ("episode 5", 1, 5),
        ("episode 8", 1, 8),
    ]


def test_statistics_skip_and_count_values_that_are_not_finite(tmp_path):
    rng = np.random.default_rng(0)
    observations = []
    for index in range(3):
        observation, action = rng.normal(size=(11, 3)), rng.normal(size=(10, 2))
        if index == 1:
            observation[4, 2], action[9, 0] = np.nan, np.inf
        observations.append(observation)
        np.savez(tmp_path / f"{index}.npz", observation=observation, action=action)
    with pytest.warns(RuntimeWarning, match=r"NaN and infinite values") as warned:
        result = rlds_tools.stats(tmp_path)
    assert [str(each.message) for each in warned] == [
        "NaN and infinite values are ignored: observation 1, action 1. The first is observation in "
        "step 4 of episode 1 (1.npz)."
    ]
    field = result.fields["observation"]
    np.testing.assert_allclose(field.mean, np.nanmean(np.concatenate(observations), axis=0))
    np.testing.assert_allclose(field.max, np.nanmax(np.concatenate(observations), axis=0))
    assert field.count.tolist() == [33, 33, 32]
    assert result.fields["action"].count.tolist() == [29, 30]
    lines = str(result).splitlines()
    assert re.search(r"count +nan +mean", "".join(lines))
    assert next(line for line in lines if line.startswith("observation[2]")).split()[1:3] == [
        "32",
        "1",
    ]
