"""Exports of Minari, TFDS and other formats to datasets that Minari reads."""

import io
import os
from pathlib import Path

import h5py
import minari
import numpy as np
import pytest
import raw_minari
import tensorflow as tf
import tensorflow_datasets as tfds
from fast_share import one_in
from gymnasium import spaces
from PIL import Image

import rlds
import rlds.sources
from rlds.raw_files.image_files import black_jpeg
from rlds.sources.episode_fields import as_converted
from rlds.sources.testing import differences
from rlds.tfds import DatasetConfig, EpisodeWriter

MinariSource = rlds.sources.formats()["minari"].load()

FORMATS = ["hdf5", "arrow", "parquet"]
features = tfds.features


@pytest.fixture(autouse=True)
def root(tmp_path, monkeypatch):
    root = tmp_path / "minari"
    root.mkdir()
    monkeypatch.setenv("MINARI_DATASETS_PATH", str(root))
    return root


def export_minari(data, target, split=None, **options):
    """Writes data below Minari's directory; returns the path."""
    path = Path(os.environ["MINARI_DATASETS_PATH"]) / target
    rlds.sources.export(data, "minari", path, split=split, allow_loss=True, **options)
    return path


# --- Datasets of Minari --------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("data_format", one_in(3, FORMATS))
def test_recordings_of_minari_are_exported_unchanged(data_format, tmp_path):
    directory = raw_minari.record_cart_pole("cart/pole-v0", data_format=data_format)
    metadata = {"author": ["Somebody else"]}
    exported = export_minari(directory, "cart/other-v0", metadata=metadata)
    before, after = raw_minari.read_metadata(directory), raw_minari.read_metadata(exported)
    assert rlds.sources.open(exported).metadata["minari"]["author"] == ["Somebody else"]
    for name in before.keys() - {
        "author",
        "dataset_size",
        "dataset_id",
        "jpeg_encoding",
        "minari_version",
    }:
        assert after[name] == before[name], name
    original, dataset = minari.load_dataset("cart/pole-v0"), minari.load_dataset("cart/other-v0")
    assert dataset.env_spec == original.env_spec
    for episode, expected in zip(dataset, original, strict=True):
        assert episode.id == expected.id
        for name in ("observations", "actions", "rewards", "terminations", "truncations"):
            np.testing.assert_array_equal(getattr(episode, name), getattr(expected, name))
        np.testing.assert_array_equal(episode.infos["step"], expected.infos["step"])
    assert list(dataset.storage.get_episode_metadata(range(4))) == list(
        original.storage.get_episode_metadata(range(4))
    )
    assert "cart/other-v0" in minari.list_local_datasets()
    namespaces = minari.namespace.list_local_namespaces()
    assert namespaces == ["cart"]


def test_raw_images_of_old_versions_become_readable(tmp_path):
    directory = raw_minari.write_raw_images("old-v0")
    exported = export_minari(directory, "new-v0")
    after = raw_minari.read_metadata(exported)
    assert after["jpeg_encoding"] is False
    with h5py.File(directory / "data" / "main_data.hdf5") as file:
        for index, episode in enumerate(minari.load_dataset("new-v0")):
            raw = file[f"episode_{index}"]
            np.testing.assert_array_equal(episode.observations, raw["observations"][()])
            np.testing.assert_array_equal(episode.actions, raw["actions"][()])


@pytest.mark.parametrize("to", ["hdf5", "arrow", "parquet"])
def test_another_format_holds_the_same_episodes(to, tmp_path):
    source = "arrow" if to == "hdf5" else "hdf5"
    raw_minari.write_buffers("space/all-v1", data_format=source)
    export_minari("space/all-v1", "space/all-v2", data_format=to)
    storage = minari.load_dataset("space/all-v1").storage
    dataset = minari.load_dataset("space/all-v2")
    assert to == dataset.storage.FORMAT
    for index, episode in enumerate(dataset):
        (expected,) = storage.get_episodes([index])
        _check_equal(episode.observations, expected["observations"])
        _check_equal(episode.actions, expected["actions"])
        _check_equal(episode.rewards, expected["rewards"])
        _check_equal(episode.terminations, expected["terminations"])
        _check_equal(episode.truncations, expected["truncations"])
    metadata = list(dataset.storage.get_episode_metadata(range(4)))
    assert metadata[1]["options"]["start"]["x"] == 1
    assert metadata[1]["seed"] == 2**63 + 9


