import pickle
from pathlib import Path

import conversions
import numpy as np
import pytest
import tensorflow as tf
import tensorflow_datasets as tfds
from toy_source import ToySource

from envlogger.errors import StorageError
from rlds.formats.tfds import export
from rlds.sources import SourceError
from rlds.sources.source import Capabilities
from tfds_builders import SourceBuilder, convert
from tfds_files import ExampleEncoder


class RldsToy(SourceBuilder):
    """Synthetic episodes."""

    VERSION = tfds.core.Version("1.0.0")

    def make_source(self, path):
        return ToySource(path)

    def raw_name(self):
        return "toy.raw"


@pytest.fixture
def raw(tmp_path, monkeypatch):
    conversions.cut_finely(monkeypatch)
    path = tmp_path / "raw" / "toy.raw"
    path.parent.mkdir()
    path.write_text("toy")
    return path


def download_config(**kwargs):
    return tfds.download.DownloadConfig(**kwargs)


def staging_folder(tmp_path):
    return tmp_path / "toy" / ".1.0.0.parts"


def read_stored_steps(builder):
    """Returns the undecoded steps of all episodes, as dlimp, Octo and OpenVLA read them."""
    decoders = {"steps": tfds.decode.SkipDecoding()}
    dataset = builder.as_dataset("train", decoders=decoders)
    return {e["episode_id"]: e["steps"] for e in dataset.as_numpy_iterator()}


def test_float64_is_rounded_on_request(raw, tmp_path):
    source = ToySource(raw)
    options = {"name": "toy", "data_dir": tmp_path}
    exact = convert(source, **options)
    assert exact.info.features["steps"]["observation"].np_dtype == np.float64
    assert read_stored_steps(exact)[b"toy.raw:2"]["observation"].dtype == object  # Not decoded.
    rounded = convert(source, **options, version="1.0.1", float64="float32")
    stored = read_stored_steps(rounded)
    assert len(stored) == 10
    for index in range(source.count):
        episode = source.read("train", index)
        observation = stored[episode.key.encode()]["observation"]
        assert observation.dtype == np.float32
        expected = episode.steps["observation"].astype(np.float32)
        np.testing.assert_array_equal(observation, expected)
    assert rounded.info.metadata["conversion"]["float64"] == "float32"
    builder = RldsToy(path=raw, data_dir=tmp_path, float64="float32")
    builder.download_and_prepare()
    assert RldsToy(path=raw, data_dir=tmp_path).as_dataset("train").element_spec
    with pytest.raises(FileExistsError, match="converted with float64='float32'"):
        RldsToy(data_dir=tmp_path, float64="bytes").download_and_prepare()


def test_a_float64_beyond_float32_is_refused(raw, tmp_path):
    class Large(ToySource):
        def read(self, split, index, fields=None, rows=slice(None)):
            episode = super().read(split, index)
            episode.steps["observation"][-1] = -1e39 * (index == 3)
            return episode

    with pytest.raises(SourceError, match=r"toy.raw:3.*observation: -1e\+39 in row 1 is beyond"):
        convert(Large(raw), name="toy", data_dir=tmp_path, float64="float32", verify=False)


@pytest.mark.slow
def test_all_kinds_of_conversions_write_the_same_records(raw, tmp_path):
    builder = conversions.check_conversion(
        lambda: ToySource(raw), tmp_path / "data", builder=RldsToy, path=raw
    )
    converted = convert(ToySource(raw), name="converted", data_dir=tmp_path / "a").data_path
    assert conversions.records(converted) == conversions.records(builder.data_path)
    conversions.check_resumes(lambda: ToySource(raw), tmp_path, conversions.contents(converted))
    lineage = builder.info.metadata.pop("lineage")
    assert lineage["operations"][-1]["do"] == "convert"
    inputs = builder.info.metadata["conversion"].pop("inputs")
    assert isinstance(inputs, str)
    assert builder.info.metadata == {
        "made_by": "nobody",
        "conversion": {
            "splits": {
                "train": {
                    "episodes": 10,
                    "steps": 29,
                    "transitions": 19,
                    "terminated": 5,
                    "truncated": 5,
                    "incomplete": 0,
                    "final_observation_unknown": 0,
                    "raw": {"rows": 19},
                }
            }
        },
    }


