"""RLDS datasets of the TFDS catalogue, with synthetic values, pass through our transformations."""

import numpy as np
import pytest
import raw_rlu
import tensorflow as tf
import tensorflow_datasets as tfds
from tensorflow_datasets.rl_unplugged.rlu_rwrl.rlu_rwrl import RluRwrl
from tensorflow_datasets.robotics.dataset_importer_builder import DatasetImporterBuilder

import rlds.tfds
from rlds import transformations

FAMILIES = ("d4rl_", "rlu_", "robosuite_", "locomotion", "robomimic_")
# Steps of Open X-Embodiment: of datasets that Google converted, and of the template.
GOOGLE = {
    "observation": {
        "image": tfds.features.Image(shape=(32, 40, 3), encoding_format="jpeg"),
        "natural_language_instruction": tfds.features.Text(),
        "natural_language_embedding": tfds.features.Tensor(shape=(512,), dtype=np.float32),
    },
    "action": {
        "world_vector": tfds.features.Tensor(shape=(3,), dtype=np.float32),
        "terminate_episode": tfds.features.Tensor(shape=(3,), dtype=np.int32),
    },
    "reward": np.float32,
}
TEMPLATE = {
    "observation": {
        "image": tfds.features.Image(shape=(32, 32, 3), encoding_format="png"),
        "state": tfds.features.Tensor(shape=(8,), dtype=np.float32),
    },
    "action": tfds.features.Tensor(shape=(7,), dtype=np.float32),
    "discount": np.float32,
    "reward": np.float32,
    "is_terminal": np.bool_,
    "language_instruction": tfds.features.Text(),
}
OPEN_X = {
    "fractal20220817_data": GOOGLE,
    "jaco_play": GOOGLE,
    "berkeley_mvp_converted_externally_to_rlds": TEMPLATE,
    "viola": TEMPLATE,
}
NAMES = [name for name in tfds.list_builders() if name.startswith(FAMILIES)]
# One of each kind: all of them take minutes, and are alike.
QUICK = {
    "fractal20220817_data",
    "rlu_atari",
}


def make_value(feature, rng):
    """Returns a synthetic value of a feature."""
    if isinstance(feature, tfds.features.FeaturesDict):
        return {name: make_value(child, rng) for name, child in feature.items()}
    if isinstance(feature, tfds.features.Text):
        return "pick the can"
    return rng.integers(0, 2, feature.shape).astype(feature.np_dtype)


def store(directory, step):
    """Stores a small dataset where TFDS looks for one of Open X-Embodiment."""
    rng = np.random.default_rng(0)
    config = rlds.tfds.DatasetConfig(
        name=directory.parent.name,
        observation_info=step["observation"],
        action_info=step["action"],
        reward_info=step["reward"],
        discount_info=step.get("discount"),
        step_metadata_info={
            name: feature for name, feature in step.items() if name not in rlds.CORE_STEP_FIELDS
        },
    )
    with rlds.tfds.EpisodeWriter(directory, config, version="0.1.0", float64="bytes") as writer:
        features = tfds.builder_from_directory(directory).info.features["steps"].feature
        for length in (3, 5):
            steps = [make_value(features, rng) for _ in range(length)]
            for index, values in enumerate(steps):
                values["is_first"], values["is_last"] = index == 0, index == length - 1
            writer.add_episode({"steps": steps})


@pytest.fixture(scope="module")
def stored(tmp_path_factory):
    """The metadata that builders read from Google's buckets for their features."""
    directory = tmp_path_factory.mktemp("stored")
    for name, step in OPEN_X.items():
        store(directory / name / "0.1.0", step)
    rows = raw_rlu.rwrl_episodes(2, rows=1001)
    for episode in rows:  # TFDS has no features for deeper nests.
        del episode["observation:sensors:height"]
    raw_rlu.write_files(directory, "episodes.tfrecord", rows, compression="")
    return directory


@pytest.fixture
def offline(stored, monkeypatch):
    monkeypatch.setattr(DatasetImporterBuilder, "_GCS_BUCKET", stored)
    prefix = str(stored / "episodes.tfrecord")
    monkeypatch.setattr(RluRwrl, "get_file_prefix", lambda self: prefix)
    monkeypatch.setattr(RluRwrl, "_SHARDS", 2, raising=False)


@pytest.mark.slow
@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=[] if name in QUICK else pytest.mark.slow)
        for name in [*NAMES, *OPEN_X]
    ],
)
def test_transformations_work_on_catalogued_datasets(name, offline):
    builder = tfds.builder(name)
    if name in OPEN_X:  # The stored dataset has its features.
        episodes = builder.get_ds_builder().as_dataset(split="train")
    else:
        with tfds.testing.mock_data(num_examples=2):
            episodes = builder.as_dataset(split="train")
    step_spec = episodes.element_spec[rlds.STEPS].element_spec
    pairs = episodes.map(
        lambda episode: {
            **episode,
            rlds.STEPS: transformations.batch(
                episode[rlds.STEPS], size=2, shift=1, drop_remainder=True
            ),
        }
    )
    lengths = []
    for episode, paired in zip(episodes, pairs):
        steps = list(episode[rlds.STEPS])
        lengths.append(len(steps))
        batched = transformations.to_batched(episode[rlds.STEPS])
        tf.nest.assert_same_structure(batched, steps[0])
        batches = list(paired[rlds.STEPS])
        assert len(batches) == len(steps) - 1
        for index, pair in enumerate(batches):
            for first, both in zip(tf.nest.flatten(steps[index]), tf.nest.flatten(pair)):
                np.testing.assert_array_equal(both[0], first)
    marked = transformations.map_nested_steps(
        episodes, lambda step: {**step, "seen": tf.constant(1)}
    )
    total = transformations.sum_nested_steps(marked, lambda step: {"seen": step["seen"]})
    assert int(total["seen"]) == sum(lengths)
    assert set(step_spec) >= {rlds.OBSERVATION, rlds.ACTION}


def test_the_catalogue_has_datasets_to_test():
    assert len(NAMES) >= 25
    assert {*NAMES, *OPEN_X} >= QUICK
