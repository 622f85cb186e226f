"""Recordings become TFDS datasets, and come back from them."""

import conversions
import pytest
import raw_bags

import rlds.sources
import tfds_builders
from rlds.formats.bags.source import McapSource
from rlds.sources.exporting import export

pytestmark = pytest.mark.slow


def test_conversion(tmp_path):
    for number in range(3):
        rows = raw_bags.sample(5 + number, seed=number)
        window = raw_bags.FORCE
        rows += raw_bags.forces(rows)
        raw_bags.write_mcap(tmp_path / f"{number}.mcap", rows)
    config = {**raw_bags.CONFIG, "fields": [*raw_bags.CONFIG["fields"], window]}
    made = conversions.check_conversion(
        lambda: McapSource(tmp_path, bag_config=config, messages="keep"),
        tmp_path / "made",
    )
    # From the dataset, too, the recordings come back.
    dataset = rlds.sources.open(made.data_path)
    export(dataset, "mcap", tmp_path / "again")
    again = rlds.sources.open(tmp_path / "again", bag_config=config)
    first = rlds.sources.open(tmp_path, bag_config=config)
    assert [episode.key for episode in again] == [episode.key for episode in first]


def test_builders(tmp_path):
    raw_bags.write_ros1(tmp_path / "a.bag", raw_bags.sample(ros1=True))
    builder = tfds_builders.RldsRosbag(
        path=tmp_path / "a.bag", bag_config=raw_bags.CONFIG, data_dir=tmp_path / "made"
    )
    builder.download_and_prepare()
    assert builder.info.splits["train"].num_examples == 1
    raw_bags.write_mcap(tmp_path / "a.mcap", raw_bags.sample())
    builder = tfds_builders.RldsMcap(path=tmp_path / "a.mcap", data_dir=tmp_path / "made")
    builder.download_and_prepare()
    (episode,) = builder.as_dataset(split="train")
    assert len(episode["steps"]) == 6
