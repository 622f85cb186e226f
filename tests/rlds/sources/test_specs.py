import numpy as np
import pytest
import tensorflow_datasets as tfds
from dm_env import specs

from rlds.sources import Field
from rlds.sources.specs import fields_from_spec, specs_from_columns
from rlds.tfds.features import fields_of_features, lossless
from rlds_ecosystem.model.fields import match_columns
from tfds_builders.features import feature_of

features = tfds.features


def feature_from_spec(spec, path="", **kwargs):
    fields = fields_from_spec(spec, path)
    return None if fields is None else feature_of(fields, path=path, **kwargs)


def fields_of(feature):
    return fields_of_features({"": feature})[""]


def encoding(feature):
    return feature.to_json_content().encoding


# --- From specs ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        (specs.Array((2,), np.float32), "Tensor(shape=(2,), dtype=float32)"),
        (specs.BoundedArray((), np.int8, 0, 1), "Tensor(shape=(), dtype=int8)"),
        (specs.DiscreteArray(3), "Tensor(shape=(), dtype=int32)"),
        (specs.StringArray(()), "Text(shape=(), dtype=string)"),
        (specs.StringArray((), string_type=bytes), "Tensor(shape=(), dtype=string)"),
        (specs.StringArray((2,)), "Tensor(shape=(2,), dtype=string)"),
        (specs.Array((), object), "Tensor(shape=(), dtype=string)"),
        (specs.Array((), "<U3"), "Tensor(shape=(), dtype=string)"),
        (specs.Array((4, 5, 3), np.uint8), "Image(shape=(4, 5, 3), dtype=uint8)"),
        (specs.Array((4, 5, 2), np.uint8), "Tensor(shape=(4, 5, 2), dtype=uint8)"),
        (specs.Array((4, 0, 3), np.uint8), "Tensor(shape=(4, 0, 3), dtype=uint8)"),
    ],
    ids=str,
)
def test_specs_become_features_of_their_shape_and_dtype(spec, expected):
    assert repr(feature_from_spec(spec)) == expected


def test_images_can_stay_tensors():
    feature = feature_from_spec(specs.Array((4, 5, 3), np.uint8), images_as_png=False)
    assert repr(feature) == "Tensor(shape=(4, 5, 3), dtype=uint8)"


def test_containers_become_dicts_and_empty_containers_vanish():
    spec = {"pair": (specs.Array((), np.int32), [specs.Array((), bool)]), 1: {}, "none": [{}, ()]}
    feature = feature_from_spec(spec)
    assert repr(feature["pair"]["0"]) == "Tensor(shape=(), dtype=int32)"
    assert repr(feature["pair"]["1"]["0"]) == "Tensor(shape=(), dtype=bool)"
    assert list(feature) == ["pair"]
    assert feature_from_spec(({}, [])) is None


def test_keys_that_become_equal_are_refused():
    leaf = specs.Array((), bool)
    with pytest.raises(
        ValueError, match=r"observation: some keys are equal as strings: \['0', 0\]"
    ):
        feature_from_spec({"0": leaf, 0: leaf}, path="observation")


@pytest.mark.parametrize(
    ("shape", "dtype", "words"),
    [
        ((), "datetime64[s]", r"dtype datetime64\[s\] and shape \(\)"),
        ((0, 2), object, r"dtype string and shape \(0, 2\)"),
        ((0,), np.uint32, r"dtype uint32 and shape \(0,\)"),
    ],
)
def test_arrays_that_tfds_cannot_hold_are_refused(shape, dtype, words):
    spec = {"x": [specs.Array(shape, dtype)]}
    with pytest.raises(ValueError, match=rf"observation/x/0: TFDS cannot hold arrays of {words}"):
        feature_from_spec(spec, path="observation")


def test_specs_of_columns_describe_a_row():
    columns = {
        "x": [np.zeros((5, 2), np.int8), np.full((5, 2), "a", object)],
        "b": np.array([b"a"] * 5, object),
        "none": np.array([None] * 5, object),
    }
    assert specs_from_columns(columns) == {
        "x": (specs.Array((2,), np.int8), specs.StringArray((2,))),
        "b": specs.StringArray((), string_type=bytes),
        "none": {},
    }


# --- Features given by users ---------------------------------------------------------------------


def test_narrowing_tensors_are_stored_as_bytes():
    original = features.FeaturesDict(
        {
            "scalar": np.float64,
            "nested": {"matrix": features.Tensor(shape=(None, 2), dtype=np.float64, doc="m")},
            "empty": features.Tensor(shape=(0,), dtype=np.float32),
            "kept": features.Tensor(shape=(2,), dtype=np.float64, encoding="zlib"),
            "small": np.float32,
            "words": features.Sequence({"word": features.Text()}, doc="all of them"),
            "exact": features.Sequence({"number": np.float64}, doc="of them"),
        }
    )
    feature = lossless(original)
    assert encoding(feature["scalar"]) == encoding(feature["nested"]["matrix"]) == "bytes"
    assert encoding(feature["empty"]) == "bytes"
    assert feature["nested"]["matrix"].shape == (None, 2)
    assert feature["nested"]["matrix"].doc.desc == "m"
    assert feature["kept"] is original["kept"]
    assert feature["small"] is original["small"]
    assert feature["words"] is original["words"]
    assert feature["exact"].doc.desc == "of them"


