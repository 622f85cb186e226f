"""Copies of datasets that TFDS wrote."""

import json
import pickle
import shutil
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_datasets as tfds
import tiny_datasets
from toy_source import ToySource

import rlds.feeds
import rlds.sources
from rlds.raw_files.tfrecord_files import read_examples
from rlds.sources import Field, SourceError
from rlds.sources import open as open_episodes
from rlds_tools import stats
from tfds_builders import RldsFolder, convert, episodes_from_source

FolderSource = rlds.sources.formats()["tfds"].load()

NUM_EPISODES = {"train": 17, "test": 3}


def image(seed):
    return np.random.default_rng(seed).integers(0, 256, (8, 8, 3), np.uint8)


# TFDS looks for checksums in its folder; before 4.9.10 it needs a package with `__init__`.
CODE = Path(__file__)


class TfdsBuilder(tfds.core.GeneratorBasedBuilder, skip_registration=True):
    """Written by TFDS alone, with JPEG images, which would lose if they were encoded again."""

    VERSION = tfds.core.Version("3.2.1")
    name = "plain"
    code_path = CODE

    def _info(self):
        steps = {
            "observation": tfds.features.Image(shape=(8, 8, 3), encoding_format="jpeg"),
            "words": tfds.features.Sequence(tfds.features.Text()),
            "is_first": np.bool_,
            "is_last": np.bool_,
        }
        return tfds.core.DatasetInfo(
            builder=self,
            description="Synthetic.",
            homepage="https://example.org/",
            citation="@misc{plain}",
            license="free",
            features=tfds.features.FeaturesDict(
                {"steps": tfds.features.Dataset(steps), "label": np.int64}
            ),
            metadata=tfds.core.MetadataDict({"robot": "arm"}),
        )

    def _split_generators(self, dl_manager):
        return {split: self._generate_examples(count) for split, count in NUM_EPISODES.items()}

    def _generate_examples(self, count):
        for index in range(count):
            steps = [
                {
                    "observation": image(10 * index + step),
                    "words": ["a"] * step,
                    "is_first": step == 0,
                    "is_last": step == 2,
                }
                for step in range(3)
            ]
            yield index, {"steps": steps, "label": index}


@pytest.fixture(scope="module", params=["tfrecord", "array_record", "parquet"])
def original(request, tmp_path_factory):
    builder = TfdsBuilder(data_dir=tmp_path_factory.mktemp("plain"), file_format=request.param)
    builder.download_and_prepare(
        download_config=tfds.download.DownloadConfig(num_shards=3, try_download_gcs=False)
    )
    return builder


def list_examples(builder, split="train"):
    return [
        example
        for path in builder.info.splits[split].filepaths
        for example in read_examples(path, builder.info.file_format.file_suffix)
    ]


@pytest.mark.slow
def test_a_copy_with_other_shards_has_the_same_bytes(original, tmp_path):
    copy = convert(
        FolderSource(original.data_path),
        name="plain",
        version="3.2.1",
        data_dir=tmp_path,
        shuffle=False,
        file_format="tfrecord",
        download_config=tfds.download.DownloadConfig(num_shards=2),
    )
    assert copy.info.splits["train"].num_shards == 2
    for split, count in NUM_EPISODES.items():
        assert list_examples(copy, split) == list_examples(original, split)
        assert len(list_examples(copy, split)) == count
    for name in ("features.json", "citation.txt", "LICENSE"):
        if (original.data_path / name).exists():
            assert (copy.data_path / name).read_text() == (original.data_path / name).read_text()
    assert copy.info.metadata["robot"] == "arm"
    assert copy.info.description == "Synthetic."
    assert copy.info.homepage == "https://example.org/"
    assert copy.info.redistribution_info.license == "free"
    assert copy.info.full_name == original.info.full_name


@pytest.mark.slow
@pytest.mark.parametrize("file_format", ["array_record", "parquet"])
def test_copies_in_other_file_formats_have_the_same_examples(original, tmp_path, file_format):
    copy = convert(
        FolderSource(original.data_path, splits=["test"]),
        name="plain",
        data_dir=tmp_path,
        shuffle=False,
        file_format=file_format,
    )
    assert list(copy.info.splits) == ["test"]
    assert list_examples(copy, "test") == list_examples(original, "test")
    assert [int(episode["label"]) for episode in copy.as_data_source(split="test")] == [
        int(episode["label"]) for episode in decode_test_examples(original)
    ]


