"""The drop-in loader for LeRobot's scripts."""

import importlib.util
import json
import shutil

import arm_datasets
import numpy as np
import pyarrow as pa
import pytest
import raw_lerobot

import rlds.feeds
import rlds.sources
from rlds.feeds.compat.lerobot import (
    LeRobotDataset,
    LeRobotDatasetMetadata,
    StreamingLeRobotDataset,
)
from rlds.sources.texts import as_text

needs_torch = pytest.mark.skipif(
    importlib.util.find_spec("torch") is None, reason="there is no PyTorch"
)

QUANTITIES = ("min", "max", "mean", "q01", "q10", "q50", "q90", "q99")


@pytest.fixture(scope="module", name="directory")
def fixture_directory(tmp_path_factory):
    return arm_datasets.write_all(tmp_path_factory.mktemp("lerobot") / "data")


def test_metadata_has_the_attributes_of_lerobot(directory):
    meta = LeRobotDatasetMetadata("me/arm", directory / "arm_lerobot")
    assert (meta.fps, meta.robot_type, meta.total_frames, meta.total_episodes) == (
        10,
        "so100",
        18,
        3,
    )
    for name, feature in raw_lerobot.FEATURES.items():
        assert meta.features[name]["dtype"] == feature["dtype"]
        assert meta.shapes[name] == tuple(feature["shape"])
    assert meta.camera_keys == meta.image_keys == [raw_lerobot.IMAGE]
    assert meta.task_texts == dict(enumerate(raw_lerobot.TASKS))
    assert meta.episodes["dataset_to_index"] == [7, 12, 18]
    assert meta.episodes[1]["tasks"] == list(raw_lerobot.TASKS)
    assert [row["length"] for row in meta.episodes] == [7, 5, 6]
    assert (meta.info.fps, meta.info["total_frames"]) == (10, 18)
    assert meta.names["action"] == raw_lerobot.FEATURES["action"]["names"]
    assert [meta.get_task_index(text) for text in (raw_lerobot.TASKS[1], "none")] == [1, None]
    stored = json.loads((directory / "arm_lerobot/meta/stats.json").read_text())
    # The file has no statistics of images, so they are computed.
    assert meta.stats.keys() == {*stored, raw_lerobot.IMAGE}
    for name, values in stored.items():
        assert meta.stats[name].keys() == values.keys()
        for key, value in values.items():
            np.testing.assert_array_equal(meta.stats[name][key], np.atleast_1d(value))
    subset = LeRobotDatasetMetadata("me/arm", directory / "arm_lerobot", split="train[:2]")
    assert subset.stats["action"]["count"] == [12]  # The file counts all episodes.


def test_metadata_names_the_file_of_each_episode(directory):
    meta = LeRobotDatasetMetadata("me/arm", directory / "arm_lerobot")
    files = [meta.get_data_file_path(index).as_posix() for index in range(3)]
    assert files == [f"data/chunk-000/file-{n:03}.parquet" for n in (0, 0, 1)]
    assert meta.episodes["data/file_index"] == [0, 0, 1]
    assert {"length", "data/chunk_index"} < {*meta.episodes.column_names}


def test_tasks_and_episodes_convert_to_pandas(directory):
    pandas = pytest.importorskip("pandas")
    meta = LeRobotDatasetMetadata("me/arm", directory / "arm_lerobot")
    index = pandas.Index(list(raw_lerobot.TASKS), name="task", dtype=object)
    assert meta.tasks.equals(pandas.DataFrame({"task_index": [0, 1]}, index=index))
    assert meta.episodes.to_pandas()["length"].tolist() == [7, 5, 6]


def test_missing_statistics_are_computed_from_the_data(directory, tmp_path):
    path = shutil.copytree(directory / "arm_lerobot", tmp_path / "set")
    (path / "meta/stats.json").unlink()
    meta = LeRobotDatasetMetadata("me/arm", path)
    actions = np.concatenate([episode["action"] for episode in raw_lerobot.episodes()])
    np.testing.assert_allclose(meta.stats["action"]["std"], actions.std(0), rtol=1e-6)
    np.testing.assert_allclose(
        meta.stats["action"]["q99"], np.quantile(actions, 0.99, 0), rtol=1e-6
    )
    images = rlds.feeds.open(directory / "arm_lerobot").steps().batch(range(18))["observation"]
    mean = images["images"]["wrist"].mean((0, 1, 2)) / 255
    np.testing.assert_allclose(meta.stats[raw_lerobot.IMAGE]["mean"], mean.reshape(3, 1, 1))


