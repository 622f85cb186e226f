"""Episodes decoded together equal those that TFDS decodes one by one."""

import numpy as np
import pytest
import tensorflow as tf
from tensorflow_datasets import features as tf_features

from rlds.tfds.examples import TfdsExampleEncoder
from rlds.tfds.joined_episodes import JoinedEpisodes, can_be_joined

STEP = {
    "image": tf_features.Image(shape=(4, 5, 3)),
    "zlib": tf_features.Tensor(shape=(2, 2), dtype=np.int16, encoding="zlib"),
    "bytes": tf_features.Tensor(shape=(2,), dtype=np.float64, encoding="bytes"),
    "numbers": {
        "uint64": np.uint64,
        "half": np.float16,
        "int8": tf_features.Tensor(shape=(3,), dtype=np.int8),
    },
    "nothing": tf_features.Tensor(shape=(0, 2), dtype=np.float32, encoding="bytes"),
    "text": tf_features.Text(),
    "is_first": np.bool_,
}
EPISODE = {
    "id": np.int64,
    "by": {"who": tf_features.Text(), "where": tf_features.Tensor(shape=(2,), dtype=np.float32)},
    "exact": tf_features.Tensor(shape=(2,), dtype=np.float64, encoding="bytes"),
    "rows": {
        "exact": tf_features.Tensor(shape=(None, 2), dtype=np.float64, encoding="bytes"),
        "uint64": tf_features.Tensor(shape=(None,), dtype=np.uint64, encoding="bytes"),
        "numbers": tf_features.Tensor(shape=(None, 3), dtype=np.int16),
        "text": tf_features.Tensor(shape=(None,), dtype=np.object_),
    },
}
FEATURES = tf_features.FeaturesDict({"steps": tf_features.Dataset(STEP), **EPISODE})


def episode(index, num_steps):
    rng = np.random.default_rng(index)
    texts = np.array([b"", "\u00fc".encode(), b"long" * 50], object)
    return {
        "steps": {
            "image": rng.integers(0, 256, (num_steps, 4, 5, 3), np.uint8),
            "zlib": rng.integers(-9, 9, (num_steps, 2, 2), np.int16),
            "bytes": rng.random((num_steps, 2)),
            "numbers": {
                "uint64": rng.integers(0, 2**64, num_steps, np.uint64),
                "half": rng.random(num_steps).astype(np.float16),
                "int8": rng.integers(-128, 128, (num_steps, 3), np.int8),
            },
            "nothing": np.zeros((num_steps, 0, 2), np.float32),
            "text": texts[rng.integers(0, 3, num_steps)],
            "is_first": np.arange(num_steps) == 0,
        },
        "id": np.int64(-index),
        "by": {"who": f"agent {index}", "where": rng.random(2, np.float32)},
        "exact": rng.random(2),
        "rows": {
            "exact": rng.random((index, 2)),
            "uint64": rng.integers(0, 2**64, 2 * index, np.uint64),
            "numbers": rng.integers(-9, 9, (2 - index, 3), np.int16),
            "text": texts[: index % 2 + 1],
        },
    }


def test_joined_episodes_equal_those_decoded_by_tfds():
    lengths = [2, 1, 3]
    examples = [TfdsExampleEncoder(FEATURES).encode(episode(*item)) for item in enumerate(lengths)]
    decode = ["zlib", "bytes", "numbers", "nothing", "text", "is_first"]
    leaves = [name for name in decode if name != "numbers"]
    leaves += [f"numbers/{name}" for name in STEP["numbers"]]
    fields, actual = JoinedEpisodes(FEATURES, leaves).decode(examples)
    assert actual.tolist() == lengths
    with_rows = fields.pop("rows")
    steps = {"image": tf_features.Tensor(shape=(), dtype=np.object_)}  # Still encoded.
    features = tf_features.FeaturesDict({"steps": tf_features.Sequence(STEP | steps), **EPISODE})
    for index, (example, end) in enumerate(zip(examples, np.cumsum(lengths))):
        rows = slice(end - lengths[index], end)
        joined = tf.nest.map_structure(lambda column, row=index: column[row], fields)
        joined["rows"] = {name: column[index] for name, column in with_rows.items()}
        joined["steps"] = tf.nest.map_structure(lambda column, r=rows: column[r], fields["steps"])
        expected = tf.nest.map_structure(
            lambda tensor: tensor.numpy(), features.deserialize_example(example)
        )
        tf.nest.map_structure(np.testing.assert_array_equal, joined, expected)
        dtypes = [[np.asarray(x).dtype for x in tf.nest.flatten(e)] for e in (joined, expected)]
        assert dtypes[0] == dtypes[1]


