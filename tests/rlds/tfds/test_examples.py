"""Examples encoded from columns equal, byte by byte, those that TFDS encodes from steps.

PNG files are compressed faster: they have the same pixels, not the same bytes.
"""

import hashlib
import os
import subprocess
import sys
import warnings

import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as npst
from tensorflow_datasets import features as tf_features

from rlds.tfds.examples import RaggedColumn, TfdsExampleEncoder
from tfds_files import example_encoder
from tfds_files.png import encode_png

FLOATS = ["float16", "float32", "float64"]
INTEGERS = ["bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"]


def wrap(feature):
    return tf_features.FeaturesDict({"steps": tf_features.Dataset({"x": feature})})


def assert_same_bytes(features, episode, for_tfds=None):
    """Compares examples up to the order of their fields, which TFDS leaves to chance."""
    ours = TfdsExampleEncoder(features).encode(episode)
    theirs = features.serialize_example(for_tfds or episode)
    assert read_fields(ours) == read_fields(theirs)
    if b"IHDR" not in ours:
        assert len(ours) == len(theirs)
    for middle in (0, 1):
        assert_same_together(features, episode, middle)


def assert_same_together(features, episode, middle):
    """Compares joint and separate encoding of the beginning and the end of an episode."""
    encoder = TfdsExampleEncoder(features)
    columns = {name: repeat(episode[name]) for name in features if name != "steps"}
    pieces, length = [episode, episode], middle
    if "steps" in features:
        length = next(example_encoder._lengths(episode["steps"]), 0)
        columns["steps"] = episode["steps"]
        pieces = [
            {**episode, "steps": slice_rows(episode["steps"], begin, end)}
            for begin, end in ((0, middle), (middle, length))
        ]
    if length < middle:
        return
    together = encoder.encode_all(columns, np.array([middle, length - middle]))
    assert together == list(map(encoder.encode, pieces))


def slice_rows(columns, begin, end):
    if isinstance(columns, dict):
        return {name: slice_rows(column, begin, end) for name, column in columns.items()}
    if isinstance(columns, RaggedColumn):
        ends = [0, *np.cumsum(columns.lengths)]
        return RaggedColumn(columns.values[ends[begin] : ends[end]], columns.lengths[begin:end])
    return columns[begin:end]


def repeat(value):
    if isinstance(value, dict):
        return {name: repeat(child) for name, child in value.items()}
    if isinstance(value, str | bytes):
        return np.array([value, value], object)
    return [value, value] if isinstance(value, list) else np.array([value, value])


def read_fields(example):
    """Returns the bytes of each field, with pixels instead of PNG files."""
    fields = tf.train.Example.FromString(example).features.feature
    for feature in fields.values():
        values = feature.bytes_list.value
        for index, value in enumerate(values):
            # A text may begin like a PNG file, too.
            if value.startswith(b"\x89PNG") and value[12:16] == b"IHDR":
                dtype = tf.uint16 if value[24] == 16 else tf.uint8
                pixels = tf.io.decode_png(value, dtype=dtype).numpy()
                values[index] = b"%r %s" % (pixels.shape, pixels.tobytes())
    return {name: feature.SerializeToString() for name, feature in fields.items()}


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:overflow encountered:RuntimeWarning")
@settings(max_examples=60, deadline=None)
@given(st.data())
def test_tensors_have_the_bytes_of_tfds(data):
    dtype = np.dtype(data.draw(st.sampled_from(INTEGERS + FLOATS)))
    shape = data.draw(npst.array_shapes(min_dims=0, max_dims=2, min_side=0, max_side=3))
    encoding = data.draw(st.sampled_from(["none", "bytes", "zlib"]))
    num_steps = data.draw(st.integers(0, 4))
    column = data.draw(npst.arrays(dtype, (num_steps, *shape)))
    feature = tf_features.Tensor(shape=shape, dtype=dtype, encoding=encoding)
    assert_same_bytes(wrap(feature), {"steps": {"x": column}})


@settings(max_examples=30, deadline=None)
@given(st.lists(st.text() | st.binary()))
def test_text_has_the_bytes_of_tfds(values):
    column = np.empty(len(values), object)
    column[:] = values
    assert_same_bytes(wrap(tf_features.Text()), {"steps": {"x": column}})