@pytest.mark.slow
def test_files_have_the_bytes_that_tfds_writes(raw, tmp_path):
    """The order, the number of shards and the bytes of TFDS's own writer, given the same keys."""
    builder = convert(
        ToySource(raw), name="toy", data_dir=tmp_path, download_config=download_config(num_shards=3)
    )
    serialized = {}
    for path in sorted(Path(builder.data_path).glob("toy-*")):
        for record in tf.data.TFRecordDataset(str(path)).as_numpy_iterator():
            example = tf.train.Example.FromString(record)
            key = example.features.feature["episode_id"].bytes_list.value[0].decode()
            serialized[key] = record

    class Verbatim:
        example_specs = None

        def serialize_example(self, example):
            return example

    reference = tmp_path / "reference"
    reference.mkdir()
    writer = tfds.core.writer.Writer(
        serializer=Verbatim(),
        filename_template=tfds.core.ShardedFileTemplate(
            data_dir=reference, dataset_name="toy", split="train", filetype_suffix="tfrecord"
        ),
        hash_salt="train",
        disable_shuffling=False,
        example_writer=tfds.core.writer.ExampleWriter(tfds.core.FileFormat.TFRECORD),
        shard_config=tfds.core.utils.shard_utils.ShardConfig(num_shards=3),
    )
    for key, record in serialized.items():
        writer.write(key, record)
    lengths, num_bytes = writer.finalize()
    assert conversions.records(reference) == conversions.records(builder.data_path)
    assert builder.info.splits["train"].shard_lengths == lengths
    assert builder.info.splits["train"].num_bytes == num_bytes


@pytest.mark.slow
def test_without_shuffling_the_order_of_the_source_is_kept(raw, tmp_path):
    builder = convert(ToySource(raw), name="toy", data_dir=tmp_path, shuffle=False)
    dataset = builder.as_dataset(split="train")
    assert [int(episode["seed"]) for episode in dataset] == list(range(10))
    builder.as_dataset(split="train", shuffle_files=True)  # Allowed, although they are in order.


def test_raw_data_in_the_manual_dir_is_converted(raw, tmp_path):
    dataset = tfds.load(
        "rlds_toy",
        data_dir=tmp_path / "data",
        split="train",
        download_and_prepare_kwargs={
            "download_config": download_config(manual_dir=raw.parent, num_shards=2)
        },
    )
    assert len(dataset) == 10
    builder = tfds.builder("rlds_toy", data_dir=tmp_path / "data")
    assert builder.info.splits["train"].num_shards == 2
    assert builder.info.features["steps"]["observation"].np_dtype == np.float64
    assert builder.info.metadata["made_by"] == "nobody"


def test_missing_raw_data_is_an_error(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"manual/toy.raw does not exist.*builder_kwargs"):
        tfds.load("rlds_toy", data_dir=tmp_path)
    assert RldsToy(data_dir=tmp_path).info.features is None


def test_an_existing_dataset_is_not_overwritten(raw, tmp_path):
    first = convert(ToySource(raw), name="toy", data_dir=tmp_path)
    before = conversions.contents(first.data_path)
    with pytest.raises(FileExistsError, match="not overwritten"):
        convert(ToySource(raw, num_episodes=3), name="toy", data_dir=tmp_path)
    assert conversions.contents(first.data_path) == before


def test_an_existing_dataset_of_other_raw_data_is_an_error(raw, tmp_path):
    RldsToy(path=raw, data_dir=tmp_path).download_and_prepare()
    RldsToy(path=raw, data_dir=tmp_path).download_and_prepare()
    other = tmp_path / "other.raw"
    other.write_text("other")
    with pytest.raises(FileExistsError, match="a dataset of other raw data"):
        RldsToy(path=other, data_dir=tmp_path).download_and_prepare()
    assert RldsToy(data_dir=tmp_path).info.splits["train"].num_examples == 10


def test_damage_is_an_error_and_leaves_no_files(raw, tmp_path):
    with pytest.raises(SourceError, match=r"toy.raw, episode 5, row 3, field 'action': scratched"):
        convert(ToySource(raw, damaged=5), name="toy", data_dir=tmp_path)
    assert not (tmp_path / "toy" / "1.0.0").exists()
    assert not list((tmp_path / "toy").glob("incomplete*"))


def test_damaged_episodes_are_skipped_on_request(raw, tmp_path):
    with pytest.warns(UserWarning, match=r"1 episode is damaged and left out: .*, episode 5"):
        builder = convert(
            ToySource(raw, damaged=5), name="toy", data_dir=tmp_path, skip_damaged=True
        )
    assert builder.info.splits["train"].num_examples == 9
    (left_out,) = builder.info.metadata["conversion"]["splits"]["train"]["left_out"]
    assert left_out["key"] == "toy.raw:5"
    assert "row 3, field 'action': scratched" in left_out["why"]