@pytest.mark.parametrize("is_episode_field", [False, True])
@pytest.mark.parametrize(
    "feature",
    [
        tf_features.Sequence(np.int64),
        tf_features.Tensor(shape=(None, 0), dtype=np.float32, encoding="bytes"),
        tf_features.Tensor(shape=(None, 2), dtype=np.float32, encoding="zlib"),
        tf_features.Tensor(shape=(None, None), dtype=np.float32, encoding="zlib"),
        tf_features.Scalar(np.int64, optional=True),
    ],
)
def test_features_that_cannot_be_joined_are_recognized(feature, is_episode_field):
    assert can_be_joined(FEATURES)
    steps = STEP if is_episode_field else {**STEP, "x": feature}
    episode_features = {"x": {"y": feature}} if is_episode_field else {}
    features = tf_features.FeaturesDict({"steps": tf_features.Dataset(steps), **episode_features})
    assert not can_be_joined(features)


def test_steps_with_a_varying_number_of_rows_cannot_be_joined():
    steps = {**STEP, "x": EPISODE["rows"]["numbers"]}
    assert not can_be_joined(tf_features.FeaturesDict({"steps": tf_features.Dataset(steps)}))


@pytest.mark.slow
def test_decoding_many_datasets_makes_no_tracing_warning(caplog):
    """TensorFlow warns if code is traced often."""
    logger = tf.get_logger()
    logger.addHandler(caplog.handler)
    try:
        for _ in range(6):
            example = TfdsExampleEncoder(FEATURES).encode(episode(0, 2))
            JoinedEpisodes(FEATURES, ["zlib"]).decode([example])
    finally:
        logger.removeHandler(caplog.handler)
    assert not caplog.records


def test_episodes_with_missing_values_are_refused():
    """Even if another episode has too many values."""
    columns = {"a": np.arange(3), "b": np.arange(3)}
    features = tf_features.FeaturesDict(
        {
            "steps": tf_features.Dataset(dict.fromkeys(columns, np.int64)),
            "id": np.int64,
            "rows": EPISODE["rows"],
        }
    )
    fields = {"steps": columns, "id": np.int64(1), "rows": episode(1, 1)["rows"]}
    example = tf.train.Example.FromString(TfdsExampleEncoder(features).encode(fields))
    joined = JoinedEpisodes(features, ["a", "b"])
    fewer = tf.train.Example.FromString(example.SerializeToString())
    fewer.features.feature["steps/b"].int64_list.value.pop()
    more = tf.train.Example.FromString(example.SerializeToString())
    more.features.feature["steps/b"].int64_list.value.append(1)
    with pytest.raises(ValueError, match=r"steps/b: got \[2. 4.\] rows, expected \[3. 3.\]"):
        joined.decode([fewer.SerializeToString(), more.SerializeToString()])
    del example.features.feature["id"]
    with pytest.raises(ValueError, match=r"id: got \[0.\] rows, expected \[1.\]"):
        joined.decode([example.SerializeToString()])
    example.features.feature["id"].int64_list.value.append(1)
    for name in ("exact", "numbers"):
        damaged = tf.train.Example.FromString(example.SerializeToString())
        if name == "exact":
            damaged.features.feature["rows/exact"].bytes_list.value[0] += b"12345678"
        else:
            damaged.features.feature["rows/numbers"].int64_list.value.append(1)
        with pytest.raises((ValueError, tf.errors.OpError), match=f"rows/{name}|multiple"):
            joined.decode([damaged.SerializeToString(), damaged.SerializeToString()])
