import dataclasses
import json
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_datasets as tfds
from google.protobuf import json_format
from hypothesis import given
from hypothesis import strategies as st

from tfds_files import (
    DamagedFileError,
    Dataset,
    Feature,
    Features,
    Image,
    Sequence,
    Tensor,
    UnsupportedFileError,
    parse_features,
    read_features,
)
from tfds_files.features import leaves_of

GOLDEN = Path(__file__).parents[1] / "golden" / "tfds_4_9_10"

# Features of TFDS 4.0 to 4.4, which wrote the arguments of the classes.
OLD = {
    "type": "tensorflow_datasets.core.features.features_dict.FeaturesDict",
    "content": {
        "steps": {
            "type": "tensorflow_datasets.core.features.dataset_feature.Dataset",
            "content": {
                "feature": {
                    "type": "tensorflow_datasets.core.features.features_dict.FeaturesDict",
                    "content": {
                        "image": {
                            "type": "tensorflow_datasets.core.features.image_feature.Image",
                            "content": {
                                "shape": [None, None, 3],
                                "dtype": "uint8",
                                "encoding_format": "jpeg",
                            },
                        },
                        "action": {
                            "type": "tensorflow_datasets.core.features.tensor_feature.Tensor",
                            "content": {"shape": [7], "dtype": "float32", "encoding": "none"},
                        },
                    },
                },
                "length": None,
            },
        },
        "text": {"type": "tensorflow_datasets.core.features.text_feature.Text", "content": {}},
        "label": {
            "type": "tensorflow_datasets.core.features.class_label_feature.ClassLabel",
            "content": {"num_classes": 3},
        },
    },
}


def test_feature_files_of_old_versions_are_read():
    features = parse_features(OLD)
    assert isinstance(features["steps"], Dataset)
    assert [leaf.name for leaf in leaves_of(features)] == [
        *("label", "steps/action", "steps/image", "text")
    ]
    label, action, image, text = (leaf.feature for leaf in leaves_of(features))
    assert isinstance(image, Image)
    assert (image.shape, image.encoding_format) == ((None, None, 3), "jpeg")
    assert (action.shape, action.dtype) == ((7,), np.float32)
    assert text.is_text
    assert label.num_classes == 3


def test_old_feature_files_are_read_as_tfds_reads_them():
    by_tfds = tfds.features.FeatureConnector.from_json(json.loads(json.dumps(OLD)))
    assert [
        (leaf.feature.shape, leaf.feature.dtype) for leaf in leaves_of(parse_features(OLD))
    ] == [
        (leaf.feature.shape, leaf.feature.dtype)
        for leaf in leaves_of(parse_features(by_tfds.to_json()))
    ]


def test_composite_features_are_read_as_their_components():
    f = tfds.features
    features = parse_features(
        f.FeaturesDict(
            {
                "video": f.Video(shape=(5, 4, 3, 3)),
                "translation": f.Translation(["de", "en"]),
                "translations": f.TranslationVariableLanguages(["de", "en"]),
                "lengths": f.Dataset({"triples": f.Sequence({"x": np.int64}, length=3)}),
            }
        ).to_json()
    )
    assert isinstance(features["video"], Sequence)
    assert {leaf.name: leaf.lengths for leaf in leaves_of(features)} == {
        "video": (5,),
        "translation/de": (),
        "translation/en": (),
        "translations/language": (None,),
        "translations/translation": (None,),
        "lengths/triples/x": (None, 3),
    }
    assert features["video"].feature.shape == (4, 3, 3)
    assert features["video"].class_name.endswith(".Video")


def dump_json(tree):
    return json.dumps(tree, indent=4, sort_keys=True)


def to_tfds_json(features):
    return json_format.MessageToDict(features.to_proto())


def test_features_are_written_as_tfds_writes_them():
    for path in GOLDEN.glob("*/features.json"):
        assert dump_json(read_features(path.parent).to_json()) == path.read_text()
    f = tfds.features
    features = f.FeaturesDict(
        {
            "empty": f.FeaturesDict({}),
            "none": f.Sequence(np.int64, length=0),
            "range": f.Tensor(
                shape=(), dtype=np.int64, doc=f.Documentation(desc="d", value_range="0 to 9")
            ),
            "bfloat16": f.Tensor(shape=(2,), dtype=tf.bfloat16, encoding="bytes"),
            "sound": f.Audio(encoding="zlib", shape=(None, 2)),
            "film": f.Video(shape=(5, 4, 4, 3), encoding_format="jpeg", ffmpeg_extra_args="-y"),
            "map": f.LabeledImage(labels=3, shape=(None, None, 1)),
            "box": f.BBoxFeature(),
            "kind": f.ClassLabel(),
        }
    )
    assert parse_features(features.to_json()).to_json() == to_tfds_json(features)
    assert parse_features(to_tfds_json(features)).to_json() == to_tfds_json(features)
    # Features of old versions are written as newer versions write them.
    assert parse_features(OLD).to_json() == to_tfds_json(
        f.FeaturesDict.from_json(json.loads(json.dumps(OLD)))
    )


