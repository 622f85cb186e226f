"""Datasets read by episode equal those that TFDS reads by step."""

import dataclasses
from unittest import mock

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_datasets as tfds
from tensorflow_datasets import features as tf_features

from rlds import STEP_FLAGS
from rlds.tfds import DatasetConfig, EpisodeWriter, load
from rlds.transformations import compute_statistics

FEATURES = {
    "png": tf_features.Image(shape=(4, 5, 3)),
    "jpeg": tf_features.Image(shape=(None, None, 3), encoding_format="jpeg"),
    "depth": tf_features.Image(shape=(4, 5, 1), dtype=np.float32),
    "mono": tf_features.Image(shape=(4, 5, 1), dtype=np.uint16),
    "zlib": tf_features.Tensor(shape=(2, 2), dtype=np.int16, encoding="zlib"),
    "bytes": tf_features.Tensor(shape=(2,), dtype=np.float64, encoding="bytes"),
    "exact": np.float64,
    "flags": tf_features.Tensor(shape=(2,), dtype=np.bool_, encoding="zlib"),
    "uint64": np.uint64,
    "raw_uint64": tf_features.Tensor(shape=(2,), dtype=np.uint64, encoding="bytes"),
    "half": np.float16,
    "complex": np.complex64,
    "nothing": tf_features.Tensor(shape=(0, 2), dtype=np.float32),
    "dynamic": tf_features.Tensor(shape=(None, None), dtype=np.float32, encoding="zlib"),
    "partly": tf_features.Tensor(shape=(None, 2), dtype=np.int32, encoding="bytes"),
    "text": tf_features.Text(),
    "strings": tf_features.Tensor(shape=(2,), dtype=np.object_),
    "label": tf_features.ClassLabel(names=["no", "yes"]),
    "box": tf_features.BBoxFeature(),
    "sequence": tf_features.Sequence(np.int64),
    "raw_sequence": tf_features.Sequence(tf_features.Tensor(shape=(2,), dtype=np.float64)),
    "frames": tf_features.Sequence(tf_features.Image(shape=(2, 2, 3))),
    "dicts": tf_features.Sequence({"a": np.int64, "b": tf_features.Text()}),
    "deep": tf_features.Sequence(tf_features.Sequence(np.int64)),
}
CONFIG = DatasetConfig(
    name="kinds",
    observation_info=FEATURES,
    action_info=tf_features.Tensor(shape=(3,), dtype=np.float32),
    episode_metadata_info={"id": np.int64, "exact": np.float64, "by": {"who": tf_features.Text()}},
)


def episode(index, num_steps=3):
    rng = np.random.default_rng(index)

    def integers(*shape):
        return rng.integers(0, 255, (num_steps, *shape))

    lengths = [i % 3 for i in range(num_steps)]
    observation = {
        "png": integers(4, 5, 3).astype(np.uint8),
        "jpeg": integers(4, 5, 3).astype(np.uint8),
        "depth": rng.random((num_steps, 4, 5, 1), np.float32),
        "mono": integers(4, 5, 1).astype(np.uint16) * 255,
        "zlib": integers(2, 2).astype(np.int16),
        "bytes": rng.random((num_steps, 2)),
        "exact": rng.random(num_steps),
        "flags": integers(2) > 100,
        "uint64": integers().astype(np.uint64) + np.uint64(2**63),
        "raw_uint64": integers(2).astype(np.uint64) + np.uint64(2**63),
        "half": rng.random(num_steps).astype(np.float16),
        "complex": rng.random(num_steps) * np.complex64(1j),
        "nothing": np.zeros((num_steps, 0, 2), np.float32),
        "dynamic": rng.random((num_steps, 1 + index, 2), np.float32),
        "partly": integers(1 + index, 2).astype(np.int32),
        "text": ["a", "ü\0", "日本", "", "x"][:num_steps],
        "strings": [["a", "b"]] * num_steps,
        "label": ["no", "yes", "no", "no", "no"][:num_steps],
        "box": [tf_features.BBox(0.0, 0.25, 1.0, 1.0)] * num_steps,
        "sequence": [range(length) for length in lengths],
        "raw_sequence": [rng.random((length, 2)) for length in lengths],
        "frames": [np.full((length, 2, 2, 3), length, np.uint8) for length in lengths],
        "dicts": [{"a": range(length), "b": ["ü"] * length} for length in lengths],
        "deep": [[list(range(length))] * 2 for length in lengths],
    }
    flags = {name: np.zeros(num_steps, bool) for name in ("is_first", "is_last", "is_terminal")}
    flags["is_first"][:1] = True
    steps = {"observation": observation, "action": rng.random((num_steps, 3)), **flags}
    return {"steps": steps, "id": index, "exact": 1 / 3, "by": {"who": "me"}}


