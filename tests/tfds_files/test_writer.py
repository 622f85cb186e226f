import json
import subprocess
import sys
import textwrap

import numpy as np
import pytest
import stores_of_tests
import tensorflow_datasets as tfds

from rlds_ecosystem.model.errors import StorageError
from tfds_files import (
    Dataset,
    Features,
    Image,
    RaggedColumn,
    Sequence,
    Tensor,
    append_to,
    open_folder,
)
from tfds_files.growing import GrowingDataset


def tensor(dtype, *shape, **arguments):
    return Tensor(dtype=np.dtype(dtype), shape=shape, **arguments)


def make_features(**features):
    return Features(features=features)


FEATURES = make_features(
    steps=Dataset(
        feature=make_features(
            x=tensor(np.float32, 2),
            exact=tensor(np.float64, encoding="zlib"),
            words=Sequence(feature=tensor(object)),
            image=Image(shape=(None, None, 3), dtype=np.dtype(np.uint8)),
        )
    ),
    id=tensor(np.int64, doc="Its number."),
    list=tensor(np.int16, None),
)


def make_example(length, png):
    rng = np.random.default_rng(length)
    words = np.array([b"a", b"", b"c"][:length], object)
    return {
        "steps": {
            "x": rng.random((length, 2), np.float32),
            "exact": rng.random(length),
            "words": RaggedColumn(words, np.ones(length, int)),
            "image": np.array([png] * length, object),
        },
        "id": length,
        "list": np.arange(length, dtype=np.int16),
    }


@pytest.fixture(scope="module")
def png():
    image = np.arange(12, dtype=np.uint8).reshape(2, 2, 3)
    return tfds.features.Image(shape=(2, 2, 3)).encode_example(image)


@pytest.mark.parametrize("file_format", ["tfrecord", "array_record"])
def test_tfds_reads_the_written_examples(tmp_path, png, file_format):
    options = {"file_format": file_format, "max_examples_per_shard": 2}
    attributes = {"description": "Gr\u00fcn", "citation": "@x", "metadata": {"by": ["me"]}}
    with append_to(tmp_path / "d", FEATURES, "mine", "1.2.3", **attributes, **options) as writer:
        for length in range(3):
            writer.add(make_example(length, png))
    with append_to(tmp_path / "d", FEATURES, "mine", "1.2.3", **options) as writer:
        writer.add(make_example(3, png))
        writer.add(make_example(1, png), split="test-1")
    writer.close()
    with pytest.raises(ValueError, match="the writer is closed"):
        writer.add(make_example(1, png))
    dataset = open_folder(tmp_path / "d")
    assert {name: split.shard_lengths for name, split in dataset.items()} == {
        "train": (2, 1, 1),
        "test-1": (1,),
    }
    assert dataset.metadata == {"by": ["me"]}
    builder = tfds.builder_from_directory(tmp_path / "d")
    assert (builder.info.description, builder.info.citation) == ("Gr\u00fcn", "@x")
    assert builder.info.features["id"].doc.desc == "Its number."
    for name, split in dataset.items():
        source = builder.as_data_source(name) if file_format == "array_record" else None
        rows = source or tfds.as_numpy(builder.as_dataset(name))
        for actual, expected in zip(rows, split, strict=True):
            assert actual["id"] == expected["id"]
            assert actual["list"].tolist() == expected["list"].tolist()
            if source is not None:  # TFDS does not read all fields of data sources.
                continue
            steps = list(actual["steps"])
            assert len(steps) == len(expected["steps"]["x"]) == expected["id"]
            for index, step in enumerate(steps):
                for field in ("x", "exact", "image"):
                    np.testing.assert_array_equal(step[field], expected["steps"][field][index])
                assert list(step["words"]) == list(expected["steps"]["words"][index])


def test_images_become_png_files(tmp_path):
    def image(dtype, *shape):
        return Image(shape=shape, dtype=np.dtype(dtype), encoding_format="png")

    features = make_features(
        steps=Dataset(
            feature=make_features(frame=image(np.uint8, 4, 6, 3), crop=image(np.uint16, None, 2, 1))
        ),
        depth=image(np.float32, 3, 5, 1),
    )
    rng = np.random.default_rng(1)
    frames = rng.integers(0, 256, (2, 4, 6, 3), np.uint8)
    crops = [rng.integers(0, 2**16, (height, 2, 1), np.uint16) for height in (3, 1)]
    depth = rng.normal(size=(3, 5, 1)).astype(np.float32)
    with append_to(tmp_path, features, "mine") as writer:
        writer.add({"steps": {"frame": frames, "crop": crops}, "depth": depth})
    example = open_folder(tmp_path)["train"][0]
    np.testing.assert_array_equal(example["steps"]["frame"], frames)
    [actual] = tfds.as_numpy(tfds.builder_from_directory(tmp_path).as_dataset("train"))
    assert actual["depth"].tobytes() == depth.tobytes() == example["depth"].tobytes()
    for index, step in enumerate(actual["steps"]):
        np.testing.assert_array_equal(step["frame"], frames[index])
        np.testing.assert_array_equal(step["crop"], crops[index])
        np.testing.assert_array_equal(example["steps"]["crop"][index], crops[index])


