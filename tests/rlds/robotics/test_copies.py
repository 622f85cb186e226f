"""Copies of robot datasets keep the stored bytes."""

import pytest
import raw_oxe

import rlds.sources
import tfds_files
from tfds_builders.builder import convert

FolderSource = rlds.sources.formats()["tfds"].load()

WRITERS = (
    *(raw_oxe.bridge_dataset, raw_oxe.fractal, raw_oxe.kuka, raw_oxe.roboturk),
    *(raw_oxe.droid, raw_oxe.mt_opt),
)


def read_examples(directory):
    split = tfds_files.open_folder(directory)["train"]
    return [split.example_bytes(index) for index in range(len(split))]


@pytest.mark.slow
@pytest.mark.parametrize("write", WRITERS, ids=lambda write: write.__name__)
def test_a_copy_has_the_same_bytes(write, tmp_path):
    original = write(tmp_path / "original")
    copy = convert(
        FolderSource(original), name="copied", data_dir=tmp_path / "copies", shuffle=False
    )
    assert read_examples(copy.data_path) == read_examples(original)
    assert len(read_examples(original)) == len(raw_oxe.EPISODES)
    features = [tfds_files.open_folder(path).features for path in (original, copy.data_path)]
    assert features[0] == features[1]


def test_fields_of_registered_datasets_have_names(tmp_path):
    source = FolderSource(raw_oxe.bridge_dataset(tmp_path / "bridge"))
    fields = source.fields.steps
    names = ("x", "y", "z", "roll", "pitch", "yaw", "gripper")
    assert fields["action"].names == fields["observation"]["state"].names == names
    assert fields["action"].unit is None  # The elements differ in their units.
    source = FolderSource(raw_oxe.fractal(tmp_path / "fractal"))
    action = source.fields.steps["action"]
    assert (action["world_vector"].names, action["world_vector"].unit) == (("x", "y", "z"), "m")
    other = FolderSource(raw_oxe.bridge_dataset(tmp_path / "other", "other"))
    assert other.fields.steps["action"].names is None