NUM_EPISODES = 5


@pytest.fixture(scope="module")
def directory(tmp_path_factory):
    return write_dataset(tmp_path_factory.mktemp("kinds"), "tfrecord")


@pytest.fixture(scope="module", params=["tfrecord", "array_record"])
def any_directory(request, tmp_path_factory):
    if request.param == "tfrecord":
        return request.getfixturevalue("directory")
    # Decoding does not depend on the file format, so a few fields are enough.
    return write_dataset(tmp_path_factory.mktemp("kinds"), request.param, ["png", "bytes", "deep"])


def write_dataset(path, file_format, names=tuple(FEATURES)):
    options = {"max_episodes_per_file": 2, "file_format": file_format, "float64": "bytes"}
    config = dataclasses.replace(CONFIG, observation_info={name: FEATURES[name] for name in names})

    def select(*args, **kwargs):
        data = episode(*args, **kwargs)
        steps = data["steps"]
        observation = {name: steps["observation"][name] for name in names}
        return {**data, "steps": {**steps, "observation": observation}}

    with (
        EpisodeWriter(path, config, split_name=["train", "empty"], **options) as writer,
        # Other programs write episodes without steps.
        mock.patch("rlds.tfds.episode_writer._check_begin"),
    ):
        for index in range(NUM_EPISODES):
            writer.add_episode_to_split(select(index, num_steps=index), "train")
        writer.add_episode_to_split(select(9, num_steps=0), "empty")
    return path


def to_python(value):
    if isinstance(value, tf.RaggedTensor):
        return value.to_list()
    value = value.numpy() if tf.is_tensor(value) else value
    return value.tolist() if isinstance(value, np.ndarray | np.generic) else value


def read_with_tfds(directory):
    """Returns the episodes of TFDS, with their steps as a list."""
    builder = tfds.builder_from_directory(directory)
    if builder.info.file_format == tfds.core.FileFormat.TFRECORD:
        config = tfds.ReadConfig(interleave_cycle_length=1)
        examples = builder.as_dataset(split="train", read_config=config)
    else:
        raw = builder.as_data_source(
            "train", deserialize_method=tfds.decode.DeserializeMethod.RAW_BYTES
        )
        examples = [builder.info.features.deserialize_example(example) for example in raw]
    return [{**example, "steps": list(example["steps"])} for example in examples]


def test_batched_and_nested_steps_equal_those_of_tfds(any_directory):
    expected = read_with_tfds(any_directory)
    assert [int(example["id"]) for example in expected] == list(range(NUM_EPISODES))
    batched, nested = load(any_directory), load(any_directory, layout="nested")
    for theirs, columns, ours in zip(expected, batched, nested, strict=True):
        for loaded in (columns, ours):
            assert {
                name: tf.nest.map_structure(to_python, loaded[name]) for name in ("id", "by")
            } == {name: tf.nest.map_structure(to_python, theirs[name]) for name in ("id", "by")}
            assert float(loaded["exact"]) == 1 / 3
        steps = list(ours["steps"])
        assert len(steps) == len(theirs["steps"])
        for index, step in enumerate(theirs["steps"]):
            row = tf.nest.map_structure(lambda column, index=index: column[index], columns["steps"])
            for other in (steps[index], row):
                tf.nest.assert_same_structure(step, other)
                for leaf, other_leaf in zip(tf.nest.flatten(step), tf.nest.flatten(other)):
                    assert leaf.dtype == other_leaf.dtype
                    assert to_python(leaf) == to_python(other_leaf)


def test_datasets_have_static_shapes_and_a_cardinality(directory):
    for layout, batch in (("batched", [None]), ("nested", [])):
        fields = ["action", *(f"observation/{name}" for name in ("png", "bytes", "exact", "zlib"))]
        dataset = load(directory, layout=layout, fields=fields)
        assert dataset.cardinality() == NUM_EPISODES
        spec = dataset.element_spec["steps"]
        spec = spec if layout == "batched" else spec.element_spec
        for name, shape in [("png", [4, 5, 3]), ("bytes", [2]), ("exact", []), ("zlib", [2, 2])]:
            assert spec["observation"][name].shape.as_list() == [*batch, *shape]
        assert spec["action"].shape.as_list() == [*batch, 3]


