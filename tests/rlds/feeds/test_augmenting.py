"""Random augmentations of images equal those of TensorFlow for the same draws."""

import numpy as np
import pytest

from rlds.feeds import RowRandom
from rlds.feeds.augmenting import augment, augment_batch

DRAWS = np.array([[0.0, 0.5, 0.3, 0.6], [1.0, 0.2, 0.9, 0.1], [0.7, 0.9, 0.0, 1.0]])


def draw_image(rng, *leading):
    image = rng.integers(0, 256, (*leading, 12, 16, 3)).astype(np.uint8)
    image[..., :3, :, :] = image[..., :3, :, :1]  # Grey pixels have no hue.
    return image


@pytest.mark.parametrize("draws", DRAWS)
def test_augmentations_equal_those_of_tensorflow(draws):
    tf = pytest.importorskip("tensorflow")
    image = draw_image(np.random.default_rng(0))
    exact = tf.image.convert_image_dtype(image, tf.float32)

    def between(low, high, index=0):
        return low + (high - low) * draws[index]

    scale, ratio = between(0.5, 0.9), np.exp(between(np.log(0.8), np.log(1.2), 1))
    height, width = min(np.sqrt(scale / ratio), 1), min(np.sqrt(scale * ratio), 1)
    top, left = draws[2] * (1 - height), draws[3] * (1 - width)
    box = [[top, left, top + height, left + width]]
    expected = {
        "random_resized_crop": tf.image.crop_and_resize(exact[None], box, [0], (12, 16))[0],
        "random_brightness": exact + between(-0.2, 0.2),
        "random_contrast": tf.image.adjust_contrast(exact, between(0.5, 1.5)),
        "random_saturation": tf.image.adjust_saturation(exact, between(0.5, 1.5)),
        "random_hue": tf.image.adjust_hue(exact, between(-0.1, 0.1)),
        "random_flip_left_right": exact[:, ::-1] if draws[0] < 0.5 else exact,
        "random_flip_up_down": exact[::-1] if draws[0] < 0.5 else exact,
    }
    options = {
        "random_resized_crop": {"scale": [0.5, 0.9], "ratio": [0.8, 1.2]},
        "random_brightness": [0.2],
        "random_contrast": [0.5, 1.5],
        "random_saturation": {"lower": 0.5, "upper": 1.5},
        "random_hue": [0.1],
    }
    for name, values in expected.items():
        actual = augment(image, {**options, "augment_order": [name]}, draws[np.newaxis])
        values = tf.image.convert_image_dtype(tf.clip_by_value(values, 0, 1), tf.uint8, True)
        differences = np.abs(actual.astype(int) - values.numpy())
        assert differences.max() <= 1, name
        assert (differences > 0).mean() < 0.01, name


def test_images_of_a_row_change_alike_and_padding_stays():
    rng = np.random.default_rng(1)
    options = {"augment_order": ["random_rot90", "random_hue"], "random_hue": [0.2]}
    square = draw_image(rng, 2, 3)[..., :12, :]
    mask = np.array([[True, True, True], [False, False, False]])

    def augment_square():
        masks = {"image_a": mask, "image_b": mask}
        images = {"image_a": square.copy(), "image_b": square.copy()}
        batch = {"observation": {**images, "pad_mask_dict": masks}, "action": np.zeros(2)}
        batch["task"] = {"image_a": square[:, 0].copy(), "pad_mask_dict": {"image_a": mask[:, 0]}}
        return augment_batch({"a": options}, batch, RowRandom(np.array([7, 8]), 5))

    batch = augment_square()
    image = batch["observation"]["image_a"]
    assert (image[0] != square[0]).any()
    np.testing.assert_array_equal(image[1], square[1])
    np.testing.assert_array_equal(batch["observation"]["image_b"], square)
    # A goal is changed like the observation.
    np.testing.assert_array_equal(batch["task"]["image_a"][0], image[0, 0])
    np.testing.assert_array_equal(augment_square()["observation"]["image_a"], image)


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ({"augment_order": ["random_blur"]}, "'random_blur'; there are: random_res"),
        ({"augment_order": ["random_hue"]}, "random_hue: .*max_delta"),
        ({"random_hue": [0.1]}, "expected the option 'augment_order'"),
    ],
)
def test_wrong_options_are_refused(options, error):
    with pytest.raises(ValueError, match=error):
        augment(np.zeros((2, 2, 3), np.uint8), options, np.zeros((1, 4)))