@pytest.mark.slow
@settings(max_examples=30, deadline=None)
@given(st.data())
def test_any_number_of_fields_has_the_bytes_of_tfds(data):
    """The order of the fields in a message depends on their names and their number."""
    characters = st.characters(codec="utf-8", exclude_characters="/")
    names = data.draw(st.lists(st.text(characters), unique=True))
    names = [name for name in names if name and name != "steps"]
    features = tf_features.FeaturesDict(
        {
            "steps": tf_features.Dataset({name: {name: np.int64} for name in [*names, "x"]}),
            **dict.fromkeys(names, np.float32),
        }
    )
    columns = {name: {name: np.arange(3)} for name in [*names, "x"]}
    assert_same_bytes(features, {"steps": columns, **dict.fromkeys(names, 0.5)})


@pytest.mark.parametrize("values", [[127, 128], [-1, 0], [2**62, -(2**63)], [300] * 3])
def test_long_varints_have_the_bytes_of_tfds(values):
    assert_same_bytes(wrap(np.int64), {"steps": {"x": np.array(values)}})


def test_numbers_encoded_with_loss_have_the_bytes_of_tfds():
    features = wrap(np.float64)
    column = np.array([1 / 3, 1e300, -np.inf, np.nan])
    assert_same_bytes(features, {"steps": {"x": column}})
    quiet = np.array([0x7F800001], np.uint32).view(np.float32)
    assert_same_bytes(wrap(np.float32), {"steps": {"x": quiet}})


@pytest.mark.parametrize(
    ("encoding_format", "dtype", "channels"),
    [
        ("png", np.uint8, 1),
        ("png", np.uint8, 3),
        ("png", np.uint8, 4),
        (None, np.uint8, 3),
        ("jpeg", np.uint8, 1),
        ("jpeg", np.uint8, 3),
        ("png", np.uint16, 3),
        ("png", np.float32, 1),
    ],
)
def test_images_have_the_bytes_of_tfds(encoding_format, dtype, channels):
    shape = (6, 5, channels)
    feature = tf_features.Image(shape=shape, dtype=dtype, encoding_format=encoding_format)
    for num_steps in (3, 1, 0):
        column = np.random.default_rng(1).integers(0, 255, (num_steps, *shape)).astype(dtype)
        assert_same_bytes(wrap(feature), {"steps": {"x": column}})
        for at_once in (True, False):  # Images of several sizes come as lists.
            rows = column if at_once else list(column)
            features = tf_features.FeaturesDict({"first": feature, **wrap(feature)})
            if num_steps:
                assert_same_bytes(features, {"first": column[0], "steps": {"x": rows}})


@pytest.mark.parametrize("level", [0, 1, 9, None])
def test_png_level_changes_bytes_and_no_pixels(level):
    """Uniform images become small by default."""
    features = wrap(tf_features.Image(shape=(60, 80, 3)))
    frames = np.zeros((2, 60, 80, 3), np.uint8)
    frames[1] = np.random.default_rng(0).integers(0, 8, frames[1].shape)
    example = TfdsExampleEncoder(features, png_level=level).encode({"steps": {"x": frames}})
    files = tf.train.Example.FromString(example).features.feature["steps/x"].bytes_list.value
    decoded = [tf.io.decode_png(file).numpy() for file in files]
    np.testing.assert_array_equal(decoded, frames)
    assert list(files) == [encode_png(frame, level) for frame in frames]
    small = [len(encode_png(frame, 6)) for frame in frames]
    assert (len(files[0]) == small[0]) == (level in (None, 9))
    assert (len(files[1]) <= small[1]) == (level == 9)


@pytest.mark.parametrize("level", [-1, 10, "fast"])
def test_unknown_png_levels_are_refused(level):
    with pytest.raises(ValueError, match=r"png_level: got .*, expected None or 0 to 9"):
        TfdsExampleEncoder(wrap(np.int64), png_level=level)


def test_encoded_images_have_the_bytes_of_tfds():
    feature = tf_features.Image(shape=(None, None, 3))
    encoded = feature.encode_example(np.zeros((2, 2, 3), np.uint8))
    assert_same_bytes(wrap(feature), {"steps": {"x": [encoded] * 2}})


