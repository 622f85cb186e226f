import numpy as np
import pytest
import raw_rlu
import tensorflow as tf

import rlds.sources
from rlds.sources import SourceError
from tfds_builders import convert

RluLocomotionWindowsSource = rlds.sources.formats()["rlu_locomotion_windows"].load()

CAMERA = "observation/walker/egocentric_camera"
SHAPE = (6, 5, 3)


def read(directory, raw):
    raw_rlu.write_files(directory, "train", raw, num_files=1)
    source = RluLocomotionWindowsSource(directory, camera_shape=SHAPE)
    return [e for file in source.parts("train") for e in source.episodes("train", file)]


@pytest.mark.parametrize("in_one", [True, False])
def test_a_camera_may_have_all_rows_in_one_string(tmp_path, in_one):
    raw = raw_rlu.locomotion_windows(camera=SHAPE, in_one=in_one)
    for episode, expected in zip(read(tmp_path, raw), raw, strict=True):
        images = episode.steps["observation"]["walker"]["egocentric_camera"]
        assert len(images) == 2
        decoded = b"".join(tf.io.decode_png(image).numpy().tobytes() for image in images)
        assert decoded == b"".join(expected[CAMERA])


def test_windows_of_short_episodes_are_shorter(tmp_path):
    raw = raw_rlu.locomotion_windows((7, 3, 5), 4, camera=SHAPE)
    episodes = read(tmp_path, raw)
    assert sorted(episode.num_steps for episode in episodes) == [3, 4, 4, 4, 4, 4, 4]
    (short,) = (episode for episode in episodes if episode.num_steps == 3)
    assert short.complete


@pytest.mark.parametrize(
    ("images", "message"),
    [
        ([bytes(181)], "one string of 181 bytes, expected 180: 2 raw images of shape (6, 5, 3)"),
        ([bytes(90), bytes(89)], "row 1"),
        ([bytes(90)] * 3, "3 values, expected 1 for each of 2 rows"),
        ([], "0 values, expected 1 for each of 2 rows"),
    ],
    ids=["too long", "one too short", "too many", "none"],
)
def test_images_of_wrong_sizes_are_damage(tmp_path, images, message):
    raw = raw_rlu.locomotion_windows(camera=SHAPE)
    raw[1] = {**raw[1], CAMERA: images}
    _, damaged, *intact = read(tmp_path, raw)
    assert f"field '{CAMERA}': " in str(damaged.error)
    assert message in str(damaged.error)
    assert len(intact) == len(raw) - 2


def test_images_of_another_shape_are_an_error_of_the_source(tmp_path):
    raw_rlu.write_files(tmp_path, "train", raw_rlu.locomotion_windows(camera=SHAPE))
    with pytest.raises(SourceError, match=r"one string of 180 bytes, .* 2 raw .* \(64, 64, 3\)"):
        RluLocomotionWindowsSource(tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("in_one", [True, False])
def test_steps_equal_those_of_the_published_loader(tmp_path, in_one):
    raw = raw_rlu.locomotion_windows((6, 3), 4, camera=SHAPE, in_one=in_one)
    files = raw_rlu.write_files(tmp_path / "raw", "train", raw)
    builder = convert(
        RluLocomotionWindowsSource(tmp_path / "raw", camera_shape=SHAPE),
        name="made",
        data_dir=tmp_path,
        shuffle=False,
    )
    shapes = {"observation/walker/position": (3,), "action": (2,), "reward": (), "discount": ()}
    description = {
        name: tf.io.FixedLenSequenceFeature(shape, tf.float32, allow_missing=True)
        for name, shape in shapes.items()
    }
    description[CAMERA] = tf.io.FixedLenSequenceFeature([], tf.string, allow_missing=True)
    records = tf.data.TFRecordDataset([str(file) for file in files], "GZIP")
    for episode, record in zip(list(builder.as_dataset("train")), records, strict=True):
        expected = tf.io.parse_single_example(record, description)
        images = tf.reshape(tf.io.decode_raw(expected[CAMERA], tf.uint8), (-1, *SHAPE))
        steps = list(episode["steps"])
        for t, step in enumerate(steps):
            walker = step["observation"]["walker"]
            np.testing.assert_array_equal(walker["egocentric_camera"], images[t])
            np.testing.assert_array_equal(
                walker["position"], expected["observation/walker/position"][t]
            )
            transition = step if t < len(steps) - 1 else episode["placeholders"]
            for name in ("action", "reward", "discount"):
                np.testing.assert_array_equal(transition[name], expected[name][t])
