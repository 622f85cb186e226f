import numpy as np
import pytest
import raw_rlu
import tensorflow as tf

import rlds.sources

RluLocomotionSource = rlds.sources.formats()["rlu_locomotion"].load()


def read(directory, raw, **kwargs):
    raw_rlu.write_files(directory, "train", raw)
    source = RluLocomotionSource(directory, **kwargs)
    return source, [e for file in source.parts("train") for e in source.episodes("train", file)]


def test_cameras_become_images_without_loss(tmp_path):
    raw = raw_rlu.locomotion_episodes()
    source, episodes = read(tmp_path, raw)
    assert source.fields.steps["observation"]["walker"]["egocentric_camera"].shape == (64, 64, 3)
    for episode, expected in zip(episodes, raw, strict=True):
        walker = episode.steps["observation"]["walker"]
        camera = expected["observation/walker/egocentric_camera"]
        for t, image in enumerate(camera):
            decoded = tf.io.decode_png(walker["egocentric_camera"][t]).numpy()
            assert decoded.tobytes() == image
            position = expected["observation/walker/position"][t]
            assert walker["position"][t].tolist() == position.tolist()
        for t in range(len(camera) - 1):
            assert episode.steps["reward"][t] == expected["reward"][t + 1]


def test_the_camera_shape_is_an_option(tmp_path):
    raw = raw_rlu.locomotion_episodes(camera=(6, 5, 3))
    source, (first, _) = read(tmp_path, raw, camera_shape=(6, 5, 3))
    image = first.steps["observation"]["walker"]["egocentric_camera"][0]
    assert tf.io.decode_png(image).shape == (6, 5, 3)
    assert source.source_info.options == {"alignment": "rsa", "camera_shape": [6, 5, 3]}


def test_images_of_another_size_are_damage(tmp_path):
    raw = raw_rlu.locomotion_episodes()
    raw[1]["observation/walker/egocentric_camera"][2] = bytes(12)
    _, (_, damaged) = read(tmp_path, raw)
    assert "row 2" in str(damaged.error)
    assert "12 bytes, but a raw image of shape (64, 64, 3) has 12288" in str(damaged.error)


def test_cameras_in_png_files_are_kept_unchanged(tmp_path):
    raw = raw_rlu.locomotion_episodes((3,))
    name = "observation/walker/egocentric_camera"
    files = [
        tf.io.encode_png(np.frombuffer(image, np.uint8).reshape(64, 64, 3)).numpy()
        for image in raw[0][name]
    ]
    raw[0][name] = files
    _, (episode,) = read(tmp_path, raw)
    assert episode.steps["observation"]["walker"]["egocentric_camera"].tolist() == files


@pytest.mark.parametrize("order", ["rsa", "sar"])
def test_the_source_uses_the_alignment_option(tmp_path, order):
    raw = raw_rlu.locomotion_episodes((4,))
    raw[0]["reward"][:] = 0.0
    source, _ = read(tmp_path, raw, alignment=order)
    assert source.alignment == order
