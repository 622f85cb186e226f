"""Recordings become TFDS datasets."""

import pytest
import raw_bags

import tfds_builders

pytestmark = pytest.mark.slow


def test_the_builder_converts_a_bag(tmp_path):
    raw_bags.write_ros1(tmp_path / "a.bag", raw_bags.sample(ros1=True))
    builder = tfds_builders.RldsRosbag(
        path=tmp_path / "a.bag", bag_config=raw_bags.CONFIG, data_dir=tmp_path / "made"
    )
    builder.download_and_prepare()
    assert builder.info.splits["train"].num_examples == 1
