"""Datasets of TFDS 4.9.10 are read with the values of TFDS, in every file format."""

import importlib.util
import json
from pathlib import Path

import pytest

import tfds_files

HERE = Path(__file__).parent
FORMATS = ["array_record", "parquet", "tfrecord"]

spec = importlib.util.spec_from_file_location("golden_tfds_values", HERE / "tfds_values.py")
values = importlib.util.module_from_spec(spec)
spec.loader.exec_module(values)


def row(columns, index):
    if isinstance(columns, dict):
        return {name: row(column, index) for name, column in columns.items()}
    return as_lists(columns[index])


def as_lists(value):
    return list(map(as_lists, value)) if isinstance(value, tfds_files.RaggedColumn) else value


def lengths(columns):
    if not isinstance(columns, dict):
        return {len(columns)}
    return set().union(*map(lengths, columns.values()))


def as_read_by_tfds(example):
    [num_steps] = lengths(example["steps"])
    return {**example, "steps": [row(example["steps"], i) for i in range(num_steps)]}


@pytest.mark.parametrize("file_format", FORMATS)
def test_values_equal_those_of_tfds(file_format):
    expected = json.loads((HERE / "tfds_4_9_10" / "expected.json").read_text())
    dataset = tfds_files.open_folder(HERE / "tfds_4_9_10" / file_format)
    assert list(dataset) == ["train", "test"]
    for name, split in dataset.items():
        assert len(split) == len(expected[name])
        # Negative indices must work, too.
        examples = [as_read_by_tfds(split[i - len(split)]) for i in range(len(split))]
        assert [values.describe(example) for example in examples] == expected[name]


def test_metadata_of_the_dataset_is_read():
    dataset = tfds_files.open_folder(HERE / "tfds_4_9_10" / "tfrecord")
    assert (dataset.name, dataset.version, dataset.file_format) == ("golden", "1.2.3", "tfrecord")
    assert dataset.metadata == {"author": "M\u00fcller", "n": [1]}
    assert repr(dataset) == "DatasetFolder('golden', 1.2.3, train: 3, test: 2)"
    documented = dataset.features["documented"]
    assert (documented.doc, documented.minimum, documented.maximum) == ("In metres.", 0, 9)
    assert dataset.features["label"].num_classes == 2
    assert dataset.features["sound"].sample_rate == 8000


def test_some_fields_have_the_values_of_a_full_read():
    split = tfds_files.open_folder(HERE / "tfds_4_9_10" / "tfrecord")["train"]
    fields = ["steps/observation", "steps/reward", "int64"]
    for index in range(len(split)):
        everything, some = split[index], split.example(index, fields=fields)
        assert set(some) == {"steps", "int64"}
        assert set(some["steps"]) == {"observation", "reward"}
        assert set(some["steps"]["observation"]) == set(everything["steps"]["observation"])
        expected = {**some, "steps": {n: everything["steps"][n] for n in some["steps"]}}
        assert values.describe(as_read_by_tfds({**expected, "int64": everything["int64"]})) == (
            values.describe(as_read_by_tfds(some))
        )
    with pytest.raises(KeyError, match="no field 'steps/rewards'; there are bool, complex"):
        split.example(0, fields=["steps/rewards"])