def test_nan_is_damage(raw, tmp_path):
    with pytest.raises(SourceError, match=r"toy.raw:2, row 21, field 'observation': nan"):
        convert(ToySource(raw, nan=2), name="toy", data_dir=tmp_path)


def test_totals_that_contradict_the_episodes_are_refused(raw, tmp_path, monkeypatch):
    monkeypatch.setattr(ToySource, "capabilities", Capabilities(totals=lambda split: {"rows": 20}))
    with pytest.raises(SourceError, match=r"\.raw.* 'train' has 20 rows, but its episodes have 19"):
        convert(ToySource(raw), name="toy", data_dir=tmp_path)
    assert not (tmp_path / "toy" / "1.0.0").exists()


def test_equal_keys_are_refused(raw, tmp_path, monkeypatch):
    monkeypatch.setattr(ToySource, "key", lambda self, split, index: f"key {index % 5}")
    with pytest.raises(SourceError, match="another episode has the key 'key 0'"):
        convert(ToySource(raw), name="toy", data_dir=tmp_path)


def test_reserved_names_of_fields_are_refused(raw, tmp_path, monkeypatch):
    fields = ToySource.fields.replace(episode={"truncated": np.bool_})
    monkeypatch.setattr(ToySource, "fields", fields)
    with pytest.raises(ValueError, match="ToySource: the name 'truncated' is reserved"):
        convert(ToySource(raw), name="toy", data_dir=tmp_path)


def test_too_many_shards_are_refused(raw, tmp_path):
    with pytest.raises(ValueError, match="got 11, expected 1 to 10"):
        convert(
            ToySource(raw),
            name="toy",
            data_dir=tmp_path,
            download_config=download_config(num_shards=11),
        )


def test_a_file_that_differs_from_the_written_episodes_is_an_error(raw, tmp_path, monkeypatch):
    """A file has one episode twice, and lacks another."""
    examples = export._ShardPlan.examples

    def lose_one(plan, shard):
        loaded = list(examples(plan, shard))
        return iter([*loaded[:-1], loaded[0]])

    monkeypatch.setattr(export._ShardPlan, "examples", lose_one)
    with pytest.raises(ValueError, match="differs from the written data; write it again"):
        convert(ToySource(raw), name="toy", data_dir=tmp_path)
    assert not (tmp_path / "toy" / "1.0.0").exists()


def test_encoded_values_that_differ_from_the_read_ones_are_an_error(raw, tmp_path, monkeypatch):
    encode_all = ExampleEncoder.encode_all

    def encode_wrongly(self, columns, lengths):
        steps = {**columns["steps"], "observation": columns["steps"]["observation"] + 1}
        return encode_all(self, {**columns, "steps": steps}, lengths)

    monkeypatch.setattr(ExampleEncoder, "encode_all", encode_wrongly)
    with pytest.raises(ValueError, match="steps/observation is not what was encoded: values"):
        convert(ToySource(raw), name="toy", data_dir=tmp_path)
    assert not (tmp_path / "toy" / "1.0.0").exists()


def test_small_windows_do_not_change_the_files(raw, tmp_path, monkeypatch):
    expected = conversions.contents(
        convert(ToySource(raw), name="toy", data_dir=tmp_path).data_path
    )
    monkeypatch.setattr(export, "_REORDERED_BYTES", 1500)  # An episode has some 500 bytes.
    builder = convert(ToySource(raw), name="toy", data_dir=tmp_path / "windows")
    assert conversions.contents(builder.data_path) == expected


def test_errors_name_the_staging_folder(raw, tmp_path):
    with pytest.raises(conversions.Interrupted) as caught:
        source = conversions.interrupted(ToySource(raw), 5, [])
        convert(source, name="toy", data_dir=tmp_path)
    assert str(staging_folder(tmp_path)) in caught.value.__notes__[0]


def test_damaged_staged_records_are_refused(raw, tmp_path):
    with pytest.raises(conversions.Interrupted):
        source = conversions.interrupted(ToySource(raw), 6, [])
        convert(source, name="toy", data_dir=tmp_path)
    (records,) = staging_folder(tmp_path).glob("00000/1.0.0/part-train*")
    content = bytearray(records.read_bytes())
    content[20] ^= 1
    records.write_bytes(bytes(content))
    with pytest.raises(StorageError, match="was damaged since it was written"):
        convert(ToySource(raw), name="toy", data_dir=tmp_path)


def test_a_pickled_builder_prepares_the_dataset(raw, tmp_path):
    builder = pickle.loads(pickle.dumps(RldsToy(path=raw, data_dir=tmp_path)))
    builder.download_and_prepare()
    assert builder.info.splits["train"].num_examples == 10
