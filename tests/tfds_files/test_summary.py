"""The summary of a folder, computed without NumPy, agrees with the opened dataset."""

from pathlib import Path

import pytest

import tfds_files
from tfds_files import Image
from tfds_files.features import leaves_of

GOLDEN = Path(__file__).parents[1] / "golden"
FOLDERS = sorted(path.parent for path in GOLDEN.rglob("dataset_info.json"))


@pytest.mark.parametrize("folder", FOLDERS, ids=lambda path: "/".join(path.parts[-2:]))
def test_the_summary_agrees_with_the_features(folder):
    dataset, summary = tfds_files.open_folder(folder), tfds_files.summarize(folder)
    assert (summary.name, summary.version) == (dataset.name, dataset.version)
    assert summary.file_format == dataset.file_format
    assert {s.name: sum(s.shard_lengths) for s in summary.splits} == {
        name: len(split) for name, split in dataset.items()
    }
    actual = {"/".join(field.path): field for field in summary.fields}
    leaves = {leaf.name: leaf for leaf in leaves_of(dataset.features)}
    # Composite features of TFDS have one line with their kind.
    composites = {name for name, field in actual.items() if name not in leaves}
    assert {actual[name].kind for name in composites} <= {"translation"}
    members = {name for name in leaves if any(name.startswith(f"{other}/") for other in composites)}
    assert actual.keys() - composites == leaves.keys() - members
    for name in actual.keys() - composites:
        leaf = leaves[name]
        dtype = "string" if leaf.feature.dtype.kind == "O" else leaf.feature.dtype.name
        assert actual[name].dtype == dtype, name
        # A sequence has its own axis, except for the steps of an episode.
        assert actual[name].shape[-len(leaf.feature.shape) or len(actual[name].shape) :] == tuple(
            leaf.feature.shape
        ), name
        if isinstance(leaf.feature, Image):
            assert actual[name].encoding
