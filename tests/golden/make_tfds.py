"""Makes the golden datasets, with the published tensorflow-datasets.

    python make_tfds.py DIRECTORY

The folders in `tfds_4_9_10/` are its output and never change: this project must always read them.
`expected.json` has the values of TFDS for each field of each example: dtype, shape and SHA-256.
TensorFlow decodes JPEG exactly only with `INTEGER_ACCURATE`, as here.
"""

import json
import pathlib
import shutil
import sys
import tempfile

import numpy as np
import tensorflow as tf
import tensorflow_datasets as tfds
from array_record.python.array_record_module import ArrayRecordReader
from pyarrow import parquet
from tfds_values import describe

F = tfds.features
NUMERIC_DTYPES = ["bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"]
NUMERIC_DTYPES += ["float16", "float32", "float64"]
EXTREMES = {"int8": [-128, 127], "int64": [-(2**63), 2**63 - 1], "uint64": [0, 2**64 - 1]}

FEATURES = F.FeaturesDict(
    {
        "steps": F.Dataset(
            {
                "is_first": np.bool_,
                "reward": F.Scalar(np.float32),
                "discount": F.Scalar(np.float64),
                "observation": {
                    "plain": F.Tensor(shape=(2, 3), dtype=np.float32),
                    "bytes": F.Tensor(shape=(3,), dtype=np.float64, encoding="bytes"),
                    "zlib": F.Tensor(shape=(2,), dtype=np.int16, encoding="zlib"),
                    "rows": F.Tensor(shape=(None, 2), dtype=np.float32, encoding="bytes"),
                    "sizes": F.Tensor(shape=(None, None), dtype=np.uint8, encoding="zlib"),
                    "png": F.Image(shape=(5, 4, 3), encoding_format="png"),
                    "jpeg": F.Image(shape=(16, 24, 3), encoding_format="jpeg"),
                    "of_any_size": F.Image(shape=(None, None, 1), encoding_format="png"),
                },
                "words": F.Sequence(F.Text()),
                "boxes": F.Sequence({"box": F.BBoxFeature(), "kind": F.ClassLabel(num_classes=4)}),
                "nested": F.Sequence(F.Sequence(np.int64)),
                "instruction": F.Text(),
                "action": F.Tensor(shape=(2,), dtype=np.float32),
            }
        ),
        **{name: F.Tensor(shape=(2,), dtype=np.dtype(name)) for name in NUMERIC_DTYPES},
        "complex": F.Tensor(shape=(2,), dtype=np.complex64, encoding="bytes"),
        "strings": F.Tensor(shape=(2,), dtype=np.str_),
        "unknown": F.Tensor(shape=(None, 2), dtype=np.int32),
        "optional": F.Tensor(shape=(), dtype=np.int32, optional=True),
        "optional_text": F.Tensor(shape=(), dtype=np.str_, optional=True),
        "label": F.ClassLabel(names=["left", "right"]),
        "depth": F.Image(shape=(4, 6, 1), dtype=np.float32),
        "png_16": F.Image(shape=(7, 5, 3), dtype=np.uint16, encoding_format="png"),
        "png_16_grey": F.Image(shape=(7, 5, 1), dtype=np.uint16, encoding_format="png"),
        "segments": F.LabeledImage(labels=5, shape=(4, 4, 1), encoding_format="png"),
        "video": F.Video(shape=(None, 4, 3, 3)),
        "sound": F.Audio(sample_rate=8000),
        "translation": F.Translation(["de", "en"]),
        "translations": F.TranslationVariableLanguages(["de", "en"]),
        "triple": F.Sequence(np.float32, length=3),
        "documented": F.Tensor(shape=(), dtype=np.float32, doc="In metres.", minimum=0, maximum=9),
    }
)


def smooth(rng, shape):
    """A smooth image, for which PNG uses its filters."""
    ramp = np.add.outer(np.arange(shape[0]) * 9, np.arange(shape[1]) * 5)[..., np.newaxis]
    return (ramp + rng.integers(0, 30, shape)).astype(np.uint8)


def step(rng, index):
    return {
        "is_first": index == 0,
        "reward": np.float32(rng.normal()),
        "discount": np.float64(rng.random()),
        "observation": {
            "plain": rng.normal(size=(2, 3)).astype(np.float32),
            "bytes": rng.normal(size=3),
            "zlib": rng.integers(-9, 9, 2, np.int16),
            "rows": rng.normal(size=(index % 3 + 1, 2)).astype(np.float32),
            "sizes": rng.integers(0, 255, (index % 2 + 1, 2), np.uint8),
            "png": smooth(rng, (5, 4, 3)),
            "jpeg": smooth(rng, (16, 24, 3)),
            "of_any_size": smooth(rng, (3 + index % 2, 4, 1)),
        },
        "words": [f"word {i} \u00fc" for i in range(index % 3)],
        "boxes": [
            {"box": F.BBox(ymin=0.1, xmin=0.2, ymax=0.5, xmax=0.25 + 0.1 * i), "kind": i}
            for i in range((index + 1) % 3)
        ],
        "nested": [list(range(i)) for i in range(index % 3)],
        "instruction": f"pick {index}" * (index % 2),
        "action": rng.normal(size=2).astype(np.float32),
    }


