import dataclasses
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf

import tfds_files
from tfds_files import (
    Dataset,
    ExampleDecoder,
    ExampleEncoder,
    Feature,
    Features,
    Image,
    RaggedColumn,
    Sequence,
    Tensor,
)

GOLDEN = Path(__file__).parents[1] / "golden" / "tfds_4_9_10" / "tfrecord"
TEXT = Tensor(dtype=np.dtype(object))


def tensor(dtype, *shape, **arguments):
    return Tensor(dtype=np.dtype(dtype), shape=shape, **arguments)


def read_fields(example):
    """Returns the bytes of each field; TFDS writes fields in any order."""
    fields = tf.train.Example.FromString(bytes(example)).features.feature
    return {name: feature.SerializeToString() for name, feature in fields.items()}


def with_files(feature):
    """Returns the features with strings instead of images, which are then files."""
    if isinstance(feature, Features):
        return Features(features={name: with_files(child) for name, child in feature.items()})
    if isinstance(feature, Sequence):
        return dataclasses.replace(feature, feature=with_files(feature.feature))
    return TEXT if isinstance(feature, Image) else feature


def test_examples_of_tfds_are_encoded_to_the_same_bytes():
    dataset = tfds_files.open_folder(GOLDEN)
    decoder, encoder = (
        ExampleDecoder(with_files(dataset.features)),
        ExampleEncoder(dataset.features),
    )
    for split in dataset.values():
        for index in range(len(split)):
            stored = split.example_bytes(index)
            columns = decoder.decode(stored)
            for name in {"optional", "optional_text"} - read_fields(stored).keys():
                columns[name] = None
            encoded = encoder.encode(columns)
            assert read_fields(encoded) == read_fields(stored)
            assert len(encoded) == len(stored)


def test_examples_are_encoded_together_as_one_by_one():
    features = Features(
        features={
            "steps": Dataset(
                feature=Features(
                    features={
                        "x": tensor(np.int64),
                        "words": Sequence(feature=Sequence(feature=TEXT)),
                        "image": Image(shape=(None, None, 3), dtype=np.dtype(np.uint8)),
                    }
                )
            ),
            "values": Dataset(feature=tensor(np.float32)),
            "path": Sequence(feature=Features(features={"x": tensor(np.uint8)}), length=2),
            "sizes": tensor(np.float64, None, None, encoding="zlib"),
            "list": tensor(np.int16, None),
            "id": TEXT,
        }
    )
    encoder = ExampleEncoder(features)
    words = np.array(["a", b"b", "\u00fc", "", "d"], object)
    inner = RaggedColumn(words, np.array([2, 0, 1, 2]))
    png = b"\x89PNG\r\n\x1a\n..."
    encoded = encoder.encode_all(
        {
            "steps": {
                "x": np.array([1, -2, 300]),
                "words": RaggedColumn(inner, np.array([1, 0, 3])),
                "image": np.array([png + b"1", png, png + b"2"], object),
            },
            "values": np.array([1, 2, 3], np.float32),
            "path": {"x": np.array([[1, 2], [200, 3]], np.uint8)},
            "sizes": [np.ones((1, 2)), np.zeros((3, 0))],
            "list": np.array([[4], [5]], np.int16),
            "id": np.array(["one", b"two"], object),
        },
        np.array([1, 2]),
    )
    first = {
        "steps": {
            "x": np.array([1]),
            "words": RaggedColumn(
                RaggedColumn(np.array([b"a", b"b"], object), np.array([2])), np.array([1])
            ),
            "image": np.array([png + b"1"], object),
        },
        "values": np.array([1], np.float32),
        "path": {"x": np.array([1, 2], np.uint8)},
        "sizes": np.ones((1, 2)),
        "list": np.array([4], np.int16),
        "id": b"one",
    }
    assert encoded[0] == encoder.encode(first)
    actual = ExampleDecoder(with_files(features)).decode(encoded[1])
    assert encoder.encode(actual) == encoded[1]
    assert actual["steps"]["x"].tolist() == [-2, 300]
    assert actual["steps"]["image"].tolist() == [png, png + b"2"]
    assert [word.tolist() for word in actual["steps"]["words"][1]] == [
        [],
        ["\u00fc".encode()],
        [b"", b"d"],
    ]
    assert actual["sizes"].shape == (3, 0)


def test_python_numbers_are_encoded_like_arrays_and_refused_if_they_do_not_fit():
    dtypes = {"b": np.bool_, "u": np.uint8, "i": np.int64, "f": np.float32, "d": np.float64}
    encodings = {"d": "bytes"}
    features = Features(
        features={n: tensor(d, encoding=encodings.get(n, "none")) for n, d in dtypes.items()}
    )
    values = {"b": True, "u": 255, "i": -7, "f": 0.1, "d": 3}
    arrays = {name: dtypes[name](value) for name, value in values.items()}
    encoder = ExampleEncoder(features)
    assert encoder.encode(values) == encoder.encode(arrays)
    for name, value in (("b", 1), ("u", 256), ("u", -1), ("i", True), ("i", 1.0), ("f", 2**60)):
        with pytest.raises(ValueError, match=rf"^{name}: got \[{value}\], expected "):
            encoder.encode({**values, name: value})


