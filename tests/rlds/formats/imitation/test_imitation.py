"""Trajectories of imitation, against plain loops over them, and back."""

import json
import pickle

import conversions
import foreign_readers
import numpy as np
import pyarrow as pa
import pytest
import raw_imitation
import raw_npz

import rlds.sources
import tfds_builders
from rlds.formats.imitation.source import ImitationSource
from rlds.sources.exporting import differences
from rlds.sources.source import SourceError


def table(path):
    with pa.OSFile(str(path / "data-00000-of-00001.arrow")) as file:
        return pa.ipc.open_stream(file).read_all()


@pytest.mark.parametrize("pixels", [False, True])
def test_episodes_are_those_of_the_table(tmp_path, pixels):
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
        assert episodes.source.outline("train", index) == episode.outline
    made = rlds.sources.export(path, "imitation", tmp_path / "again")
    again = tmp_path / "again"
    assert table(again).equals(table(path), check_metadata=True)
    for name in ("dataset_info.json", "state.json"):
        assert json.loads((again / name).read_text()) == json.loads((path / name).read_text())
    assert {place.how for place in made.placements} == {"exact"}


def test_any_episodes_there_and_back(tmp_path):
    files = raw_npz.sample()
    for arrays in files.values():
        del arrays["info/qpos"]
    arrays = files["unknown.npz"] = raw_npz.episode(4, seed=5)
    for name in ("observation/camera", "observation/joints"):
        arrays[name] = arrays[name][:-1]
    del arrays["info/qpos"]
    raw = raw_npz.write_folder(tmp_path / "raw", files)
    options = {"observation": "observation/camera"}
    made = rlds.sources.export(raw, "imitation", tmp_path / "made", **options)
    assert made.num_episodes == 4
    for one, two in zip(rlds.sources.open(raw), rlds.sources.open(made.path), strict=True):
        assert [*differences(one, two)] == []
    with pytest.raises(ValueError, match=r"'observation' is not an array .*'observation/joints'"):
        rlds.sources.export(raw, "imitation", tmp_path / "other")


@pytest.mark.slow
def test_imitation_reads_it(tmp_path):
    raw = raw_npz.write_folder(tmp_path / "raw", raw_npz.sample())
    options = {"observation": "observation/joints"}
    made = rlds.sources.export(raw, "imitation", tmp_path / "made", **options)
    script = """
import json, sys
from imitation.data import serialize
print(json.dumps([
    [t.obs.tolist(), t.acts.tolist(), t.rews.tolist(), bool(t.terminal), t.infos[0]]
    for t in serialize.load_with_rewards(sys.argv[1])
]))
"""
    found = foreign_readers.run("imitation.data.serialize", script, made.path)
    for (obs, acts, rews, terminal, info), episode in zip(
        found, rlds.sources.open(raw), strict=True
    ):
        np.testing.assert_array_equal(np.float32(obs), episode.steps["observation"]["joints"])
        np.testing.assert_array_equal(np.array(acts), episode.steps["action"][:-1])
        np.testing.assert_array_equal(np.float32(rews), episode.steps["reward"][:-1])
        assert (terminal, info) == (not episode.truncated, {})


def damaged(path, name, **changes):
    content = json.loads((path / name).read_text())
    (path / name).write_text(json.dumps({**content, **changes}))


def test_damaged_folders(tmp_path):
    path = raw_imitation.write(tmp_path / "other-file")
    damaged(path, "state.json", _data_files=[{"filename": "../secret.arrow"}])
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


@pytest.mark.slow
def test_a_conversion(tmp_path):
    path = raw_imitation.write(tmp_path / "a")
    builder = conversions.check_conversion(
        lambda: ImitationSource(path), tmp_path, builder=tfds_builders.RldsImitation, path=path
    )
    rlds.sources.export(builder.data_path, "imitation", tmp_path / "again")
    assert table(tmp_path / "again").equals(table(path), check_metadata=True)
