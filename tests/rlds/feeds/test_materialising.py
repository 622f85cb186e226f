import os
import signal

import dm_env
import feed_datasets
import numpy as np
import pytest
import raw_lerobot
import tree

import envlogger
import tfds_files
from envlogger import RiegeliBackendWriter
from envlogger.testing.catch_env import Catch
from rlds import sources
from rlds.feeds import materialise
from rlds.feeds.resizing import resize
from rlds.sources.source import SourceError
from rlds_ecosystem.model.nests import leaves_at, lookup
from tfds_files import NOT_DIRECT, indexing
from tfds_files.png import encode_png

FLAGS = ("is_first", "is_last", "is_terminal")


def record(directory, lengths=(9, 4, 9), **options):
    """Records a log; episodes of fewer than 9 steps are incomplete."""
    with envlogger.EnvLogger(Catch(), data_directory=directory, **options) as env:
        for length in lengths:
            env.reset()
            for _ in range(length):
                env.step(1)
    return str(directory)


def list_indirect_fields(directory, split="train"):
    """Returns the fields that are indirect in an example."""
    indexes = indexing.open_indexes(tfds_files.open_folder(directory)[split])
    return {
        name
        for index in indexes
        for name, starts in zip(index.fields, index.starts.T)
        if (starts == NOT_DIRECT).any()
    }


def test_materialised_log_gives_random_access_to_steps(tmp_path, monkeypatch):
    """The dataset keeps all data of the log, and TFDS reads it."""
    log = record(tmp_path / "log", metadata={"purpose": "test"})
    directory = str(tmp_path / "below" / "made")
    assert materialise(log, directory, max_episodes_per_shard=2, progress=True, jobs=2) == directory
    monkeypatch.setattr(indexing, "index_shard", None)  # The indexes exist already.
    assert list_indirect_fields(directory) == set()
    expected, actual = sources.open(log), sources.open(directory)
    assert actual.metadata.items() > expected.metadata.items()
    folder = tfds_files.open_folder(directory)
    assert folder["train"].shard_lengths == (2, 1)
    tfds = pytest.importorskip("tensorflow_datasets")
    examples = list(tfds.builder_from_directory(directory).as_dataset(split="train"))
    assert len(examples) == len(expected) == len(actual) == 3
    for index, episode in enumerate(expected):
        example = folder["train"][index]
        is_known = episode.final_observation_known
        assert (bool(example["final_observation_known"]), bool(example["complete"])) == (
            *(is_known, episode.complete),
        )
        assert bool(example["truncated"]) == episode.truncated
        assert example["episode_id"] == episode.key.encode()
        assert examples[index]["episode_id"].numpy() == episode.key.encode()
        assert int(examples[index]["source"]["end"]) == episode.origin.end
        rows = [tree.map_structure(lambda x: x.numpy(), step) for step in examples[index]["steps"]]
        for path, column in leaves_at(expected.columns(index), None):
            for stored in (
                lookup(actual.columns(index), path),
                np.stack([lookup(step, path) for step in rows]),
            ):
                assert stored.dtype == column.dtype, path
                assert stored.tobytes() == column.tobytes(), path


def test_materialise_stores_selected_fields_and_episodes(tmp_path):
    log = record(tmp_path / "log")
    selected = sources.open(log, "train[1:]")
    materialise(selected, tmp_path / "made", fields=["action"])
    steps = tfds_files.open_folder(tmp_path / "made")["train"][0]["steps"]
    assert sorted(steps) == ["action", *FLAGS]
    assert steps["action"].tolist() == sources.open(log).columns(1)["action"].tolist()
    assert len(tfds_files.open_folder(tmp_path / "made")["train"]) == 2
    with pytest.raises(KeyError, match="no field 'camera'"):
        materialise(log, tmp_path / "other", fields=["camera"])
    assert not (tmp_path / "other").exists()


def test_meaning_of_numbers_is_kept(tmp_path):
    path = raw_lerobot.write_v3(tmp_path / "raw")
    stored = sources.open(materialise(path, tmp_path / "made"))
    source, copy = sources.open(path).source.fields.steps, stored.source.fields.steps
    assert (copy["task_index"].table, copy["action"].names) == ("tasks", source["action"].names)
    assert stored.metadata["lerobot"]["tasks"][1]["task"] == raw_lerobot.TASKS[1]


