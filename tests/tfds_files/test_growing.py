import json

import pytest

from rlds_ecosystem.model.errors import StorageError
from tfds_files import open_record_file
from tfds_files.growing import Description, GrowingDataset, Replacement, ShardDraft


def make_dataset(directory, name="it", file_format="tfrecord"):
    info = {"name": name, "fileFormat": file_format, "version": "1.0.0"}
    return GrowingDataset(
        directory,
        Description(
            name,
            "1.0.0",
            file_format,
            features={},
            metadata=None,
            write=lambda folder: (folder / "dataset_info.json").write_text(json.dumps(info)),
        ),
    )


def add_shard(growing, split, *records):
    draft = ShardDraft(growing, split)
    for record in records:
        draft.add(record)
    draft.finish()


def list_names(directory):
    return sorted(path.name for path in directory.iterdir())


def test_shards_are_listed_when_they_are_complete(tmp_path):
    growing = make_dataset(tmp_path)
    assert not growing.exists
    growing.add_split("train")
    growing.add_split("train")
    assert growing.splits() == {"train": []}
    draft = ShardDraft(growing, "train")
    draft.add(b"a")
    add_shard(growing, "train", b"b", b"c")
    add_shard(growing, "train")  # Without examples there is no shard.
    assert growing.splits() == {"train": [2]}
    assert growing.recover() == {}  # The draft belongs to a living writer.
    draft.finish()
    assert growing.splits() == {"train": [2, 1]}
    assert list_names(tmp_path) == [
        *("dataset_info.json", "it-train.tfrecord-00000", "it-train.tfrecord-00001")
    ]
    info = json.loads((tmp_path / "dataset_info.json").read_text())
    assert info["splits"][0]["numBytes"] == "3"


@pytest.mark.parametrize("file_format", ["tfrecord", "array_record"])
def test_examples_of_dead_writers_are_added(tmp_path, file_format):
    growing = make_dataset(tmp_path, file_format=file_format)
    growing.add_split("train")
    draft = ShardDraft(growing, "train")
    draft.add(b"a")
    draft.add(b"b" * 9)
    draft.abandon()
    content = draft.path.read_bytes()
    draft.path.write_bytes(content[:-1])
    add_shard(growing, "train", b"c")
    info = json.loads((tmp_path / "dataset_info.json").read_text())
    info["splits"][0]["shardLengths"] = []  # The writer died before it listed the shard.
    (tmp_path / "dataset_info.json").write_text(json.dumps(info))
    (tmp_path / ".info-draft-x").mkdir()
    assert growing.recover() == {"train": 2}
    assert growing.recover() == {}
    assert growing.splits() == {"train": [1, 1]}
    names = [name for name in list_names(tmp_path) if name.startswith(".")]
    assert names == [f"{draft.path.name}.torn"]
    assert (tmp_path / names[0]).read_bytes() == content[17:-1]
    records = [
        open_record_file(tmp_path / f"it-train.{file_format}-0000{index}", file_format).read(0)
        for index in (0, 1)
    ]
    assert records == [b"c", b"a"]


def test_a_replaced_split_has_files_of_other_names(tmp_path):
    old = make_dataset(tmp_path, name="old")
    old.add_split("train")
    add_shard(old, "train", b"a", b"b")
    for index in range(3):
        replacement = Replacement(tmp_path)
        new = make_dataset(replacement.directory)
        new.add_split("train")
        add_shard(new, "train", b"c")
        replacement.commit(new, make_dataset(tmp_path))
        prefix = "r" * (index % 2)
        assert list_names(tmp_path) == ["dataset_info.json", f"it-train.tfrecord-{prefix}00000"]
        assert make_dataset(tmp_path).splits() == {"train": [1]}


def test_a_replacement_that_is_refused_changes_nothing(tmp_path):
    old = make_dataset(tmp_path, name="old")
    old.add_split("train")
    add_shard(old, "train", b"a")
    before = list_names(tmp_path)
    replacement = Replacement(tmp_path)
    new = make_dataset(replacement.directory)
    new.add_split("test")
    with pytest.raises(StorageError, match=r"\['train'\] would be lost: .* another name"):
        replacement.commit(new, make_dataset(tmp_path))
    assert Replacement(tmp_path).directory.exists()
    assert replacement.directory.exists()  # The writer is alive.
    replacement.discard()
    Replacement(tmp_path).discard()
    assert old.splits() == {"train": [1]}
    assert [name for name in list_names(tmp_path) if not name.startswith(".")] == before


def test_damaged_dataset_info_raises_a_storage_error(tmp_path):
    (tmp_path / "dataset_info.json").write_text(json.dumps({"splits": [{"shardLengths": ["x"]}]}))
    with pytest.raises(StorageError, match=r"dataset_info\.json: the splits are malformed"):
        make_dataset(tmp_path).splits()