def decode_test_examples(original):
    return [
        original.info.features.deserialize_example_np(example)
        for example in list_examples(original, "test")
    ]


@pytest.mark.slow
def test_a_shuffled_copy_has_the_same_examples(original, tmp_path):
    copy = convert(FolderSource(original.data_path), name="plain", data_dir=tmp_path)
    assert list_examples(copy) != list_examples(original)
    assert sorted(list_examples(copy)) == sorted(list_examples(original))


@pytest.mark.slow
def test_the_builder_copies_all_examples(original, tmp_path):
    builder = RldsFolder(path=original.data_path, data_dir=tmp_path, file_format="tfrecord")
    builder.download_and_prepare()
    assert list_examples(builder) == list_examples(original)
    dataset = tfds.load("rlds_folder", data_dir=tmp_path, split="test")
    for episode in dataset:
        for index, step in enumerate(episode["steps"]):
            expected = tf.io.decode_jpeg(
                tf.io.encode_jpeg(image(10 * int(episode["label"]) + index))
            )
            np.testing.assert_array_equal(step["observation"], expected)


def copy_files(original, tmp_path):
    directory = tmp_path / "copied"
    directory.mkdir()
    for path in Path(original.data_path).iterdir():
        (directory / path.name).write_bytes(path.read_bytes())
    return directory, sorted(directory.glob("plain-train*"))[1]


@pytest.mark.slow
def test_copies_skip_examples_of_a_truncated_file_on_request(original, tmp_path):
    directory, file = copy_files(original, tmp_path)
    file.write_bytes(file.read_bytes()[:-20])
    with pytest.raises(SourceError, match=file.name):
        convert(FolderSource(directory), name="plain", data_dir=tmp_path)
    with pytest.warns(UserWarning, match="left out, the first: .*plain-train"):
        builder = convert(
            FolderSource(directory), name="plain", data_dir=tmp_path, skip_damaged=True
        )
    assert 11 <= builder.info.splits["train"].num_examples < 17


@pytest.mark.slow
def test_empty_shards_are_read(tmp_path):
    """Pipelines write them if there are more files than examples."""
    builder = TfdsBuilder(data_dir=tmp_path)
    builder.download_and_prepare(
        download_config=tfds.download.DownloadConfig(num_shards=3, try_download_gcs=False)
    )
    directory, _ = copy_files(builder, tmp_path)
    path = directory / "plain-train.tfrecord-00001-of-00003"
    info = json.loads((directory / "dataset_info.json").read_text())
    (split,) = [split for split in info["splits"] if split["name"] == "train"]
    num_lost, split["shardLengths"][1] = int(split["shardLengths"][1]), "0"
    (directory / "dataset_info.json").write_text(json.dumps(info))
    path.write_bytes(b"")
    copy = convert(FolderSource(directory), name="plain", data_dir=tmp_path / "copy")
    assert copy.info.splits["train"].num_examples == NUM_EPISODES["train"] - num_lost


@pytest.mark.slow
def test_a_copy_keeps_the_metadata_of_the_original_conversion(tmp_path):
    (tmp_path / "toy.raw").write_text("toy")
    original = convert(ToySource(tmp_path / "toy.raw"), name="toy", data_dir=tmp_path)
    for _ in range(2):  # The second time, it exists.
        RldsFolder(path=original.data_path, data_dir=tmp_path).download_and_prepare()
    conversion = tfds.builder("rlds_folder", data_dir=tmp_path).info.metadata["conversion"]
    assert conversion["original"] == original.info.metadata["conversion"]
    assert conversion["splits"] == {"train": {"episodes": 10}}
    with pytest.raises(FileExistsError, match="a dataset of other raw data"):
        other = convert(ToySource(tmp_path / "toy.raw", 4), name="other", data_dir=tmp_path)
        RldsFolder(path=other.data_path, data_dir=tmp_path).download_and_prepare()


