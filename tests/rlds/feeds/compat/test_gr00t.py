"""The drop-in loader for GR00T's scripts."""

import json
import shutil
import types

import arm_datasets
import numpy as np
import pytest
import raw_lerobot

import rlds.feeds
from rlds.feeds.compat.gr00t import ShardedSingleStepDataset

TEXT = "annotation.human.action.task_description"


@pytest.fixture(scope="module", name="directory")
def fixture_directory(tmp_path_factory):
    directory = arm_datasets.write_all(tmp_path_factory.mktemp("gr00t") / "data")
    raw_lerobot.write_modality(directory / "arm_lerobot")
    return directory


def config(keys, *deltas):
    return types.SimpleNamespace(modality_keys=keys, delta_indices=list(deltas))


def open_dataset(path, video, modality=None, **options):
    configs = {
        "video": config([video], 0),
        "state": config(["arm", "gripper"], 0),
        "action": config(["arm", "gripper"], 0, 1, 2),
        "language": config([TEXT], 0),
        **options.pop("configs", {}),
    }
    dataset = ShardedSingleStepDataset(
        path, "tag", configs, modality=modality, **{"shard_size": 6, **options}
    )
    dataset.set_processor(lambda messages: messages[0]["content"])
    return dataset


def make_modality(camera, state):
    slices = {"arm": {"start": 0, "end": 2}, "gripper": {"start": 2, "end": 3}}
    state_slices = {name: {**bounds, "original_key": state} for name, bounds in slices.items()}
    video = {"camera": {"original_key": camera}}
    annotation = {TEXT.removeprefix("annotation."): {"original_key": "task_index"}}
    return {"state": state_slices, "action": slices, "video": video, "annotation": annotation}


