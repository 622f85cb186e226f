"""Datasets of TFDS that are written without TensorFlow, and of which examples are copied."""

import pytest
import tensorflow_datasets as tfds
from toy_source import ToySource

import rlds
import tfds_files
from rlds.editing import Delete, Describe, Set, Split
from rlds.sources.exporting import differences, export


@pytest.fixture
def dataset(tmp_path):
    (tmp_path / "raw").write_bytes(b"")
    export(ToySource(tmp_path / "raw", 20), "tfds", tmp_path / "data", name="toys", version="2.0.1")
    rlds.edit(tmp_path / "data", Split({"train": 0.7, "test": 0.3}, seed=1))
    return tmp_path / "data"


def examples(path):
    """The bytes of the examples of each split."""
    folder = rlds.sources.open(path, "all").source.folder
    return {
        name: [bytes(split.example_bytes(index)) for index in range(len(split))]
        for name, split in folder.items()
    }


def test_examples_are_copied_to_their_splits(dataset, tmp_path):
    before = examples(dataset)
    assert {name: len(split) for name, split in before.items()} == {"train": 14, "test": 6}
    made = rlds.edit(
        dataset, Delete(episodes=[0, 15]), Describe("license", "MIT"), to=tmp_path / "less"
    )
    assert made.datasets[0].num_episodes == 18
    expected = {"train": before["train"][1:], "test": [before["test"][0], *before["test"][2:]]}
    assert examples(tmp_path / "less") == expected
    source = rlds.sources.open(tmp_path / "less", "all").source
    assert (source.name, source.version, source.license) == ("toys", "2.0.1", "MIT")
    assert source.metadata()["made_by"] == "nobody"
    builder = tfds.builder_from_directory(tmp_path / "less")
    [steps] = [list(episode["steps"]) for episode in builder.as_dataset(split="test[:1]")]
    ours = rlds.sources.open(tmp_path / "less", "test")[0]
    assert [step["action"].numpy() for step in steps] == ours["action"].tolist()


def test_what_changes_is_written_anew(dataset):
    before = examples(dataset)
    old = list(rlds.sources.open(dataset, "all"))
    rlds.edit(dataset, Set("seed", 77, where="split = 'test' and index = 2"))
    after = examples(dataset)
    assert after["train"] == before["train"]
    differ = [number for number in range(6) if after["test"][number] != before["test"][number]]
    assert differ == [2]
    new = list(rlds.sources.open(dataset, "all"))
    assert new[16].metadata["seed"] == 77
    assert list(differences(old[16], new[16], {"seed"})) == []


def test_damaged_examples_are_seen(dataset, monkeypatch):
    before = examples(dataset)
    [file, *_] = sorted(dataset.glob("*-train*"))
    content = bytearray(file.read_bytes())
    content[len(content) // 2] ^= 1
    file.write_bytes(content)
    with pytest.raises(rlds.sources.SourceError, match=file.name):
        rlds.edit(dataset, Delete(episodes=[0]))
    assert file.read_bytes() == content
    # Others are copied as they are: nothing of them is decoded.
    monkeypatch.setattr(tfds_files.DatasetWriter, "add", None)
    with pytest.warns(UserWarning, match="1 episode is damaged and left out"):
        made = rlds.edit(dataset, Delete(episodes=[0]), skip_damaged=True, verify=False)
    after = examples(dataset)
    assert made.num_episodes == 18
    assert after["train"] == [x for x in before["train"][1:] if x in after["train"]]
    assert (len(after["train"]), after["test"]) == (12, before["test"])