@pytest.mark.slow
def test_images_of_several_sizes_need_the_nested_layout(tmp_path):
    kinds = {"png": tf_features.Image(shape=(None, None, 3)), "raw": FEATURES["dynamic"]}
    values = {"png": np.uint8, "raw": np.float32}
    flags = {"is_first": [True, False], "is_last": [False, True], "is_terminal": [False] * 2}
    for name, feature in kinds.items():
        config = DatasetConfig(name=name, observation_info={name: feature})
        columns = [
            np.ones((2, 3 + size, 3)[: 2 + (name == "png")], values[name]) for size in (0, 1)
        ]
        with EpisodeWriter(tmp_path / name, config) as writer:
            writer.add_episode({"steps": {"observation": {name: columns}, **flags}})
        message = f"observation/{name} has several shapes in an episode: pass layout=.*nested"
        with pytest.raises(tf.errors.InvalidArgumentError, match=message):
            next(iter(load(tmp_path / name)))
        steps = next(iter(load(tmp_path / name, layout="nested")))["steps"]
        assert [step["observation"][name].shape[1] for step in steps] == [3, 4]


def test_an_episode_without_steps_is_loaded(directory):
    names = ["png", "dynamic", "partly", "exact", "deep"]
    fields = [f"observation/{name}" for name in names]
    (example,) = load(directory, "empty", fields=fields)
    observation = example["steps"]["observation"]
    shapes = {name: observation[name].shape for name in names[:4]}
    assert shapes["png"] == (0, 4, 5, 3)
    assert {name: shape[0] for name, shape in shapes.items()} == dict.fromkeys(shapes, 0)
    (example,) = load(directory, "empty", fields=fields, layout="nested")
    assert list(example["steps"]) == []


@pytest.mark.slow
@pytest.mark.parametrize("layout", ["batched", "nested"])
def test_only_the_requested_fields_are_loaded(directory, layout):
    dataset = load(
        directory,
        "train[2:4]",
        layout=layout,
        fields=["observation/exact", "observation/text", "action"],
        episode_fields=["by"],
    )
    assert dataset.cardinality() == 2
    spec = dataset.element_spec
    steps = spec["steps"] if layout == "batched" else spec["steps"].element_spec
    assert set(spec) == {"steps", "by"}
    assert set(steps) == {"action", "observation", *STEP_FLAGS}
    assert set(steps["observation"]) == {"exact", "text"}
    for example, index in zip(dataset, (2, 3), strict=True):
        steps = example["steps"]
        exact = (
            steps["observation"]["exact"]
            if layout == "batched"
            else tf.stack([step["observation"]["exact"] for step in steps])
        )
        expected = episode(index, index)["steps"]["observation"]["exact"]
        np.testing.assert_array_equal(exact, expected)
    spec_of_steps = load(directory, fields=["observation"]).element_spec["steps"]
    assert set(spec_of_steps) == {"observation", *STEP_FLAGS}
    assert set(spec_of_steps["observation"]) == set(FEATURES)


@pytest.mark.slow
def test_step_flags_are_always_loaded(tmp_path):
    """Without them, statistics fail or mistake real values for placeholders."""
    episode_metadata = {"final_observation_known": np.bool_, "id": np.int64}
    config = DatasetConfig(
        name="flags",
        observation_info=np.float32,
        reward_info=np.float32,
        episode_metadata_info=episode_metadata,
    )
    is_last = [False, False, True]
    flags = {"is_first": [True, False, False], "is_last": is_last, "is_terminal": is_last}
    with EpisodeWriter(tmp_path, config) as writer:
        for is_known in (True, False):
            steps = {"observation": np.zeros(3), "reward": np.float32([1, 2, 6]), **flags}
            writer.add_episode({"steps": steps, "final_observation_known": is_known, "id": 7})
    for fields, decode in ((["reward"], True), (["reward", "is_last"], False)):
        episodes = load(tmp_path, fields=fields, episode_fields=[], decode=decode)
        assert set(episodes.element_spec) == {"steps", "final_observation_known"}
        assert set(episodes.element_spec["steps"]) == {"reward", *STEP_FLAGS}
        reward = compute_statistics(episodes, ["reward"])["reward"]
        assert (int(reward.count), float(reward.mean)) == (5, 12 / 5)


