"""Features generated from data can hold the data."""

import numpy as np
import pytest
import tensorflow as tf
from dm_env import specs
from tensorflow_datasets import features as tf_features

import rlds.tfds
from rlds.tfds import extract_feature_from_data, generate_config_from_spec

ENCODING = tf_features.Encoding


def extract(data, **options):
    options = {"use_images": True, "image_encoding": "png", **options}
    return extract_feature_from_data(data, **options)


def get_encoding(feature):
    return feature.to_json_content().encoding


@pytest.mark.parametrize(
    ("name", "channels"), [("IMAGE", 1), ("rgb", 3), ("wrist_img", 4), ("pixels", 3)]
)
def test_uint8_images_become_png_features(name, channels):
    feature = extract({name: np.zeros((8, 6, channels), np.uint8)})[name]
    assert type(feature) is tf_features.Image
    assert feature.shape == (8, 6, channels)
    assert feature.encoding_format == "png"


@pytest.mark.parametrize(
    ("data", "is_image"),
    [
        (np.zeros((8, 6, 3), np.uint8), True),
        (tf.TensorSpec((None, None, 3), tf.uint8), True),
        (specs.BoundedArray((8, 6, 3), np.uint8, 0, 255), True),
        (np.zeros((8, 6, 3), np.uint16), True),
        (np.zeros((8, 6, 1), np.float32), True),
        (np.zeros((8, 6, 3), np.float32), False),
        (np.zeros((8, 6, 2), np.uint8), False),
        (np.zeros((8, 6), np.uint8), False),
        (np.zeros((2, 8, 6, 3), np.uint8), False),
        (np.zeros((0, 6, 3), np.uint8), False),
        (np.uint8(1), False),
        (tf.constant(b"an encoded image"), True),
        (b"an encoded image", True),
        ("the name of a file", False),
    ],
)
def test_images_are_recognized_by_shape_and_dtype(data, is_image):
    assert (type(extract({"image": data})["image"]) is tf_features.Image) == is_image
    assert type(extract({"image": data}, use_images=False)["image"]) is not tf_features.Image


def test_names_of_parent_fields_identify_images():
    frame = np.zeros((8, 6, 3), np.uint8)
    nested = extract({"images": {"front": frame}, "other": {"front": frame}})
    assert type(nested["images"]["front"]) is tf_features.Image
    assert type(nested["other"]["front"]) is tf_features.Tensor
    assert type(extract(frame, field_name="observation")) is tf_features.Image
    assert type(extract({"front": frame}, field_name="observation")["front"]) is tf_features.Tensor
    # Strings need a matching name of their own, because captions may be next to images.
    assert type(extract({"images": {"caption": b"a"}})["images"]["caption"]) is tf_features.Text


@pytest.mark.parametrize(
    ("shape", "dtype", "encoding"),
    [((4, 4, 3), np.uint8, "jpeg"), ((4, 4, 4), np.uint8, "png"), ((4, 4, 1), np.float32, "png")],
)
def test_images_that_jpeg_cannot_hold_become_png(shape, dtype, encoding):
    feature = extract({"rgb": np.zeros(shape, dtype)}, image_encoding="jpeg")["rgb"]
    assert feature.encoding_format == encoding


def test_an_unknown_image_encoding_is_refused():
    with pytest.raises(ValueError, match="'rgb' is an image, but image_encoding is 'jpg'"):
        extract({"rgb": np.zeros((4, 4, 3), np.uint8)}, image_encoding="jpg")
    extract({"speed": 1.0}, image_encoding=None)


def test_tensor_encoding_applies_to_nested_fields():
    data = {"a": {"b": np.zeros(3), "c": [np.zeros(3)]}}
    features = extract(data, tensor_encoding=ENCODING.BYTES)
    assert get_encoding(features["a"]["b"]) == "bytes"
    assert get_encoding(features["a"]["c"].feature) == "bytes"
    assert get_encoding(extract(data)["a"]["b"]) == "zlib"


@pytest.mark.parametrize(
    ("data", "dtype"),
    [(1.0, tf.float64), (3, tf.int64), (True, tf.bool), (np.float32(1), tf.float32)],
)
def test_scalars_keep_their_dtype(data, dtype):
    assert extract(data) == dtype
    assert extract({"x": [data]})["x"].feature.np_dtype == dtype.as_numpy_dtype


@pytest.mark.parametrize("data", ["s", b"x", tf.constant("s"), tf.TensorSpec((), tf.string)])
def test_strings_become_text_features(data):
    assert type(extract(data)) is tf_features.Text


@pytest.mark.parametrize(
    "data", [np.array(["a", "b"]), np.array(["a", b"b"], object), tf.constant(["a", "b"])]
)
def test_arrays_of_strings_become_tensor_features(data):
    feature = extract(data)
    assert type(feature) is tf_features.Tensor
    assert (feature.shape, feature.np_dtype) == ((2,), np.object_)


def test_arrays_of_one_element_become_scalars_by_default():
    assert extract(np.zeros(1, np.float32)) == tf.float32
    assert extract(np.zeros(1, np.float32), squeeze_scalars=False).shape == (1,)


