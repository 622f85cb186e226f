"""The summary of a folder, made without NumPy, equals the result of reading all of it."""

from pathlib import Path

import pytest

import tfds_files
from tfds_files import Image
from tfds_files.features import leaves_of

GOLDEN = Path(__file__).parents[1] / "golden"
FOLDERS = sorted(path.parent for path in GOLDEN.rglob("dataset_info.json"))


@pytest.mark.parametrize("folder", FOLDERS, ids=lambda path: "/".join(path.parts[-2:]))
def test_the_summary_agrees_with_the_features(folder):
    whole, summary = tfds_files.open_folder(folder), tfds_files.summarize(folder)
    assert (summary.name, summary.version) == (whole.name, whole.version)
    assert summary.file_format == whole.file_format
    assert {s.name: sum(s.shard_lengths) for s in summary.splits} == {
        name: len(split) for name, split in whole.items()
    }
    found = {"/".join(field.path): field for field in summary.fields}
    leaves = {leaf.name: leaf for leaf in leaves_of(whole.features)}
    # What TFDS makes of several features has one line, which says what it is.
    made = {name for name, field in found.items() if name not in leaves}
    assert {found[name].kind for name in made} <= {"translation"}
    of_made = {name for name in leaves if any(name.startswith(f"{other}/") for other in made)}
    assert found.keys() - made == leaves.keys() - of_made
    for name in found.keys() - made:
        leaf = leaves[name]
        dtype = "string" if leaf.feature.dtype.kind == "O" else leaf.feature.dtype.name
        assert found[name].dtype == dtype, name
        # A sequence has its own axis, but for the steps of an episode.
        assert found[name].shape[-len(leaf.feature.shape) or len(found[name].shape) :] == tuple(
            leaf.feature.shape
        ), name
        if isinstance(leaf.feature, Image):
            assert found[name].encoding