def test_a_missing_file_is_refused(original, tmp_path):
    directory, file = copy_files(original, tmp_path)
    file.unlink()
    with pytest.raises(SourceError, match=f"{file.name}: the file is missing"):
        FolderSource(directory)


def test_links_to_themselves_are_refused(original, tmp_path):
    (tmp_path / "dataset_info.json").symlink_to("dataset_info.json")
    with pytest.raises(FileNotFoundError, match=f"{tmp_path} has no dataset_info.json"):
        FolderSource(tmp_path)
    copy = shutil.copytree(original.data_path, tmp_path / "copy")
    (copy / "link").symlink_to("link")
    with pytest.raises(SourceError, match=r"link: cannot be read: OSError: .* symbolic links"):
        FolderSource(copy)


def test_a_shard_with_another_number_of_episodes_is_refused(original, tmp_path):
    directory, _ = copy_files(original, tmp_path)
    info = json.loads((directory / "dataset_info.json").read_text())
    (split,) = [split for split in info["splits"] if split["name"] == "train"]
    for length, message in (("7", "dataset_info.json declares a record"), ("4", "declares 4")):
        split["shardLengths"][1] = length
        (directory / "dataset_info.json").write_text(json.dumps(info))
        with pytest.raises(SourceError, match=message):
            convert(FolderSource(directory), name="plain", data_dir=tmp_path)


def test_episodes_are_read_with_all_fields_and_metadata(original):
    episodes = open_episodes(original.data_path, "train")
    assert (len(episodes), episodes.metadata["robot"]) == (17, "arm")
    assert episodes.spec["label"] == Field(np.int64)
    assert sorted(episode.metadata["label"] for episode in episodes) == list(range(17))
    assert {episode.num_steps for episode in episodes} == {3}
    assert list(episodes.columns(0)) == ["observation", "words", "is_first", "is_last"]
    columns = episodes.columns(-1, ["observation", "words"], start=1)
    assert columns["observation"].shape == (2, 8, 8, 3)
    assert [list(row) for row in columns["words"]] == [[b"a"], [b"a", b"a"]]
    with pytest.raises(ValueError, match=r"field 'words': .* rlds\.tfds\.load"):
        episodes_from_source(episodes)
    copy = pickle.loads(pickle.dumps(episodes.source))
    assert copy.key("train", 16) == episodes.source.key("train", 16)
    assert copy.read("train", 0).num_steps == 3


def test_steps_without_is_terminal_are_refused_until_it_is_added(original, tmp_path):
    path, unknown = original.data_path, "the steps have no is_terminal. Which episodes end in a t"
    for format in ("zarr", "webdataset", "envlogger"):
        with pytest.raises(ValueError, match=f"{format}: {unknown}"):
            rlds.sources.export(path, format, tmp_path / format, split="train")
    with pytest.raises(ValueError, match=f"fix: {unknown}"):
        rlds.editing.prepare_edit(path, [rlds.editing.Fix()])
    add = rlds.editing.Add("steps/is_terminal", lambda episode: episode.steps["is_last"])
    drop = rlds.editing.Drop("words")
    rlds.edit(path, drop, add, rlds.editing.Fix(), to=tmp_path / "added")
    rlds.sources.export(tmp_path / "added", "webdataset", tmp_path / "plain", split="train")
    assert all(episode.summary.num_steps for episode in open_episodes(tmp_path / "plain"))
    assert all(episode.steps["is_terminal"][-1] for episode in open_episodes(tmp_path / "plain"))


def test_folders_and_splits_without_an_rlds_dataset_are_refused(tmp_path):
    with pytest.raises(FileNotFoundError):
        FolderSource(tmp_path)
    with pytest.raises(KeyError, match="no split 'validation', only"):
        builder = TfdsBuilder(data_dir=tmp_path)
        builder.download_and_prepare(
            download_config=tfds.download.DownloadConfig(try_download_gcs=False)
        )
        FolderSource(builder.data_path, splits=["validation"])


def test_copied_examples_cannot_be_stored_with_other_encodings(original, tmp_path):
    for options in ({"float64": "float32"}, {"tensor_encoding": "none"}):
        with pytest.raises(ValueError, match=r"copied as they are stored.*EpisodeWriter"):
            convert(FolderSource(original.data_path), name="copy", data_dir=tmp_path, **options)