def test_statistics_of_depths_keep_their_unit(tmp_path):
    """Like LeRobot, they stay in the unit of the data, or in the requested one."""
    depth = np.full((4, 8, 8, 1), 397, np.uint16)
    (tmp_path / "raw").mkdir()
    action = np.arange(8, dtype=np.float32).reshape(4, 2)
    np.savez(
        tmp_path / "raw/ep_0.npz", **{"observation/images/d": depth, "action": action, "x": action}
    )
    options = {"fps": 10, "robot_type": "so100"}
    rlds.sources.export(tmp_path / "raw", "lerobot", tmp_path / "set", **options)
    meta = LeRobotDatasetMetadata("me/set", tmp_path / "set")
    info = json.loads((tmp_path / "set/meta/info.json").read_text())
    ignored = ("features", "rlds_sidecar")
    assert {name: meta.info[name] for name in info if name not in ignored} == {
        name: value for name, value in info.items() if name not in ignored
    }
    assert (meta.robot_type, meta.chunks_size) == ("so100", info["chunks_size"])
    assert meta.features.keys() == info["features"].keys()  # Not the features of the original.
    assert meta.depth_keys == meta.camera_keys == ["observation.images.d"]
    for unit in (None, "mm"):  # The unit of the data is unknown.
        meta.depth_output_unit = unit
        assert {float(meta.stats["observation.images.d"][q][0, 0, 0]) for q in QUANTITIES} == {397}
        del meta.stats
    for q in ("q01", "q10", "q50", "q90", "q99"):  # Policies need these.
        expected = np.quantile(action, int(q[1:]) / 100, 0)
        np.testing.assert_allclose(meta.stats["action"][q], expected)


@needs_torch
@pytest.mark.parametrize(("unit", "stored"), [("mm", "mm"), ("mm", "m"), ("m", "mm")])
def test_depths_come_in_the_requested_unit(tmp_path, unit, stored):
    """Depths of a video are rounded to millimetres, like in LeRobot."""
    import torch

    raw_lerobot.write_v3(tmp_path, codecs={raw_lerobot.DEPTH: "depth"})
    raw_lerobot.say_depths(tmp_path, depth_unit=stored)
    dataset = LeRobotDataset("me/arm", tmp_path, depth_output_unit=unit, return_uint8=True)
    codes = raw_lerobot.frames(raw_lerobot.DEPTH, 1, 5)
    low, high = np.log(0.01 + 3.5), np.log(10 + 3.5)
    depths = np.exp(low + codes / 4095 * (high - low)) - 3.5
    depths = np.rint(depths * 1000) if unit == "mm" else depths
    actual = dataset[8][raw_lerobot.DEPTH]
    assert (actual.dtype, actual.shape) == (torch.float32, (1, 32, 48))
    np.testing.assert_allclose(actual[0], depths[1], rtol=1e-6)
    assert dataset.meta.depth_keys == [raw_lerobot.DEPTH]
    mean = dataset.meta.stats[raw_lerobot.DEPTH]["mean"]
    np.testing.assert_allclose(np.ravel(mean), depths.mean(), rtol=0.2)


@needs_torch
@pytest.mark.parametrize("form", arm_datasets.FORMATS)
def test_items_of_any_format_equal_the_table(directory, form):
    import torch

    name, camera, state, language = arm_datasets.FIELDS[form]
    camera = "observation." + camera.replace("/", ".")
    deltas = {"action": [0, 0.1, 0.2], f"observation.{state}": [-0.1, 0]}
    options = {"fps": 10, "split": "train"}
    dataset = LeRobotDataset("me/arm", directory / name, delta_timestamps=deltas, **options)
    table = rlds.feeds.open(directory / name, "train")
    real = table.summaries.num_real_steps()
    assert len(dataset) == dataset.num_frames == real.sum()
    items = dataset[:]
    index = 0
    for episode, length in enumerate(real.tolist()):
        stored = table.read(episode)
        for step in range(length):
            item, index = items[index], index + 1
            ahead = np.minimum(step + np.arange(3), length - 1)
            np.testing.assert_array_equal(
                item["action"], np.asarray(stored["action"])[ahead].astype(np.float32)
            )
            assert item["action_is_pad"].tolist() == [step + n >= length for n in range(3)]
            assert item[f"observation.{state}_is_pad"].tolist() == [step == 0, False]
            assert (item["episode_index"], item["frame_index"]) == (episode, step)
            assert item["index"] == index - 1
            assert item["timestamp"] == np.float32(step / 10)
            image = stored["observation"]
            for key in camera.split(".")[1:]:
                image = image[key]
            expected = torch.from_numpy(image[step]).permute(2, 0, 1) / 255
            assert torch.equal(item[camera], expected)
            text = stored[language][step] if language else ""
            assert item["task"] == (text.decode() if isinstance(text, bytes) else text)
            assert dataset.meta.task_texts[int(item["task_index"])] == item["task"]


