import json
import random
import shutil
import subprocess
import sys
import textwrap
from pathlib import Path

import numpy as np
import pytest
import tensorflow_datasets as tfds
from tensorflow_datasets.rlds.rlds_base import DatasetConfig

import rlds.tfds
from tfds_files import DamagedFileError, TfdsFilesError, UnsupportedFileError, open_folder

GOLDEN = Path(__file__).parents[1] / "golden" / "tfds_4_9_10"


@pytest.fixture
def folder(tmp_path):
    return Path(shutil.copytree(GOLDEN / "tfrecord", tmp_path / "golden" / "1.2.3"))


def change(path, **changes):
    path.write_text(json.dumps({**json.loads(path.read_text()), **changes}))


def test_a_dataset_is_opened_by_its_parent_folders(folder):
    assert open_folder(folder.parent.parent).directory == folder
    (folder.parent / "incomplete.1.2.4").mkdir()
    assert open_folder(str(folder.parent)).version == "1.2.3"
    (folder.parent / "1.2.4").mkdir()
    with pytest.raises(FileNotFoundError, match=r"several folders: 1\.2\.3, 1\.2\.4"):
        open_folder(folder.parent)
    with pytest.raises(FileNotFoundError, match="and below it no folder"):
        open_folder(folder.parent / "1.2.4")
    with pytest.raises(FileNotFoundError, match="nowhere does not exist"):
        open_folder(folder / "nowhere")


def test_episodes_written_by_envlogger_are_read(tmp_path):
    config = DatasetConfig(
        name="mine",
        observation_info=tfds.features.Tensor(shape=(2,), dtype=np.float64, encoding="bytes"),
        action_info=tfds.features.Sequence(tfds.features.Text()),
        reward_info=np.float32,
        discount_info=np.float32,
    )
    episodes = []
    for length in (3, 1):
        rows = np.arange(length)
        steps = {
            "observation": np.random.default_rng(length).normal(size=(length, 2)),
            "action": [[f"{i}"] * i for i in rows],
            "reward": rows.astype(np.float32),
            "discount": np.ones(length, np.float32),
            "is_first": rows == 0,
            "is_last": rows == length - 1,
            "is_terminal": rows < 0,
        }
        episodes.append({"steps": steps})
    with rlds.tfds.EpisodeWriter(tmp_path, config) as writer:
        for episode in episodes:
            writer.add_episode(episode)
    [split] = open_folder(tmp_path).values()
    assert len(split) == 2
    for actual, expected in zip(split, episodes, strict=True):
        assert [words.tolist() for words in actual["steps"].pop("action")] == [
            [word.encode() for word in words] for words in expected["steps"].pop("action")
        ]
        np.testing.assert_equal(actual["steps"], expected["steps"])


def test_unknown_splits_and_examples_out_of_range_are_named(folder):
    dataset = open_folder(folder)
    with pytest.raises(
        KeyError, match=r"golden.1\.2\.3: no split 'validation'; there are train, t"
    ):
        dataset["validation"]
    split = dataset["train"]
    assert repr(split) == "Split('train', 3 examples in 2 shards)"
    assert [path.name for path in split.paths] == [
        *("golden-train.tfrecord-00000-of-00002", "golden-train.tfrecord-00001-of-00002")
    ]
    for index in (3, -4):
        with pytest.raises(IndexError, match=f"train: example {index} of 3"):
            split[index]
    assert len(split.example_bytes(-1)) > 100
    dataset.close()
    assert split[0]["label"] in (0, 1)


def test_names_of_shards_follow_the_template_in_the_info(folder):
    info = folder / "dataset_info.json"
    splits = json.loads(info.read_text())["splits"]
    splits[0]["filepathTemplate"] = "{SPLIT}.{SHARD_INDEX}.of.{NUM_SHARDS}"
    change(info, splits=splits)
    for index in (0, 1):
        old = folder / f"golden-train.tfrecord-0000{index}-of-00002"
        old.rename(folder / f"train.0000{index}.of.00002")
    assert len(list(open_folder(folder)["train"])) == 3
    for template in ("../{SPLIT}", "/etc/{SPLIT}", "", "{NOTHING}", "{0}"):
        splits[0]["filepathTemplate"] = template
        change(info, splits=splits)
        if template:
            with pytest.raises(DamagedFileError):
                open_folder(folder)
        else:
            assert open_folder(folder)["train"].paths[0].name.startswith("golden-train.tfrecord-")


@pytest.mark.parametrize(
    ("changes", "error", "message"),
    [
        ({"splits": 3}, DamagedFileError, "the splits are malformed"),
        ({"splits": [{"shardLengths": []}]}, DamagedFileError, "KeyError"),
        ({"splits": [{"name": "a", "shardLengths": ["-1"]}]}, DamagedFileError, "negative"),
        (
            {"splits": [{"name": "a", "shardLengths": [10**30]}]},
            DamagedFileError,
            "negative or too large",
        ),
        (
            {"splits": [{"name": "a", "shardLengths": ["1"] * 20_000}]},
            DamagedFileError,
            "20,000 shards, but only 8 files",
        ),
        ({"fileFormat": "bagz"}, UnsupportedFileError, "unsupported file format 'bagz'"),
    ],
)
def test_malformed_dataset_info_is_refused(folder, changes, error, message):
    change(folder / "dataset_info.json", **changes)
    with pytest.raises(error, match=message):
        open_folder(folder)


def test_errors_name_the_file_and_the_record(folder):
    shard = folder / "golden-train.tfrecord-00001-of-00002"
    other = folder / "golden-test.tfrecord-00000-of-00002"
    features = json.loads((folder / "features.json").read_text())
    shard.write_bytes(b"")
    split = open_folder(folder)["train"]
    with pytest.raises(DamagedFileError, match=r"00001-of-00002: 0 records, but .* a record 0"):
        split[2]
    shard.unlink()
    with pytest.raises(FileNotFoundError, match="00001-of-00002"):
        open_folder(folder)["train"][2]
    tree = features["featuresDict"]["features"]
    tree["label"], tree["complex"] = tree["complex"], tree["label"]
    (folder / "features.json").write_text(json.dumps(features))
    with pytest.raises(DamagedFileError, match=rf"{other.name}, record 0: (label|complex): got a"):
        open_folder(folder)["test"][0]
    (folder / "dataset_info.json").write_text("{")
    with pytest.raises(DamagedFileError, match=r"dataset_info\.json"):
        open_folder(folder)


def test_damaged_examples_raise_only_errors_of_the_package(folder):
    rng = random.Random(3)
    split = open_folder(folder)["train"]
    decoder, examples = split.folder.decoder(), [split.example_bytes(i) for i in range(3)]
    num_refused = 0
    for _ in range(300):
        data = bytearray(rng.choice(examples))
        for _ in range(rng.randint(1, 3)):
            begin = rng.randrange(len(data))
            cut = rng.choice([0, 1, rng.randrange(40)])
            data[begin : begin + cut] = rng.randbytes(rng.choice([0, 1, cut]))
        try:
            decoder.decode(data)
        except TfdsFilesError:
            num_refused += 1
    assert num_refused > 100


def test_no_tensorflow_is_needed():
    code = """
        import sys
        sys.modules["tensorflow"] = sys.modules["tensorflow_datasets"] = None
        import tfds_files
        print(sum(len(example["steps"]["is_first"]) for example in
            tfds_files.open_folder(sys.argv[1])["train"]))
    """
    command = [sys.executable, "-c", textwrap.dedent(code), str(GOLDEN / "tfrecord")]
    assert subprocess.run(command, capture_output=True, check=True).stdout == b"5\n"