def _check_equal(value, expected):
    if isinstance(expected, dict):
        assert value.keys() == expected.keys()
        for name, child in expected.items():
            _check_equal(value[name], child)
    elif isinstance(expected, tuple):
        for child, expected_child in zip(value, expected, strict=True):
            _check_equal(child, expected_child)
    else:
        np.testing.assert_array_equal(value, expected)


@pytest.mark.slow
def test_exported_selections_of_episodes_are_renumbered(tmp_path):
    raw_minari.record_cart_pole("cart/pole-v0")
    export_minari("cart/pole-v0", "cart/part-v0", split="train[1:3]")
    original, filtered = minari.load_dataset("cart/pole-v0"), minari.load_dataset("cart/part-v0")
    assert filtered.total_episodes == 2
    assert filtered.total_steps == sum(len(episode) for episode in filtered)
    for episode, old_id in zip(filtered, [1, 2], strict=True):
        np.testing.assert_array_equal(episode.observations, original[old_id].observations)


# --- Any RLDS dataset ----------------------------------------------------------------------------


def write_rlds(tmp_path, step, episodes, metadata=None, name="any"):
    """Writes a dataset with the fields of `step`, a dict of features, and of the flags."""
    steps = {**step, **dict.fromkeys(("is_first", "is_last", "is_terminal"), np.bool_)}
    core = ("observation", "action", "reward", "discount")
    config = DatasetConfig(
        name=name,
        **{f"{field}_info": step.get(field) for field in core},
        step_metadata_info={
            field: feature
            for field, feature in steps.items()
            if field not in (*core, "is_first", "is_last", "is_terminal")
        },
        episode_metadata_info=metadata or {},
    )
    with EpisodeWriter(str(tmp_path / name), config, float64="bytes") as writer:
        for episode in episodes:
            writer.add_episode(episode)
    return tmp_path / name


def make_columns(num_steps, terminal, **fields):
    index = np.arange(num_steps)
    is_last = index == num_steps - 1
    return {
        "action": np.arange(num_steps, dtype=np.int64) % 3,
        "reward": np.linspace(0, 1, num_steps),
        "discount": np.ones(num_steps, np.float32),
        "is_first": index == 0,
        "is_last": is_last,
        "is_terminal": is_last & terminal,
        **fields,
    }


STEP = {
    "observation": np.float32,
    "action": features.ClassLabel(num_classes=3),
    "reward": np.float64,
    "discount": np.float32,
}


def make_episode(num_steps=3, terminal=True, **fields):
    observation = np.arange(num_steps, dtype=np.float32)
    return {"steps": make_columns(num_steps, terminal, observation=observation), **fields}


@pytest.mark.parametrize("data_format", one_in(3, FORMATS))
def test_any_dataset_is_read_by_minari(data_format, tmp_path):
    rng = np.random.default_rng(0)
    step = {
        **STEP,
        "observation": {
            "image": features.Image(shape=(32, 33, 3), encoding_format="png"),
            "small": features.Image(shape=(4, 4, 3), encoding_format="jpeg"),
            "text": features.Text(),
            "state": features.Tensor(shape=(2, 2), dtype=np.float64),
            "pair": {"_index_0": np.bool_, "_index_1": np.uint16},
        },
        "infos": {"qpos": features.Tensor(shape=(3,), dtype=np.float64)},
        "timestamp": np.int64,
        "note": features.Text(),
    }

    def episode(index, num_steps, terminal):
        observation = {
            "image": rng.integers(0, 256, (num_steps, 32, 33, 3)).astype(np.uint8),
            "small": [black_jpeg((4, 4, 3))] * num_steps,
            "text": [f"täxt {index}" for index in range(num_steps)],
            "state": rng.normal(size=(num_steps, 2, 2)),
            "pair": {
                "_index_0": rng.integers(0, 2, num_steps).astype(bool),
                "_index_1": rng.integers(0, 2**16, num_steps).astype(np.uint16),
            },
        }
        steps = make_columns(
            num_steps,
            terminal,
            observation=observation,
            infos={"qpos": rng.normal(size=(num_steps, 3))},
            timestamp=np.arange(num_steps, dtype=np.int64),
            note=["n"] * num_steps,
        )
        return {"steps": steps, "episode_id": str(index), "agent": {"score": np.float32(0.1)}}

    episodes = [episode(0, 4, True), episode(1, 2, False)]
    metadata = {"episode_id": features.Text(), "agent": {"score": np.float32}}
    path = write_rlds(tmp_path, step, episodes, metadata)
    metadata = {"author": ["Somebody"], "env_spec": None}
    target = export_minari(path, "any/data-v0", data_format=data_format, metadata=metadata)
    dataset = minari.load_dataset("any/data-v0")
    assert dataset.storage.metadata["author"] == {"Somebody"}
    assert isinstance(dataset.action_space, spaces.Discrete)
    assert dataset.total_steps == 4
    for exported, expected in zip(dataset, episodes, strict=True):
        steps = expected["steps"]
        observation = steps["observation"]
        for name in ("image", "state"):
            np.testing.assert_array_equal(exported.observations[name], observation[name])
        assert list(exported.observations["text"]) == observation["text"]
        assert not exported.observations["small"].any()
        for index in (0, 1):
            np.testing.assert_array_equal(
                exported.observations["pair"][index], observation["pair"][f"_index_{index}"]
            )
        np.testing.assert_array_equal(exported.actions, steps["action"][:-1])
        np.testing.assert_array_equal(exported.rewards, steps["reward"][:-1])
        assert exported.terminations[-1] == steps["is_terminal"][-1]
        assert exported.truncations[-1] != steps["is_terminal"][-1]
        np.testing.assert_array_equal(exported.infos["qpos"], steps["infos"]["qpos"])
        np.testing.assert_array_equal(exported.infos["discount"], steps["discount"])
        np.testing.assert_array_equal(exported.infos["timestamp"], steps["timestamp"])
        for row in range(len(exported) + 1):
            assert dataset.observation_space.contains(_take_row(exported.observations, row))
    (first, _) = dataset.storage.get_episode_metadata([0, 1])
    assert first["rlds"] == {"episode_id": "0", "agent": {"score": np.float32(0.1)}}
    edited = target.with_name("edited-v0")
    rlds.edit(target, rlds.editing.Rename("note", "notes"), to=edited)
    for data in (target, edited):
        assert rlds.sources.open(data).metadata["minari"] == metadata
        assert raw_minari.read_metadata(data)["author"] == ["Somebody"]