def test_examples_of_a_dead_writer_are_added(tmp_path):
    features = make_features(x=tensor(np.int64))
    writer = append_to(tmp_path, features, "mine")
    writer.add({"x": 7})
    with pytest.raises(ValueError, match=r"x: got \[\['7'\]\], expected int64"):
        writer.add({"x": ["7"]})
    writer.abandon()
    with pytest.warns(UserWarning, match="added 1 episodes"):
        writer = append_to(tmp_path, features, "mine")
    with writer:
        assert [example["x"] for example in open_folder(tmp_path)["train"]] == [7]


@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::ResourceWarning")
def test_datasets_in_an_object_store_are_appended_to(tmp_path):
    """Written by two writers, with a full shard, and read by the same URL."""
    (tmp_path / "server").mkdir()
    features = make_features(steps=Dataset(feature=make_features(x=tensor(np.int64))))
    with stores_of_tests.running("gcsfs", tmp_path / "server") as store:
        url = store.directory()
        for begin in (0, 3):
            with append_to(url, features, "mine", max_examples_per_shard=2) as writer:
                for length in range(begin, begin + 3):
                    writer.add({"steps": {"x": np.arange(length)}})
        dataset = open_folder(url)
        assert dataset["train"].shard_lengths == (2, 1, 2, 1)
        for length, example in enumerate(dataset["train"]):
            assert example["steps"]["x"].tolist() == list(range(length))
        dataset.close()
    assert not [path for path in tmp_path.iterdir() if path.name != "server"]


def test_splits_are_recovered_after_a_full_disk(tmp_path, monkeypatch):
    def fail(*_):
        raise OSError("no space left")

    writer = append_to(tmp_path, make_features(x=tensor(np.int64)), "mine")
    for split in ("a", "b"):
        writer.add({"x": 7}, split=split)
    with monkeypatch.context() as patch:
        patch.setattr(GrowingDataset, "_add_shard", fail)
        with pytest.raises(StorageError, match="no space left"):
            writer.close()
    with pytest.warns(UserWarning, match="added 1 episodes"):
        append_to(tmp_path, make_features(x=tensor(np.int64)), "mine")
    assert {name: len(split) for name, split in open_folder(tmp_path).items()} == {"a": 1, "b": 1}


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"name": "other"}, StorageError, "another name: mine"),
        ({"version": "1.0.1"}, StorageError, r"another version: 1\.0\.0"),
        ({"file_format": "array_record"}, StorageError, "another file format: tfrecord"),
        ({"features": make_features(x=tensor(np.int32))}, StorageError, "other features.*: x;"),
        ({"name": "my set"}, ValueError, "name: got 'my set'"),
        ({"version": "1"}, ValueError, "version: got '1'"),
        ({"file_format": "parquet"}, ValueError, "file_format must be one of"),
        ({"max_examples_per_shard": 0}, ValueError, "must be positive, got 0"),
    ],
)
def test_appending_another_dataset_is_refused(tmp_path, arguments, error, message):
    options = {"directory": tmp_path, "features": make_features(x=tensor(np.int64)), "name": "mine"}
    with append_to(**options) as writer:
        with pytest.raises(ValueError, match="split: got 'a b'"):
            writer.add({"x": 1}, split="a b")
        writer.add({"x": 1})
    with pytest.raises(error, match=message):
        append_to(**{**options, **arguments})
    assert len(open_folder(tmp_path)["train"]) == 1


def test_appending_to_a_complete_dataset_is_refused(tmp_path):
    features = make_features(x=tensor(np.int64))
    with append_to(tmp_path, features, "mine") as writer:
        writer.add({"x": 1})
    info = json.loads((tmp_path / "dataset_info.json").read_text())
    del info["splits"][0]["filepathTemplate"]
    (tmp_path / "dataset_info.json").write_text(json.dumps(info))
    with pytest.raises(StorageError, match="a complete dataset"):
        append_to(tmp_path, features, "mine")


STEP = {
    "fixed": Sequence(feature=tensor(np.int64), length=3),
    "plain": tensor(np.float32, None),
    "empty": tensor(np.float32, 0),
    "complex": tensor(np.complex64),
    "double": tensor(np.float64),
    "uint32": tensor(np.uint32, encoding="bytes"),
}


@pytest.mark.parametrize("name", STEP)
def test_features_that_tfds_cannot_hold_are_refused(tmp_path, name):
    features = make_features(steps=Dataset(feature=make_features(**{name: STEP[name]})))
    with pytest.raises(ValueError, match=f"steps/{name}: TFDS cannot hold "):
        append_to(tmp_path / "d", features, "mine")
    assert not (tmp_path / "d").exists()


def test_no_tensorflow_is_needed(tmp_path):
    code = """
        import sys
        sys.modules["tensorflow"] = sys.modules["tensorflow_datasets"] = None
        import numpy as np
        import tfds_files
        features = tfds_files.Features(features={"x": tfds_files.Tensor(dtype=np.dtype(np.int64))})
        with tfds_files.append_to(sys.argv[1], features, "mine") as writer:
            writer.add({"x": 3})
        print(tfds_files.open_folder(sys.argv[1])["train"][0]["x"])
    """
    command = [sys.executable, "-c", textwrap.dedent(code), str(tmp_path)]
    assert subprocess.run(command, capture_output=True, check=True).stdout == b"3\n"