@pytest.mark.slow
def test_fields_can_be_loaded_without_decoding(directory):
    fields = ["observation/png", "observation/bytes"]
    encoded = load(directory, fields=fields, decode=False).element_spec["steps"]["observation"]
    assert {name: spec.dtype for name, spec in encoded.items()} == {
        "png": tf.string,
        "bytes": tf.string,
    }
    partly = load(directory, fields=fields, decode=["observation/bytes"])
    (example,) = partly.skip(4).take(1)
    observation = example["steps"]["observation"]
    assert observation["bytes"].dtype == tf.float64
    expected = episode(4, 4)["steps"]["observation"]
    for image, array in zip(observation["png"], expected["png"], strict=True):
        np.testing.assert_array_equal(tf.io.decode_png(image), array)
    nested = load(directory, fields=fields, decode=False, layout="nested")
    assert nested.element_spec["steps"].element_spec["observation"]["png"].dtype == tf.string


@pytest.mark.slow
def test_iterators_can_be_checkpointed(any_directory, tmp_path):
    iterator = iter(load(any_directory, fields=["action"]))
    assert [int(next(iterator)["id"]) for _ in range(2)] == [0, 1]
    checkpoint = tf.train.Checkpoint(iterator=iterator)
    path = checkpoint.save(tmp_path / "checkpoint")
    assert [int(example["id"]) for example in iterator] == [2, 3, 4]
    checkpoint.restore(path)
    assert [int(example["id"]) for example in iterator] == [2, 3, 4]


def test_episodes_are_in_order_unless_shuffled(any_directory):
    for _ in range(2):
        assert [int(e["id"]) for e in load(any_directory, fields=["action"])] == [0, 1, 2, 3, 4]
    tf.random.set_seed(1)
    shuffled = load(any_directory, fields=["action"], shuffle_files=True)
    orders = {tuple(int(example["id"]) for example in shuffled) for _ in range(10)}
    assert len(orders) > 1
    assert {tuple(sorted(order)) for order in orders} == {(0, 1, 2, 3, 4)}


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        (
            {"fields": ["observation/txt"]},
            KeyError,
            r"'observation/txt'; did you mean 'observation/text'\? There are: action,",
        ),
        ({"fields": ["steps"]}, KeyError, "load: fields: no field 'steps'; there are"),
        ({"episode_fields": ["name"]}, KeyError, "there are: by/who, exact, id"),
        ({"decode": ["image"]}, KeyError, "load: decode: no field 'image'"),
        ({"fields": "action"}, ValueError, "a list of names, got the string 'action'"),
        ({"layout": "flat"}, ValueError, "layout must be one of .*, got 'flat'"),
    ],
)
def test_wrong_load_arguments_are_rejected(directory, options, error, message):
    with pytest.raises(error, match=message):
        load(directory, **options)


@pytest.mark.slow
def test_dataset_is_located_from_a_parent_directory(directory, tmp_path):
    (tmp_path / "data" / "name").mkdir(parents=True)
    (tmp_path / "data" / "name" / "1.0.0").symlink_to(directory)
    above = load(tmp_path / "data", fields=["action"])
    assert len(above) == len(load(directory, fields=["action"]))


def test_paths_and_names_without_a_dataset_are_refused(tmp_path):
    with pytest.raises(FileNotFoundError, match="neither a directory with a dataset_info"):
        load(tmp_path)
    with pytest.raises(FileNotFoundError, match="'no_such_dataset' is neither"):
        load("no_such_dataset")


def test_a_dataset_without_rlds_episodes_is_refused():
    with tfds.testing.mock_data(num_examples=1):
        builder = tfds.testing.DummyDataset()
        with pytest.raises(ValueError, match="load: dummy_dataset has no RLDS episodes"):
            load(builder)


@pytest.mark.slow
def test_tfds_logs_no_warning(tmp_path):
    """TFDS would warn about its own `dtype`, which decoding of bytes uses."""
    config = DatasetConfig(
        name="bytes",
        observation_info=tf_features.Tensor(shape=(2,), dtype=np.float64, encoding="bytes"),
        episode_metadata_info={"return": np.float64},
    )
    steps = {"observation": np.ones((1, 2)), **dict.fromkeys(STEP_FLAGS, np.array([True]))}
    with EpisodeWriter(tmp_path, config, float64="bytes") as writer:
        writer.add_episode({"steps": steps, "return": 0.1})
    with mock.patch("tensorflow_datasets.core.features.feature.log_tf_warning") as warn:
        (loaded,) = load(tmp_path, layout="nested")
        assert loaded["return"] == np.float64(0.1)
    warn.assert_not_called()