def test_images_are_png_on_request(tmp_path):
    rng = np.random.default_rng(0)
    pictures = rng.integers(0, 9, (5, 20, 30, 3), np.uint8)
    with RiegeliBackendWriter(tmp_path / "log") as writer, writer.episode() as record_step:
        for index, picture in enumerate(pictures):
            step = {"picture": picture, "grid": picture[..., :2]}
            timestep = dm_env.transition(0.0, step) if index else dm_env.restart(step)
            record_step(envlogger.StepData(timestep, index or None))
    for png, size in ((False, 20 * 30 * 3), (True, 20 * 30 * 2)):
        images = "png" if png else "stored"
        directory = materialise(tmp_path / "log", tmp_path / f"{png}", name="named", images=images)
        folder = tfds_files.open_folder(directory, decode_images=False)
        assert folder.name == "named"
        stored = folder["train"][0]["steps"]["observation"]["picture"][0]
        assert isinstance(stored, bytes) is png
        assert len(bytes(stored)) <= size
        observation = sources.open(directory).columns(0)["observation"]
        np.testing.assert_array_equal(observation["picture"], pictures)
        np.testing.assert_array_equal(observation["grid"], pictures[..., :2])


@pytest.mark.slow
def test_tfds_dataset_is_copied_exactly(tmp_path):
    """Splits and fields stay the same."""
    episodes = feed_datasets.random_episodes(7)
    original = feed_datasets.write(tmp_path / "original", episodes, file_format="array_record")
    with tfds_files.append_to(
        original, tfds_files.open_folder(original).features, "random", file_format="array_record"
    ) as writer:
        writer.add(episodes[0], "test")
    materialise(original, tmp_path / "made")
    source, copy = tfds_files.open_folder(original), tfds_files.open_folder(tmp_path / "made")
    assert {name: len(split) for name, split in copy.items()} == {"train": 7, "test": 1}
    for split in source:
        for example, copied in zip(source[split], copy[split], strict=True):
            tree.assert_same_structure(example, copied)
            for path, leaf in tree.flatten_with_path(example):
                actual = copied
                for name in path:
                    actual = actual[name]
                assert np.asarray(actual).dtype == np.asarray(leaf).dtype, path
                np.testing.assert_array_equal(actual, leaf, err_msg=str(path))
    assert list_indirect_fields(tmp_path / "made", "test") == set()
    tfds = pytest.importorskip("tensorflow_datasets")
    examples = tfds.builder_from_directory(tmp_path / "made").as_dataset(split="test")
    (episode,) = examples
    for step, exact in zip(episode["steps"], episodes[0]["steps"]["observation"]["exact"]):
        assert step["observation"]["exact"].numpy().tobytes() == exact.tobytes()


def test_image_files_are_stored_unchanged(tmp_path):
    feature = tfds_files.Image(
        shape=(None, None, 3), dtype=np.dtype(np.uint8), encoding_format="jpeg"
    )
    flag = tfds_files.Tensor(dtype=np.dtype(bool))
    step = {"camera": feature, **dict.fromkeys(FLAGS, flag)}
    features = tfds_files.Features(
        features={"steps": tfds_files.Dataset(feature=tfds_files.Features(features=step))}
    )
    files = np.array([b"\xff\xd8\xff" + bytes(size) for size in (3, 200, 70)], object)
    steps = {
        "camera": files,
        **{name: np.array([name == "is_first", 0, 0], bool) for name in FLAGS},
    }
    steps["is_last"][-1] = True
    with tfds_files.append_to(tmp_path / "original", features, "it") as writer:
        writer.add({"steps": steps})
    materialise(tmp_path / "original", tmp_path / "made")
    folder = tfds_files.open_folder(tmp_path / "made", decode_images=False)
    assert folder["train"][0]["steps"]["camera"].tolist() == files.tolist()
    assert not list_indirect_fields(tmp_path / "made")


