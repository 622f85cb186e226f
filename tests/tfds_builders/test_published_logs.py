"""The logs of the RLDS paper, in small, in their layout: a directory in an archive."""

import tarfile

import dm_env
import numpy as np
import pytest
import tensorflow_datasets as tfds
from dm_env import specs

import envlogger
from envlogger.converters.rlds_episode import to_rlds_episode
from tfds_builders import EnvLoggerSource, RldsEnvlogger, RldsPickPlaceCan, RldsSacLocomotion

STATE = {"object-state": 14, "Can_pos": 3, "robot0_eef_pos": 3, "Can_to_robot0_eef_quat": 4}


class Can(dm_env.Environment):
    """Observations of float64, but for one field, as people's episodes have them."""

    def __init__(self):
        self._rng = np.random.default_rng(0)
        self._time = 0

    def _observe(self):
        found = {name: self._rng.normal(size=size) for name, size in STATE.items()}
        quaternion = "Can_to_robot0_eef_quat"
        return {**found, quaternion: found[quaternion].astype(np.float32)}

    def reset(self):
        self._time = 0
        return dm_env.restart(self._observe())

    def step(self, action):
        self._time += 1
        make = dm_env.truncation if self._time == 5 else dm_env.transition
        return make(float(self._time == 4), self._observe())

    def observation_spec(self):
        arrays = {name: specs.Array((size,), np.float64) for name, size in STATE.items()}
        return {**arrays, "Can_to_robot0_eef_quat": specs.Array((4,), np.float32)}

    def action_spec(self):
        return specs.Array((7,), np.float64)

    def reward_spec(self):
        return specs.Array((), np.float64)

    def discount_spec(self):
        return specs.Array((), np.float64)


@pytest.fixture
def log(tmp_path):
    directory = tmp_path / "recorded" / "tag"
    directory.mkdir(parents=True)

    def step_fn(timestep, action, env):
        image = np.full((8, 8, 3), env.unwrapped._time if hasattr(env, "unwrapped") else 1)
        return {"tag:placed": timestep.reward == 1.0, "image": image.astype(np.uint8)}

    def episode_fn(timestep, action, env):
        return {"agent_id": "someone", "episode_id": "abc", "episode_index": np.int32(3)}

    with envlogger.EnvLogger(
        Can(),
        data_directory=str(directory),
        step_fn=step_fn,
        episode_fn=episode_fn,
        metadata={"env": "PickPlaceCan"},
    ) as env:
        for _ in range(2):
            timestep = env.reset()
            while not timestep.last():
                timestep = env.step(np.ones(7))
    return directory


def archived(log, path):
    with tarfile.open(path, "w:gz") as archive:
        archive.add(log, arcname=log.name)
    return path


def check(builder, log):
    assert builder.info.metadata["env"] == "PickPlaceCan"
    (first, second) = tfds.as_numpy(builder.as_dataset(split="train"))
    assert first["agent_id"] == b"someone"
    assert first["recorded_episode_id"] == b"abc"
    assert (first["episode_id"], second["episode_id"]) == (b"0", b"1")
    assert first["truncated"]
    assert first["complete"]
    with envlogger.Reader(str(log)) as reader:
        expected = to_rlds_episode(reader.episodes[0])
    steps = list(first["steps"])
    assert len(steps) == 6
    for index, step in enumerate(steps):
        for name in STATE:
            found = step["observation"][name]
            assert found.dtype == expected["observation"][name].dtype
            np.testing.assert_array_equal(found, expected["observation"][name][index])
        assert step["tag:placed"] == expected["tag:placed"][index]
        np.testing.assert_array_equal(step["image"], expected["image"][index])
        assert step["reward"] == expected["reward"][index]


def test_archive_in_manual_dir(log, tmp_path):
    manual = tmp_path / "manual"
    manual.mkdir()
    name = "rlds_robosuite_panda_pick_place_can_human_dc29b40a.tar.gz"
    archived(log, manual / name)
    config = tfds.download.DownloadConfig(manual_dir=manual)
    builder = RldsPickPlaceCan(config="human_images_dc29b40a", data_dir=tmp_path / "data")
    builder.download_and_prepare(download_config=config)
    check(builder, log)


def test_archive_that_is_given(log, tmp_path):
    archive = archived(log, tmp_path / "any.tar.gz")
    builder = RldsEnvlogger(path=archive, data_dir=tmp_path / "data")
    assert builder.info.features is None  # Nothing is extracted before it is asked for.
    builder.download_and_prepare()
    check(builder, log)
    assert builder.info.splits["train"].num_examples == 2
    source = EnvLoggerSource(log)
    assert (
        builder.info.features["steps"]["observation"].keys()
        == source.step_fields()["observation"].keys()
    )


def test_nothing_there(tmp_path):
    builder = RldsEnvlogger(path=tmp_path / "no.tar.gz", data_dir=tmp_path)
    with pytest.raises(FileNotFoundError, match=r"no\.tar\.gz does not exist"):
        builder.download_and_prepare()


def test_all_archives_have_checksums_but_one():
    """Nobody published that of the images."""
    names = []
    for builder_cls in (RldsPickPlaceCan, RldsSacLocomotion):
        for config in builder_cls.BUILDER_CONFIGS:
            builder = builder_cls(config=config.name)
            info = builder.url_infos.get(builder.url())
            names.append((config.name, info is not None and info.filename == builder.raw_name()))
    assert [name for name, is_known in names if not is_known] == ["human_images_dc29b40a"]
    assert len(names) == 8
