"""Trajectories of imitation, compared with plain loops over them."""

import json
import pickle

import numpy as np
import pytest
import raw_imitation

import rlds.sources
from rlds.sources import reading
from rlds.sources.source import SourceError

ImitationSource = rlds.sources.formats()["imitation"].load()


@pytest.mark.parametrize("pixels", [False, True])
def test_episodes_have_the_rows_of_the_table(tmp_path, pixels):
    raw = raw_imitation.trajectories(pixels=pixels, rewards=not pixels)
    path = raw_imitation.write(tmp_path / "a", raw)
    episodes = rlds.sources.open(path)
    assert (episodes.format, len(episodes)) == ("imitation", 3)
    for index, expected in enumerate(raw):
        episode = pickle.loads(pickle.dumps(episodes))[index]
        steps, length = episode.steps, len(expected["acts"])
        assert episode.num_steps == length + 1
        assert episode.truncated == (not expected["terminal"])
        assert steps["is_terminal"].tolist() == [False] * length + [expected["terminal"]]
        np.testing.assert_array_equal(steps["observation"], expected["obs"])
        assert steps["observation"].dtype == expected["obs"].dtype
        for row in range(length):
            np.testing.assert_array_equal(steps["action"][row], expected["acts"][row])
            assert steps["infos"][row] == expected["infos"][row]
            if not pixels:
                assert steps["reward"][row] == expected["rews"][row]
        assert reading.summary(episodes.source, "train", index) == episode.summary


def update_json(path, name, **changes):
    content = json.loads((path / name).read_text())
    (path / name).write_text(json.dumps({**content, **changes}))


def test_damaged_folders_are_refused(tmp_path):
    path = raw_imitation.write(tmp_path / "other-file")
    update_json(path, "state.json", _data_files=[{"filename": "../secret.arrow"}])
    with pytest.raises(SourceError, match=r"the file name '../secret.arrow'"):
        ImitationSource(path)
    rows = raw_imitation.trajectories()
    rows[1]["acts"] = rows[1]["acts"][:1]
    rows[2]["obs"] = rows[2]["obs"][:, :2]
    source = ImitationSource(raw_imitation.write(tmp_path / "rows", rows))
    assert source.read("train", 0).num_steps == 5
    with pytest.raises(SourceError, match="row 1: 3 observations and 1 actions"):
        source.read("train", 1)
    with pytest.raises(SourceError, match=r"row 2, field 'obs': float32 of shape \(2,\), but"):
        source.read("train", 2)
    path = raw_imitation.write(tmp_path / "cut")
    file = path / "data-00000-of-00001.arrow"
    file.write_bytes(file.read_bytes()[:900])
    with pytest.raises(SourceError, match="cannot be read"):
        ImitationSource(path)
