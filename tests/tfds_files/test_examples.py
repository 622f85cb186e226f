import pickle
import zlib

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_datasets as tfds
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from tfds_files import (
    DamagedFileError,
    ExampleDecoder,
    RaggedColumn,
    UnsupportedFileError,
    parse_features,
)

F = tfds.features
DTYPES = ["bool", "int8", "int64", "uint8", "uint32", "uint64", "float16", "float32"]


def make_decoder(features, fields=None):
    return ExampleDecoder(parse_features(F.FeaturesDict(features).to_json()), fields)


def encode(**fields):
    """Encodes an example of lists of byte strings, floats or integers."""
    feature_lists = {}
    for name, values in fields.items():
        name = name.replace("__", "/")
        if values and isinstance(values[0], bytes):
            feature_lists[name] = tf.train.Feature(bytes_list=tf.train.BytesList(value=values))
        elif values and isinstance(values[0], float):
            feature_lists[name] = tf.train.Feature(float_list=tf.train.FloatList(value=values))
        else:
            feature_lists[name] = tf.train.Feature(int64_list=tf.train.Int64List(value=values))
    return tf.train.Example(features=tf.train.Features(feature=feature_lists)).SerializeToString()


@st.composite
def columns(draw):
    dtype = np.dtype(draw(st.sampled_from(DTYPES)))
    shape = draw(hnp.array_shapes(min_dims=0, max_dims=2, max_side=3))
    encoding = draw(st.sampled_from(["none", "bytes", "zlib"]))
    if encoding == "bytes" and dtype == np.uint32:
        encoding = "none"  # TensorFlow decodes no such bytes.
    rows = draw(hnp.arrays(dtype, (draw(st.integers(0, 4)), *shape)))
    return F.Tensor(shape=shape, dtype=dtype, encoding=encoding), rows


@settings(max_examples=30, deadline=None)
@given(columns())
def test_decoded_columns_equal_the_rows_that_tfds_encoded(column):
    feature, rows = column
    features = F.FeaturesDict({"steps": F.Dataset({"x": feature})})
    serializer = tfds.core.example_serializer.ExampleSerializer(features.get_serialized_info())
    steps = [{"x": row} for row in rows]
    data = serializer.serialize_example(features.encode_example({"steps": steps}))
    actual = make_decoder(features).decode(data)["steps"]["x"]
    assert actual.dtype == rows.dtype
    assert actual.shape == rows.shape
    if rows.dtype.kind == "f":  # Signalling NaNs become quiet.
        np.testing.assert_array_equal(actual, rows)
        assert (np.signbit(actual) == np.signbit(rows))[~np.isnan(rows)].all()
    else:
        assert actual.tobytes() == rows.tobytes()


def test_numbers_share_the_memory_of_the_example():
    shared = 0
    for length in range(1, 5):  # One of these lengths aligns the numbers.
        name = "x" * length
        features = {name: F.Sequence(F.Tensor(shape=(2,), dtype=np.float32))}
        data = bytearray(encode(**{name: [float(i) for i in range(6)]}))
        actual = make_decoder(features).decode(data)[name]
        assert actual.flags.aligned
        actual[0, 0] = 7
        shared += make_decoder(features).decode(data)[name][0, 0] == 7
    assert shared == 1


def test_lists_as_other_writers_encode_them_are_decoded():
    features = {
        "x": F.Tensor(shape=(3,), dtype=np.int64),
        "y": F.Tensor(shape=(2,), dtype=np.float32),
    }
    one_by_one = b"\x08\x01\x08\x02\x08\x03"
    in_two = b"\x0d" + np.float32(1).tobytes() + b"\x0a\x04" + np.float32(2).tobytes()

    def message(field, content):
        return bytes([field << 3 | 2, len(content)]) + content

    data = message(
        1,
        message(1, message(1, b"x") + message(2, message(3, one_by_one)))
        + message(1, message(1, b"y") + message(2, message(2, in_two)))
        + message(1, message(1, b"unknown") + message(2, b"")),
    )
    actual = make_decoder(features).decode(data)
    assert actual["x"].tolist() == [1, 2, 3]
    assert actual["y"].tolist() == [1.0, 2.0]