def _take_row(nest, row):
    if isinstance(nest, dict):
        return {name: _take_row(child, row) for name, child in nest.items()}
    if isinstance(nest, tuple):
        return tuple(_take_row(child, row) for child in nest)
    return np.asarray(nest[row]) if not isinstance(nest[row], str) else nest[row]


@pytest.mark.parametrize("data_format", one_in(3, FORMATS))
def test_jpeg_images_keep_their_bytes(data_format, tmp_path):
    def encode(value):
        file = io.BytesIO()
        Image.fromarray(np.full((40, 32, 3), value, np.uint8)).save(file, format="JPEG")
        return file.getvalue()

    images = [encode(value) for value in (0, 100, 200)]
    step = {**STEP, "observation": features.Image(shape=(40, 32, 3), encoding_format="jpeg")}
    path = write_rlds(tmp_path, step, [{"steps": make_columns(3, True, observation=images)}])
    exported = export_minari(path, "pictures-v0", data_format=data_format)
    assert raw_minari.read_metadata(exported)["jpeg_encoding"] is True
    episode = MinariSource(exported).read("train", 0)
    assert episode.steps["observation"].tolist() == images
    (actual,) = minari.load_dataset("pictures-v0")
    assert actual.observations[:, 0, 0, 0].tolist() == [0, 100, 200]


def test_images_that_minari_reads_as_another_shape_are_stored_as_arrays(tmp_path):
    step = {**STEP, "observation": features.Image(shape=(32, 32, 1), encoding_format="jpeg")}
    grey = [tf.io.encode_jpeg(np.full((32, 32, 1), value, np.uint8)).numpy() for value in (9, 99)]
    path = write_rlds(tmp_path, step, [{"steps": make_columns(2, True, observation=grey)}])
    exported = export_minari(path, "grey-v0")
    assert raw_minari.read_metadata(exported)["jpeg_encoding"] is False
    (actual,) = minari.load_dataset("grey-v0")
    assert actual.observations.shape == (2, 32, 32, 1)
    assert actual.observations[:, 0, 0, 0].tolist() == [9, 99]


def test_an_unknown_final_observation_is_refused_or_its_transition_is_dropped(tmp_path):
    flag = "final_observation_known"
    episodes = [
        make_episode(3, True, **{flag: True}),
        make_episode(4, True, **{flag: False}),
    ]
    path = write_rlds(tmp_path, STEP, episodes, {flag: np.bool_})
    message = "00000:1: the final observation is unknown, .*'drop_last_transition'"
    with pytest.raises(ValueError, match=message):
        export_minari(path, "cut-v0")
    export_minari(path, "cut-v0", unknown_final_observation="drop_last_transition")
    complete, cut = minari.load_dataset("cut-v0")
    assert complete.terminations.tolist() == [False, True]
    assert cut.observations.tolist() == [0, 1, 2, 3]
    assert cut.rewards.tolist() == episodes[1]["steps"]["reward"][:-1].tolist()
    assert cut.terminations.tolist() == [False] * 3
    assert cut.truncations.tolist() == [False, False, True]


