"""Pictures of environments as image files."""

import io

import numpy as np
import pytest
from PIL import Image

from rlds_creator.worker.pictures import QUALITIES, PictureError, as_rgb, encode_picture

RANDOM = np.random.default_rng(0)
GREY = RANDOM.integers(0, 256, (6, 8), np.uint8)
COLOURED = RANDOM.integers(0, 256, (6, 8, 3), np.uint8)


@pytest.mark.parametrize(
    ("array", "expected"),
    [
        (COLOURED, COLOURED),
        (COLOURED[::-1, ::2], COLOURED[::-1, ::2]),
        (COLOURED.transpose(2, 0, 1), COLOURED),
        (np.dstack([COLOURED, GREY]), COLOURED),
        (GREY, np.dstack([GREY] * 3)),
        (GREY[None], np.dstack([GREY] * 3)),
        (GREY[:, :, None], np.dstack([GREY] * 3)),
        (COLOURED.astype(np.int64), COLOURED),
        (COLOURED.astype(np.float32), COLOURED),
        (COLOURED / 255.0, COLOURED),
        (GREY > 99, np.dstack([np.uint8(255) * (GREY > 99)] * 3)),
        (np.zeros((3, 3, 3)), np.zeros((3, 3, 3), np.uint8)),
    ],
)
def test_arrays_of_usual_layouts_become_rgb(array, expected):
    picture = as_rgb(array)
    assert picture.dtype == np.uint8
    assert picture.flags.c_contiguous
    np.testing.assert_array_equal(picture, expected)


def test_arrays_that_are_no_picture_are_refused():
    no_numbers = [np.full((5, 5), "x"), np.full((5, 5), 1j), None, [[1, 2], [3, 4]]]
    no_shapes = [np.zeros(shape, np.uint8) for shape in ((0, 0, 3), (5, 5, 2), (5,), (2, 5, 5, 3))]
    too_large = np.broadcast_to(np.uint8(1), (100_000, 100_000, 3))
    no_brightness = [np.full((5, 5, 3), value) for value in (np.nan, -1, 256.0)]
    for array in (*no_numbers, *no_shapes, too_large, *no_brightness):
        with pytest.raises(PictureError):
            as_rgb(array)


def decode(file):
    return np.asarray(Image.open(io.BytesIO(file)).convert("RGB"))


def test_drawings_are_lossless_webp():
    drawing = np.zeros((210, 160, 3), np.uint8)
    drawing[50:70, 20:90] = (200, 10, 10)
    for _ in range(3):
        file, codec = encode_picture(drawing, "medium")
        assert codec == "webp"
        np.testing.assert_array_equal(decode(file), drawing)
        drawing[50:70, 20:90] += 1


def test_photos_are_jpeg_of_the_requested_quality():
    noise = RANDOM.integers(0, 256, (10, 16, 3), np.uint8)
    photo = np.asarray(Image.fromarray(noise).resize((200, 120), Image.Resampling.BICUBIC))
    sizes, errors = {}, {}
    for quality in QUALITIES:
        file, codec = encode_picture(photo, quality)
        assert codec == "jpeg"
        sizes[quality] = len(file)
        errors[quality] = np.abs(decode(file).astype(int) - photo).mean()
    assert sizes["low"] < sizes["medium"] < sizes["high"]
    assert errors["high"] < errors["medium"] < errors["low"] < 8


def test_large_pictures_are_jpeg_and_may_change_their_size():
    for size in (255, 300, 256):
        file, codec = encode_picture(np.zeros((size, size, 3), np.uint8), "medium")
        assert codec == ("jpeg" if size > 256 else "webp")
        assert decode(file).shape == (size, size, 3)
