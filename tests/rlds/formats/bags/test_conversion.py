"""Recordings become TFDS datasets."""

import conversions
import pytest
import raw_bags

import tfds_builders
from rlds.formats.bags.source import McapSource

pytestmark = pytest.mark.slow


def test_conversion(tmp_path):
    for number in range(3):
        raw_bags.write_mcap(tmp_path / f"{number}.mcap", raw_bags.sample(5 + number, seed=number))
    conversions.check_conversion(
        lambda: McapSource(tmp_path, bag_config=raw_bags.CONFIG), tmp_path / "made"
    )


def test_builders(tmp_path):
    raw_bags.write_ros1(tmp_path / "a.bag", raw_bags.sample(ros1=True))
    builder = tfds_builders.RldsRosbag(
        path=tmp_path / "a.bag", bag_config=raw_bags.CONFIG, data_dir=tmp_path / "made"
    )
    builder.download_and_prepare()
    assert builder.info.splits["train"].num_examples == 1