TENSORS = st.builds(
    Tensor,
    shape=st.lists(st.none() | st.integers(0, 5), max_size=3).map(tuple),
    dtype=st.sampled_from(["bool", "uint8", "int64", "float64", "complex64"]).map(np.dtype),
    encoding=st.sampled_from(["none", "bytes", "zlib"]),
    doc=st.text(),
    minimum=st.none() | st.integers(-9, 9),
    maximum=st.none() | st.integers(-9, 9),
)
FEATURES = [
    Tensor(dtype=np.dtype(object)),
    Tensor(dtype=np.dtype(object), shape=(2,)),
    Tensor(dtype=np.dtype(np.int64), num_classes=5),
    Tensor(dtype=np.dtype(np.int64), shape=(None,), sample_rate=8000),
    Tensor(dtype=np.dtype(np.int32), optional=True),
    Image(shape=(None, 4, 3), dtype=np.dtype(np.uint8), encoding_format="jpeg"),
    Image(shape=(4, 4, 1), dtype=np.dtype(np.uint16)),
    Image(
        shape=(4, 4, 1),
        dtype=np.dtype(np.uint8),
        num_classes=3,
        details={"useColormap": True},  # TFDS always sets it.
    ),
]


def dicts_of(features):
    names = st.text("abc", min_size=1)
    return st.dictionaries(names, features, max_size=3).map(
        lambda members: Features(features=members)
    )


def containers(features):
    length = st.none() | st.integers(0, 3)
    return dicts_of(features) | st.builds(Sequence, feature=features, length=length)


def without_classes(feature):
    """Returns a feature without the names of TFDS's classes."""
    changes = {"class_name": ""}
    if isinstance(feature, Features):
        changes["features"] = {name: without_classes(child) for name, child in feature.items()}
    elif isinstance(feature, Sequence):
        changes["feature"] = without_classes(feature.feature)
    return dataclasses.replace(feature, **changes)


@given(dicts_of(st.recursive(TENSORS | st.sampled_from(FEATURES), containers, max_leaves=6)))
def test_written_features_are_read_by_tfds(features):
    tree = features.to_json()
    assert without_classes(parse_features(tree)) == features
    by_tfds = tfds.features.FeaturesDict.from_json(tree)
    assert to_tfds_json(by_tfds) == tree
    for name, feature in features.items():
        if isinstance(feature, Tensor | Image):
            assert by_tfds[name].shape == feature.shape
            assert np.dtype(by_tfds[name].np_dtype) == feature.dtype


def test_features_that_tfds_cannot_express_are_refused():
    with pytest.raises(ValueError, match=r"only whole numbers here, not 0\.5"):
        Tensor(dtype=np.dtype(np.float32), minimum=0.5).to_json()
    with pytest.raises(ValueError, match="TFDS has no feature for Feature"):
        Sequence(feature=Feature(class_name="Mine")).to_json()
    film = "tensorflow_datasets.core.features.video_feature.Video"
    with pytest.raises(ValueError, match="frames that are images, not Tensor"):
        Sequence(feature=FEATURES[0], class_name=film).to_json()


def tensor(**content):
    return {"featuresDict": {"features": {"x": {"tensor": {"dtype": "int64", **content}}}}}


@pytest.mark.parametrize(
    ("tree", "error", "message"),
    [
        ([], DamagedFileError, "the top: got list, expected a dict"),
        ({"tensor": {"dtype": "int64"}}, UnsupportedFileError, "the examples are not dicts"),
        (tensor(dtype="int65"), DamagedFileError, "x: 'int65' is not a dtype"),
        (tensor(dtype="U3"), DamagedFileError, "x: unsupported dtype 'U3'"),
        (tensor(shape={"dimensions": ["many"]}), DamagedFileError, "x: got 'many', expected a"),
        (tensor(encoding="gzip"), UnsupportedFileError, "x: unsupported encoding 'gzip'"),
        (tensor(minimum="low"), DamagedFileError, "x: got 'low', expected a number"),
        (
            {"featuresDict": {"features": {"x": {"pythonClassName": "my.Feature", "json": {}}}}},
            UnsupportedFileError,
            "x: unsupported feature my.Feature",
        ),
        (
            {"type": "my.Feature", "content": {}},
            UnsupportedFileError,
            "the top: unsupported feature my.Feature",
        ),
        (
            {"featuresDict": {"features": {"x": {"audio": {"lazyDecode": True}}}}},
            UnsupportedFileError,
            "x: sound stored as files",
        ),
    ],
)
def test_malformed_feature_files_are_refused(tmp_path, tree, error, message):
    (tmp_path / "features.json").write_text(json.dumps(tree))
    with pytest.raises(error, match=rf"features\.json: .*{message}"):
        read_features(tmp_path)


def test_hostile_files_are_refused(tmp_path):
    deep = '{"featuresDict": {"features": {"x": ' * 30_000
    nested = {"tensor": {"dtype": "int64"}}
    for _ in range(60):
        nested = {"featuresDict": {"features": {"x": nested}}}
    for content in ("", "{", deep, json.dumps(nested)):
        (tmp_path / "features.json").write_text(content)
        with pytest.raises(DamagedFileError, match=r"features\.json"):
            read_features(tmp_path)
    with pytest.raises(FileNotFoundError):
        read_features(tmp_path / "nowhere")


def test_features_are_a_dict():
    features = parse_features(tensor())
    assert isinstance(features, Features)
    assert dict(features) == {"x": Tensor(dtype=np.dtype(np.int64))}
    assert len(features) == 1