def test_lists_become_sequences_and_tuples_are_refused():
    assert extract([np.int32(1), np.int32(2)]).feature.np_dtype == np.int32
    assert extract((1.0, 2.0), convert_tuple_to_list=True).feature.np_dtype == np.float64
    with pytest.raises(ValueError, match="'state/joints' is a tuple, which TFDS does not support"):
        extract({"state": {"joints": (1.0, 2.0)}})
    with pytest.raises(ValueError, match=r"'x' is a list whose elements differ.*element 1 is"):
        extract({"x": [1.0, 2]})
    with pytest.raises(ValueError, match="differ"):
        extract([np.zeros(2), np.zeros(3)])
    with pytest.raises(ValueError, match="'x' is an empty list"):
        extract({"x": []})


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (None, "'a/b' is None, which TFDS does not support; omit the field"),
        (object(), "'a/b' is a object; expected a number"),
        (np.array([None, 1]), "'a/b': TFDS cannot hold object"),
        (np.zeros(2, "M8[s]"), r"'a/b': TFDS cannot hold datetime64\[s\]"),
        (2**70, "'a/b': TFDS cannot hold object"),
        (tf.TensorSpec(None), "'a/b' has an unknown number of axes"),
        (np.zeros((0, 2), object), r"TFDS cannot hold arrays of string of shape \(0, 2\)"),
    ],
)
def test_values_that_tfds_cannot_hold_are_refused(data, message):
    with pytest.raises(ValueError, match=message):
        extract({"a": {"b": data}})


DTYPES = ["bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"]
DTYPES += ["float16", "float32", "float64", "bfloat16", "complex64", "complex128"]


def test_every_dtype_survives_a_round_trip(tmp_path):
    """As scalars and arrays, in every encoding, from data and from the spec of loaded data."""
    steps = {}
    for dtype in map(tf.as_dtype, DTYPES):
        values = np.array([0, 1, 0, 1]).astype(dtype.as_numpy_dtype)
        if dtype.is_floating or dtype.is_complex:
            values = (values + 1 / 3).astype(dtype.as_numpy_dtype)
        steps[f"{dtype.name}_scalar"] = values[:2]
        steps[f"{dtype.name}_array"] = values.reshape(2, 2)
    flags = {name: np.array([True, False]) for name in ("is_first", "is_last", "is_terminal")}
    episode = {"steps": {"observation": steps, **flags}}
    for encoding in ENCODING:
        config = generate_config_from_spec(episode, tensor_encoding=encoding)
        directory = tmp_path / encoding.value
        with rlds.tfds.EpisodeWriter(directory, config, float64="bytes") as writer:
            writer.add_episode(episode)
        dataset = rlds.tfds.load(directory)
        loaded = next(iter(dataset))["steps"]["observation"]
        for name, column in steps.items():
            assert loaded[name].dtype == tf.as_dtype(column.dtype)
            np.testing.assert_array_equal(loaded[name], column)
        regenerated = generate_config_from_spec(dataset.element_spec, tensor_encoding=encoding)
        assert repr(regenerated.observation_info) == repr(config.observation_info)


STEP = {
    "observation": {"image": np.zeros((4, 4, 3), np.uint8), "state": np.zeros(2, np.float32)},
    "action": np.zeros(1, np.float32),
    "reward": np.float32(0),
    "is_first": True,
    "is_last": False,
    "is_terminal": False,
    "language_instruction": "pick it up",
}


def columns(step):
    return tf.nest.map_structure(lambda leaf: np.stack([leaf, leaf]), step)


@pytest.mark.parametrize(
    "steps",
    [
        [STEP],
        columns(STEP),
        tf.data.Dataset.from_tensors(STEP),
        tf.data.Dataset.from_tensors(STEP).element_spec,
        tf.data.DatasetSpec(tf.data.Dataset.from_tensors(STEP).element_spec),
        tf.data.Dataset.from_tensors(columns(STEP)).element_spec,
    ],
    ids=["list", "columns", "dataset", "step spec", "dataset spec", "batched spec"],
)
def test_configs_are_generated_from_any_layout(steps, request):
    if "step spec" in request.node.callspec.id:
        steps = tf.data.DatasetSpec(steps)
    config = generate_config_from_spec({"steps": steps, "file": "a.h5"}, name="robot")
    assert config.name == "robot"
    assert type(config.observation_info["image"]) is tf_features.Image
    assert config.observation_info["state"].shape == (2,)
    assert config.action_info.shape == (1,)  # Kept, so that the same data can be written.
    assert config.reward_info == tf.float32
    assert config.discount_info is None
    assert list(config.step_metadata_info) == ["language_instruction"]
    assert list(config.episode_metadata_info) == ["file"]


def test_configs_follow_options_for_tuples_scalars_and_encodings():
    step = {"observation": (1.0, 2.0), "action": np.zeros(1), "reward": np.zeros(3)}
    with pytest.raises(ValueError, match="'observation' is a tuple"):
        generate_config_from_spec({"steps": [step]})
    config = generate_config_from_spec(
        {"steps": [step]},
        convert_tuple_to_list=True,
        squeeze_scalars=True,
        tensor_encoding=ENCODING.NONE,
    )
    assert type(config.observation_info) is tf_features.Sequence
    assert config.action_info == tf.float64
    assert get_encoding(config.reward_info) == "none"


def test_specs_without_steps_are_rejected():
    with pytest.raises(KeyError, match=r"no field 'steps', it has \['observation'\]"):
        generate_config_from_spec({"observation": 1})
    with pytest.raises(ValueError, match="a list that is not empty; got"):
        generate_config_from_spec({"steps": []})