LENGTHS = np.array([2, 0, 1])


def split_rows(values):
    return [values[:2], values[2:2], values[2:]]


@pytest.mark.parametrize(
    ("inner", "values"),
    [
        (np.int64, np.array([1, -2, 300])),
        (np.bool_, np.array([True, False, True])),
        (tf_features.Text(), np.array(["a", "ü", "日本"], object)),
        (tf_features.Tensor(shape=(2,), dtype=np.float32), np.ones((3, 2), np.float32)),
        (tf_features.Tensor(shape=(2,), dtype=np.float64, encoding="zlib"), np.ones((3, 2))),
        (tf_features.Image(shape=(2, 2, 3)), np.ones((3, 2, 2, 3), np.uint8)),
        (tf_features.ClassLabel(num_classes=3), np.array([0, 1, 2])),
    ],
)
def test_sequences_in_steps_have_the_bytes_of_tfds(inner, values):
    features = wrap(tf_features.Sequence(inner))
    steps = [{"x": row} for row in split_rows(values)]
    column = RaggedColumn(values, LENGTHS)
    assert_same_bytes(features, {"steps": {"x": column}}, {"steps": steps})
    rectangular = np.stack([values, values])
    assert_same_bytes(
        features, {"steps": {"x": rectangular}}, {"steps": [{"x": row} for row in rectangular]}
    )
    assert_same_bytes(features, {"steps": {"x": []}}, {"steps": []})


def test_sequences_of_dicts_and_of_sequences_have_the_bytes_of_tfds():
    integers = np.arange(3)
    features = wrap(tf_features.Sequence({"a": np.int64, "b": {"c": np.float32}}))
    floats = integers.astype(np.float32)
    columns = {"a": RaggedColumn(integers, LENGTHS), "b": {"c": RaggedColumn(floats, LENGTHS)}}
    rows = zip(split_rows(integers), split_rows(floats))
    steps = [{"x": {"a": a, "b": {"c": c}}} for a, c in rows]
    assert_same_bytes(features, {"steps": {"x": columns}}, {"steps": steps})
    deep = wrap(tf_features.Sequence(tf_features.Sequence(np.int64)))
    assert_same_bytes(deep, {"steps": {"x": [[[1, 2], []], [], [[3]]]}})


def test_tensors_of_varying_shape_have_the_bytes_of_tfds():
    dynamic = tf_features.Tensor(shape=(None, None), dtype=np.float64, encoding="zlib")
    rows = [np.ones((size, 2)) for size in range(3)]
    assert_same_bytes(wrap(dynamic), {"steps": {"x": rows}})
    assert_same_bytes(wrap(dynamic), {"steps": {"x": np.ones((3, 4, 2))}})
    partly = tf_features.Tensor(shape=(None, 2), dtype=np.uint8, encoding="bytes")
    assert_same_bytes(wrap(partly), {"steps": {"x": [row.astype(np.uint8) for row in rows]}})


def test_features_that_only_tfds_knows_have_the_bytes_of_tfds():
    features = tf_features.FeaturesDict(
        {
            "steps": tf_features.Dataset(
                {
                    "label": tf_features.ClassLabel(names=["no", "yes"]),
                    "box": tf_features.BBoxFeature(),
                    "maybe": tf_features.Scalar(np.int64, optional=True),
                }
            ),
            "path": tf_features.Sequence({"x": np.float32}),
        }
    )
    steps = {
        "label": ["no", "yes"],
        "box": [tf_features.BBox(0.0, 0.0, 1.0, 1.0)] * 2,
        "maybe": [3, 4],
    }
    assert_same_bytes(features, {"steps": steps, "path": {"x": [1.0, 2.0]}})