def test_images_are_read_as_files_on_request(tmp_path):
    path = tiny_datasets.write_dataset(
        tmp_path, [tiny_datasets.episode(length, seed=length) for length in (4, 6)]
    )
    episodes = open_episodes(path)
    files = open_episodes(path, decode_images=False)
    assert all(isinstance(image, bytes) for image in files[1].steps["observation"]["camera"])
    assert files.spec["steps"]["observation"]["camera"].encoding == "png"
    np.testing.assert_array_equal(
        files.columns(1)["observation"]["camera"], episodes[1].steps["observation"]["camera"]
    )


class Sequences(tfds.core.GeneratorBasedBuilder, skip_registration=True):
    """Steps with sequences of all kinds."""

    VERSION = tfds.core.Version("1.0.0")
    code_path = CODE

    def _info(self):
        integer, image = tfds.features.Scalar(np.int32), tfds.features.Image(shape=(4, 6, 3))
        observation = {
            "boxes": tfds.features.Sequence({"x": integer, "in": {"name": tfds.features.Text()}}),
            "pair": tfds.features.Sequence({"x": integer}, length=2),
            "nested": tfds.features.Sequence(tfds.features.Sequence(integer)),
            "views": tfds.features.Sequence(image, length=2),
            "video": tfds.features.Video(shape=(None, 4, 6, 3)),
            "points": tfds.features.Sequence(np.float32, length=3),
        }
        flags = dict.fromkeys(("is_first", "is_last", "is_terminal"), np.bool_)
        steps = {"observation": observation, "action": np.float32, **flags}
        features = {"steps": tfds.features.Dataset(steps)}
        return tfds.core.DatasetInfo(builder=self, features=tfds.features.FeaturesDict(features))

    def _split_generators(self, dl_manager):
        return {"train": self._generate_examples()}

    def _generate_examples(self):
        flags = [dict.fromkeys(("is_first", "is_last", "is_terminal"), False) for _ in range(3)]
        steps = [{"observation": self.observation(step), **flags[step]} for step in range(3)]
        yield 0, {"steps": [{**step, "action": 1.0} for step in steps]}

    @staticmethod
    def observation(step):
        frames = [np.full((4, 6, 3), step + row, np.uint8) for row in range(step + 2)]
        return {
            "boxes": [{"x": 10 * step + row, "in": {"name": f"{row}"}} for row in range(step)],
            "pair": [{"x": step}, {"x": 7}],
            "nested": [[step] * row for row in range(step)],
            "views": frames[:2],
            "video": frames,
            "points": np.full(3, step, np.float32),
        }


def test_sequences_in_steps_are_read_as_columns_and_batches(tmp_path):
    """In columns, batches and statistics; sequences of dicts are dicts of sequences, as in TFDS."""
    builder = Sequences(data_dir=tmp_path)
    builder.download_and_prepare()
    columns = open_episodes(builder.data_path).columns(0)["observation"]
    batch = rlds.feeds.open(builder.data_path).steps().batch([0, 1, 2])["observation"]
    for observation in (columns, batch):
        assert observation["points"].tolist() == [[step] * 3 for step in range(3)]
        assert observation["pair"]["x"].tolist() == [[step, 7] for step in range(3)]
        assert observation["views"].shape == (3, 2, 4, 6, 3)
        for step in range(3):
            raw = Sequences.observation(step)
            assert observation["boxes"]["x"][step].tolist() == [box["x"] for box in raw["boxes"]]
            names = [box["in"]["name"].encode() for box in raw["boxes"]]
            assert observation["boxes"]["in"]["name"][step].tolist() == names
            assert [list(inner) for inner in observation["nested"][step]] == raw["nested"]
            np.testing.assert_array_equal(observation["views"][step], raw["views"])
            np.testing.assert_array_equal(observation["video"][step], raw["video"])
    statistics = stats(builder.data_path).statistics
    assert statistics["observation/points"].mean.tolist() == [1, 1, 1]
    assert "observation/boxes/x" not in statistics