STEPS = Dataset(feature=Features(features={"x": tensor(np.float32, 2)}), length=3)
IMAGE = Image(shape=(2, 2, 3), dtype=np.dtype(np.uint8))
UNFIT = [
    (tensor(np.float32, 2), np.ones(2), r"x: got float64 of shape \(2,\), expected float32 of s"),
    (tensor(np.float32, 2), np.ones(3, np.float32), r"x: got float32 of shape \(3,\), expected"),
    (tensor(np.int64, 2), [1, 2], r"x: got \[\[1, 2\]\], expected int64 of shape \(2,\)"),
    (tensor(np.int64, num_classes=3), 3, r"x: got int64 of shape \(\), .*, from -1 to 2"),
    (tensor(np.uint8, None, None), np.ones((1, 1), np.uint8), "x: got uint8 of shape"),
    (tensor(np.complex64), np.complex64(1), "x: got complex64"),
    (tensor(np.int64), None, r"x: got \[None\]"),
    (TEXT, 3, r"x: got \[3\], expected object of shape \(\)"),
    (TEXT, np.array(3, object), r"x: got object of shape \(\), expected object"),
    (IMAGE, b"GIF", "x: .* expected png files, as b"),
    (IMAGE, np.ones((1, 2, 2, 3)), r"x: got float64 .* as bytes, or uint8 of shape \(2, 2, 3\)"),
    (
        dataclasses.replace(IMAGE, encoding_format="jpeg"),
        np.ones((2, 2, 3), np.uint8),
        "x: got uint8 of shape .* expected jpeg files, as bytes$",
    ),
    (Sequence(feature=TEXT), ["a"], r"x: .* expected arrays, or a RaggedColumn"),
    (Sequence(feature=TEXT, length=2), np.array(["a"], object), "x: .* of the length 2"),
    (Feature(class_name="Mine"), 3, "x: .* expected a supported feature, not Mine"),
    (STEPS, {"x": np.ones((2, 2), np.float32)}, r"x: got \[2\] rows, expected 3"),
    (STEPS, {"x": np.ones((3, 3), np.float32)}, r"x/x: got float32 of shape \(3,\), expected"),
    (STEPS, {"y": np.ones(3)}, r"x: got \['y'\], expected the fields \['x'\]"),
    (STEPS, [{"x": 3}], "x: .* expected arrays of the length 3"),
]


@pytest.mark.parametrize(("feature", "value", "message"), UNFIT, ids=[text for *_, text in UNFIT])
def test_values_that_do_not_match_their_feature_are_refused(feature, value, message):
    with pytest.raises(ValueError, match=f"^{message}"):
        ExampleEncoder(Features(features={"x": feature})).encode({"x": value})


def test_columns_of_different_lengths_are_refused():
    feature = tensor(np.int64)
    pairs = Sequence(feature=Features(features={"a": feature, "b": feature}))
    steps = Dataset(feature=Features(features={"x": pairs}))
    encoder = ExampleEncoder(Features(features={"pairs": pairs, "steps": steps, "id": feature}))
    two, three = np.zeros(2, np.int64), np.zeros(3, np.int64)
    pair = {"a": two, "b": two}
    in_steps = {name: RaggedColumn(three, np.array([1, 2])) for name in "ab"}
    other = RaggedColumn(three, np.array([2, 1]))
    valid = {"pairs": pair, "steps": {"x": in_steps}, "id": 1}
    encoder.encode(valid)
    for changes, message in (
        ({"pairs": {"a": two, "b": three}}, "pairs: .* expected arrays, or a RaggedColumn"),
        ({"steps": {"x": {**in_steps, "b": other}}}, "steps/x: .* expected arrays, or a Ragged"),
        ({"steps": {"x": {**in_steps, "b": RaggedColumn(two, two[:1])}}}, "steps: the columns d"),
    ):
        with pytest.raises(ValueError, match=message):
            encoder.encode({**valid, **changes})
    batch = {"pairs": {name: np.zeros((2, 3), np.int64) for name in "ab"}, "steps": {"x": in_steps}}
    assert len(encoder.encode_all({**batch, "id": two}, np.array([1, 1]))) == 2
    for changes, message in (
        ({"id": three}, r"id: got \[3\] rows for 2 examples"),
        ({"id": two[:1]}, r"id: got \[1\] rows for 2 examples"),
        (
            {"pairs": {"a": np.zeros((1, 3), np.int64), "b": other}},
            r"pairs: got \[1, 2\] rows for 2",
        ),
    ):
        with pytest.raises(ValueError, match=message):
            encoder.encode_all({**batch, "id": two, **changes}, np.array([1, 1]))


def test_unsupported_features_go_to_the_fallback():
    features = Features(
        features={
            "steps": Dataset(feature=Features(features={"x": Feature(), "y": tensor(np.int64)})),
            "z": Feature(),
        }
    )
    calls = []

    def fallback(path, rows, splits):
        calls.append((path, rows, splits.tolist()))
        yield (
            "/".join(filter(None, path)),
            tfds_files.example_encoder.FieldLists([b""] * (len(splits) - 1)),
        )

    rows = {"x": ["a", "b", "c"], "y": np.arange(3)}
    ExampleEncoder(features, fallback).encode_all({"steps": rows, "z": [7, 8]}, np.array([1, 2]))
    assert calls == [
        (("steps", None, "x"), ["a", "b", "c"], [0, 1, 3]),
        (("z",), [7, 8], [0, 1, 2]),
    ]
