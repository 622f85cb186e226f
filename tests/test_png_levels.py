"""All writers of PNG files take `png_level`: the bytes differ, the pixels do not."""

import io
import tarfile

import dm_env
import numpy as np
import pytest
import tensorflow_datasets as tfds

import rlds.feeds
import rlds.sources
import rlds.tfds
import tfds_builders
import tfds_files
from envlogger import StepData
from envlogger.backends.tfds_backend_writer import TFDSBackendWriter
from rlds_tools.command_line.commands import run
from tfds_files.png import encode_png

FRAMES = np.random.default_rng(0).integers(0, 8, (3, 40, 60, 3), np.uint8)


@pytest.fixture(scope="module")
def episode_folder(tmp_path_factory):
    """An episode with frames as arrays, in a `.npz` file."""
    folder = tmp_path_factory.mktemp("recorded")
    np.savez(folder / "episode_0.npz", observation=FRAMES, action=np.zeros((3, 2), np.float32))
    return folder


def by_writer(source, folder, level):
    config = tfds.rlds.rlds_base.DatasetConfig(
        name="frames", observation_info=tfds.features.Image(shape=FRAMES.shape[1:])
    )
    flags = {name: np.arange(3) == 2 * (name != "is_first") for name in rlds.STEP_FLAGS}
    with rlds.tfds.EpisodeWriter(folder, config, png_level=level) as writer:
        writer.add_episode({"steps": {"observation": FRAMES, **flags}})
    return folder


def by_convert(source, folder, level):
    episodes = rlds.sources.open(source)
    builder = tfds_builders.convert(
        episodes.source, name="frames", data_dir=folder, png_level=level, progress=False
    )
    return builder.data_path


def by_command(source, folder, level):
    options = [] if level is None else [f"--png-level={level}"]
    assert run(["convert", str(source), str(folder), "--name=frames", *options]) == 0
    return folder / "frames" / "1.0.0"


def by_recorder(source, folder, level):
    config = tfds.rlds.rlds_base.DatasetConfig(
        name="frames",
        observation_info=tfds.features.Image(shape=FRAMES.shape[1:]),
        **dict.fromkeys(("action_info", "reward_info", "discount_info"), np.float32),
    )
    first, middle, last = FRAMES
    steps = dm_env.restart(first), dm_env.transition(0.0, middle), dm_env.termination(0.0, last)
    with TFDSBackendWriter(folder, config, png_level=level) as writer:
        for index, step in enumerate(steps):
            step = step._replace(reward=np.float32(0), discount=np.float32(1))
            writer.record_step(StepData(step, np.float32(0), None), is_new_episode=index == 0)
    return folder


def by_export(source, folder, level):
    rlds.sources.export(source, "tfds", folder, png_level=level)
    return folder


def by_materialise(source, folder, level):
    return rlds.feeds.materialise(source, folder, images="png", png_level=level)


@pytest.mark.parametrize(
    "write", [by_writer, by_convert, by_command, by_recorder, by_export, by_materialise]
)
def test_tfds_datasets_have_the_png_level(episode_folder, tmp_path, write):
    for level in (None, 0, 9):
        folder = write(episode_folder, tmp_path / str(level), level)
        (split,) = tfds_files.open_folder(folder, decode_images=False).values()
        files = split[0]["steps"]["observation"]
        assert list(files) == [encode_png(frame, level) for frame in FRAMES]
        (episode,) = tfds.builder_from_directory(folder).as_dataset(split=split.name)
        pixels = [step["observation"] for step in tfds.as_numpy(episode["steps"])]
        np.testing.assert_array_equal(pixels, FRAMES)


def test_webdataset_images_have_the_png_level(episode_folder, tmp_path):
    for level in (None, 0, 9):
        folder = tmp_path / str(level)
        rlds.sources.export(episode_folder, "webdataset", folder, png_level=level)
        data = (folder / "shard-000000.tar").read_bytes()
        with tarfile.open(fileobj=io.BytesIO(data)) as tar:
            names = [name for name in tar.getnames() if name.endswith(".png")]
            files = [tar.extractfile(name).read() for name in names]
        assert files == [encode_png(frame, level) for frame in FRAMES]


def test_unknown_png_levels_are_refused(episode_folder, tmp_path):
    for write in (by_writer, by_convert, by_export, by_materialise):
        with pytest.raises(ValueError, match="png_level: got 10"):
            write(episode_folder, tmp_path / write.__name__, 10)
    with pytest.raises(ValueError, match="png_level: got 10"):
        rlds.sources.export(episode_folder, "webdataset", tmp_path / "shards", png_level=10)
