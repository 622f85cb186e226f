"""Exports to TFDS without TensorFlow, and edits that copy examples."""

import json

import numpy as np
import pytest
import tensorflow_datasets as tfds
from robot_source import RobotSource
from toy_source import ToySource

import rlds
import tfds_files
from rlds.editing import Add, Delete, Describe, Set, Split
from rlds.sources import export
from rlds.sources.episode_fields import as_converted
from rlds.sources.testing import differences


@pytest.fixture
def dataset(tmp_path):
    (tmp_path / "raw").write_bytes(b"")
    export(ToySource(tmp_path / "raw", 20), "tfds", tmp_path / "data", name="toys", version="2.0.1")
    rlds.edit(tmp_path / "data", Split({"train": 0.7, "test": 0.3}, seed=1))
    return tmp_path / "data"


def read_examples(path):
    """Returns the bytes of the examples of each split."""
    folder = rlds.sources.open(path, "all").source.folder
    return {
        name: [bytes(split.example_bytes(index)) for index in range(len(split))]
        for name, split in folder.items()
    }


def test_examples_are_copied_to_their_splits(dataset, tmp_path):
    before = read_examples(dataset)
    assert {name: len(split) for name, split in before.items()} == {"train": 14, "test": 6}
    edited = rlds.edit(
        dataset, Delete(episodes=[0, 15]), Describe("license", "MIT"), to=tmp_path / "less"
    )
    assert edited.datasets[0].num_episodes == 18
    expected = {"train": before["train"][1:], "test": [before["test"][0], *before["test"][2:]]}
    assert read_examples(tmp_path / "less") == expected
    source = rlds.sources.open(tmp_path / "less", "all").source
    assert (source.name, source.version, source.source_info.license) == ("toys", "2.0.1", "MIT")
    assert source.source_info.metadata["made_by"] == "nobody"
    builder = tfds.builder_from_directory(tmp_path / "less")
    [steps] = [list(episode["steps"]) for episode in builder.as_dataset(split="test[:1]")]
    ours = rlds.sources.open(tmp_path / "less", "test")[0]
    assert [step["action"].numpy() for step in steps] == ours["action"].tolist()


def test_edits_keep_the_description_of_the_dataset(tmp_path):
    export(RobotSource(), "tfds", path := tmp_path / "data", name="robots")
    info = json.loads((path / "dataset_info.json").read_text())
    info |= {"configName": "fast", "releaseNotes": {"1.0.0": "New."}}
    (path / "dataset_info.json").write_text(json.dumps(info))
    for operation in (Delete(episodes=[1]), Add("length", len)):  # Copied, and written again.
        rlds.edit(path, operation)
        builder = tfds.builder_from_directory(path)
        assert (builder.name, builder.builder_config.name) == ("robots", "fast")
        assert builder.info.release_notes == {"1.0.0": "New."}
        features = builder.info.features["steps"]["observation"]
        assert isinstance(features["note"], tfds.features.Text)
        assert type(features["blob"]) is tfds.features.Tensor
        episodes = rlds.sources.open(path, decode_images=False)
        for index, copy, stored in zip(
            (0, 2), episodes, builder.as_dataset(split="train"), strict=True
        ):
            expected = RobotSource().read("train", index)
            ignored = {"length", "steps/observation/camera"}
            copy = as_converted(copy)
            assert list(differences(expected, copy, ignored)) == []
            assert copy["observation"]["note"].tolist() == expected["observation"]["note"].tolist()
            assert copy.metadata["operator"] == expected.metadata["operator"]
            assert copy["observation"]["blob"][0] == expected["observation"]["blob"][0]
            notes = [step["observation"]["note"].numpy().decode() for step in stored["steps"]]
            assert notes == expected["observation"]["note"].tolist()
        spec = episodes.spec["steps"]["observation"]
        assert spec["state"] == RobotSource().fields.steps["observation"]["state"]
        assert (spec["note"].dtype, spec["blob"].dtype) == (np.dtype(str), np.dtype(bytes))
        assert "rlds_fields" not in episodes.metadata


def test_only_changed_examples_are_written_again(dataset):
    before = read_examples(dataset)
    old = list(rlds.sources.open(dataset, "all"))
    rlds.edit(dataset, Set("seed", 77, where="split = 'test' and index = 2"))
    after = read_examples(dataset)
    assert after["train"] == before["train"]
    differ = [index for index in range(6) if after["test"][index] != before["test"][index]]
    assert differ == [2]
    new = list(rlds.sources.open(dataset, "all"))
    assert new[16].metadata["seed"] == 77
    assert list(differences(old[16], new[16], {"seed"})) == []


def test_damaged_examples_are_refused_or_skipped(dataset, monkeypatch):
    before = read_examples(dataset)
    [file, *_] = sorted(dataset.glob("*-train*"))
    content = bytearray(file.read_bytes())
    content[len(content) // 2] ^= 1
    file.write_bytes(content)
    with pytest.raises(rlds.sources.SourceError, match=file.name):
        rlds.edit(dataset, Delete(episodes=[0]))
    assert file.read_bytes() == content
    # Intact examples are copied: none is encoded.
    monkeypatch.setattr(tfds_files.ExampleEncoder, "encode", None)
    with pytest.warns(UserWarning, match="1 episode is damaged and left out"):
        edited = rlds.edit(dataset, Delete(episodes=[0]), skip_damaged=True, verify=False)
    after = read_examples(dataset)
    assert edited.num_episodes == 18
    assert after["train"] == [x for x in before["train"][1:] if x in after["train"]]
    assert (len(after["train"]), after["test"]) == (12, before["test"])