@needs_torch
def test_selected_episodes_come_in_dataset_order_with_transforms(directory):
    import torch

    transforms = []

    def grey(image):
        transforms.append(image.shape)
        return image.mean(0)

    dataset = LeRobotDataset(directory / "arm_lerobot", episodes=[2, 0], image_transforms=grey)
    assert (dataset.num_episodes, len(dataset)) == (2, 13)
    # They come in the order of the dataset.
    assert dataset.absolute_to_relative_idx[12] == 7
    assert dataset.absolute_to_relative_idx[0] == 0
    batch = next(iter(torch.utils.data.DataLoader(dataset[7:], batch_size=5)))
    assert batch["episode_index"].tolist() == [2] * 5
    assert batch["index"].tolist() == [12, 13, 14, 15, 16]
    assert batch[raw_lerobot.IMAGE].shape == (5, 4, 6)
    assert transforms == [(3, 4, 6)] * 6
    dataset.clear_image_transforms()
    assert dataset[0][raw_lerobot.IMAGE].shape == (3, 4, 6)
    kept = LeRobotDataset(directory / "arm_lerobot", episode_filter=lambda row: row["length"] < 7)
    assert kept.episodes == [1, 2]
    conditions = {"episode_filter": lambda row: row.get("data/file_index") == 1}
    assert LeRobotDataset(directory / "arm_lerobot", **conditions).episodes == [2]
    with pytest.raises(IndexError):
        dataset[13]


@needs_torch
def test_times_are_nan_without_frame_rate(directory):
    item = LeRobotDataset(directory / "arm", split="train")[1]
    assert item["timestamp"].isnan()
    assert item["frame_index"] == 1


@pytest.mark.parametrize("version", ["v2.1", "v3.0"])
def test_frame_rate_of_an_export_is_kept(directory, tmp_path, version):
    """The export has the metadata of its source, and its own frame rate."""
    rlds.sources.export(
        directory / "arm_log", "lerobot", tmp_path / "made", fps=10, version=version
    )
    assert LeRobotDatasetMetadata("me/made", tmp_path / "made").fps == 10


@needs_torch
def test_several_datasets_are_joined_in_order(directory):
    paths = [directory / "arm_lerobot"] * 2
    dataset = LeRobotDataset(paths, fps=10, split="train")
    assert len(dataset) == 36
    assert dataset[20]["action"].tolist() == dataset[2]["action"].tolist()


@pytest.mark.parametrize("is_tfds", [False, True])
def test_annotations_of_several_datasets_get_common_numbers(tmp_path, is_tfds):
    """A number stands for the same text in all datasets."""
    name, paths = "annotation.human.validity", [tmp_path / "a", tmp_path / "b"]
    annotations = [["good", "bad", None], ["bad", "so so", "good"]]
    for path, texts in zip(paths, annotations):
        raw_lerobot.write_annotations(raw_lerobot.write_v2(path), {name: texts})
        if is_tfds:
            rlds.sources.export(path, "tfds", tmp_path / "tfds" / path.name)
    paths = [tmp_path / "tfds" / path.name for path in paths] if is_tfds else paths
    meta = LeRobotDatasetMetadata(paths, split="train")
    begins = meta.episodes["dataset_from_index"]
    stored = meta.table.steps().batch(begins)["annotation"]["human"]["validity"]
    episodes = [meta.table.source_episode(index) for index in range(6)]
    indices = [episode.steps["annotation"]["human"]["validity"][0] for episode in episodes]
    assert stored.tolist() == indices
    texts_by_index = {**meta.task_texts, -1: None}
    texts = [texts_by_index[index] for index in indices]
    assert sorted(map(str, texts[:3])) == sorted(map(str, annotations[0]))
    assert sorted(map(str, texts[3:])) == sorted(map(str, annotations[1]))
    # Fields that are not selected use the same numbers.
    table = rlds.feeds.open(paths, "train", fields=["action"])
    columns = [table.source_episode(n).steps["annotation"]["human"]["validity"] for n in range(6)]
    assert [column[0] for column in columns] == indices
    tasks = meta.table.steps().batch(begins)["language_instruction"]
    assert [meta.task_texts[n] for n in meta.task_of_steps[begins]] == [*map(as_text, tasks)]
    samples = [rlds.feeds.open(path, "train", fields=["annotation"]).steps() for path in paths]
    with pytest.warns(UserWarning, match=r"human/validity: .* have different texts of tasks"):
        rlds.feeds.Mixture(samples)
    rlds.feeds.Mixture(samples[:1] * 2)