def example(index):
    rng = np.random.default_rng(index)
    numeric_values = {}
    for name in NUMERIC_DTYPES:
        dtype = np.dtype(name)
        values = EXTREMES.get(name, rng.integers(0, 2 if name == "bool" else 100, 2))
        numeric_values[name] = np.array(values, dtype) if dtype.kind != "f" else rng.normal(size=2)
        numeric_values[name] = np.asarray(numeric_values[name]).astype(dtype)
    return {
        "steps": [step(rng, i) for i in range((4, 0, 1)[index % 3])],
        **numeric_values,
        "complex": (rng.normal(size=2) + 1j).astype(np.complex64),
        "strings": np.array([b"a\0b\0", "\u00e9".encode()], object),
        "unknown": rng.integers(-300, 300, (index, 2), np.int32),
        "optional": None if index == 1 else np.int32(7),
        "optional_text": None if index == 1 else "there",
        "label": index % 2,
        "depth": rng.normal(size=(4, 6, 1)).astype(np.float32),
        "png_16": (smooth(rng, (7, 5, 3)).astype(np.uint16) * 257 + 3),
        "png_16_grey": rng.integers(0, 65536, (7, 5, 1)).astype(np.uint16),
        "segments": rng.integers(0, 5, (4, 4, 1)).astype(np.uint8),
        "video": [smooth(rng, (4, 3, 3)) for _ in range(index)],
        "sound": rng.integers(-99, 99, 5),
        "translation": {"de": "Hallo", "en": "Hello"},
        "translations": {"en": ["hi", "hello"], "de": "hallo"} if index else {"en": "hi"},
        "triple": rng.normal(size=3).astype(np.float32),
        "documented": np.float32(index),
    }


class Golden(tfds.core.GeneratorBasedBuilder):
    """Every kind of feature that this project reads."""

    VERSION = tfds.core.Version("1.2.3")

    def _info(self):
        metadata = tfds.core.MetadataDict({"author": "M\u00fcller", "n": [1]})
        return tfds.core.DatasetInfo(builder=self, features=FEATURES, metadata=metadata)

    def _split_generators(self, _):
        return {"train": self._examples(0, 3), "test": self._examples(3, 5)}

    def _generate_examples(self):
        raise NotImplementedError

    def _examples(self, begin, end):
        return ((str(index), example(index)) for index in range(begin, end))


def accurate(image):
    return tf.io.decode_jpeg(image, dct_method="INTEGER_ACCURATE").numpy()


def records_of(builder, split):
    """The bytes of the examples, read by the library of the format."""
    for path in builder.info.splits[split].filepaths:
        if path.suffix.startswith(".array_record"):
            reader = ArrayRecordReader(str(path))
            yield from reader.read(list(range(reader.num_records())))
        elif path.suffix.startswith(".parquet"):
            yield from parquet.read_table(path)["data"].to_pylist()
        else:
            yield from (record.numpy() for record in tf.data.TFRecordDataset(str(path)))


def main(directory):
    expected, records = {}, {}
    for file_format in ("tfrecord", "array_record", "parquet"):
        with tempfile.TemporaryDirectory() as temporary:
            builder = Golden(data_dir=temporary, file_format=file_format)
            two_shards = tfds.download.DownloadConfig(num_shards=2)
            builder.download_and_prepare(download_config=two_shards)
            shutil.copytree(builder.data_dir, directory / file_format)
        builder = tfds.builder_from_directory(directory / file_format)
        for split in ("train", "test"):
            examples = list(records_of(builder, split))
            if records.setdefault(split, examples) != examples:
                raise AssertionError(f"{file_format}: examples differ")
            if file_format != "tfrecord":  # TFDS does not read all fields of other formats.
                continue
            skip = {"steps": {"observation": {"jpeg": tfds.decode.SkipDecoding()}}}
            expected[split] = []
            for row in tfds.as_numpy(builder.as_dataset(split, decoders=skip)):
                steps = list(row["steps"])
                for it in steps:
                    it["observation"]["jpeg"] = accurate(it["observation"]["jpeg"])
                expected[split].append(describe({**row, "steps": steps}))
    (directory / "expected.json").write_text(json.dumps(expected, indent=1, sort_keys=True))


if __name__ == "__main__":
    main(pathlib.Path(sys.argv[1]))
