import json

import numpy as np
import pytest
import tensorflow_datasets as tfds

from tfds_files import DamagedFileError, UnsupportedFileError, parse_features, read_features
from tfds_files.features import Dataset, Features, Image, Sequence, Tensor, leaves_of

# What TFDS 4.0 to 4.4 wrote: the arguments of the classes.
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


def test_files_of_old_versions():
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


def test_what_tfds_reads_of_old_versions_is_the_same():
    by_tfds = tfds.features.FeatureConnector.from_json(json.loads(json.dumps(OLD)))
    assert [
        (leaf.feature.shape, leaf.feature.dtype) for leaf in leaves_of(parse_features(OLD))
    ] == [
        (leaf.feature.shape, leaf.feature.dtype)
        for leaf in leaves_of(parse_features(by_tfds.to_json()))
    ]


def test_features_of_features_are_what_they_are_made_of():
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


def tensor(**content):
    return {"featuresDict": {"features": {"x": {"tensor": {"dtype": "int64", **content}}}}}


@pytest.mark.parametrize(
    ("tree", "error", "words"),
    [
        ([], DamagedFileError, "the top: got list, expected a dict"),
        ({"tensor": {"dtype": "int64"}}, UnsupportedFileError, "the examples are no dicts"),
        (tensor(dtype="int65"), DamagedFileError, "x: 'int65' is no dtype"),
        (tensor(dtype="U3"), DamagedFileError, "x: the dtype 'U3'"),
        (tensor(shape={"dimensions": ["many"]}), DamagedFileError, "x: got 'many', expected a"),
        (tensor(encoding="gzip"), UnsupportedFileError, "x: the encoding 'gzip'"),
        (tensor(minimum="low"), DamagedFileError, "x: got 'low', expected a number"),
        (
            {"featuresDict": {"features": {"x": {"pythonClassName": "my.Feature", "json": {}}}}},
            UnsupportedFileError,
            "x: a feature of the class my.Feature",
        ),
        ({"type": "my.Feature", "content": {}}, UnsupportedFileError, "of the class my.Feature"),
        (
            {"featuresDict": {"features": {"x": {"audio": {"lazyDecode": True}}}}},
            UnsupportedFileError,
            "x: sound that is stored as a file",
        ),
    ],
)
def test_files_that_cannot_be_read(tmp_path, tree, error, words):
    (tmp_path / "features.json").write_text(json.dumps(tree))
    with pytest.raises(error, match=rf"features\.json: .*{words}"):
        read_features(tmp_path)


def test_hostile_files(tmp_path):
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