def test_strings_of_equal_and_of_different_lengths_are_decoded():
    features = {"a": F.Sequence(F.Text()), "b": F.Text()}
    for words in ([b"ab", b"cd", b"ef"], [b"a", b"", b"\n\x02ab"], [b"\0\0", b"x" * 300]):
        actual = make_decoder(features).decode(encode(a=words, b=[b"\0"]))
        assert actual["a"].tolist() == words
        assert actual["b"] == b"\0"


def test_sequences_in_sequences_are_decoded_as_ragged_columns():
    features = {"s": F.Dataset({"n": F.Sequence(F.Sequence(np.int32))})}
    data = encode(
        s__n__ragged_flat_values=[1, 2, 3, 4],
        s__n__ragged_row_lengths_0=[2, 0, 1],
        s__n__ragged_row_lengths_1=[1, 2, 1],
    )
    column = make_decoder(features).decode(data)["s"]["n"]
    assert isinstance(column, RaggedColumn)
    assert [[list(inner) for inner in map(row.__getitem__, range(len(row)))] for row in column] == [
        [[1], [2, 3]],
        [],
        [[4]],
    ]
    with pytest.raises(IndexError, match="row 3 of 3"):
        column[3]


X = {"x": F.Tensor(shape=(2,), dtype=np.int64)}
STEPS = {"s": F.Dataset({"x": F.Tensor(shape=(2,), dtype=np.float32)})}
RAGGED = {"s": F.Dataset({"x": F.Sequence(np.int64)})}
RAW = {"x": F.Tensor(shape=(2,), dtype=np.float64, encoding="bytes")}
ZLIB = {"x": F.Tensor(shape=(None, None), dtype=np.int16, encoding="zlib")}
IMAGE = {"x": F.Image(shape=(2, 2, 3))}


UNFIT = [
    (X, b"\xff\xff", "no tf.train.Example"),
    (X, encode(y=[1]), "x: it is missing"),
    (X, encode(x=[1, 2, 3]), r"x: got 3 values, expected the shape \(2,\)"),
    (X, encode(x=[1.0, 2.0]), "x: got a list of floats, expected one of integers"),
    (STEPS, encode(s__x=[1.0, 2.0, 3.0]), r"s/x: got 3 values, expected the shape \(None, 2\)"),
    (
        RAGGED,
        encode(s__x__ragged_flat_values=[1, 2], s__x__ragged_row_lengths_0=[1]),
        "s/x: got 2 elements, expected the 1 that",
    ),
    (RAGGED, encode(s__x__ragged_row_lengths_0=[1, -1]), "s/x: got 0 elements"),
    (RAW, encode(x=[b"1234567"]), "x: got an array of 7 bytes, expected 16 for float64"),
    (RAW, encode(x=[b"", b""]), "x: got an array of 0 bytes"),
    (ZLIB, encode(x__value=[b"abc"], x__shape=[1, 1]), "x: the compressed array is damaged"),
    (ZLIB, encode(x__value=[b"abc"], x__shape=[1]), "x: a shape is incomplete"),
    (ZLIB, encode(x__value=[b"abc"], x__shape=[1, -1]), r"x: got the shape \(1, -1\)"),
    (ZLIB, encode(x__value=[b"abc"]), "x: got 1 arrays, and 0 shapes"),
    (
        ZLIB,
        encode(x__value=[zlib.compress(b"ab")], x__shape=[1 << 40, 1 << 40]),
        "x: got an array of 2 bytes",
    ),
    (IMAGE, encode(x=[b"GIF89a"]), "x: not a readable image"),
]


@pytest.mark.parametrize(("features", "data", "message"), UNFIT, ids=[text for *_, text in UNFIT])
def test_examples_that_do_not_match_their_features_are_refused(features, data, message):
    with pytest.raises(DamagedFileError, match=message):
        make_decoder(features).decode(data)


def test_plain_arrays_of_unknown_size_are_refused_as_tfds_does():
    features = {"s": F.Dataset({"x": F.Tensor(shape=(None,), dtype=np.int64)})}
    with pytest.raises(UnsupportedFileError, match="s/x: plain arrays of an unknown size"):
        make_decoder(features).decode(encode(s__x=[1]))


def test_a_decoder_can_be_pickled():
    copy = pickle.loads(pickle.dumps(make_decoder(X)))
    assert copy.decode(encode(x=[1, 2]))["x"].tolist() == [1, 2]