@pytest.mark.parametrize("has_dicts", [False, True])
def test_sequences_keep_all_bits(has_dicts):
    floats = np.array([1 / 3, 2 / 3, np.pi])
    original = features.Sequence({"y": np.float64} if has_dicts else np.float64)
    value = {"y": floats} if has_dicts else floats
    feature = lossless(features.FeaturesDict({"x": original}), "config")
    info = feature.get_serialized_info()
    example = tfds.core.example_serializer.ExampleSerializer(info).serialize_example(
        feature.encode_example({"x": value})
    )
    parsed = tfds.core.example_parser.ExampleParser(info).parse_example(example)
    stored = feature.decode_example(parsed)["x"]
    stored = stored["y"] if has_dicts else stored
    assert stored.numpy().tobytes() == floats.tobytes()


@pytest.mark.parametrize(
    "feature", [features.Dataset({"y": np.float64}), features.Audio(dtype=np.float64)]
)
def test_other_narrowing_features_are_refused(feature):
    with pytest.raises(ValueError, match=r"(?s)config/x: .* not store .* without loss"):
        lossless(features.FeaturesDict({"x": feature}), "config")


# --- The check -----------------------------------------------------------------------------------

FEATURE = features.FeaturesDict(
    {
        "x": features.Tensor(shape=(2,), dtype=np.float32),
        "in": {
            "s": features.Text(),
            "e": features.Tensor(shape=(0,), dtype=np.bool_, encoding="bytes"),
        },
    }
)


def columns(**changes):
    strings, empty = np.array(["a", "b"], object), np.zeros((2, 0), bool)
    return {"x": np.zeros((2, 2), np.float32), "in": {"s": strings, "e": empty}, **changes}


def match(columns, feature=FEATURE):
    return match_columns(columns, fields_of(feature), rows=2, where="log, episode 3")


def test_matching_columns_are_returned():
    matched = match(columns())
    assert matched["x"].tolist() == [[0, 0], [0, 0]]
    assert matched["in"]["s"].tolist() == ["a", "b"]


@pytest.mark.parametrize(
    ("recorded", "dtype", "fits"),
    [
        ([1, 2], np.int32, True),
        ([0, 255], np.uint8, True),
        ([0, 256], np.uint8, False),
        ([-1, 0], np.uint64, False),
        ([0.5, np.nan], np.float32, True),
        ([-np.inf, -0.0], np.float16, True),
        ([0.1, 0.0], np.float32, False),
        ([1e300, 0.0], np.float32, False),
        ([1.0, 0.0], np.int64, False),
        ([1, 0], np.float64, False),
        ([True, False], np.int64, False),
    ],
)
def test_numbers_of_another_width_fit_if_they_keep_their_value(recorded, dtype, fits):
    columns, feature = np.array(recorded), tfds.features.Tensor(shape=(), dtype=dtype)
    if fits:
        column = match_columns(columns, fields_of(feature), rows=2, where="log")
        assert column.dtype == dtype
        np.testing.assert_array_equal(column, columns)
    else:
        with pytest.raises(ValueError, match="expected"):
            match_columns(columns, fields_of(feature), rows=2, where="log", path="x")


def test_sequences_match_dicts_of_their_indices():
    feature = features.FeaturesDict({"0": np.int64, "1": {"0": np.bool_}})
    integers, flags = np.array([1, 2]), np.array([True, False])
    assert match((integers, [flags]), feature) == {"0": integers, "1": {"0": flags}}


def test_none_stands_for_empty_arrays_and_missing_fields():
    nothing = np.array([None, None], object)
    matched = match(columns(**{"in": {"s": np.array(["a", "b"], object), "e": nothing}}, y=nothing))
    assert matched["in"]["e"].shape == (2, 0)
    assert matched["in"]["e"].dtype == bool
    assert "y" not in matched


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"x": np.full((2, 2), 0.1)}, r"x: got float64 of shape \(2,\), expected float32 of shape"),
        ({"x": np.zeros((2, 3), "f")}, r"x: got float32 of shape \(3,\), expected .* \(2,\)"),
        ({"x": np.zeros(2, "f")}, r"x: got float32 of shape \(\), expected .* \(2,\)"),
        ({"x": None}, r"x: got nothing, expected float32 of shape \(2,\)"),
        ({"x": {"y": np.zeros(2)}}, r"x: got the fields \['y'\], expected float32"),
        ({"y": np.zeros(2)}, r"y: got a field, expected only the fields \['x', 'in'\]"),
        ({"in": {}}, r"in/s: got nothing, expected string of shape \(\)"),
        ({"in": {"s": np.zeros(2)}}, r"in/s: got float64 of shape \(\), expected string"),
        ({"in": np.array(["a", "b"], object)}, r"in: got str of shape .*, expected the fields"),
    ],
)
def test_columns_that_do_not_match_are_refused(changes, words):
    with pytest.raises(ValueError, match=f"^log, episode 3, {words}"):
        match({**columns(), **changes})


def test_unknown_dimensions_fit_any_size():
    feature = features.FeaturesDict({"x": features.Tensor(shape=(None, 2), dtype=np.int64)})
    assert match({"x": np.zeros((2, 7, 2), np.int64)}, feature)["x"].shape == (2, 7, 2)
    with pytest.raises(ValueError, match=r"x: got int64 of shape \(7, 3\), .* \(None, 2\)"):
        match({"x": np.zeros((2, 7, 3), np.int64)}, feature)


def test_empty_arrays_of_texts_are_not_missing():
    fields = {"masks": Field(str, (None,)), "name": Field(str)}
    columns = {"masks": np.empty((1, 0), object), "name": np.array(["a"], object)}
    assert match_columns(columns, fields, rows=1, where="")["masks"].shape == (1, 0)
    empty = {"masks": np.empty((0, 2), object), "name": np.empty(0, object)}
    assert match_columns(empty, fields, rows=0, where="")["name"].shape == (0,)
    with pytest.raises(ValueError, match="name: got nothing"):
        match_columns({**columns, "name": np.array([None])}, fields, rows=1, where="")