def test_values_that_do_not_match_their_feature_are_refused():
    encoder = TfdsExampleEncoder(wrap(tf_features.ClassLabel(names=["no", "yes"])))
    with pytest.raises(ValueError, match="steps/x, step 1: 'perhaps'"):
        encoder.encode({"steps": {"x": ["no", "perhaps"]}})
    with pytest.raises(ValueError, match=r"steps: got \['y'\], expected the fields \['x'\]"):
        encoder.encode({"steps": {"y": ["no"]}})
    encoder = TfdsExampleEncoder(
        tf_features.FeaturesDict({"steps": tf_features.Dataset({"x": np.int64, "y": np.int64})})
    )
    with pytest.raises(ValueError, match=r"steps: the columns differ in length: \[1, 2\]"):
        encoder.encode({"steps": {"x": np.zeros(1, int), "y": np.zeros(2, int)}})


def test_encoded_images_stay_unchanged():
    """Another encoding would reduce the quality of a JPEG."""
    noise = np.random.default_rng(0).integers(0, 256, (2, 8, 8, 3), np.uint8)
    for codec, encode in (("jpeg", tf.io.encode_jpeg), ("png", tf.io.encode_png)):
        feature = tf_features.Image(shape=(8, 8, 3), encoding_format=codec)
        files = np.array([encode(image).numpy() for image in noise], object)
        assert_same_bytes(wrap(feature), {"steps": {"x": files}})
        encoded = TfdsExampleEncoder(wrap(feature)).encode({"steps": {"x": files}})
        stored = tf.train.Example.FromString(encoded).features.feature["steps/x"]
        assert list(stored.bytes_list.value) == list(files)


def test_bytes_do_not_depend_on_the_process():
    """The processes use the encoder of `tfds_files`, which needs no TensorFlow."""
    script = """if True:
        import hashlib
        import numpy as np
        from tfds_files import Dataset, ExampleEncoder, Features, Tensor

        fields = dict.fromkeys("abcdefgh", Tensor(dtype=np.dtype(np.float32)))
        steps = Dataset(feature=Features(features=fields))
        columns = {"steps": {name: np.ones(3, np.float32) for name in fields}}
        encoded = ExampleEncoder(Features(features={"steps": steps})).encode(columns)
        print(hashlib.sha256(encoded).hexdigest())
    """
    outputs = [
        subprocess.run(
            [sys.executable, "-c", script],
            env={**os.environ, "PYTHONHASHSEED": seed},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for seed in ("1", "2")
    ]
    steps = tf_features.Dataset(dict.fromkeys("abcdefgh", np.float32))
    features = tf_features.FeaturesDict({"steps": steps})
    columns = {"steps": {name: np.ones(3, np.float32) for name in "abcdefgh"}}
    expected = hashlib.sha256(TfdsExampleEncoder(features).encode(columns)).hexdigest()
    assert outputs == [f"{expected}\n"] * 2


def test_fields_are_sorted_by_name():
    names = ["b", "a", "ab", "ä", "B", "a/b"]
    features = tf_features.FeaturesDict(dict.fromkeys(names, np.int64))
    encoded = TfdsExampleEncoder(features).encode(dict.fromkeys(names, np.int64(300)))
    offsets = [
        encoded.index(b"\x0a" + bytes([len(n.encode())]) + n.encode()) for n in sorted(names)
    ]
    assert offsets == sorted(offsets)


@pytest.mark.slow
@settings(max_examples=60, deadline=None)
@given(st.data())
def test_episode_fields_have_the_bytes_of_tfds(data):
    """Single tensors, in all dtypes, shapes and encodings."""
    dtype = np.dtype(data.draw(st.sampled_from([*INTEGERS, "float16", "float32", "float64"])))
    shape = data.draw(npst.array_shapes(min_dims=0, max_dims=2, min_side=1, max_side=3))
    encoding = data.draw(st.sampled_from(["none", "bytes", "zlib"]))
    tensor = data.draw(npst.arrays(dtype, shape))
    text = data.draw(st.text() | st.binary())
    features = tf_features.FeaturesDict(
        {
            "number": tf_features.Tensor(shape=shape, dtype=dtype, encoding=encoding),
            "text": tf_features.Text(),
            "string": tf_features.Tensor(shape=(), dtype=np.object_),
            "list": tf_features.Tensor(shape=(None,), dtype=np.int64),
            "seed": np.int64,
        }
    )
    with np.errstate(over="ignore"), warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)
        assert_same_bytes(
            features,
            {"number": tensor, "text": text, "string": text, "list": np.arange(3), "seed": 7},
        )
