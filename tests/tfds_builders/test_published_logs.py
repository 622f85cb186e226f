"""Published archives of logs, from a path or from the `manual_dir`."""

import tarfile

import numpy as np
import pytest
import tensorflow_datasets as tfds

import rlds_tools
from rlds.sources import open as open_episodes
from tfds_builders import RldsEnvlogger, RldsPickPlaceCan, RldsSacLocomotion


@pytest.fixture
def log(tmp_path):
    directory = tmp_path / "recorded" / "tag"
    rlds_tools.record("catch", directory, episodes=2, seed=1, metadata={"env": "PickPlaceCan"})
    return directory


def archive_log(log, path):
    with tarfile.open(path, "w:gz") as archive:
        archive.add(log, arcname=log.name)
    return path


def check(builder, log):
    assert builder.info.metadata["env"] == "PickPlaceCan"
    episodes = tfds.as_numpy(builder.as_dataset(split="train"))
    for episode, expected in zip(episodes, open_episodes(log), strict=True):
        assert episode["agent_id"] == b"random"
        actions = [step["action"] for step in episode["steps"]]
        np.testing.assert_array_equal(actions, expected.steps["action"])


@pytest.mark.slow
def test_archives_in_manual_dir_are_converted(log, tmp_path):
    manual = tmp_path / "manual"
    manual.mkdir()
    name = "rlds_robosuite_panda_pick_place_can_human_dc29b40a.tar.gz"
    archive_log(log, manual / name)
    config = tfds.download.DownloadConfig(manual_dir=manual)
    builder = RldsPickPlaceCan(config="human_images_dc29b40a", data_dir=tmp_path / "data")
    builder.download_and_prepare(download_config=config)
    check(builder, log)


def test_an_archive_at_a_path_is_converted(log, tmp_path):
    archive = archive_log(log, tmp_path / "any.tar.gz")
    builder = RldsEnvlogger(path=archive, data_dir=tmp_path / "data")
    assert builder.info.features is None  # The archive is extracted later.
    builder.download_and_prepare()
    check(builder, log)


def test_all_archives_except_the_one_of_images_have_checksums():
    """The checksum of the archive of images was never published."""
    names = []
    for builder_cls in (RldsPickPlaceCan, RldsSacLocomotion):
        for config in builder_cls.BUILDER_CONFIGS:
            builder = builder_cls(config=config.name)
            info = builder.url_infos.get(builder.url())
            names.append((config.name, info is not None and info.filename == builder.raw_name()))
    assert [name for name, is_known in names if not is_known] == ["human_images_dc29b40a"]
    assert len(names) == 8