@pytest.mark.parametrize("form", arm_datasets.FORMATS)
def test_shards_of_any_format_equal_those_of_gr00t(directory, form):
    name, camera, state, language = arm_datasets.FIELDS[form]
    camera = "observation." + camera.replace("/", ".")
    modality = make_modality(camera, f"observation.{state}")
    dataset = open_dataset(directory / name, "camera", modality, split="train")
    table = rlds.feeds.open(directory / name, "train")
    lengths = np.maximum(table.summaries.num_real_steps() - 2, 0)
    # GR00T deals steps to shards like this, from the seed.
    rng, shards = np.random.default_rng(42), [[] for _ in range(-(-lengths.sum() // 6))]
    for episode in rng.permutation(len(lengths)):
        steps = np.arange(lengths[episode])
        rng.shuffle(steps)
        for piece in range(10):
            least = min(range(len(shards)), key=lambda shard: len(shards[shard]))
            shards[least] += [(episode, step) for step in steps[piece::10].tolist()]
    assert len(dataset) == len(shards)
    for index, shard in enumerate(shards):
        assert dataset.get_shard_length(index) == len(shard)
        for item, (episode, step) in zip(dataset.get_shard(index), shard, strict=True):
            stored = table.read(int(episode))
            action = np.asarray(stored["action"][step : step + 3], np.float32)
            np.testing.assert_array_equal(item.actions["arm"], action[:, :2])
            np.testing.assert_array_equal(item.actions["gripper"], action[:, 2:3])
            values = np.asarray(stored["observation"][state][step], np.float32)
            np.testing.assert_array_equal(item.states["arm"], values[np.newaxis, :2])
            image = stored["observation"]
            for key in camera.split(".")[1:]:
                image = image[key]
            np.testing.assert_array_equal(item.images["camera"][0], image[step])
            text = stored[language][step] if language else ""
            assert item.text == (text.decode() if isinstance(text, bytes) else text)
            assert item.embodiment == "tag"
    direct = dataset.get_datapoint(int(episode), step)
    np.testing.assert_array_equal(direct.actions["arm"], item.actions["arm"])


def test_attributes_of_gr00t_datasets_are_available(directory):
    pytest.importorskip("pandas")
    modality = make_modality(raw_lerobot.IMAGE, "observation.state")
    dataset = open_dataset(directory / "arm_lerobot", "camera", modality)
    assert (dataset.action_horizon, dataset.shard_size, dataset.seed) == (3, 6, 42)
    loader = dataset.episode_loader
    assert loader.episode_lengths == [7, 5, 6]
    assert [dataset.get_effective_episode_length(n) for n in range(len(loader))] == [5, 3, 4]
    first = [[(e, s.tolist()) for e, s in shard] for shard in dataset.sharded_episodes]
    for index, shard in enumerate(first):
        items = iter(dataset.get_shard(index))
        for episode, steps in shard:
            table = loader[episode]
            for step in steps:
                item, direct = next(items), dataset.get_datapoint(table, step)
                assert item.text == direct.text
                for ours, theirs in ((item.actions, direct.actions), (item.states, direct.states)):
                    assert ours.keys() == theirs.keys()
                    for key, value in ours.items():
                        np.testing.assert_array_equal(value, theirs[key])
                        assert value.dtype == theirs[key].dtype
                np.testing.assert_array_equal(item.images["camera"], direct.images["camera"])
    assert "action.gripper" in table.columns
    with pytest.raises(IndexError, match="allow_padding"):
        dataset.get_datapoint(table, len(table) - 1)
    dataset.shard_dataset()  # The generator continues.
    assert first != [[(e, s.tolist()) for e, s in shard] for shard in dataset.sharded_episodes]
    assert loader.get_dataset_statistics() == dataset.get_dataset_statistics()


def test_statistics_with_quantiles_come_from_the_file(directory, tmp_path):
    path = shutil.copytree(directory / "arm_lerobot", tmp_path / "set")
    stored = {"q01": [1, 2, 3], "q99": [4, 5, 6], "mean": [2, 2, 2], "count": [18]}
    (path / "meta/stats.json").write_text(json.dumps({"action": stored}))
    modality = make_modality(raw_lerobot.IMAGE, "observation.state")
    actual = open_dataset(path, "camera", modality).get_dataset_statistics()
    assert actual["action"]["arm"] == {"q01": [1, 2], "q99": [4, 5], "mean": [2, 2]}
    states = np.concatenate([episode["observation.state"] for episode in raw_lerobot.episodes()])
    np.testing.assert_allclose(actual["state"]["gripper"]["mean"], states[:, 2:].mean(0), rtol=1e-5)


def test_annotations_are_texts_of_tasks(tmp_path):
    """GR00T takes `tasks_map[annotation]`, regardless of the `task_index` of the row."""
    path = raw_lerobot.write_v2(tmp_path / "raw")
    raw_lerobot.write_annotations(path, {TEXT: ["with care", "again", None]})
    configs = {"state": config([], 0), "action": config(["arm"], 0), "language": config([TEXT], 0)}
    modality = {**raw_lerobot.MODALITY, "video": {"top": {"original_key": raw_lerobot.IMAGE}}}
    dataset = open_dataset(path, "top", modality, configs=configs)
    assert [dataset.get_datapoint(index, 0).text for index in (0, 1)] == ["with care", "again"]
    with pytest.raises(KeyError, match=r"the table of tasks has no number -1, only \[0, 1, 2, 3\]"):
        dataset.get_datapoint(2, 0)
    modality["annotation"] = {"human.validity": {}}
    configs["language"] = config(["annotation.human.validity"], 0)
    with pytest.raises(KeyError, match=r"no feature 'annotation\.human\.validity'; there are: "):
        open_dataset(path, "top", modality, configs=configs)


def test_padding_repeats_bounds_and_statistics_equal_the_data(directory):
    configs = {"state": config(["arm"], -1, 0), "language": config(["task"], 0)}
    modality = {**raw_lerobot.MODALITY, "video": {"top": {"original_key": raw_lerobot.IMAGE}}}
    dataset = open_dataset(
        directory / "arm_lerobot", "top", modality, configs=configs, allow_padding=True
    )
    item = dataset.get_datapoint(1, 0)
    state = raw_lerobot.episodes()[1]["observation.state"]
    np.testing.assert_array_equal(item.states["arm"], state[[0, 0], :2])
    assert item.text in raw_lerobot.TASKS
    actual = dataset.get_dataset_statistics()
    actions = np.concatenate([episode["action"] for episode in raw_lerobot.episodes()])
    np.testing.assert_allclose(
        actual["action"]["gripper"]["mean"], actions[:, 2:].mean(0), rtol=1e-6
    )
    np.testing.assert_allclose(actual["action"]["arm"]["q01"], np.quantile(actions[:, :2], 0.01, 0))
    assert actual["relative_action"] == {"action": {"mean": [0.5, 1e-3, 2]}}
    assert dataset.get_initial_actions() == []
    strict = open_dataset(directory / "arm_lerobot", "top", modality, configs=configs)
    with pytest.raises(IndexError, match="beyond the episode; pass allow_padding=True"):
        strict.get_datapoint(1, 0)


def test_errors_name_missing_values(directory):
    with pytest.raises(KeyError, match=r"modality.json: no video 'camera'; there are none"):
        open_dataset(directory / "arm", "camera", split="train")
    modality = make_modality("observation.camera", "observation.state")
    with pytest.raises(KeyError, match=r"no feature 'observation\.camera'; there are: "):
        open_dataset(directory / "arm_lerobot", "camera", modality)
    modality["video"]["camera"]["original_key"] = raw_lerobot.IMAGE
    dataset = open_dataset(directory / "arm_lerobot", "camera", modality)
    dataset.set_processor(None)
    with pytest.raises(ValueError, match="call set_processor first"):
        dataset.get_shard(0)
    long = {"action": config(["arm"], 0, 30)}
    with pytest.raises(ValueError, match="no episode has 31 steps"):
        open_dataset(directory / "arm_lerobot", "camera", modality, configs=long)