def test_fields_that_minari_cannot_hold_are_kept_in_the_sidecar(tmp_path):
    step = {**STEP, "ragged": features.Sequence(np.int64)}
    episode = make_episode(2, True, picture=np.zeros((2, 2, 3), np.uint8), name="a")
    episode["steps"]["ragged"] = [[1], [1, 2]]
    metadata = {"picture": features.Image(shape=(2, 2, 3)), "name": features.Text()}
    path = write_rlds(tmp_path, step, [episode], metadata)
    exported = export_minari(path, "whole-v0")
    read_back = rlds.sources.open(exported)[0]
    (difference,) = differences(as_converted(rlds.sources.open(path)[0]), read_back)
    assert difference.startswith("picture: ")  # It stays a file.
    assert [row.tolist() for row in read_back.steps["ragged"]] == [[1], [1, 2]]
    with h5py.File(exported / "data" / "main_data.hdf5") as file:
        assert "ragged" not in file["episode_0/infos"]
        attributes = dict(file["episode_0"].attrs)
        assert attributes["rlds/name"] == "a"
        assert "rlds/picture" not in attributes


@pytest.mark.parametrize(
    ("step", "episode", "message"),
    [
        ({"action": None}, {}, "the steps have no 'action'"),
        (
            {"reward": features.Tensor(shape=(2,), dtype=np.float32)},
            {"reward": np.zeros((3, 2), np.float32)},
            r"the reward is .*, expected a number",
        ),
        (
            {"observation": features.Tensor(shape=(None,), dtype=np.float64, encoding="bytes")},
            {"observation": np.zeros((3, 2))},
            "steps/observation: Minari cannot hold float64 of shape",
        ),
        (
            {"observation": features.Tensor(shape=(), dtype=np.complex64, encoding="bytes")},
            {"observation": np.zeros(3, np.complex64)},
            "steps/observation: Minari cannot hold complex64",
        ),
        (
            {"infos": {"a": np.int64}, "a": np.int64},
            {"infos": {"a": np.zeros(3, np.int64)}, "a": np.zeros(3, np.int64)},
            "two step fields become 'infos/a'",
        ),
        (
            {"observation": np.object_},
            {"observation": np.array([b"\xff"] * 3, object)},
            "episode 0, steps/observation: .*can't decode",
        ),
    ],
)
def test_steps_that_minari_cannot_hold_are_refused(step, episode, message, tmp_path, root):
    fields = {name: feature for name, feature in {**STEP, **step}.items() if feature is not None}
    steps = make_columns(3, True, observation=np.zeros(3, np.float32)) | episode
    steps = {name: values for name, values in steps.items() if step.get(name, 0) is not None}
    path = write_rlds(tmp_path, fields, [{"steps": steps}])
    with pytest.raises(ValueError, match=message):
        export_minari(path, "refused-v0")
    assert list(root.iterdir()) == []


def test_an_episode_without_transitions_is_refused(tmp_path, root):
    path = write_rlds(tmp_path, STEP, [make_episode(3), make_episode(1)])
    with pytest.raises(ValueError, match="00000:1: Minari cannot hold an episode without"):
        export_minari(path, "name/space/short-v0")
    assert list(root.iterdir()) == []


def test_a_text_that_hdf5_cannot_hold_names_the_episode(tmp_path):
    step = {**STEP, "observation": features.Text()}
    episode = {"steps": make_columns(2, True, observation=["a", "b\0c"])}
    path = write_rlds(tmp_path, step, [episode])
    with pytest.raises(ValueError, match=r"episode 0: .*NULL"):
        export_minari(path, "nul-v0")
    export_minari(path, "nul-v0", data_format="arrow")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"data_format": "zarr"}, "data_format: got 'zarr', expected 'hdf5' or"),
        ({"unknown_final_observation": "pad"}, "unknown_final_observation: got 'pad'"),
        ({"metadata": {"total_steps": 1}}, "metadata: 'total_steps' comes from the dataset"),
    ],
)
def test_invalid_arguments_are_refused(arguments, message, tmp_path):
    path = write_rlds(tmp_path, STEP, [make_episode()])
    with pytest.raises(ValueError, match=message):
        export_minari(path, **{"target": "right-v0", **arguments})