def test_numbers_of_texts_beyond_the_dtype_are_errors(tmp_path):
    """Numbers never overflow silently."""
    paths = [raw_lerobot.write_v3(tmp_path / name) for name in "ab"]
    for path in paths:
        modality = {"annotation": {"mode": {"original_key": "mode"}}}
        (path / "meta/modality.json").write_text(json.dumps(modality))
    for path, index in zip(paths, (300, 0)):
        texts = {n: f"{path.name} {n}" for n in range(256)} | {index: "the first one"}
        rows = {"task_index": [*texts], "task": [*texts.values()]}
        raw_lerobot.write_table(path / "meta/tasks.parquet", pa.table(rows))
    table = rlds.feeds.open(paths, fields=["mode"])
    with pytest.raises(
        ValueError, match=r"^steps/mode: the text now has number \d+, .* not fit uint8:"
    ):
        table.steps().batch(range(18, 36))
    with pytest.raises(ValueError, match=r"steps/mode: the text now has number \d+, .* not fit"):
        table.source_episode(4)


def test_wrong_arguments_are_refused(directory):
    path = directory / "arm"
    with pytest.raises(ValueError, match="states no frame rate: pass fps"):
        LeRobotDataset(path, split="train", delta_timestamps={"action": [0]})
    with pytest.raises(ValueError, match=r"\[0.15\] are not multiples of 1/10 s"):
        LeRobotDataset(path, split="train", fps=10, delta_timestamps={"action": [0, 0.15]})
    with pytest.raises(KeyError, match=r"no feature 'actions'; did you mean 'action'"):
        LeRobotDataset(path, split="train", fps=10, delta_timestamps={"actions": [0]})
    with pytest.raises(ValueError, match=r"no episodes \[-1, 9\]: there are 4"):
        LeRobotDataset(path, split="train", episodes=[0, 9, -1])
    with pytest.raises(ValueError, match="episode_filter leaves no episode"):
        LeRobotDataset(path, split="train", episode_filter=lambda row: row["length"] > 99)
    with pytest.raises(TypeError, match="must be callable"):
        LeRobotDataset(path, split="train", image_transforms="grey")
    with pytest.raises(TypeError, match=r"^the format tfds has no option 'flavour'; its options"):
        LeRobotDataset(path, flavour="sweet")
    with pytest.raises(ValueError, match="bucket"):
        LeRobotDatasetMetadata(path, repo_type="bucket")
    with pytest.raises(ValueError, match="hf://datasets/NAME@REVISION"):
        LeRobotDatasetMetadata("hf://datasets/me/arm", revision="main")


def test_datasets_are_located_by_their_lerobot_names(directory, monkeypatch, tmp_path):
    monkeypatch.setenv("HF_LEROBOT_HOME", str(directory))
    assert LeRobotDatasetMetadata("arm_lerobot", revision="v3.0").total_episodes == 3
    with pytest.raises(
        FileNotFoundError, match=r"me/none.*\n.* HF_LEROBOT_HOME; .*hf://datasets/NAME"
    ):
        LeRobotDatasetMetadata("me/none")
    # A pattern of paths is accepted, too.
    assert LeRobotDatasetMetadata(f"{directory}/arm_lero*").total_episodes == 3
    # Arguments about writing and downloading change nothing.
    ignored = {"batch_encoding_size": 2, "token": "mine", "force_cache_sync": True}
    assert len(LeRobotDataset("arm_lerobot", **ignored)) == 18
    monkeypatch.delenv("HF_LEROBOT_HOME")
    monkeypatch.setenv("HF_HOME", str(tmp_path))
    shutil.copytree(directory / "arm_lerobot", tmp_path / "lerobot/me/arm")
    assert LeRobotDatasetMetadata("me/arm").total_episodes == 3


@needs_torch
def test_a_stream_gives_each_frame_once_per_pass(directory):
    import torch

    stream = StreamingLeRobotDataset("me/arm", directory / "arm_lerobot", seed=1)
    ordered = StreamingLeRobotDataset("me/arm", directory / "arm_lerobot", seed=1, shuffle=False)
    loader = torch.utils.data.DataLoader(ordered, batch_size=None, num_workers=2)
    first, second, third, dealt = (
        [int(item["index"]) for item in items] for items in (stream, stream, ordered, loader)
    )
    assert first != second
    assert first == third
    assert all(sorted(indices) == list(range(18)) for indices in (first, second, dealt))
    assert (stream.num_frames, stream.fps) == (18, 10)