@pytest.mark.parametrize("size", [None, (12, 20)])
def test_pixels_of_images_are_stored_in_any_size(tmp_path, size):
    rng = np.random.default_rng(0)
    pictures = rng.integers(0, 255, (4, 24, 30, 3), np.uint8)
    depths = rng.integers(0, 9999, (4, 24, 30, 1), np.uint16)
    shapes = {"fixed": (24, 30, 3), "open": (None, None, 3), "pixels": None, "depth": (24, 30, 1)}
    steps = {name: np.array([encode_png(image) for image in pictures], object) for name in shapes}
    steps["pixels"] = pictures
    steps["depth"] = np.array([encode_png(image) for image in depths], object)
    steps |= {name: np.array([name == "is_first", 0, 0, 0], bool) for name in FLAGS}
    features = {name: tfds_files.Tensor(dtype=np.dtype(bool)) for name in FLAGS}
    for name, shape in shapes.items():
        dtype = np.dtype(np.uint16 if name == "depth" else np.uint8)
        features[name] = tfds_files.Image(shape=shape, dtype=dtype) if shape else None
    features["pixels"] = tfds_files.Tensor(
        shape=(24, 30, 3), dtype=np.dtype(np.uint8), encoding="zlib"
    )
    if size is None:
        del features["open"], steps["open"]
    dataset = tfds_files.Dataset(feature=tfds_files.Features(features=features))
    original, features = tmp_path / "original", tfds_files.Features(features={"steps": dataset})
    with tfds_files.append_to(original, features, "it") as writer:
        writer.add({"steps": steps})
    directory = materialise(original, tmp_path / "made", images="raw", image_size=size)
    assert not list_indirect_fields(directory)
    actual = sources.open(directory).columns(0)
    resized = pictures if size is None else resize(pictures, size)
    for name in {"fixed", "open", "pixels"} & {*steps}:
        np.testing.assert_array_equal(actual[name], resized, err_msg=name)
    np.testing.assert_array_equal(actual["depth"], depths)
    with pytest.raises(ValueError, match="image_size needs images='raw'"):
        materialise(original, tmp_path / "other", image_size=(3, 3))
    if size is not None:
        with pytest.raises(ValueError, match="open: the images have several sizes"):
            materialise(original, tmp_path / "other", images="raw")
        with tfds_files.append_to(original, features, "it") as writer:
            damaged = steps["fixed"].copy()
            damaged[2] = damaged[2][:50]
            writer.add({"steps": {**steps, "fixed": damaged}}, "test")
        with pytest.raises(SourceError, match="row 2, field 'fixed'"):
            materialise(original, tmp_path / "other", images="raw", image_size=size)


def test_damaged_source_leaves_no_dataset(tmp_path):
    log = record(tmp_path / "log")
    source = sources.open(log).source

    class DamagedSource(type(source)):
        def read(self, split, index, fields=None, rows=slice(None)):
            episode = super().read(split, index)
            if index == 2:
                episode.steps["is_first"][1] = True
            return episode

    source.__class__ = DamagedSource
    with pytest.raises(SourceError, match="is_first"):
        materialise(sources.Episodes(source), tmp_path / "made")
    assert os.listdir(tmp_path) == ["log"]


def test_materialise_refuses_existing_and_remote_targets(tmp_path):
    log = record(tmp_path / "log", [1])
    with pytest.raises(FileExistsError, match="exists and is not overwritten"):
        materialise(log, log)
    with pytest.raises(ValueError, match="feeds read local files"):
        materialise(log, "gs://bucket/made")
    (tmp_path / "made").mkdir()
    materialise(log, tmp_path / "made")
    assert len(sources.open(tmp_path / "made")) == 1
    assert sorted(os.listdir(tmp_path)) == ["log", "made"]


def test_a_killed_process_leaves_no_dataset(tmp_path):
    log = record(tmp_path / "log")

    def die(*args, **kwargs):
        os.kill(os.getpid(), signal.SIGKILL)

    child = os.fork()
    if not child:
        indexing.open_indexes = tfds_files.indexing.open_indexes = die
        tfds_files.open_indexes = die
        materialise(log, tmp_path / "made", max_episodes_per_shard=1)
        os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == -signal.SIGKILL
    assert not (tmp_path / "made").exists()
    assert (tmp_path / ".made.draft").exists()
    with pytest.raises(FileNotFoundError):
        sources.open(tmp_path / "made")
    materialise(log, tmp_path / "made")
    assert len(sources.open(tmp_path / "made")) == 3
    assert sorted(os.listdir(tmp_path)) == ["log", "made"]
